//! Ends the process when a file changes that it reads only at its start.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::runtime::{jitter::jittered, shutdown::Shutdown};

/// Time between two reads of the file.
const INTERVAL: Duration = Duration::from_secs(5);
/// The longest time after a change. Several replicas see it at once, and must not all be absent at the same time.
const SPREAD: Duration = Duration::from_secs(5);

/// A file and its content at the start.
#[derive(Debug)]
pub(crate) struct ReadFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl ReadFile {
    /// The file with its present content. An unreadable one counts as empty.
    pub(crate) fn new(path: PathBuf) -> Self {
        let content = std::fs::read(&path).unwrap_or_default();
        Self { path, content }
    }

    /// Sends this process SIGTERM after the content has changed. The process then ends as if a user had stopped it, and its
    /// Deployment starts it with the new content.
    pub(crate) async fn end_on_change(self, shutdown: Shutdown) {
        tokio::select! {
            () = self.changed() => {
                info!(file = %self.path.display(), "The kubeconfig has changed: ending, to start again with the new one");
                let sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
                if let Err(error) = sent {
                    warn!(%error, "Cannot end: restart the operator by hand");
                }
            }
            () = shutdown.clone().requested() => {}
        }
        shutdown.requested().await;
    }

    /// Waits until the file has another content. A missing or an empty file is no change: a tool may be writing it.
    async fn changed(&self) {
        loop {
            sleep(INTERVAL).await;
            let content = tokio::fs::read(&self.path).await.unwrap_or_default();
            if !content.is_empty() && content != self.content {
                return sleep(jittered(SPREAD)).await;
            }
        }
    }
}

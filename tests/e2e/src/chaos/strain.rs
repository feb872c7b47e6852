//! Faults that end no server: pauses, a disk that stalls, and a client that holds all connections.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

use super::{
    apply::{Applied, Pod, Undo},
    process,
    world::World,
};
use crate::members::{Server, writer::connect};

/// How long a client opens sessions.
const OPENS: Duration = Duration::from_secs(10);

impl World<'_> {
    /// Stops the processes of all servers.
    pub(super) async fn pause_all(&self) -> Result<Applied> {
        let mut paused = Vec::new();
        for server in self.servers().await? {
            if process::pause(&server.uid).await.is_ok() {
                paused.push(Pod::from(&server));
            }
        }
        ensure!(!paused.is_empty(), "no server has a process now");
        Ok(Applied::new(format!("{} servers", paused.len()), Some(Undo::ResumeAll(paused))))
    }

    /// Stalls the disk of a server, also for a process that has started since the last call.
    pub(super) async fn stall(&self, pod: &Pod) -> Result<()> {
        let log = self.members.federation.folder.join("strace.log");
        let mut stalled = self.stalled.lock().await;
        process::stall(&pod.uid, &mut stalled, &log).await
    }

    /// Opens sessions with a server until it accepts no more, and holds them.
    pub(super) async fn use_up_connections(&self, server: &Server) -> Result<Applied> {
        let address = format!("{}:2181", server.address.as_ref().context("the server has no address")?);
        let (end, mut held) = (Instant::now() + OPENS, self.sessions.lock().await);
        while Instant::now() < end {
            let Ok(session) = connect(&address).await else { break };
            held.push(session);
        }
        ensure!(!held.is_empty(), "the server accepts no session now");
        Ok(Applied::new(format!("{server}: {} sessions", held.len()), Some(Undo::Connections)))
    }
}

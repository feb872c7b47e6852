//! The loop of the parent process: start `ZooKeeper`, watch it, and start it again.

use std::fs::File;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tracing::{info, warn};

use crate::{
    output::{Unreadable, unreadable},
    process::Running,
    supervisor::{DECIDE_INTERVAL, Supervisor},
    watch::{HANGS, LONG_RUN},
};
use mczk_rules::server::zoo_cfg::mentioned_settings;
use mczk_runtime::shutdown::Shutdown;

/// Time for which the process stays after `ZooKeeper` stopped with the pod. The pod's network stays as long, so callers are
/// refused at once. An address without a pod would let them wait for seconds, even in an election.
///
/// Longer than the 5 s after which `kubectl drain` repeats an eviction: one of them meets the terminating pod, which the API
/// server evicts without asking the budget. Otherwise `kubectl drain` would go on with the next pod of that name.
const STAY: Duration = Duration::from_secs(6);
/// First pause before the next start. The others have elected a leader by then.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Pauses between failing starts, each twice as long as the last one.
struct Backoff(Duration);

impl Backoff {
    async fn pause(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

impl Supervisor {
    /// Runs until shutdown and until `ZooKeeper` has exited.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        let mut backoff = Backoff(FIRST_PAUSE);
        let Some(_lock) = (tokio::select! { () = &mut shutdown => None, lock = self.lock_volume() => Some(lock) })
        else {
            return;
        };
        loop {
            let launched = tokio::select! {
                () = &mut shutdown => return,
                launched = self.launch() => launched,
            };
            let mut running = match launched {
                Ok(Some(running)) => running,
                Ok(None) => {
                    tokio::select! { () = &mut shutdown => return, () = sleep(DECIDE_INTERVAL) => continue }
                }
                Err(error) => {
                    self.record_failure(format!("{error:#}"));
                    tokio::select! { () = &mut shutdown => return, () = backoff.pause() => continue }
                }
            };
            let (started, output) = (Instant::now(), running.output());
            tokio::select! {
                exited = running.exited() => {
                    if started.elapsed() > LONG_RUN {
                        self.change_state(|state| state.failing_since = None);
                        backoff = Backoff(FIRST_PAUSE);
                    }
                    self.record_exit(&mut running, exited).await;
                    tokio::select! { () = &mut shutdown => return, () = backoff.pause() => {} }
                }
                reason = self.watch(started, output) => {
                    warn!(reason, "stopping ZooKeeper to start it again");
                    // No time limit: two processes must never share the volume.
                    tokio::select! {
                        () = self.end_because(reason, &mut running) => {}
                        () = &mut shutdown => {
                            self.end(&mut running).await;
                            return;
                        }
                    }
                    if reason == HANGS {
                        tokio::select! { () = &mut shutdown => return, () = backoff.pause() => {} }
                    }
                }
                () = &mut shutdown => {
                    info!("stopping ZooKeeper");
                    self.end(&mut running).await;
                    sleep(STAY).await;
                    return;
                }
            }
        }
    }

    /// Waits until no other process uses the volume.
    async fn lock_volume(&self) -> File {
        loop {
            match self.volume.lock() {
                Ok(Some(lock)) => return lock,
                Ok(None) => self.record_wait(
                    "another process uses the volume: a pod that its node has not stopped yet, or a pod with the same \
                     claim. Stop the other pod"
                        .to_owned(),
                ),
                Err(error) => self.record_failure(format!("the volume cannot be locked: {error}")),
            }
            sleep(DECIDE_INTERVAL).await;
        }
    }

    /// Ends a process. If it hangs, the report says so before it has exited: on a dead disk it never does.
    async fn end_because(&self, reason: &str, running: &mut Running) {
        self.change_state(|state| state.sessions = None);
        if reason == HANGS && running.stop().await.is_ok() {
            self.record_failure(HANGS.to_owned());
        }
        self.end(running).await;
    }

    async fn end(&self, running: &mut Running) {
        self.change_state(|state| state.sessions = None);
        if let Err(error) = running.end().await {
            warn!(%error, "cannot end ZooKeeper");
        }
    }

    /// Why `ZooKeeper` cannot read the files on the volume, by its last lines.
    pub(super) fn unreadable(&self, lines: &str) -> Option<Unreadable> {
        let lengths =
            |folder| Some(std::fs::read_dir(folder).ok()?.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())));
        let longest = lengths(self.volume.transactions_folder()).and_then(Iterator::max);
        // A volume that cannot be looked at must not count as damaged.
        unreadable(lines, longest.unwrap_or(u64::MAX))
    }

    async fn record_exit(&self, running: &mut Running, exited: std::io::Result<ExitStatus>) {
        let status = exited.map_or_else(|error| error.to_string(), |status| status.to_string());
        let lines = running.last_lines();
        warn!(status, "ZooKeeper exited");
        let unreadable = self.unreadable(&lines);
        self.change_state(|state| state.corrupt = unreadable == Some(Unreadable::Damaged));
        if let Some(Unreadable::TooLong(bytes)) = unreadable {
            self.record_failure(format!(
                "a record on the volume has {bytes} bytes, and ZooKeeper reads none that long: keep the volume, and set \
                 jute.maxbuffer in template.zooCfg to {bytes} or more, or back to its former value"
            ));
            return;
        }
        let settings = self.assigned_config().await.map(|config| config.server.zoo_cfg).unwrap_or_default();
        let hint = mentioned_settings(&settings, &lines).map_or_else(String::new, |names| format!("; check {names}"));
        self.record_failure(format!("ZooKeeper exited: {status}{hint}; its last lines:\n{lines}"));
    }
}

//! The process of a service: its signals, its tasks, and the order in which they end.

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use anyhow::{Context, anyhow};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::{Id, JoinError, JoinSet},
    time::{sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    dual_stack,
    shutdown::{self, Shutdown, Trigger},
};

/// Time in which [`Process::spawn_last`] tasks end. They serve probes and the like, and end their own connections earlier.
const LAST_TASKS_END: Duration = Duration::from_secs(5);

/// An address on which the process cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}: choose another address with {flag}")]
pub struct CannotListen {
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

/// Listens on an address that a flag names; on IPv6 and IPv4 if it is `[::]`.
///
/// # Errors
/// If the address is in use, or not of this machine.
pub fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, CannotListen> {
    dual_stack::bind(address).map_err(|source| CannotListen { flag, address, source })
}

/// The process of a service.
///
/// A task that ends before a signal, or panics, ends the process: it would otherwise seem alive without the task.
pub struct Process {
    signals: Signals,
    tasks: Tasks,
    trigger: Trigger,
    shutdown: Shutdown,
    last: Tasks,
    last_trigger: Trigger,
    last_shutdown: Shutdown,
}

/// What happens between the signal and the end of the process.
pub struct ProcessEnding<F> {
    /// Called on the signal.
    pub begin: F,
    /// Time between the signal and the request to shut down.
    pub delay: Duration,
    /// Time in which the tasks end after the request. Without it the process waits for them as long as they take, and
    /// ignores further signals. With it a second signal ends the process at once, as a failure.
    pub limit: Option<Duration>,
}

impl Process {
    /// Begins to listen to SIGTERM and SIGINT.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> anyhow::Result<Self> {
        let signals = Signals::new()?;
        let (trigger, shutdown) = shutdown::channel();
        let (last_trigger, last_shutdown) = shutdown::channel();
        let (tasks, last) = Default::default();
        Ok(Self { signals, tasks, trigger, shutdown, last, last_trigger, last_shutdown })
    }

    /// Requested after the signal and the delay.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Requested after the tasks have ended.
    #[must_use]
    pub fn last_shutdown(&self) -> Shutdown {
        self.last_shutdown.clone()
    }

    /// Starts a task that ends on [`Process::shutdown`].
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.tasks.spawn(name, task);
    }

    /// Starts a task that ends on [`Process::last_shutdown`], such as the probes.
    pub fn spawn_last(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.last.spawn(name, async {
            task.await;
            Ok(())
        });
    }

    /// The output of a future, or `None` if a signal came first.
    ///
    /// # Errors
    /// If a task ended.
    pub async fn unless_signalled<T>(&mut self, future: impl Future<Output = T>) -> anyhow::Result<Option<T>> {
        tokio::select! {
            output = future => Ok(Some(output)),
            error = ended_early(&mut self.tasks, &mut self.last) => Err(error),
            () = self.signals.next() => Ok(None),
        }
    }

    /// Runs until a signal came and all tasks have ended.
    ///
    /// # Errors
    /// If a task ended before the signal or failed, or a second signal came.
    pub async fn run(mut self, ending: ProcessEnding<impl FnOnce()>) -> anyhow::Result<()> {
        self.until_shutdown(ending.begin, ending.delay, ending.limit.is_some()).await?;
        self.trigger.request_shutdown();
        let ended = match ending.limit {
            None => self.tasks.all().await,
            Some(limit) => tokio::select! {
                ended = timeout(limit, self.tasks.all()) => ended.unwrap_or_else(|_| {
                    warn!("Not every task ended in time");
                    Ok(())
                }),
                () = self.signals.next() => return Err(second_signal()),
            },
        };
        self.last_trigger.request_shutdown();
        let last = timeout(LAST_TASKS_END, self.last.all()).await.unwrap_or(Ok(()));
        ended.and(last)
    }

    /// Waits for the signal and the delay after it.
    async fn until_shutdown(&mut self, begin: impl FnOnce(), delay: Duration, obey_second: bool) -> anyhow::Result<()> {
        tokio::select! {
            error = ended_early(&mut self.tasks, &mut self.last) => return Err(error),
            () = self.signals.next() => {}
        }
        info!(delay_seconds = delay.as_secs(), "Shutting down");
        begin();
        let second = async { if obey_second { self.signals.next().await } else { std::future::pending().await } };
        tokio::select! {
            biased;
            () = sleep(delay) => Ok(()),
            error = ended_early(&mut self.tasks, &mut self.last) => Err(error),
            () = second => Err(second_signal()),
        }
    }
}

fn second_signal() -> anyhow::Error {
    anyhow!("a second signal came: ended at once")
}

async fn ended_early(tasks: &mut Tasks, last: &mut Tasks) -> anyhow::Error {
    let (name, result) = tokio::select! {
        ended = tasks.next() => ended,
        ended = last.next() => ended,
    };
    result.err().unwrap_or_else(|| anyhow!("{name} ended without a request, which is a defect"))
}

/// Runs a service until it has ended. False if it has not ended in its time after the request to shut down.
pub async fn ends_in_time(service: impl Future<Output = ()>, shutdown: Shutdown, limit: Duration) -> bool {
    let over = async {
        shutdown.requested().await;
        sleep(limit).await;
    };
    tokio::select! {
        () = service => true,
        () = over => false,
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Tasks with names.
#[derive(Default)]
struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// The next task that ends, and its result. Waits forever if there is no task.
    async fn next(&mut self) -> (&'static str, anyhow::Result<()>) {
        let Some(ended) = self.set.join_next_with_id().await else { return std::future::pending().await };
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(panicked(&error))),
        };
        let name = self.names.remove(&id).unwrap_or("a task");
        (name, result.with_context(|| name.to_owned()))
    }

    /// Waits until all tasks have ended. The result is that of the first task that failed.
    async fn all(&mut self) -> anyhow::Result<()> {
        let mut first = Ok(());
        while !self.set.is_empty() {
            let (name, result) = self.next().await;
            info!(task = name, "Task ended");
            first = first.and(result);
        }
        first
    }
}

fn panicked(error: &JoinError) -> anyhow::Error {
    if error.is_panic() { anyhow!("it panicked, which is a defect") } else { anyhow!("it was cancelled") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("the webhook", async { panic!("no") });
        let (name, result) = tasks.next().await;
        assert_eq!(name, "the webhook");
        assert_eq!(format!("{:#}", result.unwrap_err()), "the webhook: it panicked, which is a defect");
    }

    #[tokio::test]
    async fn a_task_that_ends_before_a_signal_ends_the_process() {
        for last in [false, true] {
            let mut process = Process::new().unwrap();
            if last {
                process.spawn_last("the probes", async {});
            } else {
                process.spawn("the probes", async { Ok(()) });
            }
            let ending = ProcessEnding { begin: || panic!("no signal came"), delay: Duration::ZERO, limit: None };
            let error = process.run(ending).await.unwrap_err();
            assert_eq!(error.to_string(), "the probes ended without a request, which is a defect");
        }
    }
}

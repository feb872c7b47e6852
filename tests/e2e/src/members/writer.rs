//! A client that writes all the time and records which writes are acknowledged.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::Pods;

/// The parent znode in stories. Each write creates one child.
pub const FOLDER: &str = "/written";
/// The first time between two writes: often enough to measure pauses, and seldom enough to list all writes in one answer.
const BETWEEN: Duration = Duration::from_millis(20);
/// A write without an answer in this time is tried again in a new session.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time until a new client has written. A process in Java starts slowly on a busy machine.
const START: Duration = Duration::from_secs(240);
/// The longest time without an acknowledged write.
const ANSWER: Duration = Duration::from_secs(60);
/// The shortest pause that is reported.
const PAUSE: Duration = Duration::from_millis(500);

/// The writes of a period.
#[derive(Clone, Debug)]
pub struct Written {
    /// Numbers of the acknowledged writes.
    pub acknowledged: BTreeSet<u64>,
    /// Number of writes without an answer or with an error, which were tried again.
    pub failed: u64,
    /// Pauses of half a second and more between two acknowledged writes: start and duration.
    pub pauses: Vec<(Duration, Duration)>,
    /// The longest time between two acknowledged writes.
    pub longest: Duration,
    /// Start of the period.
    pub begun: Instant,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            acknowledged: BTreeSet::new(),
            failed: 0,
            pauses: Vec::new(),
            longest: Duration::ZERO,
            begun: Instant::now(),
        }
    }
}

impl Written {
    /// Records an acknowledged write; `last` is the time of the one before it.
    pub(super) fn acknowledge(&mut self, number: u64, last: &mut Option<Instant>) {
        let pause = last.map_or(Duration::ZERO, |last| last.elapsed());
        self.longest = self.longest.max(pause);
        if pause >= PAUSE {
            self.pauses.push((self.begun.elapsed().saturating_sub(pause), pause));
        }
        *last = Some(Instant::now());
        self.acknowledged.insert(number);
    }
}

/// A client that writes all the time.
pub struct Writer {
    stop: watch::Sender<bool>,
    count: watch::Receiver<u64>,
    pace: watch::Sender<Duration>,
    lap: Arc<Mutex<Written>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts to write below a znode; returns when the first write is acknowledged.
    ///
    /// # Errors
    /// If no write is acknowledged in time.
    pub async fn start(pods: Pods, folder: &str) -> Result<Self> {
        let folder = folder.to_owned();
        let (pace, paced) = watch::channel(BETWEEN);
        let task = |lap, stopped, counted| tokio::spawn(write(pods, folder, lap, (stopped, paced), counted));
        Ok(Self { pace, ..Self::start_with(task).await? })
    }

    /// Changes the time between two writes of the client that [`Writer::start`] started.
    pub(super) fn pace(&self, between: Duration) {
        self.pace.send_replace(between);
    }

    /// Starts any client that counts its writes.
    pub(super) async fn start_with(
        task: impl FnOnce(Arc<Mutex<Written>>, watch::Receiver<bool>, watch::Sender<u64>) -> JoinHandle<()>,
    ) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (counted, count) = watch::channel(0);
        let lap = Arc::<Mutex<Written>>::default();
        let task = task(lap.clone(), stopped, counted);
        let mut writer = Self { stop, count, pace: watch::channel(BETWEEN).0, lap, task };
        writer.next(1, START).await?;
        Ok(writer)
    }

    /// Waits for further acknowledged writes.
    ///
    /// # Errors
    /// If they are not acknowledged in time.
    pub(super) async fn next(&mut self, number: u64, patience: Duration) -> Result<()> {
        let enough = *self.count.borrow() + number;
        let counted = timeout(patience, self.count.wait_for(|count| *count >= enough)).await;
        ensure!(matches!(counted, Ok(Ok(_))), "no write was acknowledged in {} s", patience.as_secs());
        Ok(())
    }

    /// Ends the period and returns its writes. A pause belongs to the period in which it ends, so this waits for a write that
    /// begins now.
    ///
    /// # Errors
    /// If no further write is acknowledged in time.
    pub async fn lap(&mut self) -> Result<Written> {
        self.next(2, ANSWER).await?;
        Ok(std::mem::take(&mut *self.lap.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Stops the client and returns the writes of the last period.
    ///
    /// # Errors
    /// If its task failed.
    pub async fn stop(self) -> Result<Written> {
        self.stop.send_replace(true);
        self.task.await.context("the writer")?;
        Ok(std::mem::take(&mut *self.lap.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

async fn write(
    pods: Pods,
    folder: String,
    lap: Arc<Mutex<Written>>,
    (stopped, pace): (watch::Receiver<bool>, watch::Receiver<Duration>),
    counted: watch::Sender<u64>,
) {
    let (mut number, mut client, mut last) = (0, None, None::<Instant>);
    while !*stopped.borrow() {
        let Some(session) = &client else {
            client = session(&pods).await.ok();
            if client.is_none() {
                tokio::time::sleep(BETWEEN).await;
            }
            continue;
        };
        let put = timeout(PATIENCE, put(session, &folder, number)).await;
        {
            let mut lap = lap.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Ok(())) = put {
                lap.acknowledge(number, &mut last);
                number += 1;
            } else {
                // The write may or may not have succeeded: the same number is written again, in another session.
                lap.failed += 1;
                client = None;
            }
        }
        counted.send_replace(number);
        let between = *pace.borrow();
        tokio::time::sleep(between).await;
    }
}

/// A session with any server. Addresses are read again, since a recreated pod has another one.
async fn session(pods: &Pods) -> Result<Client> {
    let addresses = pods.addresses().await?;
    ensure!(!addresses.is_empty(), "no server has an address");
    connect(&addresses.join(",")).await
}

/// A session with one of these servers.
///
/// # Errors
/// If none answers in time.
pub async fn connect(addresses: &str) -> Result<Client> {
    let connector =
        Client::connector().with_session_timeout(Duration::from_secs(10)).with_fail_eagerly().connect(addresses);
    Ok(timeout(PATIENCE * 2, connector).await.context("no session in time")??)
}

async fn put(client: &Client, folder: &str, number: u64) -> Result<(), Error> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let path = format!("{folder}/{number}");
    loop {
        match client.create(&path, number.to_string().as_bytes(), &options).await {
            // It exists if the answer to an earlier attempt was lost.
            Ok(_) | Err(Error::NodeExists) => return Ok(()),
            Err(Error::NoNode) => match client.create(folder, b"", &options).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

/// The numbers that one server does not hold, after a `sync`.
///
/// # Errors
/// If the server does not answer.
pub async fn missing(address: &str, acknowledged: &BTreeSet<u64>) -> Result<Vec<u64>> {
    Ok(acknowledged.difference(&held(address, FOLDER).await?).copied().collect())
}

/// The numbers below a znode that one server holds, after a `sync`.
///
/// # Errors
/// If the server does not answer.
pub async fn held(address: &str, folder: &str) -> Result<BTreeSet<u64>> {
    Ok(children(address, folder).await?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The children of a znode at one server, after a `sync`.
///
/// # Errors
/// If the server does not answer.
pub async fn children(address: &str, folder: &str) -> Result<BTreeSet<String>> {
    let client = connect(address).await.with_context(|| address.to_owned())?;
    let read = async {
        client.sync(folder).await?;
        client.list_children(folder).await
    };
    let children = timeout(Duration::from_secs(20), read).await.with_context(|| address.to_owned())??;
    Ok(children.into_iter().collect())
}

/// Checks that a server serves a session and reaches the leader.
///
/// # Errors
/// If it does not.
pub async fn serves(address: &str) -> Result<()> {
    let client = connect(address).await.with_context(|| address.to_owned())?;
    timeout(PATIENCE, client.sync("/")).await.with_context(|| address.to_owned())??;
    Ok(())
}

/// Checks that a server acknowledges no write for some time; returns the number of attempts.
///
/// # Errors
/// If it acknowledges a write.
pub async fn acknowledges_nothing(address: &str, time: Duration) -> Result<u32> {
    let end = Instant::now() + time;
    let mut tried = 0;
    while Instant::now() < end {
        tried += 1;
        // The writer never reaches these numbers.
        let number = u64::MAX - u64::from(tried);
        let written = async { anyhow::Ok(put(&connect(address).await?, FOLDER, number).await?) };
        ensure!(!matches!(timeout(PATIENCE, written).await, Ok(Ok(()))), "{address} acknowledged a write");
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(tried)
}

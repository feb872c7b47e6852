//! A client that writes without pause and remembers what was acknowledged.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::Pods;

/// The znode below which everything is written, one znode a write.
const FOLDER: &str = "/written";
/// Between two writes: enough of them to see a pause, few enough to read them all in one answer.
const BETWEEN: Duration = Duration::from_millis(20);
/// A write that is not answered in this time is tried again in a new session, as an impatient client does.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pause that is told.
const PAUSE: Duration = Duration::from_millis(500);

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The numbers that were acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Writes that were not answered, or by an error, and were tried again.
    pub failed: u64,
    /// Pauses of half a second and more between two acknowledged writes: after which time, and how long.
    pub pauses: Vec<(Duration, Duration)>,
    /// The longest time between two acknowledged writes.
    pub longest: Duration,
    /// From the first to the last.
    pub lasted: Duration,
}

/// A client that writes.
pub struct Writer {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<Written>>,
}

impl Writer {
    /// Begins to write numbers from `first` on; returns when the first one is acknowledged.
    ///
    /// # Errors
    /// If none is.
    pub async fn start(pods: Pods, first: u64) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (answered, mut answer) = watch::channel(false);
        let task = tokio::spawn(write(pods, first, stopped, answered));
        let writer = Self { stop, task };
        let first = timeout(Duration::from_secs(60), answer.wait_for(|answered| *answered)).await;
        ensure!(matches!(first, Ok(Ok(_))), "no write is acknowledged in 60 s");
        Ok(writer)
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it failed.
    pub async fn stop(self) -> Result<Written> {
        self.stop.send_replace(true);
        self.task.await.context("the writer")?
    }
}

async fn write(
    pods: Pods,
    first: u64,
    stopped: watch::Receiver<bool>,
    answered: watch::Sender<bool>,
) -> Result<Written> {
    let mut written = Written::default();
    let (mut number, mut client) = (first, None);
    let (mut begun, mut last) = (None::<Instant>, Instant::now());
    while !*stopped.borrow() {
        let Some(session) = &client else {
            client = session(&pods).await.ok();
            if client.is_none() {
                tokio::time::sleep(BETWEEN).await;
            }
            continue;
        };
        let Ok(Ok(())) = timeout(PATIENCE, put(session, number)).await else {
            // Whether it was written nobody knows: the same number again, in another session.
            written.failed += 1;
            client = None;
            continue;
        };
        let start = *begun.get_or_insert_with(Instant::now);
        if written.acknowledged.is_empty() {
            answered.send_replace(true);
        } else {
            let pause = last.elapsed();
            written.longest = written.longest.max(pause);
            if pause >= PAUSE {
                written.pauses.push((start.elapsed().saturating_sub(pause), pause));
            }
        }
        last = Instant::now();
        written.lasted = start.elapsed();
        written.acknowledged.insert(number);
        number += 1;
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(written)
}

/// A session with any server: a pod that was made anew has another address.
async fn session(pods: &Pods) -> Result<Client> {
    let addresses = pods.addresses().await?;
    ensure!(!addresses.is_empty(), "there is no server");
    connect(&addresses.join(",")).await
}

async fn connect(addresses: &str) -> Result<Client> {
    let connector =
        Client::connector().with_session_timeout(Duration::from_secs(10)).with_fail_eagerly().connect(addresses);
    Ok(timeout(PATIENCE * 2, connector).await.context("no session in time")??)
}

async fn put(client: &Client, number: u64) -> Result<(), Error> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let path = format!("{FOLDER}/{number}");
    loop {
        match client.create(&path, number.to_string().as_bytes(), &options).await {
            // That it is there already is the answer to an attempt whose own answer was lost.
            Ok(_) | Err(Error::NodeExists) => return Ok(()),
            Err(Error::NoNode) => match client.create(FOLDER, b"", &options).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

/// That every server, asked by itself and after a `sync`, holds everything that was acknowledged. Returns how many servers
/// were asked.
///
/// # Errors
/// What is missing, and where.
pub async fn nothing_is_lost(pods: &Pods, acknowledged: &BTreeSet<u64>) -> Result<usize> {
    let addresses = pods.addresses().await?;
    for address in &addresses {
        let client = connect(address).await.with_context(|| address.clone())?;
        let read = async {
            client.sync(FOLDER).await?;
            client.list_children(FOLDER).await
        };
        let children = timeout(Duration::from_secs(20), read).await.with_context(|| address.clone())??;
        let held: BTreeSet<u64> = children.iter().filter_map(|name| name.parse().ok()).collect();
        let lost: Vec<u64> = acknowledged.difference(&held).copied().collect();
        ensure!(
            lost.is_empty(),
            "LOST: {} acknowledged writes are not at {address}: {:?} ...",
            lost.len(),
            lost.iter().take(10)
        );
    }
    Ok(addresses.len())
}

/// That a server acknowledges no write for some time, however often it is asked. Returns how often.
///
/// # Errors
/// If it acknowledges one.
pub async fn acknowledges_nothing(address: &str, time: Duration) -> Result<u32> {
    let end = Instant::now() + time;
    let mut tried = 0;
    while Instant::now() < end {
        tried += 1;
        // No writer comes so far.
        let number = u64::MAX - u64::from(tried);
        let written = async { anyhow::Ok(put(&connect(address).await?, number).await?) };
        ensure!(!matches!(timeout(PATIENCE, written).await, Ok(Ok(()))), "{address} acknowledged a write");
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(tried)
}

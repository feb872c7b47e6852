//! What must hold after each round.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt as _;
use mczk_api::contract::labels::REPLACE_VOLUME;
use tokio::time::{Instant, sleep};

use super::{
    moves::moved,
    play::Record,
    world::{Declared, NAME, World},
};
use crate::{
    members::{
        Pods, java,
        writer::{Writer, Written, held, serves},
    },
    patience::wait_for,
    scene::{conditions, is_settled},
};

/// The longest time until the ensemble is as declared, once all faults have ended. The steps of a new authority take minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// The same after the loss of a control plane: its ensemble also gets a new authority.
const AFTER_LOSS: Duration = Duration::from_secs(1200);
/// The time between two looks at the ensemble.
const PACE: Duration = Duration::from_secs(1);
/// The longest time of a list of all writes.
const LIST: Duration = Duration::from_secs(60);

/// A failed check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The ensemble does not become as declared.
    Stuck,
    /// A server does not hold an acknowledged write.
    Lost(usize),
    /// Two transactions have one number, or two servers differ.
    Forked,
    /// Voters moved to a spare without a request, and one of them followed.
    MovedUnasked,
    /// The histories of some registers are not linearizable.
    NotLinearizable(usize),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stuck => f.write_str("STUCK"),
            Self::Lost(number) => write!(f, "LOST: {number}"),
            Self::Forked => f.write_str("FORKED"),
            Self::MovedUnasked => f.write_str("MOVED UNASKED"),
            Self::NotLinearizable(number) => write!(f, "NOT LINEARIZABLE: {number}"),
        }
    }
}

/// The two clients of a round.
pub struct Writers {
    rust: Writer,
    java: Writer,
    round: usize,
}

/// What the clients of all rounds wrote, by folder.
pub type Acknowledged = BTreeMap<String, BTreeSet<u64>>;

impl Writers {
    /// Starts both, each with a folder of its own.
    ///
    /// # Errors
    /// If no write is acknowledged in time.
    pub async fn start(pods: &Pods, lib: &Path, round: usize) -> Result<Self> {
        let [rust, java] = Self::folders(round);
        let (rust, java) = tokio::join!(Writer::start(pods.clone(), &rust), java::start(pods.clone(), &java, lib));
        let (rust, java) = (rust.context("the client in Rust")?, java.context("the client in Java")?);
        Ok(Self { rust, java, round })
    }

    fn folders(round: usize) -> [String; 2] {
        [format!("/rust-{round}"), format!("/java-{round}")]
    }

    /// Stops both, and adds their writes to all.
    ///
    /// # Errors
    /// If a client failed.
    pub async fn stop(self, all: &mut Acknowledged) -> Result<[Written; 2]> {
        let (rust, java) = tokio::try_join!(self.rust.stop(), self.java.stop())?;
        for (folder, written) in Self::folders(self.round).into_iter().zip([&rust, &java]) {
            all.insert(folder, written.acknowledged.clone());
        }
        Ok([rust, java])
    }
}

impl World<'_> {
    /// Waits until the ensemble is as declared and every server serves. Records what is missing, if that changes.
    ///
    /// # Errors
    /// What is missing.
    pub async fn settle(&self, record: &Record) -> Result<()> {
        let (begun, mut last) = (Instant::now(), String::new());
        let patience = if self.has_lost_secrets.load(Ordering::Relaxed) { AFTER_LOSS } else { PATIENCE };
        loop {
            let Err(missing) = self.is_settled().await else { return Ok(()) };
            let text: String = format!("{missing:#}").chars().take(400).collect();
            if begun.elapsed() > patience {
                let late = anyhow::anyhow!("not as declared after {} s: {text}", patience.as_secs());
                return Err(late.context(Failure::Stuck));
            }
            if text != last {
                record.comment(&format!("{:5.1} s after the round: {text}", begun.elapsed().as_secs_f64()));
                last = text;
            }
            sleep(PACE).await;
        }
    }

    async fn is_settled(&self) -> Result<()> {
        let object = self.soon(self.scene.get(NAME)).await?;
        ensure!(is_settled(&object), "{}", conditions(&object));
        // The agent replaces the volume some seconds later, and the server returns under another id.
        let request = object.annotations().get(REPLACE_VOLUME).and_then(|request| request.split_once('/'));
        if let (Some((id, _)), Some(list)) = (request, object.status.as_ref().and_then(|s| s.ensemble.as_ref())) {
            ensure!(!list.voters.contains(&id.parse()?), "server {id} has the volume that the user wants replaced");
        }
        let Declared { voters, placement, .. } = self.declared().clone();
        let servers = self.pods().servers().await?;
        let ready = servers.iter().filter(|server| server.ready).count();
        ensure!(ready == voters && servers.len() == voters, "{ready} of {} servers are ready", servers.len());
        let used: BTreeSet<&String> = servers.iter().map(|server| &server.cluster).collect();
        let moved = moved(&object);
        let wanted: BTreeSet<&String> = placement.iter().map(|home| moved.get(home).copied().unwrap_or(home)).collect();
        ensure!(used.is_subset(&wanted), "servers run in {used:?}, and not in {wanted:?}");
        for address in self.pods().addresses().await? {
            serves(&address).await?;
        }
        if self.has_lost_secrets.load(Ordering::Relaxed) {
            self.delete_lost_secrets(&object).await?;
            self.has_lost_secrets.store(false, Ordering::Relaxed);
        }
        self.soon(self.scene.members_match(NAME)).await.map(drop)
    }

    /// Checks at every server that it holds all acknowledged writes, and what the others hold.
    ///
    /// # Errors
    /// Lost writes, or differences.
    pub async fn compare(&self, all: &Acknowledged) -> Result<()> {
        let addresses = self.pods().addresses().await?;
        for (folder, acknowledged) in all {
            let mut first: Option<BTreeSet<u64>> = None;
            for address in &addresses {
                let read = || held(address, folder);
                let held = wait_for("a server lists its writes", LIST, read).await.context(Failure::Stuck)?;
                let missing: Vec<&u64> = acknowledged.difference(&held).collect();
                if !missing.is_empty() {
                    let some: Vec<_> = missing.iter().take(10).collect();
                    let error = anyhow::anyhow!("{address} does not hold {folder}: {some:?} ...");
                    return Err(error.context(Failure::Lost(missing.len())));
                }
                let reference = first.get_or_insert_with(|| held.clone());
                if *reference != held {
                    let some: Vec<_> = reference.symmetric_difference(&held).take(10).collect();
                    let error = anyhow::anyhow!("{folder} differs between {addresses:?}: {some:?} ...");
                    return Err(error.context(Failure::Forked));
                }
            }
        }
        Ok(())
    }

    /// Compares the logs on all volumes; returns the number of different transactions.
    ///
    /// # Errors
    /// If two transactions have one number.
    pub async fn compare_logs(&self) -> Result<usize> {
        let mut tries = 3;
        loop {
            match self.gather().await {
                Ok(()) => return Ok(self.logs.lock().await.transactions()),
                Err(error) if format!("{error:#}").contains("FORKED") => return Err(error.context(Failure::Forked)),
                // A released volume is being removed.
                Err(_) if tries > 0 => tries -= 1,
                Err(error) => bail!(error),
            }
            sleep(PACE).await;
        }
    }
}

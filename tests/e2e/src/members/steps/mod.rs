//! The steps of stories, with one ensemble and one client that writes all the time.

/// A step that runs a method of the story.
macro_rules! step {
    ($name:literal, $method:ident, $shows:literal) => {
        Step { name: $name, shows: $shows, always: false, run: |story| Box::pin(story.$method()) }
    };
}

pub(super) mod changes;
pub(super) mod clients;
pub(super) mod commands;
pub(super) mod control_plane;
pub(super) mod curator;
pub(super) mod delay;
pub(super) mod failover;
pub(super) mod faults;
pub(super) mod incarnations;
pub(super) mod kills;
pub(super) mod network;
pub(super) mod nodes;
pub(super) mod policy;
pub(super) mod secrets;
pub(super) mod sizes;
pub(super) mod two_clusters;
pub(super) mod upgrades;
pub(super) mod versions;
pub(super) mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use mczk_api::{MultiClusterZooKeeper, multiclusterzookeeper::Record};
use serde_json::Value;

use super::{
    Members, Server,
    logs::Logs,
    spec::settings,
    stories::Story,
    writer::{Writer, Written, missing, serves},
};
use crate::{
    patience::wait_for,
    scene::{Scene, is_settled},
};

const NAME: &str = "zoo";
/// The longest time of a rollout over three clusters. Java is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The state that one step leaves to the next.
pub struct StoryContext<'a> {
    members: &'a Members<'a>,
    scene: Scene<'a>,
    quorum_tls: bool,
    /// The clusters of the placement; empty for all.
    clusters: Vec<String>,
    /// Voters in the spec.
    voters: usize,
    /// Observers in the spec.
    observers: usize,
    /// The largest number of voters of this incarnation.
    most: usize,
    /// Volumes of removed observers, of servers that moved, and of former incarnations.
    volumes: usize,
    /// Number of settings changed so far.
    settings: u32,
    /// Number of seeds used so far.
    seeds: u64,
    /// Image in the spec.
    image: &'static str,
    /// Storage class and first size of the volumes.
    storage: (&'static str, &'static str),
    /// Folder with the jars of Curator.
    curator_lib: Option<PathBuf>,
    records: usize,
    writer: Option<Writer>,
    /// Every write that was acknowledged.
    acknowledged: BTreeSet<u64>,
    logs: Logs,
    rows: Vec<Row>,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Row {
    /// The step.
    pub step: &'static str,
    /// Its duration.
    pub took: Duration,
    /// The longest time between two acknowledged writes, and their number; absent if no client wrote all the time.
    pub writes: Option<(Duration, usize)>,
}

/// A step that runs.
pub type StepFuture<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// One step.
#[derive(Clone, Copy)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// What it tests, as --list and the report print it.
    pub shows: &'static str,
    /// True if it always runs, because other steps need it.
    pub always: bool,
    /// Runs it.
    pub run: for<'s> fn(&'s mut StoryContext<'_>) -> StepFuture<'s>,
}

impl<'a> StoryContext<'a> {
    /// Before the first step: there is no ensemble yet.
    #[must_use]
    pub fn new(
        members: &'a Members<'a>,
        scene: Scene<'a>,
        story: &Story,
        quorum_tls: bool,
        curator_lib: Option<PathBuf>,
    ) -> Self {
        Self {
            members,
            scene,
            quorum_tls,
            clusters: Vec::new(),
            voters: story.voters,
            observers: 0,
            most: story.voters,
            volumes: 0,
            settings: 0,
            seeds: 0,
            image: story.image(),
            storage: story.storage,
            curator_lib,
            records: 0,
            writer: None,
            acknowledged: BTreeSet::new(),
            logs: Logs::default(),
            rows: Vec::new(),
        }
    }

    /// Runs a step, and checks that no acknowledged write is lost.
    ///
    /// # Errors
    /// If the step fails, or a write is lost.
    pub async fn run(&mut self, step: &Step) -> Result<()> {
        let begun = Instant::now();
        self.members.announce(step.shows);
        let result = self.step(step, begun).await;
        let word = if result.is_ok() { "ok    " } else { "FAILED" };
        self.members.report(&format!("{word}  {} ({:.1} s)", step.shows, begun.elapsed().as_secs_f64()));
        result.with_context(|| step.name)
    }

    async fn step(&mut self, step: &Step, begun: Instant) -> Result<()> {
        let had_writer = self.writer.is_some();
        (step.run)(self).await?;
        let took = begun.elapsed();
        let mut writes = None;
        if self.writer.is_some() {
            let written = self.writer()?.lap().await?;
            self.acknowledged.extend(&written.acknowledged);
            self.nothing_is_lost().await?;
            self.members.report(&summary(&written));
            writes = had_writer.then_some((written.longest, written.acknowledged.len()));
        }
        self.rows.push(Row { step: step.name, took, writes });
        Ok(())
    }

    /// The results of the steps so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        self.writer.as_mut().context("no client writes: the ensemble has not formed")
    }

    /// Checks at every server that it holds all acknowledged writes.
    async fn nothing_is_lost(&self) -> Result<()> {
        for address in self.addresses().await? {
            // A server that starts does not answer yet.
            let read = || missing(&address, &self.acknowledged);
            let lost = wait_for("a server lists its writes", Duration::from_secs(60), read).await?;
            let some: Vec<_> = lost.iter().take(10).collect();
            ensure!(lost.is_empty(), "LOST: {} acknowledged writes are not at {address}: {some:?} ...", lost.len());
        }
        Ok(())
    }

    /// The addresses of all servers.
    async fn addresses(&self) -> Result<Vec<String>> {
        let addresses = self.pods().addresses().await?;
        ensure!(
            addresses.len() == self.servers(),
            "{} servers have an address, expected {}",
            addresses.len(),
            self.servers()
        );
        Ok(addresses)
    }

    /// Number of servers in the spec.
    fn servers(&self) -> usize {
        self.voters + self.observers
    }

    fn pods(&self) -> super::Pods {
        self.members.pods(&self.scene.namespace)
    }

    /// A setting that differs from all before: its change restarts every server.
    fn another_setting(&mut self) -> Value {
        self.settings += 1;
        settings(&[("maxClientCnxns", &(100 + self.settings).to_string())])
    }

    /// Changes the spec, without waiting; returns the generation.
    async fn declare(&self, spec: Value) -> Result<i64> {
        let changed = self.scene.change(NAME, spec).await?;
        changed.metadata.generation.context("the object has no generation")
    }

    /// Waits until a generation is rolled out in all clusters.
    async fn rolled_out(&mut self, generation: i64, mut observe: impl FnMut(&MultiClusterZooKeeper)) -> Result<()> {
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                observe(object);
                object.metadata.generation == Some(generation) && is_settled(object)
            })
            .await?;
        self.records = records(&settled).len();
        self.scene.members_match(NAME).await?;
        let servers = self.pods().servers().await?;
        ensure!(servers.len() == self.servers(), "{} pods exist", servers.len());
        Ok(())
    }

    /// Checks that the kubelets report every server ready.
    async fn all_ready(&self) -> Result<()> {
        let ready = self.pods().ready().await?;
        ensure!(ready == self.servers(), "{ready} are ready");
        Ok(())
    }

    /// Waits until every server serves, and its kubelet reports it ready.
    async fn all_serve(&self) -> Result<()> {
        wait_for("all servers serve", Duration::from_secs(180), || async {
            self.all_ready().await?;
            for address in self.addresses().await? {
                serves(&address).await?;
            }
            Ok(())
        })
        .await
    }

    async fn nothing_rolled(&self) -> Result<()> {
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        ensure!(records(&settled).len() == self.records, "a record began, though no spec changed");
        Ok(())
    }

    /// The leader, and its id.
    async fn leader(&self) -> Result<(Server, i32)> {
        wait_for("the status names the leader", Duration::from_secs(60), || async {
            let status = self.scene.get(NAME).await?.status.unwrap_or_default();
            let leader = status.ensemble.and_then(|ensemble| ensemble.leader).context("the status names no leader")?;
            let server = self.server(&leader.cluster, leader.id).await?;
            Ok((server, leader.id))
        })
        .await
    }

    /// The server that says that it leads, and its id.
    async fn leads(&self) -> Result<(Server, i32)> {
        wait_for("a server leads", Duration::from_secs(60), || async {
            for server in self.pods().servers().await? {
                if server.leads().await {
                    let status = self.scene.member(&server.cluster, NAME).await?.status.unwrap_or_default();
                    let own = status.servers.iter().find(|of| of.pod.as_deref() == Some(server.name.as_str()));
                    return own.map(|own| (server, own.id)).context("no status names the leader");
                }
            }
            bail!("no server says that it leads")
        })
        .await
    }

    async fn server(&self, cluster: &str, id: i32) -> Result<Server> {
        let status = self.scene.member(cluster, NAME).await?.status.unwrap_or_default();
        let pod = status.servers.into_iter().find(|server| server.id == id).and_then(|server| server.pod);
        let pod = pod.with_context(|| format!("{cluster} reports no server {id}"))?;
        let mut servers = self.pods().servers().await?.into_iter();
        let found = servers.find(|server| server.cluster == cluster && server.name == pod && !server.terminating);
        found.with_context(|| format!("{pod} is not in {cluster}"))
    }

    /// Runs a shell command in the container of a server.
    async fn shell(&self, server: &Server, line: &str) -> Result<String> {
        self.members.shell(&self.scene.namespace, server, line).await
    }

    /// Uids of the servers' pods, by cluster and name.
    async fn uids(&self) -> Result<BTreeMap<(String, String), String>> {
        let pods = self.pods().servers().await?;
        Ok(pods.into_iter().map(|server| ((server.cluster, server.name), server.uid)).collect())
    }
}

fn records(object: &MultiClusterZooKeeper) -> &[Record] {
    object.status.as_ref().map(|status| status.records.as_slice()).unwrap_or_default()
}

/// Records the time at which each cluster began to deploy.
fn record_start(starts: &mut Vec<(String, Duration)>, object: &MultiClusterZooKeeper, known: usize, begun: Instant) {
    let Some(record) = records(object).get(known..).and_then(<[Record]>::last) else { return };
    for cluster in &record.current_state.deploying {
        if starts.iter().all(|(started, _)| started != cluster) {
            starts.push((cluster.clone(), begun.elapsed()));
        }
    }
}

fn summary(written: &Written) -> String {
    let pauses: Vec<String> = written
        .pauses
        .iter()
        .map(|(at, pause)| format!("{:.1} s at {:.1} s", pause.as_secs_f64(), at.as_secs_f64()))
        .collect();
    format!(
        "{} writes acknowledged, {} tried again; LOST: 0, by every server; LONGEST PAUSE: {:.2} s; pauses of half a second \
         and more: {}",
        written.acknowledged.len(),
        written.failed,
        written.longest.as_secs_f64(),
        if pauses.is_empty() { "none".to_owned() } else { pauses.join(", ") },
    )
}

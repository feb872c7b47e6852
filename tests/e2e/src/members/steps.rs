//! What is shown on nodes, step after step, with one ensemble and one client that writes all the time.

pub(super) mod changes;
pub(super) mod clients;
pub(super) mod delay;
pub(super) mod faults;
pub(super) mod kills;
pub(super) mod lives;
pub(super) mod nodes;
pub(super) mod policy;
pub(super) mod secrets;
pub(super) mod sizes;

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mczk::api::{MultiClusterZooKeeper, multiclusterzookeeper::Record};
use serde_json::{Value, json};

use super::{
    Members, Server,
    logs::Logs,
    writer::{Writer, Written, missing, serves},
};
use crate::{
    patience::wait_for,
    scene::{Scene, is_settled},
};

const NAME: &str = "zoo";
/// A rollout over three clusters; on a busy machine a Java process takes its time.
const PATIENCE: Duration = Duration::from_secs(300);
/// Nothing is purged, so that every transaction can be looked at in the end.
const KEEP_LOGS: (&str, &str) = ("autopurge.purgeInterval", "0");

/// What is known from one step to the next.
pub struct Story<'a> {
    members: &'a Members<'a>,
    scene: Scene<'a>,
    quorum_tls: bool,
    /// The clusters that take part; all if none is named.
    clusters: Vec<String>,
    /// What is declared.
    voters: usize,
    /// What is declared besides.
    observers: usize,
    /// The most voters that there ever were in this life.
    most: usize,
    /// Volumes that others than these left: observers, voters of former lives.
    volumes: usize,
    /// How many settings were declared so far.
    settings: u32,
    /// How many seeds were used so far.
    seeds: u64,
    /// The image that is declared.
    image: &'static str,
    records: usize,
    writer: Option<Writer>,
    /// Every write that was ever acknowledged.
    acknowledged: BTreeSet<u64>,
    logs: Logs,
    rows: Vec<Row>,
}

/// What came of a step.
#[derive(Clone, Debug)]
pub struct Row {
    /// The step.
    pub step: &'static str,
    /// From its beginning to its end.
    pub took: Duration,
    /// What the client saw, if it wrote all the time: the longest time between two acknowledged writes, and their number.
    pub writes: Option<(Duration, usize)>,
}

/// What a step is while it runs.
pub type Run<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// One step.
#[derive(Clone, Copy)]
pub struct Step {
    /// A word for it.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// Whether it runs whatever was chosen: nothing can be shown without.
    pub always: bool,
    /// It.
    pub run: for<'s> fn(&'s mut Story<'_>) -> Run<'s>,
}

impl<'a> Story<'a> {
    /// At its beginning: nothing is declared yet.
    #[must_use]
    pub fn new(members: &'a Members<'a>, scene: Scene<'a>, voters: usize, quorum_tls: bool) -> Self {
        Self {
            members,
            scene,
            quorum_tls,
            clusters: Vec::new(),
            voters,
            observers: 0,
            most: voters,
            volumes: 0,
            settings: 0,
            seeds: 0,
            image: changes::FORMER,
            records: 0,
            writer: None,
            acknowledged: BTreeSet::new(),
            logs: Logs::default(),
            rows: Vec::new(),
        }
    }

    /// Runs a step, and looks whether everything that was acknowledged is still there.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn run(&mut self, step: &Step) -> Result<()> {
        let begun = Instant::now();
        self.members.begins(step.shows);
        let result = self.step(step, begun).await;
        let word = if result.is_ok() { "ok    " } else { "FAILED" };
        self.members.say(&format!("{word}  {} ({:.1} s)", step.shows, begun.elapsed().as_secs_f64()));
        result.with_context(|| step.name)
    }

    async fn step(&mut self, step: &Step, begun: Instant) -> Result<()> {
        let wrote = self.writer.is_some();
        (step.run)(self).await?;
        let took = begun.elapsed();
        let mut writes = None;
        if self.writer.is_some() {
            let written = self.writer()?.lap().await?;
            self.acknowledged.extend(&written.acknowledged);
            self.nothing_is_lost().await?;
            self.members.say(&told(&written));
            writes = wrote.then_some((written.longest, written.acknowledged.len()));
        }
        self.rows.push(Row { step: step.name, took, writes });
        Ok(())
    }

    /// What came of the steps so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        self.writer.as_mut().context("nobody writes: the ensemble has not formed")
    }

    /// Every server, asked by itself, must hold everything that was ever acknowledged.
    async fn nothing_is_lost(&self) -> Result<()> {
        for address in self.addresses().await? {
            // One that is only just coming up does not answer, and is to answer in the end.
            let answers = || missing(&address, &self.acknowledged);
            let lost = wait_for("a server tells what it holds", Duration::from_secs(60), answers).await?;
            let some: Vec<_> = lost.iter().take(10).collect();
            ensure!(lost.is_empty(), "LOST: {} acknowledged writes are not at {address}: {some:?} ...", lost.len());
        }
        Ok(())
    }

    /// Where every server is asked: all must be there.
    async fn addresses(&self) -> Result<Vec<String>> {
        let addresses = self.pods().addresses().await?;
        ensure!(addresses.len() == self.servers(), "{} servers instead of {}", addresses.len(), self.servers());
        Ok(addresses)
    }

    /// How many servers are declared.
    fn servers(&self) -> usize {
        self.voters + self.observers
    }

    fn pods(&self) -> super::Pods {
        self.members.pods(&self.scene.namespace)
    }

    /// A setting that was not declared before: a change that restarts every server.
    fn another_setting(&mut self) -> Value {
        self.settings += 1;
        Self::settings(&[("maxClientCnxns", &(100 + self.settings).to_string())])
    }

    /// Declares these settings, and those that are always there.
    fn settings(settings: &[(&str, &str)]) -> Value {
        let all = settings.iter().chain([&KEEP_LOGS]);
        let all: Vec<Value> = all.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        json!({ "template": { "zooCfg": all } })
    }

    /// Changes the spec, without waiting.
    async fn declare(&self, spec: Value) -> Result<i64> {
        let changed = self.scene.change(NAME, spec).await?;
        changed.metadata.generation.context("it has no generation")
    }

    /// Waits until a generation is rolled out, and everything is as declared.
    async fn rolled_out(&mut self, generation: i64, look: impl FnMut(&MultiClusterZooKeeper)) -> Result<()> {
        let mut look = look;
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                look(object);
                object.metadata.generation == Some(generation) && is_settled(object)
            })
            .await?;
        self.records = records(&settled).len();
        self.scene.members_hold(NAME).await?;
        let servers = self.pods().servers().await?;
        ensure!(servers.len() == self.servers(), "there are {} pods", servers.len());
        Ok(())
    }

    /// Waits until every server serves, asked by itself, and is found ready by its kubelet.
    async fn all_serve(&self) -> Result<()> {
        wait_for("all servers serve", Duration::from_secs(180), || async {
            let ready = self.pods().ready().await?;
            ensure!(ready == self.servers(), "{ready} are ready");
            for address in self.addresses().await? {
                serves(&address).await?;
            }
            Ok(())
        })
        .await
    }

    async fn nothing_rolled(&self) -> Result<()> {
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        ensure!(records(&settled).len() == self.records, "a record was begun though nothing was changed");
        Ok(())
    }

    /// The server that leads, and its id.
    async fn leader(&self) -> Result<(Server, i32)> {
        wait_for("the status tells who leads", Duration::from_secs(60), || async {
            let status = self.scene.get(NAME).await?.status.unwrap_or_default();
            let leader = status.ensemble.and_then(|ensemble| ensemble.leader).context("no leader is told")?;
            let server = self.server(&leader.cluster, leader.id).await?;
            Ok((server, leader.id))
        })
        .await
    }

    async fn server(&self, cluster: &str, id: i32) -> Result<Server> {
        let status = self.scene.member(cluster, NAME).await?.status.unwrap_or_default();
        let pod = status.servers.into_iter().find(|server| server.id == id).and_then(|server| server.pod);
        let pod = pod.with_context(|| format!("{cluster} tells of no server {id}"))?;
        let mut servers = self.pods().servers().await?.into_iter();
        let found = servers.find(|server| server.cluster == cluster && server.name == pod && !server.going);
        found.with_context(|| format!("{pod} is not in {cluster}"))
    }

    /// Runs a line of a shell beside a server.
    async fn shell(&self, server: &Server, line: &str) -> Result<String> {
        let namespace = self.scene.namespace.as_str();
        let arguments = ["exec", "-n", namespace, &server.name, "-c", "zookeeper", "--", "sh", "-c", line];
        self.members.kubectl(&server.cluster, &arguments).await
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

/// Notes when a cluster is first seen to be changed.
fn note(seen: &mut Vec<(String, Duration)>, object: &MultiClusterZooKeeper, known: usize, begun: Instant) {
    let Some(record) = records(object).get(known..).and_then(<[Record]>::last) else { return };
    for cluster in &record.current_state.deploying {
        if seen.iter().all(|(known, _)| known != cluster) {
            seen.push((cluster.clone(), begun.elapsed()));
        }
    }
}

fn told(written: &Written) -> String {
    let pauses: Vec<String> = written
        .pauses
        .iter()
        .map(|(at, pause)| format!("{:.1} s at {:.1} s", pause.as_secs_f64(), at.as_secs_f64()))
        .collect();
    format!(
        "{} writes acknowledged, {} tried again; LOST: 0, every server was asked; LONGEST PAUSE: {:.2} s; pauses of half \
         a second and more: {}",
        written.acknowledged.len(),
        written.failed,
        written.longest.as_secs_f64(),
        if pauses.is_empty() { "none".to_owned() } else { pauses.join(", ") },
    )
}

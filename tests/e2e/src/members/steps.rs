//! What is shown on nodes, step after step, with one ensemble.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mczk::api::{MultiClusterZooKeeper, multiclusterzookeeper::Record};
use serde_json::json;

use super::{
    Members,
    writer::{Writer, Written, acknowledges_nothing, nothing_is_lost},
};
use crate::{
    patience::wait_for,
    scene::{Scene, ensemble, is_settled},
};

const NAME: &str = "zoo";
const SERVERS: usize = 3;
/// The most that there ever are.
const MOST: usize = 5;
/// A rollout over three clusters; on a busy machine a Java process takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is known from one step to the next.
pub struct Story<'a> {
    members: &'a Members<'a>,
    scene: Scene<'a>,
    quorum_tls: bool,
    /// Every write that was acknowledged in any step.
    acknowledged: BTreeSet<u64>,
    records: usize,
}

/// What a step is while it runs.
pub type Run<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// One step.
#[derive(Clone, Copy)]
pub struct Step {
    /// What it shows.
    pub shows: &'static str,
    /// It.
    pub run: for<'s> fn(&'s mut Story<'_>) -> Run<'s>,
}

/// All steps, in the order in which they run: each begins where the one before it ended.
pub const ALL: &[Step] = &[
    Step { shows: "an ensemble of three voters forms over three clusters", run: |story| Box::pin(story.forms()) },
    Step {
        shows: "what a pod of each cluster writes through the client Service is read there",
        run: |story| Box::pin(story.service()),
    },
    Step {
        shows: "a changed setting rolls cluster by cluster while a client writes, and nothing is lost",
        run: |story| Box::pin(story.change()),
    },
    Step {
        shows: "the leader's whole cluster falls silent and comes back; nothing is lost, and nothing rolls",
        run: |story| Box::pin(story.silence()),
    },
    Step {
        shows: "a cluster that is cut off from all others acknowledges no write; the others go on",
        run: |story| Box::pin(story.cut()),
    },
    Step {
        shows: "two voters join and two leave while a client writes, and nothing is lost",
        run: |story| Box::pin(story.sizes()),
    },
    Step { shows: "a deletion leaves nothing but the volumes", run: |story| Box::pin(story.end()) },
];

impl<'a> Story<'a> {
    /// At its beginning: nothing is declared yet.
    #[must_use]
    pub fn new(members: &'a Members<'a>, scene: Scene<'a>, quorum_tls: bool) -> Self {
        Self { members, scene, quorum_tls, acknowledged: BTreeSet::new(), records: 0 }
    }

    async fn forms(&mut self) -> Result<()> {
        let begun = Instant::now();
        // Small machines: the heap of a server is bounded, and one collector thread is enough.
        let template = json!({ "storage": { "size": "64Mi" }, "jvmFlags": ["-Xmx64m", "-XX:+UseSerialGC"] });
        let more = json!({ "template": template, "tls": { "quorum": self.quorum_tls } });
        self.scene.create(&ensemble(NAME, i32::try_from(SERVERS)?, &more)).await?;
        let object = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        self.members.say(&format!("Ready {:.1} s after it was declared", begun.elapsed().as_secs_f64()));
        let clusters: BTreeSet<String> = self.servers().await?.into_keys().collect();
        ensure!(clusters.len() == SERVERS, "servers run in {clusters:?}");
        self.scene.members_hold(NAME).await?;
        self.records = records(&object).len();
        ensure!(self.records == 1, "there are {} records", self.records);
        Ok(())
    }

    async fn service(&mut self) -> Result<()> {
        let pods = self.members.pods(&self.scene.namespace).servers().await?;
        for server in pods {
            let (cluster, name) = (&server.cluster, &server.name);
            let commands = format!(r"create /from-{cluster} {cluster}-wrote-this\nsync /\nget /from-{cluster}\n");
            let script = format!("printf '{commands}' | zkCli.sh -server {NAME}:2181");
            let namespace = self.scene.namespace.as_str();
            let arguments = ["exec", "-n", namespace, name, "-c", "zookeeper", "--", "sh", "-c", &script];
            let said = self.members.kubectl(cluster, &arguments).await?;
            ensure!(said.lines().any(|line| line == format!("{cluster}-wrote-this")), "{cluster}: {said}");
        }
        let writer = self.writer(0).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.end_of(writer).await.map(drop)
    }

    async fn change(&mut self) -> Result<()> {
        let before = self.servers().await?;
        let writer = self.writer(1_000_000).await?;
        let begun = Instant::now();
        let setting = json!([{ "name": "maxClientCnxns", "value": "100" }]);
        let changed = self.scene.change(NAME, json!({ "template": { "zooCfg": setting } })).await?;
        let mut seen: Vec<(String, Duration)> = Vec::new();
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                if let Some(record) = records(object).last() {
                    note(&mut seen, record, begun);
                }
                object.metadata.generation == changed.metadata.generation && is_settled(object)
            })
            .await?;
        let took = begun.elapsed().as_secs_f64();
        let written = self.end_of(writer).await?;
        for (cluster, at) in &seen {
            self.members.say(&format!("{cluster} began {:.1} s after the change", at.as_secs_f64()));
        }
        self.members.say(&format!(
            "rolled over {SERVERS} clusters in {took:.1} s; LOST WRITES: 0; LONGEST PAUSE: {:.2} s",
            written.longest.as_secs_f64()
        ));
        self.records = records(&settled).len();
        ensure!(self.records == 2, "there are {} records", self.records);
        for (cluster, uid) in self.servers().await? {
            ensure!(before.get(&cluster) != Some(&uid), "the server of {cluster} was not restarted");
        }
        Ok(())
    }

    /// The cluster of the leader.
    async fn leader(&self) -> Result<String> {
        let status = self.scene.get(NAME).await?.status.unwrap_or_default();
        Ok(status.ensemble.and_then(|ensemble| ensemble.leader).context("no leader is told")?.cluster)
    }

    async fn silence(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        let writer = self.writer(2_000_000).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let rig = &self.members.federation.rig;
        rig.stop_cluster(&leader).await?;
        self.members.say(&format!("{leader}, where the leader is, has no power any more"));
        let silent = Instant::now();
        let others = self.members.pods(&self.scene.namespace);
        wait_for("the others serve without it", Duration::from_secs(120), || async {
            let ready = others.ready().await?;
            // The kubelet takes some seconds to notice that servers do not serve while they elect.
            ensure!(ready == SERVERS - 1 && silent.elapsed() > Duration::from_secs(30), "{ready} are ready");
            Ok(())
        })
        .await?;
        rig.start_cluster(&leader).await?;
        rig.ready(&leader).await?;
        self.members.say(&format!("{leader} has power again"));
        let back = Instant::now();
        self.all_serve().await?;
        self.members.say(&format!("its server serves again after {:.1} s", back.elapsed().as_secs_f64()));
        let written = self.end_of(writer).await?;
        let longest = written.longest.as_secs_f64();
        self.members.say(&format!("without the leader's cluster: LOST WRITES: 0; LONGEST PAUSE: {longest:.2} s"));
        self.nothing_rolled().await
    }

    async fn cut(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        let servers = self.members.pods(&self.scene.namespace).servers().await?;
        let follower =
            servers.into_iter().find(|server| server.cluster != leader).context("there is a leader alone")?;
        let address = format!("{}:2181", follower.address.context("it has no address")?);
        let writer = self.writer(4_000_000).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let rig = &self.members.federation.rig;
        rig.cut(&follower.cluster, None).await?;
        self.members.say(&format!("{} is cut off; this machine still reaches it", follower.cluster));
        let tried = acknowledges_nothing(&address, Duration::from_secs(35)).await?;
        rig.heal(Some(&follower.cluster), None).await?;
        self.members.say(&format!("{tried} writes were tried there, and none was acknowledged; the cut is healed"));
        self.all_serve().await?;
        let written = self.end_of(writer).await?;
        let longest = written.longest.as_secs_f64();
        self.members.say(&format!("beside a cluster that was cut off: LOST WRITES: 0; LONGEST PAUSE: {longest:.2} s"));
        self.nothing_rolled().await
    }

    async fn all_serve(&self) -> Result<()> {
        let all = self.members.pods(&self.scene.namespace);
        wait_for("all servers serve", Duration::from_secs(180), || async {
            let ready = all.ready().await?;
            ensure!(ready == SERVERS, "{ready} are ready");
            Ok(())
        })
        .await
    }

    async fn nothing_rolled(&self) -> Result<()> {
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        ensure!(records(&settled).len() == self.records, "a record was begun though nothing was changed");
        Ok(())
    }

    async fn sizes(&mut self) -> Result<()> {
        let writer = self.writer(3_000_000).await?;
        for voters in [MOST, SERVERS] {
            let begun = Instant::now();
            let changed = self.scene.change(NAME, json!({ "replicas": voters })).await?;
            let settled = self
                .members
                .until(&self.scene, NAME, PATIENCE, |object| {
                    object.metadata.generation == changed.metadata.generation && is_settled(object)
                })
                .await?;
            self.records = records(&settled).len();
            self.scene.members_hold(NAME).await?;
            let servers = self.members.pods(&self.scene.namespace).servers().await?;
            ensure!(servers.len() == voters, "there are {} pods", servers.len());
            self.members.say(&format!("{voters} voters after {:.1} s", begun.elapsed().as_secs_f64()));
        }
        let written = self.end_of(writer).await?;
        let longest = written.longest.as_secs_f64();
        self.members.say(&format!("while voters came and went: LOST WRITES: 0; LONGEST PAUSE: {longest:.2} s"));
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        let begun = Instant::now();
        let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await?;
        ensure!(volumes.len() == MOST, "the volumes are to be kept, and there are {volumes:?}");
        self.members.say(&format!(
            "nothing is left after {:.1} s but the volumes, which are a person's to remove",
            begun.elapsed().as_secs_f64()
        ));
        self.members.federation.operator_alive().await
    }

    /// Uids of the servers, by cluster.
    async fn servers(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.members.pods(&self.scene.namespace).servers().await?;
        Ok(pods.into_iter().map(|server| (server.cluster, server.uid)).collect())
    }

    async fn writer(&self, first: u64) -> Result<Writer> {
        Writer::start(self.members.pods(&self.scene.namespace), first).await
    }

    /// Ends a writer: every server must hold everything that was acknowledged, by it or before it.
    async fn end_of(&mut self, writer: Writer) -> Result<Written> {
        let written = writer.stop().await?;
        self.acknowledged.extend(&written.acknowledged);
        let pods = self.members.pods(&self.scene.namespace);
        let asked = nothing_is_lost(&pods, &self.acknowledged).await?;
        ensure!(asked == SERVERS, "only {asked} servers could be asked");
        self.members.say(&told(&written));
        Ok(written)
    }
}

fn records(object: &MultiClusterZooKeeper) -> &[Record] {
    object.status.as_ref().map(|status| status.records.as_slice()).unwrap_or_default()
}

/// Notes when a cluster is first seen to be changed.
fn note(seen: &mut Vec<(String, Duration)>, record: &Record, begun: Instant) {
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
        "{} writes acknowledged in {:.1} s and held by every server, {} tried again; pauses of half a second and more: {}",
        written.acknowledged.len(),
        written.lasted.as_secs_f64(),
        written.failed,
        if pauses.is_empty() { "none".to_owned() } else { pauses.join(", ") },
    )
}

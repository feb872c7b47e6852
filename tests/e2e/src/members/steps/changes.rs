//! What a person declares: an ensemble, a setting, a version, and mistakes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mczk::api::MultiClusterZooKeeper;
use serde_json::{Value, json};

use super::{NAME, Step, Story, note};
use crate::{
    members::writer::Writer,
    scene::{self, ensemble},
};

/// The version that the ensemble is upgraded from. Not 3.9.3, which can lose acknowledged writes (ZOOKEEPER-4925).
pub const FORMER: &str = "zookeeper:3.9.2";
/// An image that no registry has.
const NOWHERE: &str = "zookeeper:no-such-version";
/// So many clusters take part at the beginning.
const FIRST: usize = 3;
/// A mistake is to be named within this time.
const NAMED: Duration = Duration::from_secs(90);

pub const FORMS: Step = Step {
    name: "forms",
    shows: "an ensemble forms over three clusters",
    always: true,
    run: |story| Box::pin(story.forms()),
};
pub const SETTING: Step = Step {
    name: "setting",
    shows: "a changed setting rolls cluster by cluster",
    always: false,
    run: |story| Box::pin(story.setting()),
};
pub const UPGRADE: Step = Step {
    name: "upgrade",
    shows: "ZooKeeper 3.9.2 is upgraded to 3.9.4, cluster by cluster",
    always: false,
    run: |story| Box::pin(story.upgrade()),
};
pub const BAD_IMAGE: Step = Step {
    name: "bad-image",
    shows: "an image that there is not stops at the first server, is named, and is taken back",
    always: false,
    run: |story| Box::pin(story.bad_image()),
};
pub const BAD_SETTING: Step = Step {
    name: "bad-setting",
    shows: "a setting that ZooKeeper refuses stops at the first server, is named, and is taken back",
    always: false,
    run: |story| Box::pin(story.bad_setting()),
};

impl Story<'_> {
    async fn forms(&mut self) -> Result<()> {
        let begun = Instant::now();
        let made = self.declared().await?;
        self.rolled_out(made, |_| {}).await?;
        self.members.say(&format!("Ready {:.1} s after it was declared", begun.elapsed().as_secs_f64()));
        let clusters: BTreeSet<String> = self.uids().await?.into_keys().map(|(cluster, _)| cluster).collect();
        ensure!(clusters.len() == FIRST, "servers run in {clusters:?}");
        ensure!(self.records == 1, "there are {} records", self.records);
        for cluster in &clusters {
            let of = format!("jsonpath={{.metadata.labels.{}}}", scene::POD_SECURITY.replace('.', "\\."));
            let level = self.members.kubectl(cluster, &["get", "namespace", &self.scene.namespace, "-o", &of]).await?;
            ensure!(level == "restricted", "{cluster} takes pods that are {level:?}");
        }
        self.writes().await
    }

    /// From here on a client writes.
    pub(super) async fn writes(&mut self) -> Result<()> {
        self.writer = Some(Writer::start(self.pods()).await?);
        self.members.say("a client writes from here on, a small write every 20 ms, one after the other");
        Ok(())
    }

    /// Declares the ensemble, in the first three clusters; its generation.
    pub(super) async fn declared(&mut self) -> Result<i64> {
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        if all.len() > FIRST && self.clusters.is_empty() {
            self.clusters = all.into_iter().take(FIRST).collect();
        }
        // Small machines: the heap of a server is bounded, and one collector thread is enough.
        let template = json!({
            "image": self.image,
            // A pod may take it to another node of its cluster.
            "storage": { "size": "64Mi", "storageClassName": "network" },
            "jvmFlags": ["-Xmx64m", "-XX:+UseSerialGC"],
            "zooCfg": Self::settings(&[]).pointer("/template/zooCfg"),
        });
        // Names are chosen at the beginning; what else there is of the network may change.
        let network = json!({ "mode": "MCS" });
        let mut more = json!({ "template": template, "network": network, "tls": { "quorum": self.quorum_tls } });
        if let (false, Some(spec)) = (self.clusters.is_empty(), more.as_object_mut()) {
            spec.insert("placement".to_owned(), json!({ "clusterAffinity": { "clusterNames": self.clusters } }));
        }
        let made = self.scene.create(&ensemble(NAME, i32::try_from(self.voters)?, &more)).await?;
        made.metadata.generation.context("it has no generation")
    }

    /// A change that restarts every server, one after the other.
    pub(super) async fn rolls(&mut self, spec: Value) -> Result<()> {
        let (before, records) = (self.uids().await?, self.records);
        let begun = Instant::now();
        let generation = self.declare(spec).await?;
        let mut seen: Vec<(String, Duration)> = Vec::new();
        self.rolled_out(generation, |object| note(&mut seen, object, records, begun)).await?;
        let took = begun.elapsed().as_secs_f64();
        let order: Vec<String> =
            seen.iter().map(|(cluster, at)| format!("{cluster} after {:.1} s", at.as_secs_f64())).collect();
        self.members.say(&format!("rolled over all clusters in {took:.1} s; begun: {}", order.join(", ")));
        ensure!(self.records == records + 1, "there are {} records", self.records);
        for (server, uid) in self.uids().await? {
            ensure!(before.get(&server) != Some(&uid), "{server:?} was not restarted");
        }
        Ok(())
    }

    async fn setting(&mut self) -> Result<()> {
        let setting = self.another_setting();
        self.rolls(setting).await
    }

    async fn upgrade(&mut self) -> Result<()> {
        self.image = scene::IMAGE;
        self.rolls(json!({ "template": { "image": self.image } })).await?;
        let version = self.image.split_once(':').context("it has no tag")?.1;
        for server in self.pods().servers().await? {
            let said = self.shell(&server, "echo srvr | nc 127.0.0.1 2181 | head -n 1").await?;
            ensure!(said.contains(&format!("version: {version}-")), "{} says {said}", server.name);
        }
        self.members.say(&format!("every server says that it is {version}"));
        Ok(())
    }

    /// A change that cannot work: it must be named, harm one server at most, and go away with what takes it back.
    async fn mistake(&mut self, wrong: Value, right: Value, named: &str) -> Result<()> {
        let begun = Instant::now();
        let before = self.uids().await?;
        let generation = self.declare(wrong).await?;
        let says = |object: &MultiClusterZooKeeper| {
            let status = object.status.clone().unwrap_or_default();
            let progressing = status.conditions.into_iter().find(|c| c.type_ == "Progressing" && c.status == "False");
            progressing.filter(|c| c.message.contains(named)).map(|c| format!("{}: {}", c.reason, c.message))
        };
        let object = self
            .members
            .until(&self.scene, NAME, NAMED, |object| {
                object.metadata.generation == Some(generation) && says(object).is_some()
            })
            .await?;
        let said: String = says(&object).unwrap_or_default().replace('\n', " ").chars().take(200).collect();
        self.members.say(&format!("named after {:.1} s: {said}", begun.elapsed().as_secs_f64()));
        // Whoever thinks about it for a while finds it as it was.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = self.uids().await?;
        let touched = after.iter().filter(|(server, uid)| before.get(server) != Some(uid)).count();
        ensure!(touched <= 1, "{touched} servers were replaced by ones that cannot start");
        let back = Instant::now();
        let generation = self.declare(right).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.members.say(&format!("{touched} server was touched; taken back in {:.1} s", back.elapsed().as_secs_f64()));
        self.all_serve().await
    }

    async fn bad_image(&mut self) -> Result<()> {
        let image = |image: &str| json!({ "template": { "image": image } });
        self.mistake(image(NOWHERE), image(self.image), NOWHERE).await
    }

    async fn bad_setting(&mut self) -> Result<()> {
        let right = self.scene.get(NAME).await?.spec.template.zoo_cfg;
        let right = json!({ "template": { "zooCfg": right } });
        self.mistake(Self::settings(&[("tickTime", "abc")]), right, "zooCfg tickTime = \"abc\"").await
    }
}

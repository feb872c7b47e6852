//! Changes of the spec: an ensemble, a setting, a version, and mistakes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mczk_api::MultiClusterZooKeeper;
use serde_json::{Value, json};

use super::{NAME, Step, StoryContext, record_start};
use crate::{
    members::{
        spec,
        writer::{FOLDER, Writer},
    },
    scene::{self, ensemble, merge},
};

/// An image that no registry has.
const MISSING_IMAGE: &str = "zookeeper:no-such-version";
/// Number of clusters of the first placement.
const FIRST: usize = 3;
/// The longest time until the status names a mistake.
const NAMED: Duration = Duration::from_secs(90);

pub const FORMS: Step = Step { always: true, ..step!("forms", forms, "an ensemble forms over three clusters") };
pub const SETTING: Step = step!("setting", setting, "a changed setting is rolled out cluster by cluster");
pub const UPGRADE: Step = step!("upgrade", upgrade, "ZooKeeper 3.9.4 is upgraded to 3.9.5, cluster by cluster");
pub const BAD_IMAGE: Step = step!(
    "bad-image",
    bad_image,
    "a missing image stops the rollout at the first server; the status names it, and the change is reverted"
);
pub const BAD_SETTING: Step = step!(
    "bad-setting",
    bad_setting,
    "a setting that ZooKeeper refuses stops the rollout at the first server; the status names it, and the change is reverted"
);

impl StoryContext<'_> {
    async fn forms(&mut self) -> Result<()> {
        let generation = self.create().await?;
        self.formed(generation).await
    }

    /// Waits until the first ensemble of a story serves, and starts the client.
    pub(super) async fn formed(&mut self, generation: i64) -> Result<()> {
        let begun = Instant::now();
        self.rolled_out(generation, |_| {}).await?;
        self.members.report(&format!("Ready after {:.1} s", begun.elapsed().as_secs_f64()));
        let clusters: BTreeSet<String> = self.uids().await?.into_keys().map(|(cluster, _)| cluster).collect();
        ensure!(clusters.len() == FIRST, "servers run in {clusters:?}");
        ensure!(self.records == 1, "the status has {} records", self.records);
        for cluster in &clusters {
            let of = format!("jsonpath={{.metadata.labels.{}}}", scene::POD_SECURITY.replace('.', "\\."));
            let level = self.members.kubectl(cluster, &["get", "namespace", &self.scene.namespace, "-o", &of]).await?;
            ensure!(level == "restricted", "{cluster} admits pods of level {level:?}");
        }
        self.start_writer().await
    }

    /// Starts the client that writes.
    pub(super) async fn start_writer(&mut self) -> Result<()> {
        self.writer = Some(Writer::start(self.pods(), FOLDER).await?);
        self.members.report("a client writes from now on, one small write every 20 ms");
        Ok(())
    }

    /// Creates the ensemble in the first three clusters; returns the generation.
    pub(super) async fn create(&mut self) -> Result<i64> {
        self.create_with(&Value::Null).await
    }

    /// Creates it with further fields of its spec; null for none.
    pub(super) async fn create_with(&mut self, fields: &Value) -> Result<i64> {
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        if all.len() > FIRST && self.clusters.is_empty() {
            self.clusters = all.into_iter().take(FIRST).collect();
        }
        let mut more = spec::first(self.image, self.storage, &self.clusters, self.quorum_tls);
        if !fields.is_null() {
            merge(&mut more, fields);
        }
        let created = self.scene.create(&ensemble(NAME, i32::try_from(self.voters)?, &more)).await?;
        created.metadata.generation.context("the object has no generation")
    }

    /// Makes a change that restarts every server, one by one.
    pub(super) async fn roll(&mut self, spec: Value) -> Result<()> {
        let (before, records) = (self.uids().await?, self.records);
        let begun = Instant::now();
        let generation = self.declare(spec).await?;
        let mut starts: Vec<(String, Duration)> = Vec::new();
        self.rolled_out(generation, |object| record_start(&mut starts, object, records, begun)).await?;
        let took = begun.elapsed().as_secs_f64();
        let order: Vec<String> =
            starts.iter().map(|(cluster, at)| format!("{cluster} after {:.1} s", at.as_secs_f64())).collect();
        self.members.report(&format!("rolled out in {took:.1} s; clusters began: {}", order.join(", ")));
        ensure!(self.records == records + 1, "the status has {} records", self.records);
        for (server, uid) in self.uids().await? {
            ensure!(before.get(&server) != Some(&uid), "{server:?} was not restarted");
        }
        Ok(())
    }

    async fn setting(&mut self) -> Result<()> {
        let setting = self.another_setting();
        self.roll(setting).await
    }

    async fn upgrade(&mut self) -> Result<()> {
        self.image = scene::IMAGE;
        self.roll(json!({ "template": { "image": self.image } })).await?;
        let version = self.image.split_once(':').context("the image has no tag")?.1;
        for server in self.pods().servers().await? {
            let output = self.shell(&server, "echo srvr | nc 127.0.0.1 2181 | head -n 1").await?;
            ensure!(output.contains(&format!("version: {version}-")), "{} reports {output}", server.name);
        }
        self.members.report(&format!("every server reports version {version}"));
        Ok(())
    }

    /// Makes a change that cannot work. The status must name it, it may affect one server at most, and a revert must undo it.
    pub(super) async fn mistake(&mut self, wrong: Value, right: Value, named: &str) -> Result<()> {
        let begun = Instant::now();
        let before = self.uids().await?;
        let generation = self.declare(wrong).await?;
        let error_in = |object: &MultiClusterZooKeeper| {
            let status = object.status.clone().unwrap_or_default();
            let progressing = status.conditions.into_iter().find(|c| c.type_ == "Progressing" && c.status == "False");
            progressing.filter(|c| c.message.contains(named)).map(|c| format!("{}: {}", c.reason, c.message))
        };
        let object = self
            .members
            .until(&self.scene, NAME, NAMED, |object| {
                object.metadata.generation == Some(generation) && error_in(object).is_some()
            })
            .await?;
        let message: String = error_in(&object).unwrap_or_default().replace('\n', " ").chars().take(200).collect();
        self.members.report(&format!("the status names it after {:.1} s: {message}", begun.elapsed().as_secs_f64()));
        // Nothing else changes while the user thinks.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = self.uids().await?;
        let replaced = after.iter().filter(|(server, uid)| before.get(server) != Some(uid)).count();
        ensure!(replaced <= 1, "{replaced} servers were replaced by ones that cannot start");
        let back = Instant::now();
        let generation = self.declare(right).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.members
            .report(&format!("{replaced} server was replaced; reverted in {:.1} s", back.elapsed().as_secs_f64()));
        self.all_serve().await
    }

    async fn bad_image(&mut self) -> Result<()> {
        let image = |image: &str| json!({ "template": { "image": image } });
        self.mistake(image(MISSING_IMAGE), image(self.image), MISSING_IMAGE).await
    }

    async fn bad_setting(&mut self) -> Result<()> {
        let right = self.scene.get(NAME).await?.spec.template.zoo_cfg;
        let right = json!({ "template": { "zooCfg": right } });
        self.mistake(spec::settings(&[("tickTime", "abc")]), right, "zooCfg tickTime = \"abc\"").await
    }
}

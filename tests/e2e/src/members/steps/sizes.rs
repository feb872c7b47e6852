//! Changes of the number of servers and of their clusters, and the end of a story.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{NAME, PATIENCE, Step, StoryContext};

/// Number of voters that join.
pub const MORE: usize = 2;
/// Number of voters after the removal.
const REMAINING: usize = 3;

pub const GROW: Step =
    Step { name: "grow", shows: "two voters join", always: false, run: |story| Box::pin(story.grow()) };
pub const SHRINK: Step = Step {
    name: "shrink",
    shows: "voters leave until three remain",
    always: false,
    run: |story| Box::pin(story.resize(REMAINING)),
};
pub const MOVE: Step = step!("move", moves, "all voters move to three other clusters");
pub const IMPORT: Step =
    step!("import", imported, "a pod in a cluster without servers writes through the imported Service");
pub const LOGS: Step = Step {
    always: true,
    ..step!(
        "logs",
        compare,
        "no two transactions in the logs of all servers, also of removed ones, have the same number"
    )
};
pub const DELETION: Step = Step { always: true, ..step!("deletion", end, "a deletion leaves only the volumes") };

impl StoryContext<'_> {
    async fn grow(&mut self) -> Result<()> {
        self.resize(self.voters + MORE).await
    }

    pub(super) async fn resize(&mut self, voters: usize) -> Result<()> {
        let begun = Instant::now();
        let before = self.voters;
        self.voters = voters;
        self.most = self.most.max(voters);
        let generation = self.declare(json!({ "replicas": voters })).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.members.report(&format!("from {before} to {voters} voters in {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    async fn moves(&mut self) -> Result<()> {
        let (others, generation) = self.move_away().await?;
        self.moved(others, generation).await
    }

    /// The clusters that are not in the placement.
    pub(super) fn without_servers(&self) -> Vec<String> {
        let all = self.members.federation.members.keys();
        all.filter(|name| !self.clusters.contains(name)).cloned().collect()
    }

    /// Declares the clusters without servers as the placement; returns them, and the generation.
    pub(super) async fn move_away(&mut self) -> Result<(Vec<String>, i64)> {
        let others = self.without_servers();
        // The last step compares also the logs of servers that leave.
        self.gather()?;
        self.volumes += self.voters;
        let generation =
            self.declare(json!({ "placement": { "clusterAffinity": { "clusterNames": others } } })).await?;
        Ok((others, generation))
    }

    /// Waits until all voters have moved there.
    pub(super) async fn moved(&mut self, others: Vec<String>, generation: i64) -> Result<()> {
        let begun = Instant::now();
        self.rolled_out(generation, |_| {}).await?;
        let used: BTreeSet<String> = self.uids().await?.into_keys().map(|(cluster, _)| cluster).collect();
        ensure!(used == others.iter().cloned().collect(), "servers run in {used:?}");
        let (from, to) = (self.clusters.join(", "), others.join(", "));
        self.members.report(&format!("moved from {from} to {to} in {:.1} s", begun.elapsed().as_secs_f64()));
        self.clusters = others;
        Ok(())
    }

    async fn imported(&mut self) -> Result<()> {
        let without = &self.without_servers().into_iter().next().context("every cluster has servers")?;
        let generation = self.declare(json!({ "network": { "importClusters": [without] } })).await?;
        self.rolled_out(generation, |_| {}).await?;
        let line = format!(
            "for i in $(seq 30); do printf 'create /imported it-is-imported\\nget /imported\\n' | zkCli.sh -server \
             derived-{NAME}.{}:2181 2>&1 | grep -x it-is-imported && exit 0; sleep 2; done; exit 1",
            self.scene.namespace
        );
        let output = self.in_new_pod(without, &line).await?;
        ensure!(output.contains("it-is-imported"), "{output}");
        self.members.report(&format!("a pod in {without}, which has no server, writes and reads"));
        Ok(())
    }

    /// Reads the logs on all existing volumes.
    pub(super) fn gather(&mut self) -> Result<()> {
        for volumes in self.members.federation.rig.volumes() {
            self.logs.gather(&volumes)?;
        }
        Ok(())
    }

    pub(super) async fn compare(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.acknowledged.extend(writer.stop().await?.acknowledged);
        }
        self.nothing_is_lost().await?;
        self.gather()?;
        let (logged, written) = (self.logs.transactions(), self.acknowledged.len());
        ensure!(logged >= written, "the logs hold {logged} transactions, but {written} writes were acknowledged");
        self.members.report(&self.logs.summary());
        Ok(())
    }

    pub(super) async fn end(&self) -> Result<()> {
        self.deleted().await?;
        self.members.federation.operator_alive().await
    }

    /// Deletes the ensemble, and waits until only its volumes are left.
    pub(super) async fn deleted(&self) -> Result<()> {
        let begun = Instant::now();
        let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await.context("the deletion")?;
        ensure!(volumes.len() == self.most + self.volumes, "the volumes must stay, but only these exist: {volumes:?}");
        self.members.report(&format!(
            "only the volumes are left after {:.1} s; the user deletes them",
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

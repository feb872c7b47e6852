//! Servers come, go, and are taken away.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{NAME, PATIENCE, Step, Story};

/// So many join, and at the end so many stay.
pub const MORE: usize = 2;
const STAY: usize = 3;

pub const GROW: Step =
    Step { name: "grow", shows: "two voters join", always: false, run: |story| Box::pin(story.grow()) };
pub const SHRINK: Step = Step {
    name: "shrink",
    shows: "voters leave until three are left",
    always: false,
    run: |story| Box::pin(story.resize(STAY)),
};
pub const MOVE: Step = Step {
    name: "move",
    shows: "all voters move to three other clusters",
    always: false,
    run: |story| Box::pin(story.moves()),
};
pub const IMPORT: Step = Step {
    name: "import",
    shows: "a pod in a cluster without servers writes through the imported Service",
    always: false,
    run: |story| Box::pin(story.imported()),
};
pub const LOGS: Step = Step {
    name: "logs",
    shows: "no transaction number stands for two transactions in any server's log, also of servers that left",
    always: true,
    run: |story| Box::pin(story.compare()),
};
pub const END: Step = Step {
    name: "deletion",
    shows: "a deletion leaves nothing but the volumes",
    always: true,
    run: |story| Box::pin(story.end()),
};

impl Story<'_> {
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
        self.members.say(&format!("{voters} voters instead of {before} after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    async fn moves(&mut self) -> Result<()> {
        let begun = Instant::now();
        let all = self.members.federation.members.keys();
        let others: Vec<String> = all.filter(|name| !self.clusters.contains(name)).cloned().collect();
        // What is in the logs of those that leave is to be compared in the end, too.
        self.gather()?;
        self.volumes += self.voters;
        let generation =
            self.declare(json!({ "placement": { "clusterAffinity": { "clusterNames": others } } })).await?;
        self.rolled_out(generation, |_| {}).await?;
        let there: BTreeSet<String> = self.uids().await?.into_keys().map(|(cluster, _)| cluster).collect();
        ensure!(there == others.iter().cloned().collect(), "servers run in {there:?}");
        let (from, to) = (self.clusters.join(", "), others.join(", "));
        self.members.say(&format!("moved from {from} to {to} in {:.1} s", begun.elapsed().as_secs_f64()));
        self.clusters = others;
        Ok(())
    }

    async fn imported(&mut self) -> Result<()> {
        let all = self.members.federation.members.keys();
        let without =
            all.into_iter().find(|name| !self.clusters.contains(name)).context("every cluster has servers")?;
        let generation = self.declare(json!({ "network": { "importClusters": [without] } })).await?;
        self.rolled_out(generation, |_| {}).await?;
        let line = format!(
            "for i in $(seq 30); do printf 'create /imported it-is-imported\\nget /imported\\n' | zkCli.sh -server \
             derived-{NAME}.{}:2181 2>&1 | grep -x it-is-imported && exit 0; sleep 2; done; exit 1",
            self.scene.namespace
        );
        let said = self.elsewhere(without, &line).await?;
        ensure!(said.contains("it-is-imported"), "{said}");
        self.members.say(&format!("a pod in {without}, which has no server, reads what it wrote"));
        Ok(())
    }

    /// Reads the logs on all volumes that there are now.
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
        let (known, written) = (self.logs.transactions(), self.acknowledged.len());
        ensure!(known >= written, "the logs hold {known} transactions, and {written} writes were acknowledged");
        self.members.say(&self.logs.told());
        Ok(())
    }

    pub(super) async fn end(&self) -> Result<()> {
        self.deleted().await?;
        self.members.federation.operator_alive().await
    }

    /// Deletes the ensemble and waits until nothing of it is left.
    pub(super) async fn deleted(&self) -> Result<()> {
        let begun = Instant::now();
        let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await.context("it is deleted")?;
        ensure!(volumes.len() == self.most + self.volumes, "the volumes are to be kept, and there are {volumes:?}");
        self.members.say(&format!(
            "nothing is left after {:.1} s but the volumes, which are a person's to remove",
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

//! Servers come, go, and are taken away.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{NAME, PATIENCE, Step, Story};

/// So many join, and at the end so many stay.
const MORE: usize = 2;
const STAY: usize = 3;

pub const GROW: Step =
    Step { name: "grow", shows: "two voters join", always: false, run: |story| Box::pin(story.grow()) };
pub const SHRINK: Step = Step {
    name: "shrink",
    shows: "voters leave until three are left",
    always: false,
    run: |story| Box::pin(story.resize(STAY)),
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

    async fn resize(&mut self, voters: usize) -> Result<()> {
        let begun = Instant::now();
        let before = self.voters;
        self.voters = voters;
        self.most = self.most.max(voters);
        let generation = self.declare(json!({ "replicas": voters })).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.members.say(&format!("{voters} voters instead of {before} after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Reads the logs on all volumes that there are now.
    pub(super) fn gather(&mut self) -> Result<()> {
        for volumes in self.members.federation.rig.volumes() {
            self.logs.gather(&volumes)?;
        }
        Ok(())
    }

    async fn compare(&mut self) -> Result<()> {
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

    async fn end(&mut self) -> Result<()> {
        let begun = Instant::now();
        let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await.context("it is deleted")?;
        ensure!(volumes.len() == self.most, "the volumes are to be kept, and there are {volumes:?}");
        self.members.say(&format!(
            "nothing is left after {:.1} s but the volumes, which are a person's to remove",
            begun.elapsed().as_secs_f64()
        ));
        self.members.federation.operator_alive().await
    }
}

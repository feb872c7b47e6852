//! Agents, the operator, and joining servers, killed while something changes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

use super::{Step, StoryContext, sizes::MORE};
use crate::members::spec;

/// Seed of the random moments: every run has the same ones.
const SEED: u64 = 5;
/// Number of moments in the story of faults.
const FEW: usize = 3;
/// Number of moments in the story of kills.
const MANY: usize = 20;
/// Milliseconds between two moments in the story of faults.
const GAP: std::ops::Range<u64> = 500..8000;
/// Milliseconds between two moments in the story of kills.
const SHORT_GAP: std::ops::Range<u64> = 300..4000;
/// How long joining servers are killed as soon as they run.
const JOINING: Duration = Duration::from_secs(20);

pub const AGENTS_KILLED: Step =
    kills("agents-killed", "all agents are killed several times during a rollout", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Setting, FEW, GAP))
    });
pub const OPERATOR_KILLED: Step =
    kills("operator-killed", "the operator is killed several times during a rollout", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Setting, FEW, GAP))
    });
pub const JOINERS_KILLED: Step = step!(
    "joiners-killed",
    joiners_killed,
    "joining servers end by kill -9 before they are added to the configuration"
);

/// A step with kills at several moments of a change.
const fn kills(
    name: &'static str,
    shows: &'static str,
    run: for<'s> fn(&'s mut StoryContext<'_>) -> super::StepFuture<'s>,
) -> Step {
    Step { name, shows, always: false, run }
}

/// Kills of the agents and of the operator, for every kind of change.
pub const MATRIX: [Step; 10] = [
    Step {
        name: "agents-forming",
        shows: "all agents are killed at 20 moments while the ensemble forms",
        always: true,
        run: |story| Box::pin(story.created_while(Victim::Agents)),
    },
    kills("agents-setting", "all agents are killed at 20 moments while a setting is rolled out", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Setting, MANY, SHORT_GAP))
    }),
    kills("operator-setting", "the operator is killed at 20 moments while a setting is rolled out", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Setting, MANY, SHORT_GAP))
    }),
    kills("agents-upgrade", "all agents are killed at 20 moments while ZooKeeper is upgraded", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Image, MANY, SHORT_GAP))
    }),
    kills("operator-upgrade", "the operator is killed at 20 moments while ZooKeeper is downgraded", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Image, MANY, SHORT_GAP))
    }),
    kills("agents-grow", "all agents are killed at 20 moments while two voters join", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Grow, MANY, SHORT_GAP))
    }),
    kills("agents-shrink", "all agents are killed at 20 moments while two voters leave", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Shrink, MANY, SHORT_GAP))
    }),
    kills("operator-grow", "the operator is killed at 20 moments while two voters join", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Grow, MANY, SHORT_GAP))
    }),
    kills("operator-shrink", "the operator is killed at 20 moments while two voters leave", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Shrink, MANY, SHORT_GAP))
    }),
    Step {
        name: "operator-deletion",
        shows: "the operator is killed at 20 moments while the ensemble is deleted",
        always: true,
        run: |story| Box::pin(story.deleted_while(Victim::Operator)),
    },
];

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Agents,
    Operator,
}

/// What changes during the kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Setting,
    Image,
    Grow,
    Shrink,
}

impl StoryContext<'_> {
    /// Times between kills, the same ones in every run.
    fn moments(&mut self, number: usize, gap: std::ops::Range<u64>) -> Vec<Duration> {
        self.seeds += 1;
        let seed = SEED + self.seeds;
        let mut chance = StdRng::seed_from_u64(seed);
        let moments: Vec<Duration> =
            (0..number).map(|_| Duration::from_millis(chance.random_range(gap.clone()))).collect();
        let seconds: Vec<String> = moments.iter().map(|moment| format!("{:.1}", moment.as_secs_f64())).collect();
        self.members.report(&format!("seed {seed}: seconds between kills: {}", seconds.join(", ")));
        moments
    }

    async fn kill_all(&self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Agents => {
                let all = self.members.federation.members.keys().map(|cluster| self.members.kill_agents(cluster));
                futures::future::try_join_all(all).await?;
                self.members.report("the agents of all clusters are killed");
            }
            Victim::Operator => {
                self.members.report("the operator is killed, and started again after a second");
                self.members.kill_operator().await?;
            }
        }
        Ok(())
    }

    async fn kill_at(&self, victim: Victim, moments: Vec<Duration>) -> Result<()> {
        for moment in moments {
            tokio::time::sleep(moment).await;
            self.kill_all(victim).await?;
        }
        Ok(())
    }

    async fn killed_while(
        &mut self,
        victim: Victim,
        change: Change,
        number: usize,
        gap: std::ops::Range<u64>,
    ) -> Result<()> {
        let moments = self.moments(number, gap);
        let spec = match change {
            Change::Setting => self.another_setting(),
            Change::Image => {
                self.image = spec::another(self.image);
                json!({ "template": { "image": self.image } })
            }
            Change::Grow | Change::Shrink => {
                self.voters = if change == Change::Grow { self.voters + MORE } else { self.voters - MORE };
                self.most = self.most.max(self.voters);
                json!({ "replicas": self.voters })
            }
        };
        let generation = self.declare(spec).await?;
        self.kill_at(victim, moments).await?;
        self.rolled_out(generation, |_| {}).await
    }

    async fn created_while(&mut self, victim: Victim) -> Result<()> {
        let moments = self.moments(MANY, SHORT_GAP);
        let generation = self.create().await?;
        self.kill_at(victim, moments).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.start_writer().await
    }

    async fn deleted_while(&mut self, victim: Victim) -> Result<()> {
        let moments = self.moments(MANY, SHORT_GAP);
        self.compare().await?;
        let story = &*self;
        // The deletion may end while the operator starts again.
        let (deleted, killed) = tokio::join!(story.deleted(), story.kill_at(victim, moments));
        deleted.and(killed)?;
        self.members.federation.operator_alive().await
    }

    async fn joiners_killed(&mut self) -> Result<()> {
        let before: BTreeSet<String> = self.uids().await?.into_values().collect();
        self.voters += MORE;
        self.most = self.most.max(self.voters);
        let generation = self.declare(json!({ "replicas": self.voters })).await?;
        let mut killed = BTreeSet::new();
        let end = tokio::time::Instant::now() + JOINING;
        while tokio::time::Instant::now() < end && killed.len() < MORE {
            for server in self.pods().servers().await? {
                // `kill` fails until the pod has a process.
                if !before.contains(&server.uid) && !killed.contains(&server.uid) && self.kill(&server).await.is_ok() {
                    self.members.report(&format!("kill -9 of {} in {}, which joins", server.name, server.cluster));
                    killed.insert(server.uid.clone());
                }
            }
        }
        ensure!(!killed.is_empty(), "no joining server ran in time");
        self.rolled_out(generation, |_| {}).await.context("the killed servers join")
    }
}

//! The agents of all clusters, or the operator, are killed again and again while something changes; and servers that join.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

use super::{Step, Story, changes, sizes::MORE};

/// Moments are chosen by chance, the same ones each time.
const SEED: u64 = 5;
/// So many moments of a change, where a few are enough.
const FEW: usize = 3;
/// So many moments of each change, where many are wanted.
const MANY: usize = 20;
/// Between two moments, where they are few: in milliseconds.
const GAP: std::ops::Range<u64> = 500..8000;
/// Between two moments, where they are many.
const SHORT_GAP: std::ops::Range<u64> = 300..4000;
/// For so long servers that join are killed as soon as they run.
const JOINING: Duration = Duration::from_secs(20);

pub const AGENTS_KILLED: Step = Step {
    name: "agents-killed",
    shows: "all agents are killed again and again while a change rolls",
    always: false,
    run: |story| Box::pin(story.killed_while(Victim::Agents, Change::Setting, FEW, GAP)),
};
pub const OPERATOR_KILLED: Step = Step {
    name: "operator-killed",
    shows: "the operator is killed again and again while a change rolls",
    always: false,
    run: |story| Box::pin(story.killed_while(Victim::Operator, Change::Setting, FEW, GAP)),
};
pub const JOINERS_KILLED: Step = Step {
    name: "joiners-killed",
    shows: "servers that are to join are killed with kill -9 before they are added",
    always: false,
    run: |story| Box::pin(story.joiners_killed()),
};

/// A step in which one is killed at many moments of a change.
const fn many(name: &'static str, shows: &'static str, run: for<'s> fn(&'s mut Story<'_>) -> super::Run<'s>) -> Step {
    Step { name, shows, always: false, run }
}

/// The agents and the operator at twenty moments of every kind of change.
pub const MATRIX: [Step; 10] = [
    Step {
        name: "agents-forming",
        shows: "all agents are killed at 20 moments while the ensemble forms",
        always: true,
        run: |story| Box::pin(story.forms_while(Victim::Agents)),
    },
    many("agents-setting", "all agents are killed at 20 moments while a setting rolls", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Setting, MANY, SHORT_GAP))
    }),
    many("operator-setting", "the operator is killed at 20 moments while a setting rolls", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Setting, MANY, SHORT_GAP))
    }),
    many("agents-upgrade", "all agents are killed at 20 moments while ZooKeeper is upgraded", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Image, MANY, SHORT_GAP))
    }),
    many("operator-upgrade", "the operator is killed at 20 moments while ZooKeeper goes back a version", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Image, MANY, SHORT_GAP))
    }),
    many("agents-grow", "all agents are killed at 20 moments while two voters join", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Grow, MANY, SHORT_GAP))
    }),
    many("agents-shrink", "all agents are killed at 20 moments while two voters leave", |story| {
        Box::pin(story.killed_while(Victim::Agents, Change::Shrink, MANY, SHORT_GAP))
    }),
    many("operator-grow", "the operator is killed at 20 moments while two voters join", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Grow, MANY, SHORT_GAP))
    }),
    many("operator-shrink", "the operator is killed at 20 moments while two voters leave", |story| {
        Box::pin(story.killed_while(Victim::Operator, Change::Shrink, MANY, SHORT_GAP))
    }),
    Step {
        name: "operator-deletion",
        shows: "the operator is killed at 20 moments while the ensemble is deleted",
        always: true,
        run: |story| Box::pin(story.ends_while(Victim::Operator)),
    },
];

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Agents,
    Operator,
}

/// What changes meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Setting,
    Image,
    Grow,
    Shrink,
}

impl Story<'_> {
    /// Moments after which something is killed, the same ones in every run.
    fn moments(&mut self, number: usize, gap: std::ops::Range<u64>) -> Vec<Duration> {
        self.seeds += 1;
        let seed = SEED + self.seeds;
        let mut chance = StdRng::seed_from_u64(seed);
        let moments: Vec<Duration> =
            (0..number).map(|_| Duration::from_millis(chance.random_range(gap.clone()))).collect();
        let told: Vec<String> = moments.iter().map(|moment| format!("{:.1}", moment.as_secs_f64())).collect();
        self.members.say(&format!("seed {seed}: killed each time after another {} s", told.join(", ")));
        moments
    }

    async fn strike(&self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Agents => {
                let all = self.members.federation.members.keys().map(|cluster| {
                    let members = self.members;
                    let which = ["delete", "pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-agent"];
                    async move {
                        let how = ["--grace-period=0", "--force", "--wait=false"];
                        members.kubectl(cluster, &[&which[..], &how].concat()).await
                    }
                });
                futures::future::try_join_all(all).await?;
                self.members.say("all agents of all clusters are killed");
            }
            Victim::Operator => {
                self.members.federation.kill_operator().await?;
                self.members.say("the operator is killed, and started again after a second");
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.members.federation.start_operator().await?;
            }
        }
        Ok(())
    }

    async fn strikes(&self, victim: Victim, moments: Vec<Duration>) -> Result<()> {
        for moment in moments {
            tokio::time::sleep(moment).await;
            self.strike(victim).await?;
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
                self.image = if self.image == changes::FORMER { crate::scene::IMAGE } else { changes::FORMER };
                json!({ "template": { "image": self.image } })
            }
            Change::Grow | Change::Shrink => {
                self.voters = if change == Change::Grow { self.voters + MORE } else { self.voters - MORE };
                self.most = self.most.max(self.voters);
                json!({ "replicas": self.voters })
            }
        };
        let generation = self.declare(spec).await?;
        self.strikes(victim, moments).await?;
        self.rolled_out(generation, |_| {}).await
    }

    async fn forms_while(&mut self, victim: Victim) -> Result<()> {
        let moments = self.moments(MANY, SHORT_GAP);
        let generation = self.declared().await?;
        self.strikes(victim, moments).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.writes().await
    }

    async fn ends_while(&mut self, victim: Victim) -> Result<()> {
        let moments = self.moments(MANY, SHORT_GAP);
        self.compare().await?;
        let story = &*self;
        // It may be over while the operator is being started again.
        let (ended, struck) = tokio::join!(story.deleted(), story.strikes(victim, moments));
        ended.and(struck)?;
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
                // It has no process before it runs, and there is no shell in its pod before that.
                if !before.contains(&server.uid) && !killed.contains(&server.uid) && self.kill(&server).await.is_ok() {
                    self.members.say(&format!("kill -9 of {} in {}, which is to join", server.name, server.cluster));
                    killed.insert(server.uid.clone());
                }
            }
        }
        ensure!(!killed.is_empty(), "no server that was to join was seen to run");
        self.rolled_out(generation, |_| {}).await.context("they join after all")
    }
}

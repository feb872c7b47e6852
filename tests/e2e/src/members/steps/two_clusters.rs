//! What two clusters give, with a small third one and alone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    NAME, Step, StoryContext,
    failover::{FEW_WRITES, listed},
};

/// Clusters, and the voters of each.
type Division = [(&'static str, usize)];

/// The first cluster by name has one voter.
const WITH_WITNESS: &Division = &[("m1", 1), ("m2", 2), ("m3", 2)];
const MAJORITY_IN_M2: &Division = &[("m2", 3), ("m3", 2)];
/// Between both: a voter of a cluster that keeps others leaves before one joins elsewhere.
const SIX: &Division = &[("m2", 3), ("m3", 3)];
const MAJORITY_IN_M3: &Division = &[("m2", 2), ("m3", 3)];
const HALVES: &Division = &[("m2", 2), ("m3", 2)];
/// How often the leader is killed, to see which server leads then.
const ELECTIONS: usize = 5;
/// How long every server left is asked to acknowledge a write.
const SILENT: Duration = Duration::from_secs(20);
/// The longest time without writes after a loss, or after its end.
const WRITES_AGAIN: Duration = Duration::from_secs(120);

pub const FORMS: Step = Step {
    always: true,
    ..step!("forms", witness_forms, "an ensemble forms in 1/2/2: the first cluster is a witness")
};
pub const WITNESS: Step = step!(
    "witness",
    each_lost,
    "1/2/2: each cluster loses power in turn, and the others write; the witness has the lowest id, and elections show who leads"
);
pub const SWITCHED: Step = step!(
    "majority-switched",
    switched,
    "3/2 becomes 3/3 and then 2/3, with never fewer than five votes; then the former majority loses power, and writes go on"
);
pub const SMALLER_LOST: Step = step!(
    "smaller-lost",
    smaller_lost,
    "3/2: the smaller cluster loses power and then its votes: writes survive the loss of a third voter, and the votes return"
);
pub const EITHER_HALF: Step = step!(
    "either-half",
    halves_lost,
    "2/2: each cluster loses power in turn: no write is acknowledged, and none is lost when power returns"
);

/// The fields of the spec that divide the voters so.
fn divided(division: &Division) -> Value {
    let names: Vec<&str> = division.iter().map(|(cluster, _)| *cluster).collect();
    let weights = division
        .iter()
        .map(|(cluster, voters)| json!({ "targetCluster": { "clusterNames": [cluster] }, "weight": voters }));
    json!({
        "replicas": voters(division),
        "placement": {
            "clusterAffinity": { "clusterNames": names },
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Weighted",
                "weightPreference": { "staticWeightList": weights.collect::<Vec<_>>() },
            },
        },
    })
}

fn voters(division: &Division) -> usize {
    division.iter().map(|(_, voters)| voters).sum()
}

impl StoryContext<'_> {
    async fn witness_forms(&mut self) -> Result<()> {
        let generation = self.create_with(&divided(WITH_WITNESS)).await?;
        self.formed(generation).await
    }

    /// Divides the voters so, if they are not, and waits until each cluster has its own.
    async fn divide(&mut self, division: &Division) -> Result<()> {
        // The last step compares also the logs of servers that leave.
        self.gather()?;
        let begun = Instant::now();
        let generation = self.declare(divided(division)).await?;
        self.clusters = division.iter().map(|(cluster, _)| (*cluster).to_owned()).collect();
        self.voters = voters(division);
        self.rolled_out(generation, |_| {}).await?;
        let object = self.scene.get(NAME).await?;
        for (cluster, voters) in division {
            let ids = listed(&object, cluster);
            ensure!(ids.len() == *voters, "{cluster} has the voters {ids:?}, expected {voters}");
        }
        self.volumes = self.volumes_left().await?.len().saturating_sub(self.most);
        self.members.report(&format!("{division:?} after {:.1} s", begun.elapsed().as_secs_f64()));
        self.all_serve().await
    }

    /// Takes the power from a cluster, and gives it back once the others write.
    async fn lose(&mut self, cluster: &str) -> Result<()> {
        let (leader, _) = self.leads().await?;
        let off = self.power_off(cluster).await?;
        self.writer()?.next(FEW_WRITES, WRITES_AGAIN).await?;
        let took = off.elapsed().as_secs_f64();
        let (now, id) = self.leads().await?;
        self.members.report(&format!(
            "{leader} led: {FEW_WRITES} writes are acknowledged {took:.1} s after the loss, and server {id}, {now}, leads"
        ));
        self.power_on(cluster).await?;
        self.all_serve().await
    }

    async fn each_lost(&mut self) -> Result<()> {
        self.divide(WITH_WITNESS).await?;
        let object = self.scene.get(NAME).await?;
        let ids: Vec<_> = WITH_WITNESS.iter().map(|(cluster, _)| listed(&object, cluster)).collect();
        ensure!(ids.is_sorted(), "the ids are {ids:?}: the witness has not the lowest one");
        let (leader, id) = self.leads().await?;
        self.members.report(&format!("the ids are {ids:?}; server {id}, {leader}, leads"));
        for (cluster, _) in WITH_WITNESS {
            self.lose(cluster).await?;
        }
        let mut leaders = Vec::new();
        for _ in 0..ELECTIONS {
            // The status may name a former one, so soon after a cluster has returned.
            let (leader, _) = self.leads().await?;
            self.kill(&leader).await?;
            leaders.push(self.leads().await?.1);
            self.all_serve().await?;
        }
        self.members.report(&format!("after {ELECTIONS} kills of the leader these ids led: {leaders:?}"));
        self.nothing_rolled().await
    }

    async fn switched(&mut self) -> Result<()> {
        self.divide(MAJORITY_IN_M2).await?;
        let recorder = self.recorder();
        let mut done = self.divide(SIX).await;
        if done.is_ok() {
            done = self.divide(MAJORITY_IN_M3).await;
        }
        let samples = self.recorded(recorder).await;
        done?;
        self.never_fewer(&samples?)?;
        self.lose("m2").await?;
        self.nothing_rolled().await
    }

    async fn smaller_lost(&mut self) -> Result<()> {
        self.divide(MAJORITY_IN_M3).await?;
        self.failover_begins(None).await?;
        let smaller = self.seat("m2").await?;
        self.votes_of(&smaller).await
    }

    async fn halves_lost(&mut self) -> Result<()> {
        self.divide(HALVES).await?;
        for (cluster, _) in HALVES {
            self.power_off(cluster).await?;
            let addresses = self.pods().addresses().await?;
            ensure!(addresses.len() == self.voters / 2, "{addresses:?} are left");
            let tried = self.nothing_acknowledged(&addresses, SILENT).await?;
            self.members.report(&format!("without {cluster} no server acknowledged any of {tried} writes"));
            let on = self.power_on(cluster).await?;
            self.writer()?.next(FEW_WRITES, WRITES_AGAIN).await?;
            let took = on.elapsed().as_secs_f64();
            self.members.report(&format!("{FEW_WRITES} writes are acknowledged {took:.1} s after power"));
            self.all_serve().await?;
            self.nothing_is_lost().await?;
        }
        self.nothing_rolled().await
    }
}

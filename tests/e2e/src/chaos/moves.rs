//! Moves of voters to a spare and home again, and a check that only a lost cluster is left without a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::{Context, Result};
use kube::ResourceExt as _;
use mczk_api::{MultiClusterZooKeeper, contract::requested_places::RequestedPlaces};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    apply::{Applied, Undo},
    checks::Failure,
    operations::{Kind, Operation},
    play::Record,
    world::{NAME, World},
};
use crate::{
    federation::KARMADA,
    members::{Server, spec},
};

/// How often the status is read.
const PACE: Duration = Duration::from_millis(500);

/// What the user declares for a placement: every other cluster is a spare. Long power losses last longer than these times.
#[must_use]
pub fn failover(placement: &[String], clusters: &[String]) -> Value {
    let spares: Vec<&String> = clusters.iter().filter(|cluster| !placement.contains(cluster)).collect();
    let spares = (!spares.is_empty()).then_some(spares);
    let seconds = spares.as_ref().map(|_| 60);
    json!({
        "demoteAfterSeconds": 60, "spares": spares, "moveAfterSeconds": seconds, "moveBackAfterSeconds": seconds,
    })
}

/// The part of a spec that declares a placement, and its spares.
#[must_use]
pub fn placed(placement: &[String], clusters: &[String]) -> Value {
    let mut spec = spec::placement(placement);
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("failover".to_owned(), failover(placement, clusters));
    }
    spec
}

/// The place that holds the voters of each home.
#[must_use]
pub fn moved(object: &MultiClusterZooKeeper) -> BTreeMap<&String, &String> {
    let clusters = object.status.iter().flat_map(|status| &status.clusters);
    clusters.filter_map(|cluster| Some((&cluster.name, cluster.moved_to.as_ref()?))).collect()
}

impl World<'_> {
    /// Asks for a move, for the way home, or removes the request: what the last request was not.
    pub(super) async fn request_move(&self, operation: &Operation) -> Result<Applied> {
        let object = self.soon(self.scene.get(NAME)).await?;
        let requested = RequestedPlaces::read(object.annotations()).unwrap_or_default();
        let (home, flag) = match requested.pairs().next() {
            Some((home, place)) if home == place => (home.to_owned(), "--release"),
            Some((home, _)) => (home.to_owned(), "--back"),
            None => {
                let placement = self.declared().placement.clone();
                (operation.of(&placement).context("there is no placement")?.clone(), "--from")
            }
        };
        let request = ["failover", NAME, flag, &home];
        self.soon(self.scene.command(&request)).await?;
        let ends = operation.kind == Kind::RehearseMove && flag == "--from";
        Ok(Applied::new(format!("{flag} {home}"), ends.then_some(Undo::Home(home))))
    }

    /// Watches decisions to move voters, until one of them leaves a cluster that serves without a request.
    ///
    /// # Errors
    /// That decision.
    pub(super) async fn watch_moves(&self, record: &Record) -> anyhow::Error {
        let mut decided = BTreeSet::new();
        loop {
            sleep(PACE).await;
            // Karmada may have no API server, or be another one.
            let Ok(Ok(object)) = tokio::time::timeout(PACE, self.scene.get(NAME)).await else { continue };
            let clusters = object.status.iter().flat_map(|status| &status.clusters);
            let requested = RequestedPlaces::read(object.annotations()).unwrap_or_default();
            for (cluster, since) in clusters.filter_map(|of| Some((of, &of.moved_since.as_ref()?.0))) {
                let (home, place) = (&cluster.name, cluster.moved_to.as_ref().unwrap_or(&cluster.name));
                if !decided.insert((home.clone(), place.clone(), *since)) {
                    continue;
                }
                self.moves.fetch_add(1, Ordering::Relaxed);
                let request = requested.value();
                record.comment(&format!("the voters of {home} shall be in {place} since {since}; request {request:?}"));
                if !requested.names(home) && place != home && self.follows(home).await {
                    let why = format!("the voters of {home} were to move to {place}, and one of them followed");
                    return anyhow::anyhow!(why).context(Failure::MovedUnasked);
                }
            }
        }
    }

    /// True if a server of the cluster leads or follows.
    async fn follows(&self, cluster: &str) -> bool {
        let servers = self.servers().await.unwrap_or_default();
        let modes = servers.iter().filter(|server| server.cluster == cluster).map(Server::mode);
        let modes = futures::future::join_all(modes).await;
        modes.iter().flatten().any(|mode| mode == "leader" || mode == "follower")
    }

    /// Kills a component of Karmada. The rig starts it again.
    pub(super) async fn kill_karmada(&self, operation: &Operation) -> Result<Applied> {
        let component = *operation.of(&KARMADA).context("there are no components")?;
        self.soon(self.members.federation.rig.kill(component)).await?;
        Ok(Applied::new(component, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_outside_the_placement_is_a_spare() {
        let clusters = ["m1", "m2", "m3", "m4"].map(str::to_owned);
        let some = failover(clusters.get(..3).unwrap_or_default(), &clusters);
        let times = |seconds: Value, spares: Value| {
            json!({
                "demoteAfterSeconds": 60, "spares": spares, "moveAfterSeconds": seconds, "moveBackAfterSeconds": seconds,
            })
        };
        assert_eq!(some, times(json!(60), json!(["m4"])));
        assert_eq!(failover(&clusters, &clusters), times(Value::Null, Value::Null));
    }
}

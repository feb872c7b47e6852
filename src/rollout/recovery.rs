//! What is found again when a status or a policy was lost: records, ids, the list of servers and the pins.

use std::collections::BTreeMap;

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, ObservedGenerations, Record},
        zookeeper::{Ensemble, ZooKeeperSpec},
    },
    rollout::{
        desired::{HIGHEST_ID, RECORDS},
        ensemble::{self, Found, Naming},
        member::Member,
        mutation::Mutation,
        observed::Observed,
        override_rules::Overrides,
        render,
    },
};

/// The records: those of the status, or, when it was lost, those that the OverridePolicy mirrors.
pub(super) fn remembered(observed: &Observed, old: &MultiClusterZooKeeperStatus) -> Vec<Record> {
    if !old.records.is_empty() {
        return old.records.clone();
    }
    observed
        .overrides
        .as_ref()
        .and_then(|o| o.metadata.annotations.as_ref())
        .and_then(|a| a.get(RECORDS))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

pub(super) fn highest_id(observed: &Observed, ensemble: &Ensemble) -> i32 {
    observed
        .overrides
        .as_ref()
        .and_then(|o| o.metadata.annotations.as_ref())
        .and_then(|a| a.get(HIGHEST_ID))
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
        .max(ensemble.servers.iter().map(|s| s.id).max().unwrap_or(0))
}

/// The ensemble, when the policy that held it is gone.
pub(super) fn recover(
    naming: Naming<'_>,
    old: &MultiClusterZooKeeperStatus,
    clusters: &[String],
    members: &BTreeMap<String, Member>,
    mutation: Mutation,
) -> Found {
    match ensemble::from_status(naming, old, members, mutation) {
        Some(found) => Found::Ensemble(Box::new(found)),
        None => ensemble::from_members(naming, clusters, members, mutation),
    }
}

/// The pins of clusters that a lost policy held: known again where the record says that they were given the template as
/// it is. Others stay without: their agents change nothing until their turn comes.
pub(super) fn recover_pins(
    current: &mut Overrides,
    records: &[Record],
    generations: ObservedGenerations,
    template: &ZooKeeperSpec,
    old: &MultiClusterZooKeeperStatus,
) -> serde_json::Result<()> {
    let Some(last) = records.last().filter(|r| r.observed_generations.zookeeper == generations.zookeeper) else {
        return Ok(());
    };
    for cluster in last.current_state.completed.iter().chain(&last.current_state.deploying) {
        let Some(told) = old.clusters.iter().find(|c| c.name == *cluster).filter(|c| c.desired > 0) else { continue };
        current.pins.insert(cluster.clone(), render::pin(template, cluster, told.desired)?);
    }
    Ok(())
}

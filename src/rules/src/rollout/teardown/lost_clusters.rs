//! The clusters that may have servers of an ensemble that ends, and do not report their end: a tombstone names them.

use std::collections::BTreeSet;

use crate::rollout::{
    cluster_selection::ClusterSelection,
    known::{Ending, Known},
};
use mczk_api::{
    contract::tombstone::Tombstone,
    karmada::work::{Work, cluster_of},
};

/// The cluster of a Work that Karmada deletes, if Karmada does not reach it or the user has abandoned it. The object there stays
/// until it comes back, and no report names it: Karmada leaves such a Work out of the binding's status.
pub(super) fn cluster_that_is_lost<'a>(known: &Known<'_>, work: &'a Work) -> Option<&'a str> {
    work.metadata.deletion_timestamp.as_ref()?;
    cluster_of(&work.metadata).filter(|cluster| known.abandoned.contains(*cluster) || !known.is_ready(cluster))
}

/// The cluster of a Work that Karmada deletes and has no report of: the cluster left the ensemble. Even if Karmada reaches it
/// again, its agent may not know that yet: Karmada repeats the deletion only after up to 1000 s.
fn cluster_that_left<'a>(known: &Known<'_>, work: &'a Work) -> Option<&'a str> {
    work.metadata.deletion_timestamp.as_ref()?;
    cluster_of(&work.metadata).filter(|cluster| !known.has_work(cluster))
}

/// True if Karmada has no object for a cluster, and none comes: it has left the selection. Its agent can report nothing.
pub(super) fn has_left_selection(known: &Known<'_>, cluster: &str) -> bool {
    let selected = known.selection.as_ref().map(ClusterSelection::clusters);
    !known.has_work(cluster) && selected.is_some_and(|selected| !selected.iter().any(|name| name == cluster))
}

/// The tombstone for the clusters that left the ensemble while Karmada did not reach them. It comes while the others end: Karmada
/// may remove the last object that names such a cluster at any time.
pub(super) fn tombstone_of_left(known: &Known<'_>, ending: &Ending) -> Option<Tombstone> {
    let may_hold = |work| cluster_that_is_lost(known, work).or_else(|| cluster_that_left(known, work));
    let with_work = known.works.iter().filter_map(may_hold).map(str::to_owned);
    // The status keeps a cluster that left until Karmada has removed the object there. Its agent may not know that yet.
    let recorded = known.status.clusters.iter().filter(|cluster| cluster.reported).map(|cluster| &cluster.name);
    let without = ending.concerned.iter().chain(recorded).filter(|cluster| has_left_selection(known, cluster)).cloned();
    tombstone_for(known, with_work.chain(without))
}

/// The tombstone for the clusters that may have servers and have not reported their end: those that the user has abandoned,
/// and those that left the ensemble.
pub(super) fn tombstone(known: &Known<'_>, ending: &Ending) -> Option<Tombstone> {
    let left = tombstone_of_left(known, ending).map(|tombstone| tombstone.clusters).unwrap_or_default();
    let without_report = known
        .reports
        .iter()
        .filter(|(name, report)| {
            let status = report.status.as_ref();
            let may_hold = ending.concerned.contains(*name) || status.is_some_and(|s| s.observed_spec_hash.is_some());
            let is_done = report.has_decommissioned(&known.overrides.ensemble);
            may_hold && !is_done && (!report.reachable || known.abandoned.contains(name.as_str()))
        })
        .map(|(name, _)| name.clone());
    tombstone_for(known, without_report.chain(left))
}

fn tombstone_for(known: &Known<'_>, clusters: impl Iterator<Item = String>) -> Option<Tombstone> {
    let clusters: BTreeSet<String> = clusters.collect();
    (known.incarnation.recorded && !clusters.is_empty()).then(|| Tombstone {
        namespace: known.namespace.clone(),
        name: known.name.clone(),
        incarnation: known.incarnation.id.clone(),
        clusters,
    })
}

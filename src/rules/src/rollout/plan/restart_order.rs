//! In which order the clusters of an ensemble would restart.

use crate::rollout::{
    known::Known,
    record::{self, Rank},
};

/// The clusters of the schedule, in the order that a record which starts now would have.
#[must_use]
pub fn restart_order(known: &Known<'_>) -> Vec<String> {
    let bound = known.binding.iter().flat_map(|binding| &binding.spec.clusters);
    let scheduled: Vec<String> = bound.map(|cluster| cluster.name.clone()).collect();
    // A record that can finish ends before the restart begins.
    let stuck_at = known.stuck.as_ref().and_then(|stuck| record::stuck_at(known.records.last(), Some(stuck)));
    record::order(&scheduled, record::listed(&known.rollout), !known.quorum.formed, |cluster| {
        let desired = known.overrides.cluster_specs.get(cluster).map(|spec| spec.replicas);
        Rank::of(known.reports.get(cluster), desired, known.quorum.leader, stuck_at == Some(cluster))
    })
}

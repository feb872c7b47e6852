//! Whether a cluster can take voters.

use std::collections::BTreeMap;

use super::seats::Seats;
use crate::rollout::{
    placement::repelling_taint,
    served_kinds::{BRING_KINDS, serves_kinds},
};
use mczk_api::karmada::cluster::Cluster;

/// The declared spares that hold no voters, each with what makes it unusable.
pub(super) fn unused(seats: &Seats<'_>) -> BTreeMap<String, Option<String>> {
    let is_used = |spare: &String| seats.moved.values().any(|used| used == spare);
    let unused = seats.known.spares().iter().filter(|spare| !is_used(spare));
    unused.map(|spare| (spare.clone(), unusable(seats, spare))).collect()
}

/// Why a cluster can take no voters now.
pub(super) fn unusable(seats: &Seats<'_>, name: &str) -> Option<String> {
    let known = seats.known;
    let Some(cluster) = known.clusters.iter().find(|cluster| cluster.name() == name) else {
        return Some(format!("{name} has not joined Karmada"));
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some(format!("{name} is leaving Karmada"));
    }
    if !cluster.ready() {
        return Some(format!("{name} is not Ready in Karmada, or has no Ready node"));
    }
    if !serves_kinds(cluster) {
        return Some(format!("{name} does not serve ZooKeeper and ServiceExport. Run {BRING_KINDS}"));
    }
    if let Some(taint) = repelling_taint(cluster, &seats.selection.placement.cluster_tolerations) {
        return Some(format!(
            "{name} has the taint {}:{}. Remove it, or tolerate it in spec.placement.clusterTolerations",
            taint.key, taint.effect
        ));
    }
    if !seats.voters(name).is_empty() {
        return Some(format!("{name} has voters"));
    }
    if known.abandoned.contains(name) {
        return Some(format!("{name} is abandoned"));
    }
    still_held(seats, cluster)
}

/// Why a cluster that had servers before is not free of them: Karmada would delete the object that it brings again.
fn still_held(seats: &Seats<'_>, cluster: &Cluster) -> Option<String> {
    let known = seats.known;
    let name = cluster.name();
    if seats.recorded(name).is_some_and(|before| known.is_left_behind(before)) {
        return Some(format!(
            "Karmada has not removed the former object from {name} yet, which takes up to 17 minutes"
        ));
    }
    let report = known.reports.get(name).and_then(|report| report.fresh_status());
    let is_selected = seats.selection.clusters().iter().any(|selected| selected == name);
    let ends = report.filter(|status| !is_selected && !status.servers.is_empty());
    ends.map(|_| format!("the former servers in {name} have not ended yet"))
}

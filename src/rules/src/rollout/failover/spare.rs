//! Whether a cluster can take voters.

use std::collections::BTreeMap;

use super::seats::Seats;
use crate::rollout::{
    placement::repelling_taint,
    report::ClusterReport,
    served_kinds::{BRING_KINDS, serves_kinds},
};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
    },
    karmada::cluster::Cluster,
    mutation::broken,
};

/// The declared spares that hold no voters, each with what makes it unusable.
pub(super) fn unused(seats: &Seats<'_>) -> BTreeMap<String, Option<Cause>> {
    let is_used = |spare: &String| seats.moved.values().any(|used| used == spare);
    let unused = seats.known.spares().iter().filter(|spare| !is_used(spare));
    let cause = |spare: &String| {
        let unusable = unusable(seats, spare).or_else(|| unfit(seats, spare));
        let unusable = unusable.map(|why| Cause::new(Reason::SpareUnusable, why));
        unusable.or_else(|| unanswered(seats, spare).map(|why| Cause::new(Reason::SpareUnanswered, why)))
    };
    unused.map(|spare| (spare.clone(), cause(spare))).collect()
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

/// True if the agent of a spare has answered that its cluster would accept servers.
pub(super) fn has_accepted(seats: &Seats<'_>, name: &str) -> bool {
    let status = seats.known.spare_reports.get(name).and_then(|report| report.fresh_status());
    status.is_some_and(|status| find(&status.conditions, ConditionType::SpareFit, ConditionStatus::True).is_some())
}

/// Why the API server of a spare would refuse servers, as its agent reports it. Only a user may move voters there all the same.
pub(super) fn unfit(seats: &Seats<'_>, name: &str) -> Option<String> {
    let status = seats.known.spare_reports.get(name).and_then(|report| report.fresh_status())?;
    if broken!(BelieveSpare) {
        return None;
    }
    // An agent that is blocked cannot ask: it keeps its last answer, or has none.
    let blocked = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True);
    let refused = blocked.or_else(|| find(&status.conditions, ConditionType::SpareFit, ConditionStatus::False))?;
    Some(format!("{name} would not accept servers. {}", refused.message))
}

/// Why no agent of a spare has said whether the cluster would accept servers. A move may use the spare all the same: its network
/// check is the last word, and the agent may just be older than the operator.
fn unanswered(seats: &Seats<'_>, name: &str) -> Option<String> {
    if has_accepted(seats, name) {
        return None;
    }
    let refusal = seats.known.spare_reports.get(name).and_then(ClusterReport::refusal).map(|cause| cause.message);
    Some(refusal.unwrap_or_else(|| {
        format!(
            "the agent of {name} has not answered whether the cluster would accept servers. If that lasts, the agent is not \
             there, or older than the operator"
        )
    }))
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

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

/// The declared spares that hold no voters, each with what makes it unusable, or what is not known of it.
pub(super) fn unused(seats: &Seats<'_>) -> BTreeMap<String, Option<Cause>> {
    let is_used = |spare: &String| seats.moved.values().any(|used| used == spare);
    let unused = seats.known.spares().iter().filter(|spare| !is_used(spare));
    let cause = |spare: &String| match (unusable(seats, spare), answer(seats, spare)) {
        (Some(why), _) | (None, SpareAnswer::Refuses(why)) => Some(Cause::new(Reason::SpareUnusable, why)),
        (None, SpareAnswer::Unknown(why)) => Some(Cause::new(Reason::SpareUnanswered, why)),
        (None, SpareAnswer::Accepts) => None,
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

/// What the agent of a spare says of its cluster.
enum SpareAnswer {
    /// The cluster would accept servers.
    Accepts,
    /// It would not, and why.
    Refuses(String),
    /// The agent has not answered. Its network check is the last word in a move, and the agent may just be older than the operator.
    Unknown(String),
}

fn answer(seats: &Seats<'_>, name: &str) -> SpareAnswer {
    let report = seats.known.spare_reports.get(name);
    let status = report.and_then(|report| report.fresh_status());
    let has = |type_, status_| status.and_then(|status| find(&status.conditions, type_, status_));
    // An agent that cannot go on reports Blocked, mostly without an answer.
    let blocked = has(ConditionType::Blocked, ConditionStatus::True);
    let refused = blocked.or_else(|| has(ConditionType::SpareFit, ConditionStatus::False));
    match refused.filter(|_| !broken!(BelieveSpare)) {
        Some(refused) => SpareAnswer::Refuses(format!("{name} would not accept servers. {}", refused.message)),
        None if has(ConditionType::SpareFit, ConditionStatus::True).is_some() => SpareAnswer::Accepts,
        None => SpareAnswer::Unknown(report.and_then(ClusterReport::refusal).map_or_else(
            || {
                format!(
                    "the agent of {name} has not answered whether the cluster would accept servers. If that lasts, the agent is \
                     not there, or older than the operator"
                )
            },
            |cause| cause.message,
        )),
    }
}

/// True if the API server of a spare would refuse servers, as its agent reports it. Only a user may move voters there all the same.
pub(super) fn is_unfit(seats: &Seats<'_>, name: &str) -> bool {
    matches!(answer(seats, name), SpareAnswer::Refuses(_))
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

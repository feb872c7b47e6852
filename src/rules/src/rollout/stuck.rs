//! Why a record does not move.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};

use crate::rollout::{override_rules::Overrides, report::ClusterReport};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
    },
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record, RecordStatus, Rollout},
    mutation::broken,
    zookeeper::{ZooKeeperSpec, ZooKeeperStatus},
};

/// Default of `rollout.progressDeadlineSeconds`.
const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;

/// A record that cannot move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The cluster that stops the record.
    pub cluster: String,
    /// Why the record cannot move.
    pub why: Cause,
}

impl Stuck {
    /// The state of the cluster comes before its absence in the message.
    fn unreachable(cluster: &str, state: &str, reports: &BTreeMap<String, ClusterReport>) -> Self {
        let Cause { reason, message } = ClusterReport::absence(reports.get(cluster));
        let message = format!("Cluster {cluster} {state} {message}");
        Self { cluster: cluster.to_owned(), why: Cause { reason, message } }
    }

    fn overdue(cluster: &str, message: String) -> Self {
        Self { cluster: cluster.to_owned(), why: Cause { reason: Reason::ProgressDeadlineExceeded, message } }
    }
}

/// Why the last record cannot move, if it cannot.
pub(super) fn stuck(
    last: &Record,
    reports: &BTreeMap<String, ClusterReport>,
    overrides: &Overrides,
    rollout: &Rollout,
    status: &MultiClusterZooKeeperStatus,
    now: Timestamp,
) -> Option<Stuck> {
    if last.status != RecordStatus::Deploying {
        return None;
    }
    let deadline = deadline(rollout);
    let elapsed = now.as_second() - last.last_transition_time.0.as_second();
    let Some(cluster) = last.current_state.deploying.first() else {
        return stuck_before_next(last, reports, overrides).or_else(|| {
            // A correction by the user must reach the clusters, although none of them could start until now.
            let next = last.current_state.pending.first().filter(|_| elapsed >= deadline)?;
            Some(Stuck::overdue(next, format!("No cluster started within {deadline} s")))
        });
    };
    if reports.get(cluster).is_none_or(|report| !report.reachable) {
        return Some(Stuck::unreachable(cluster, "is deploying and", reports));
    }
    // A complete cluster is held for `holdSeconds`.
    let complete = status.clusters.iter().any(|c| c.name == *cluster && c.ready);
    let hold = if complete { i64::from(rollout.hold_seconds.unwrap_or(0)) } else { 0 };
    failed(cluster, reports, overrides).or_else(|| {
        let overdue = elapsed >= deadline.saturating_add(hold);
        overdue.then(|| Stuck::overdue(cluster, format!("Cluster {cluster} is not complete after {deadline} s")))
    })
}

/// Why no cluster can start.
fn stuck_before_next(last: &Record, reports: &BTreeMap<String, ClusterReport>, overrides: &Overrides) -> Option<Stuck> {
    let next = last.current_state.pending.first()?;
    if let Some(cluster) = half_changed(last, reports, overrides) {
        return Some(Stuck::unreachable(cluster, "has not completed its last change and is", reports));
    }
    let all_unreachable =
        last.current_state.pending.iter().all(|name| reports.get(name).is_none_or(|report| !report.reachable));
    all_unreachable.then(|| Stuck::unreachable(next, "is next and", reports))
}

/// Why a cluster cannot take the spec that it has: what Karmada or its agent reports.
fn failed(cluster: &str, reports: &BTreeMap<String, ClusterReport>, overrides: &Overrides) -> Option<Stuck> {
    let report = reports.get(cluster)?;
    let hash = overrides.cluster_specs.get(cluster)?.spec_hash.as_ref()?;
    let stuck = |reason, message| Some(Stuck { cluster: cluster.to_owned(), why: Cause { reason, message } });
    if let Some(why) = report.refusal() {
        return Some(Stuck { cluster: cluster.to_owned(), why });
    }
    let status = report.status.as_ref()?;
    if status.completed_spec_hash.as_ref() == Some(hash) {
        return None;
    }
    let accepts = status.observed_spec_hash.as_ref() == Some(hash);
    let condition = blocked(status, accepts).or_else(|| {
        find(&status.conditions, ConditionType::AgentProgressing, ConditionStatus::False).filter(|_| accepts)
    })?;
    stuck(Reason::ClusterFailed, format!("Cluster {cluster} reports {}: {}", condition.reason, condition.message))
}

/// The condition of a cluster that another spec may end. Other reasons pass by themselves, or no spec ends them. `accepts` is true
/// if its agent has accepted the spec.
fn blocked(status: &ZooKeeperStatus, accepts: bool) -> Option<&Condition> {
    let condition = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True)?;
    let ends = match condition.reason.parse().ok()? {
        Reason::SpecRefused | Reason::UnsupportedSpec => true,
        Reason::ObjectRefused | Reason::NameConflict | Reason::VolumeNotResized | Reason::ClientCertificates => accepts,
        _ => false,
    };
    ends.then_some(condition)
}

/// Seconds until a record counts as stuck. `None` if it does, or has nothing left to do.
pub(super) fn until_stuck(last: &Record, rollout: &Rollout, now: Timestamp) -> Option<i64> {
    let left = deadline(rollout) - (now.as_second() - last.last_transition_time.0.as_second());
    (left > 0 && last.status == RecordStatus::Deploying && !broken!(SleepPastDeadline)).then_some(left)
}

/// Seconds after which a record that does not move is stuck.
pub(super) fn deadline(rollout: &Rollout) -> i64 {
    i64::from(rollout.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS))
}

/// An unreachable pending cluster whose last report does not show its current spec as completed. Its agent may be applying
/// that spec, so no other cluster may start (S1).
pub(super) fn half_changed<'a>(
    last: &'a Record,
    reports: &BTreeMap<String, ClusterReport>,
    overrides: &Overrides,
) -> Option<&'a String> {
    last.current_state.pending.iter().find(|cluster| {
        let report = reports.get(*cluster);
        let status = report.and_then(|report| report.status.as_ref());
        report.is_none_or(|report| !report.reachable) && !has_completed(overrides.cluster_specs.get(*cluster), status)
    })
}

/// True if an agent has completed its spec: that of the policy, else the one that it observed last. Without either it has none.
fn has_completed(spec: Option<&ZooKeeperSpec>, status: Option<&ZooKeeperStatus>) -> bool {
    let Some(status) = status else { return spec.is_none() };
    let assigned = spec.map_or(&status.observed_spec_hash, |spec| &spec.spec_hash);
    status.completed_spec_hash == *assigned
}

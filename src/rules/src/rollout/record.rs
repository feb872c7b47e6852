//! The record: the generations that it rolls out, the order of the clusters, and the state of each.
//!
//! A record starts if there is none, or if the last one is `Ready` and the template has another generation. Two rules complete
//! these: a newer generation supersedes a record that cannot finish, and a changed schedule starts a record too.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::rollout::{report::ClusterReport, stuck::Stuck};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    multiclusterzookeeper::{CurrentState, ObservedGenerations, Record, RecordStatus, Rollout, RolloutOrder},
    mutation::broken,
};

/// Why a record starts, or why none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There is no record.
    First,
    /// The template is newer than the last record, which is done.
    NewGeneration,
    /// The template is newer than the last record, which cannot finish.
    Superseded,
    /// The schedule or a cluster spec differs from the last record, which is done or lacks a cluster that joins.
    Rescheduled,
    /// The schedule has lost a cluster that the last record has not completed.
    ClusterGone,
    /// No record starts: the last one is done, and only its generations change.
    Unchanged,
    /// No record starts: the last one continues, or is done and current.
    Continue,
}

/// Inputs of [`start`].
#[derive(Clone, Copy, Debug)]
pub struct RecordInputs<'a> {
    /// The current generations.
    pub generations: ObservedGenerations,
    /// Clusters of the settled schedule.
    pub scheduled: &'a [String],
    /// True if a cluster spec or the server list has to change.
    pub changes: bool,
    /// True if the last record cannot finish, or a cluster that it completed has to change again.
    pub stuck: bool,
    /// True if the last record lacks a cluster that joins: what the record waits for may need its voters.
    pub joins: bool,
}

/// Whether a new record starts.
#[must_use]
pub fn start(last: Option<&Record>, inputs: &RecordInputs<'_>) -> Start {
    let Some(last) = last else { return Start::First };
    // The generation is smaller if the template was recreated.
    let newer = last.observed_generations.zookeeper != inputs.generations.zookeeper;
    match last.status {
        RecordStatus::Ready if broken!(ContinueReadyRecord) => Start::Continue,
        RecordStatus::Ready if newer && !inputs.changes => Start::Unchanged,
        RecordStatus::Ready if newer => Start::NewGeneration,
        RecordStatus::Ready if inputs.changes => Start::Rescheduled,
        RecordStatus::Ready => Start::Continue,
        RecordStatus::Superseded => Start::Superseded,
        RecordStatus::Deploying if newer && inputs.stuck => Start::Superseded,
        RecordStatus::Deploying => {
            let open = last.current_state.pending.iter().chain(&last.current_state.deploying);
            let has_left = open.into_iter().any(|cluster| !inputs.scheduled.contains(cluster));
            if has_left {
                Start::ClusterGone
            } else if inputs.joins {
                Start::Rescheduled
            } else {
                Start::Continue
            }
        }
    }
}

/// A new record: all clusters are pending.
#[must_use]
pub fn new(generations: ObservedGenerations, order: Vec<String>, now: Timestamp) -> Record {
    Record {
        observed_generations: generations,
        current_state: CurrentState { pending: order.clone(), ..CurrentState::default() },
        order,
        status: RecordStatus::Deploying,
        last_transition_time: Time(now),
    }
}

/// State of a cluster, for the order of a record.
#[allow(clippy::struct_excessive_bools)] // four independent facts
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// True if Karmada reaches the cluster.
    pub reachable: bool,
    /// True if all of its servers serve.
    pub healthy: bool,
    /// True if it holds the leader.
    pub leader: bool,
    /// True if the superseded record was stuck there.
    pub stuck: bool,
}

impl Rank {
    /// The state of a cluster, by its last report. `desired` are the voters that it gets, and `leader` is the id of the
    /// leader.
    #[must_use]
    pub fn of(report: Option<&ClusterReport>, desired: Option<i32>, leader: Option<i32>, stuck: bool) -> Self {
        let status = report.and_then(|report| report.status.as_ref());
        let servers = status.map(|status| status.servers.as_slice()).unwrap_or_default();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        Self {
            reachable: report.is_some_and(|report| report.reachable),
            // A cluster that lacks servers comes early too: voters that join make room for voters that leave.
            healthy: !servers.is_empty()
                && servers.iter().all(|server| server.serving)
                && desired.is_none_or(|desired| ready >= desired),
            leader: leader.is_some_and(|id| servers.iter().any(|server| server.id == id)),
            stuck,
        }
    }
}

/// The cluster at which a record that follows `last` begins: it is half changed, or kept `last` from ending.
pub(super) fn stuck_at<'a>(last: Option<&'a Record>, stuck: Option<&'a Stuck>) -> Option<&'a str> {
    let deploying = last.filter(|last| last.status == RecordStatus::Deploying);
    let deploying = deploying.and_then(|last| last.current_state.deploying.first());
    deploying.or_else(|| stuck.map(|stuck| &stuck.cluster)).map(String::as_str)
}

/// The clusters that `rollout` lists, if their order counts.
#[must_use]
pub fn listed(rollout: &Rollout) -> Option<&[String]> {
    (rollout.order == Some(RolloutOrder::Listed)).then_some(rollout.clusters.as_slice())
}

/// The order of a record.
///
/// First comes the cluster where the last record was stuck, then the clusters that `rollout.clusters` lists. Without such a list
/// unhealthy clusters come first, the leader's cluster last, and unreachable ones after it. A bootstrap keeps the order of the
/// schedule.
#[must_use]
pub fn order(
    scheduled: &[String],
    listed: Option<&[String]>,
    bootstrap: bool,
    rank: impl Fn(&str) -> Rank,
) -> Vec<String> {
    let mut order: Vec<(usize, String)> = scheduled.iter().cloned().enumerate().collect();
    order.sort_by_key(|(index, cluster)| {
        let rank = rank(cluster);
        let class = match (listed, rank) {
            (_, Rank { stuck: true, .. }) => 0,
            (Some(list), _) => 1 + list.iter().position(|l| l == cluster).unwrap_or(list.len()),
            (None, Rank { reachable: false, .. }) => 4,
            (None, _) if bootstrap => 1,
            (None, Rank { healthy: false, .. }) => 1,
            (None, Rank { leader: true, .. }) => 3,
            (None, _) => 2,
        };
        (class, *index)
    });
    order.into_iter().map(|(_, cluster)| cluster).collect()
}

/// Ends the records before a new one.
pub(super) fn supersede(records: &mut [Record], now: Timestamp) {
    for record in records.iter_mut().filter(|record| record.status == RecordStatus::Deploying) {
        record.status = RecordStatus::Superseded;
        record.last_transition_time = Time(now);
    }
}

/// Moves a cluster from `pending` to `deploying`.
pub(super) fn start_cluster(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.pending.retain(|c| c != cluster);
    record.current_state.deploying.push(cluster.to_owned());
    record.last_transition_time = Time(now);
}

/// Moves a cluster from `deploying` back to the front of `pending`: it has not got its spec yet.
pub(super) fn put_back(record: &mut Record, cluster: &str) {
    record.current_state.deploying.retain(|c| c != cluster);
    record.current_state.pending.insert(0, cluster.to_owned());
}

/// Moves a cluster from `deploying` to `completed`.
pub(super) fn finish(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.deploying.retain(|c| c != cluster);
    record.current_state.completed.push(cluster.to_owned());
    record.last_transition_time = Time(now);
}

/// Removes a pending cluster from the record.
pub(super) fn leave_out(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.pending.retain(|c| c != cluster);
    record.order.retain(|c| c != cluster);
    record.last_transition_time = Time(now);
}

/// A summary of the record, for `status.rollout`.
#[must_use]
pub(super) fn summary(record: &Record) -> String {
    match record.status {
        RecordStatus::Ready => "Ready".to_owned(),
        RecordStatus::Superseded => "Superseded".to_owned(),
        RecordStatus::Deploying => {
            let progress = format!("({}/{})", record.current_state.completed.len(), record.order.len());
            match record.current_state.deploying.first() {
                Some(cluster) => format!("Deploying {cluster} {progress}"),
                None => format!("Deploying {progress}"),
            }
        }
    }
}

/// What the rollout does; `None` once the last record is rolled out and no newer change of spec waits for that.
pub(super) fn unfinished(records: &[Record], newer_change: Option<&Cause>) -> Option<Cause> {
    let message = match records.last() {
        None => "The rollout starts".to_owned(),
        Some(last) if last.status == RecordStatus::Ready => {
            newer_change?;
            "The last record is rolled out".to_owned()
        }
        Some(last) => summary(last),
    };
    Some(Cause::new(Reason::Deploying, message))
}

//! The record: which generations are rolled out, in which order, and where each cluster stands.
//!
//! A deployment may start when there is no record, or when the template's generation is newer than the last record's and
//! that record is `Ready`. Two closures are added: a record that cannot finish is superseded by a newer generation, and a
//! change of the schedule by itself starts a record too.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    api::multiclusterzookeeper::{CurrentState, ObservedGenerations, Record, RecordStatus},
    mutation::broken,
};

/// Why a record began, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There was none.
    First,
    /// The template is newer than the last record, which is done.
    NewGeneration,
    /// The template is newer than the last record, which cannot finish.
    Superseded,
    /// The schedule or a cluster's spec differs from what the last record, which is done, left.
    Rescheduled,
    /// The schedule no longer has a cluster that the last record still has to change.
    ClusterGone,
    /// Nothing begins: only the generations of the last record, which is done, move on, since nothing changes.
    Unchanged,
    /// Nothing begins: the last record goes on, or is done and current.
    Continue,
}

/// What the decision to begin rests on.
#[derive(Clone, Copy, Debug)]
pub struct RecordInputs<'a> {
    /// The generations as they are now.
    pub generations: ObservedGenerations,
    /// Clusters of the settled schedule.
    pub scheduled: &'a [String],
    /// Whether any cluster's pin, or the list of servers, is to change.
    pub changes: bool,
    /// Whether the last record cannot finish, or the clusters that it completed are to change again.
    pub stuck: bool,
}

/// Whether a new record begins.
#[must_use]
pub fn start(last: Option<&Record>, inputs: &RecordInputs<'_>) -> Start {
    let Some(last) = last else { return Start::First };
    // Smaller, or larger when the template was made again: its generations then begin at 1.
    let newer = last.observed_generations.zookeeper != inputs.generations.zookeeper;
    match last.status {
        RecordStatus::Ready if broken!(TakeUpReady) => Start::Continue,
        RecordStatus::Ready if newer && !inputs.changes => Start::Unchanged,
        RecordStatus::Ready if newer => Start::NewGeneration,
        RecordStatus::Ready if inputs.changes => Start::Rescheduled,
        RecordStatus::Ready => Start::Continue,
        RecordStatus::Deploying if newer && inputs.stuck => Start::Superseded,
        RecordStatus::Deploying => {
            let open = last.current_state.pending.iter().chain(&last.current_state.deploying);
            let gone = open.into_iter().any(|cluster| !inputs.scheduled.contains(cluster));
            if gone { Start::ClusterGone } else { Start::Continue }
        }
    }
}

/// A new record: all clusters pending.
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

/// What is known of a cluster when an order is made.
#[allow(clippy::struct_excessive_bools)] // four independent facts
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Whether Karmada reaches it.
    pub reachable: bool,
    /// Whether all of its servers serve.
    pub healthy: bool,
    /// Whether it holds the leader.
    pub leader: bool,
    /// Whether the superseded record stuck there.
    pub stuck: bool,
}

/// The order of a record: where the last one stuck first; then, once there is an ensemble, reachable and unhealthy ones,
/// the leader's last, and those that cannot be reached at the very end. A list by the person goes before all but `stuck`.
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

/// Moves a cluster from `pending` to `deploying`.
pub fn begin(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.pending.retain(|c| c != cluster);
    record.current_state.deploying.push(cluster.to_owned());
    record.last_transition_time = Time(now);
}

/// Takes the beginning of a cluster back, which was told nothing yet: it is next again.
pub fn put_back(record: &mut Record, cluster: &str) {
    record.current_state.deploying.retain(|c| c != cluster);
    record.current_state.pending.insert(0, cluster.to_owned());
}

/// Moves a cluster from `deploying` to `completed`.
pub fn finish(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.deploying.retain(|c| c != cluster);
    record.current_state.completed.push(cluster.to_owned());
    record.last_transition_time = Time(now);
}

/// Leaves a cluster out that has not begun.
pub fn leave_out(record: &mut Record, cluster: &str, now: Timestamp) {
    record.current_state.pending.retain(|c| c != cluster);
    record.order.retain(|c| c != cluster);
    record.last_transition_time = Time(now);
}

/// The record in a few words.
#[must_use]
pub fn summary(record: &Record) -> String {
    match record.status {
        RecordStatus::Ready => "Ready".to_owned(),
        RecordStatus::Deploying => {
            let progress = format!("({}/{})", record.current_state.completed.len(), record.order.len());
            match record.current_state.deploying.first() {
                Some(cluster) => format!("Deploying {cluster} {progress}"),
                None => format!("Deploying {progress}"),
            }
        }
    }
}

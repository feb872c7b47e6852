//! The events of a rollout, from the difference between two statuses.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use mczk_api::{
    contract::{
        conditions::{ConditionType, Reason},
        event_reasons::event_reasons,
    },
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record, RecordStatus},
};

event_reasons! {
    /// Reason of an event about a MultiClusterZooKeeper.
    EventReason;

    /// A record starts, with the clusters in order.
    RolloutStarted, Normal; "Nothing";
    /// The operator changes the cluster.
    ClusterDeploying, Normal; "Nothing";
    /// The cluster is complete.
    ClusterCompleted, Normal; "Nothing";
    /// Every cluster runs the generation of the record.
    RolloutCompleted, Normal; "Nothing";
    /// The object is being deleted, and the operator waits for a step of the deletion.
    Deleting, Normal; "See the condition `Progressing`";
    /// The operator cannot use the schedule of Karmada.
    ScheduleFailed, Warning; "See the condition `Scheduled`: the message starts with its reason";
    /// The rollout does not continue.
    RolloutStalled, Warning; "See the condition `Progressing`: the message starts with its reason";
    /// Fewer servers serve than declared, or no quorum serves.
    EnsembleDegraded, Warning; "See the condition `Degraded`: the message starts with its reason";
    /// Voters have lost their votes because they did not follow for `failover.demoteAfterSeconds`.
    Demoted, Warning; "See the condition `FailedOver`: the message names the servers";
    /// A voter that had lost its vote follows again, and has it back.
    VoteReturned, Normal; "Nothing";
    /// The operator moves the voters of a cluster to a spare, or back.
    VotersMove, Normal; "See the condition `FailedOver`: the message says how far it is";
    /// A certificate of the ensemble expires soon, although its renewal is due.
    CertificatesExpire, Warning; "See the condition `CertificatesExpire`: the message starts with its reason";
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its reason.
    pub reason: EventReason,
    /// One sentence.
    pub message: String,
}

/// The events between two statuses, in the order in which the changes happened.
#[must_use]
pub(crate) fn events(old: &MultiClusterZooKeeperStatus, new: &MultiClusterZooKeeperStatus) -> Vec<Event> {
    let record = new.records.last().map(|record| of_record(old, record)).unwrap_or_default();
    let conditions = new.conditions.iter().filter_map(|condition| of_condition(old, condition));
    of_moves(old, new).chain(record).chain(of_votes(old, new)).chain(conditions).collect()
}

/// Decisions to move the voters of a cluster.
fn of_moves<'a>(
    old: &'a MultiClusterZooKeeperStatus,
    new: &'a MultiClusterZooKeeperStatus,
) -> impl Iterator<Item = Event> + 'a {
    let before = |name: &str| old.clusters.iter().find(|cluster| cluster.name == name);
    new.clusters.iter().filter_map(move |cluster| {
        let (name, place) = (&cluster.name, &cluster.moved_to);
        let former = before(name).and_then(|before| before.moved_to.as_ref());
        let message = match (former, place) {
            (former, place) if former == place.as_ref() => return None,
            (_, Some(place)) => format!("The voters of {name} move to {place}"),
            (former, None) => format!("The voters of {name} move back from {}", former.map_or("", String::as_str)),
        };
        Some(Event { reason: EventReason::VotersMove, message })
    })
}

/// Votes that were lost, and votes that have returned.
fn of_votes(old: &MultiClusterZooKeeperStatus, new: &MultiClusterZooKeeperStatus) -> Vec<Event> {
    let of = |status: &MultiClusterZooKeeperStatus| status.ensemble.clone().unwrap_or_default();
    let (before, after) = (of(old), of(new));
    let lost = after.demoted.iter().filter(|id| !before.demoted.contains(id));
    let lost = lost.map(|id| (EventReason::Demoted, format!("Server {id} does not follow, and has lost its vote")));
    let returned = before.demoted.iter().filter(|id| !after.demoted.contains(id) && after.voters.contains(id));
    let returned =
        returned.map(|id| (EventReason::VoteReturned, format!("Server {id} follows, and has its vote back")));
    lost.chain(returned).map(|(reason, message)| Event { reason, message }).collect()
}

fn of_record(old: &MultiClusterZooKeeperStatus, record: &Record) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |reason, message| events.push(Event { reason, message });
    let last = old.records.last();
    // A cluster that is left out of a record disappears from its order.
    let contains_order = |before: &Record| {
        let before: BTreeSet<_> = before.order.iter().collect();
        before.is_superset(&record.order.iter().collect())
    };
    let same = last.filter(|l| l.observed_generations == record.observed_generations && contains_order(l));
    let generation = record.observed_generations.zookeeper;
    if same.is_none() && record.status == RecordStatus::Deploying {
        let order = record.order.join(", ");
        add(EventReason::RolloutStarted, format!("Rolling out generation {generation} over {order}"));
    }
    let before = same.map(|same| same.current_state.clone()).unwrap_or_default();
    for cluster in record.current_state.completed.iter().filter(|cluster| !before.completed.contains(cluster)) {
        add(EventReason::ClusterCompleted, format!("Cluster {cluster} is complete"));
    }
    for cluster in record.current_state.deploying.iter().filter(|cluster| !before.deploying.contains(cluster)) {
        add(EventReason::ClusterDeploying, format!("Cluster {cluster} starts"));
    }
    let was_ready = same.is_some_and(|same| same.status == RecordStatus::Ready);
    if record.status == RecordStatus::Ready && !was_ready && last.is_some() {
        add(EventReason::RolloutCompleted, format!("Generation {generation} runs in every cluster"));
    }
    events
}

/// The warning about a condition that has got another status or reason.
fn of_condition(old: &MultiClusterZooKeeperStatus, condition: &Condition) -> Option<Event> {
    let before = old.conditions.iter().find(|before| before.type_ == condition.type_);
    if before.is_some_and(|before| before.status == condition.status && before.reason == condition.reason) {
        return None;
    }
    let warning = |(type_, reason): &(ConditionType, EventReason)| {
        let is_warning = || condition.reason.parse().is_ok_and(|cause: Reason| cause.is_warning_in(*type_));
        (type_.as_str() == condition.type_ && is_warning()).then_some(*reason)
    };
    let reasons = [
        (ConditionType::Scheduled, EventReason::ScheduleFailed),
        (ConditionType::Progressing, EventReason::RolloutStalled),
        (ConditionType::Degraded, EventReason::EnsembleDegraded),
        (ConditionType::CertificatesExpire, EventReason::CertificatesExpire),
    ];
    let reason = reasons.iter().find_map(warning)?;
    Some(Event { reason, message: format!("{}: {}", condition.reason, condition.message) })
}

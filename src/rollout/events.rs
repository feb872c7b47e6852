//! What people hear of a rollout: the difference between two statuses, in sentences.

use crate::api::multiclusterzookeeper::{MultiClusterZooKeeperStatus, RecordStatus};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// One word, as Kubernetes' `reason`.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
    /// A sentence.
    pub message: String,
}

fn event(reason: &'static str, warning: bool, message: String) -> Event {
    Event { reason, warning, message }
}

/// The events between two statuses, in the order in which things happened.
#[must_use]
pub fn events(old: &MultiClusterZooKeeperStatus, new: &MultiClusterZooKeeperStatus) -> Vec<Event> {
    let mut events = Vec::new();
    if let Some(record) = new.records.last() {
        let same = old.records.last().filter(|o| {
            o.observed_generations == record.observed_generations
                && o.order.iter().collect::<std::collections::BTreeSet<_>>().is_superset(&record.order.iter().collect())
        });
        let generation = record.observed_generations.zookeeper;
        if same.is_none() && record.status == RecordStatus::Deploying {
            events.push(event(
                "RolloutStarted",
                false,
                format!("rolling out generation {generation} over {}", record.order.join(", ")),
            ));
        }
        let before = same.map(|s| s.current_state.clone()).unwrap_or_default();
        for cluster in &record.current_state.completed {
            if !before.completed.contains(cluster)
                && old.records.last().is_none_or(|o| !o.current_state.completed.contains(cluster) || same.is_none())
            {
                events.push(event("ClusterCompleted", false, format!("cluster {cluster} is complete")));
            }
        }
        for cluster in &record.current_state.deploying {
            if !before.deploying.contains(cluster) {
                events.push(event("ClusterDeploying", false, format!("cluster {cluster} begins")));
            }
        }
        if record.status == RecordStatus::Ready
            && same.is_none_or(|s| s.status != RecordStatus::Ready)
            && !old.records.is_empty()
        {
            events.push(event("RolloutCompleted", false, format!("generation {generation} runs in every cluster")));
        }
    }
    for condition in &new.conditions {
        let before = old.conditions.iter().find(|c| c.type_ == condition.type_);
        let changed = before.is_none_or(|b| b.status != condition.status || b.reason != condition.reason);
        if changed && is_trouble(&condition.type_, &condition.status, &condition.reason) {
            let reason = match condition.type_.as_str() {
                "Scheduled" => "ScheduleFailed",
                "Progressing" => "RolloutStalled",
                "Degraded" => "EnsembleDegraded",
                _ => "Attention",
            };
            events.push(event(reason, true, format!("{}: {}", condition.reason, condition.message)));
        }
    }
    events
}

fn is_trouble(type_: &str, status: &str, reason: &str) -> bool {
    match type_ {
        "Scheduled" => status == "False" && !matches!(reason, "Rescheduling" | "NoBinding"),
        "Progressing" => status == "False" && !matches!(reason, "Done" | "Paused" | "Waiting"),
        "Degraded" => status == "True",
        _ => false,
    }
}

//! How far the operator is with a request.

use super::{decide::MoveDecision, preview::condition};
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, Reason, find},
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, RecordStatus},
};

/// Where the voters of a home shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VoterGoal {
    home: String,
    place: String,
    /// The clusters that they leave.
    left: Vec<String>,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MoveProgress {
    /// The operator has not given the voters this place.
    Asked(String),
    /// The voters are not all there, or the ensemble is not Ready.
    Moving(String),
    /// The voters are there, and the ensemble is Ready.
    Done(String),
}

impl VoterGoal {
    /// The goal of a request; `None` if it moves nothing.
    pub(super) fn of(decision: &MoveDecision) -> Option<Self> {
        let (home, place) = (decision.home.clone(), decision.place.clone()?);
        let mut left = vec![home.clone(), decision.homes.voters(&home).seat];
        left.dedup();
        left.retain(|cluster| *cluster != place);
        Some(Self { home, place, left })
    }
}

impl MoveProgress {
    /// What the user reads.
    pub(super) fn text(&self) -> &str {
        let (Self::Asked(text) | Self::Moving(text) | Self::Done(text)) = self;
        text
    }
}

/// How far the operator is. An annotation does not change the generation, so the status shows it by the places alone.
pub(super) fn progress(status: &MultiClusterZooKeeperStatus, goal: &VoterGoal) -> MoveProgress {
    let VoterGoal { home, place, left } = goal;
    let cluster = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
    let at = cluster(home).and_then(|cluster| cluster.moved_to.as_deref()).unwrap_or(home);
    if at != place {
        let against = against(status).map(|message| format!(". {message}")).unwrap_or_default();
        return MoveProgress::Asked(format!(
            "Waiting for the operator to move the voters of {home} to {place}{against}"
        ));
    }
    let has_voters = |name: &str| cluster(name).is_some_and(|cluster| !cluster.voters.is_empty());
    let is_of_another = |name: &str| status.clusters.iter().any(|cluster| cluster.moved_to.as_deref() == Some(name));
    let remains = left.iter().find(|name| has_voters(name) && !is_of_another(name));
    let rollout = status.rollout.as_deref().unwrap_or("no rollout has begun");
    if !has_voters(place) || remains.is_some() {
        return MoveProgress::Moving(format!("The voters of {home} move to {place}. Rollout: {rollout}"));
    }
    let is_ready = find(&status.conditions, ConditionType::Ready, ConditionStatus::True).is_some();
    let demoted = status.ensemble.as_ref().map(|ensemble| ensemble.demoted.as_slice()).unwrap_or_default();
    let is_rolled_out = status.records.last().is_some_and(|record| record.status == RecordStatus::Ready);
    if !is_rolled_out || !is_ready && demoted.is_empty() {
        let why = condition(status, ConditionType::Ready).map_or("", |ready| ready.message.as_str());
        return MoveProgress::Moving(format!("The server list names {place} for the voters of {home}. {why}"));
    }
    let without_votes = if demoted.is_empty() { "" } else { ". Other voters have lost their votes: see mczk why" };
    MoveProgress::Done(format!("The voters of {home} are in {place}{without_votes}"))
}

/// What stands against a request, as the operator reports.
fn against(status: &MultiClusterZooKeeperStatus) -> Option<&str> {
    let with = |type_: ConditionType, reasons: &[Reason]| {
        let found = condition(status, type_)?;
        reasons.iter().any(|reason| reason.as_str() == found.reason).then_some(found.message.as_str())
    };
    with(ConditionType::FailoverReady, &[Reason::RequestUnclear, Reason::MoveWaits])
        .or_else(|| with(ConditionType::FailedOver, &[Reason::Moved, Reason::Demoted]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// m1 has moved to m4, and all is well.
    fn status(more: &Value) -> MultiClusterZooKeeperStatus {
        let mut status = json!({
            "rollout": "Ready", "conditions": conditions("True", "SparesUsable"), "records": [record("Ready")],
            "ensemble": { "incarnation": "abc123", "epoch": 1 },
            "clusters": clusters(Some("m4"), &[], &[4]),
        });
        json_patch::merge(&mut status, more);
        serde_json::from_value(status).unwrap()
    }

    fn conditions(ready: &str, failover_ready: &str) -> Value {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        json!([
            condition("Ready", ready, "R", "Cluster m4 is not complete"),
            condition("FailoverReady", "False", failover_ready, "Moves that wait: m1 to m4: rollout.paused is set"),
        ])
    }

    fn record(status: &str) -> Value {
        json!({
            "observedGenerations": { "multiclusterzookeeper": 4, "zookeeper": 1 }, "order": ["m4"], "status": status,
            "currentState": {}, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn clusters(moved: Option<&str>, home: &[i32], spare: &[i32]) -> Value {
        json!([
            { "name": "m1", "movedTo": moved, "voters": home }, { "name": "m2", "voters": [2] },
            { "name": "m4", "voters": spare },
        ])
    }

    fn goal(place: &str, left: &[&str]) -> VoterGoal {
        let left = left.iter().map(|name| (*name).to_owned()).collect();
        VoterGoal { home: "m1".to_owned(), place: place.to_owned(), left }
    }

    #[rstest]
    #[case::unseen(json!({ "clusters": clusters(None, &[1], &[]) }),
        "asked: Waiting for the operator to move the voters of m1 to m4")]
    #[case::waits(json!({ "clusters": clusters(None, &[1], &[]), "conditions": conditions("True", "MoveWaits") }),
        "asked: Waiting for the operator to move the voters of m1 to m4. Moves that wait: m1 to m4: rollout.paused is set")]
    #[case::decided(json!({ "clusters": clusters(Some("m4"), &[1], &[]), "rollout": "Deploying m4 (1/3)" }),
        "moving: The voters of m1 move to m4. Rollout: Deploying m4 (1/3)")]
    #[case::both(json!({ "clusters": clusters(Some("m4"), &[1], &[4]) }),
        "moving: The voters of m1 move to m4. Rollout: Ready")]
    #[case::deploying(json!({ "records": [record("Deploying")] }),
        "moving: The server list names m4 for the voters of m1. Cluster m4 is not complete")]
    #[case::not_ready(json!({ "conditions": conditions("False", "SparesUsable") }),
        "moving: The server list names m4 for the voters of m1. Cluster m4 is not complete")]
    #[case::another_is_demoted(json!({ "conditions": conditions("False", "SparesUsable"), "ensemble": { "demoted": [2] } }),
        "done: The voters of m1 are in m4. Other voters have lost their votes: see mczk why")]
    #[case::done(json!({}), "done: The voters of m1 are in m4")]
    fn the_progress_of_a_move(#[case] more: Value, #[case] expected: &str) {
        assert_eq!(shown(&progress(&status(&more), &goal("m4", &["m1"]))), expected);
    }

    #[rstest]
    #[case::unseen(clusters(Some("m4"), &[], &[4]), "asked: Waiting for the operator to move the voters of m1 to m1")]
    #[case::decided(clusters(None, &[], &[4]), "moving: The voters of m1 move to m1. Rollout: Ready")]
    #[case::both(clusters(None, &[5], &[4]), "moving: The voters of m1 move to m1. Rollout: Ready")]
    #[case::done(clusters(None, &[5], &[]), "done: The voters of m1 are in m1")]
    fn the_progress_of_a_move_back(#[case] clusters: Value, #[case] expected: &str) {
        let status = status(&json!({ "clusters": clusters }));
        assert_eq!(shown(&progress(&status, &goal("m1", &["m4"]))), expected);
    }

    fn shown(progress: &MoveProgress) -> String {
        let state = match progress {
            MoveProgress::Asked(_) => "asked",
            MoveProgress::Moving(_) => "moving",
            MoveProgress::Done(_) => "done",
        };
        format!("{state}: {}", progress.text())
    }
}

//! What `mczk restart` writes, and what the operator then does.

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

use mczk_api::{
    MultiClusterZooKeeper,
    contract::server_list::majority,
    multiclusterzookeeper::{ClusterStatus, MultiClusterZooKeeperStatus, RecordStatus},
};

/// The annotation of pods that `kubectl rollout restart` writes too. A new value is a new revision of every server.
pub(super) const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// A restart of every server of an ensemble.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RestartDecision {
    /// Merge patch of the MultiClusterZooKeeper.
    pub(super) patch: Value,
    /// Value of the annotation, before and after.
    pub(super) values: (Option<String>, String),
    /// Clusters with servers, in the operator's order.
    pub(super) clusters: Vec<ClusterRestart>,
    /// What else the user should know.
    pub(super) notes: Vec<String>,
}

/// The restart in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterRestart {
    /// Karmada's name of the cluster.
    pub(super) name: String,
    /// Ids of its servers.
    pub(super) servers: Vec<i32>,
    /// True if it holds the leader.
    pub(super) leads: bool,
    /// True if it is complete.
    pub(super) ready: bool,
}

/// The restart. `order` are the clusters as the operator would order them now.
///
/// # Errors
/// If no server would restart: why, and what to do.
pub(super) fn decide(object: &DynamicObject, order: &[String], now: Timestamp) -> Result<RestartDecision, String> {
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value::<MultiClusterZooKeeper>);
    let parsed = parsed.map_err(|error| format!("this version of mczk cannot parse the object: {error}"))?;
    if object.metadata.deletion_timestamp.is_some() {
        return Err("the object is being deleted: its servers stop for good".to_owned());
    }
    if parsed.spec.rollout.as_ref().and_then(|rollout| rollout.paused) == Some(true) {
        return Err(
            "the rollout is paused, so no server would restart: set spec.rollout.paused to false first".to_owned()
        );
    }
    let status = parsed.status.clone().unwrap_or_default();
    let clusters = clusters(&status, order);
    if clusters.is_empty() {
        return Err("the status lists no servers that could restart: see mczk why".to_owned());
    }
    let metadata = parsed.spec.template.metadata.as_ref();
    let before = metadata.and_then(|metadata| metadata.annotations.get(RESTARTED_AT)).cloned();
    let after = now.to_string();
    Ok(RestartDecision {
        patch: json!({ "spec": { "template": { "metadata": { "annotations": { RESTARTED_AT: after } } } } }),
        values: (before, after),
        clusters,
        notes: notes(&status, object.metadata.generation),
    })
}

/// The clusters with servers, in this order.
fn clusters(status: &MultiClusterZooKeeperStatus, order: &[String]) -> Vec<ClusterRestart> {
    let leader = status.ensemble.as_ref().and_then(|ensemble| ensemble.leader.as_ref());
    let with_servers = |cluster: &&ClusterStatus| !(cluster.voters.is_empty() && cluster.observers.is_empty());
    let restart = |cluster: &ClusterStatus| ClusterRestart {
        name: cluster.name.clone(),
        servers: cluster.voters.iter().chain(&cluster.observers).copied().collect(),
        leads: leader.is_some_and(|leader| leader.cluster == cluster.name),
        ready: cluster.ready,
    };
    let mut clusters: Vec<_> = status.clusters.iter().filter(with_servers).map(restart).collect();
    clusters.sort_by_key(|cluster| order.iter().position(|name| *name == cluster.name).unwrap_or(order.len()));
    clusters
}

fn notes(status: &MultiClusterZooKeeperStatus, generation: Option<i64>) -> Vec<String> {
    let mut notes = Vec::new();
    let voters: usize = status.clusters.iter().map(|cluster| cluster.voters.len()).sum();
    if voters > 0 && majority(voters) == voters {
        notes.push(format!("An ensemble of {voters} voters does not serve while one of them restarts."));
    }
    if status.records.last().is_some_and(|record| record.status == RecordStatus::Deploying) {
        notes.push(
            "A rollout is under way: the restart begins after it, or replaces it if it cannot finish.".to_owned(),
        );
    }
    if status.observed_generation != generation {
        notes.push("The operator has not reconciled the newest change yet: both roll out together.".to_owned());
    }
    notes
}

/// How far the rollout of a generation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The operator has not started the record.
    Waiting,
    /// The record is under way.
    Deploying,
    /// All clusters have completed the record.
    Complete,
}

/// How far the rollout of a generation, or of a newer one, is.
pub(super) fn progress(object: &DynamicObject, generation: i64) -> Progress {
    let status = object.data.get("status").and_then(|status| MultiClusterZooKeeperStatus::deserialize(status).ok());
    let status = status.unwrap_or_default();
    if status.observed_generation.is_none_or(|observed| observed < generation) {
        return Progress::Waiting;
    }
    match status.records.last() {
        Some(record) if record.observed_generations.multiclusterzookeeper < generation => Progress::Waiting,
        Some(record) if record.status == RecordStatus::Ready => Progress::Complete,
        Some(_) => Progress::Deploying,
        None => Progress::Waiting,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        fixtures::multi_cluster_zookeeper,
        see::plan::tests::{reported, running, written},
    };
    use mczk_api::{ZooKeeper, multiclusterzookeeper::RolloutOrder};
    use mczk_rules::rollout::{
        known::Known,
        plan::{plan, restart_order::restart_order},
    };

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.6Z".parse().unwrap()
    }

    fn object(more: &Value) -> DynamicObject {
        let mut object = multi_cluster_zookeeper::<Value>(json!({
            "metadata": { "generation": 4 },
            "status": {
                "observedGeneration": 4,
                "ensemble": { "incarnation": "abc123", "epoch": 1, "leader": { "id": 1, "cluster": "m1" } },
                "clusters": [
                    { "name": "m1", "voters": [1], "ready": true },
                    { "name": "m2", "voters": [2], "observers": [4], "ready": true },
                    { "name": "m3", "voters": [3], "ready": false },
                    { "name": "m4" },
                ],
                "records": [record(4, "Ready")],
            },
        }));
        json_patch::merge(&mut object, more);
        serde_json::from_value(object).unwrap()
    }

    fn record(generation: i64, status: &str) -> Value {
        json!({
            "observedGenerations": { "multiclusterzookeeper": generation, "zookeeper": 1 },
            "order": ["m1", "m2", "m3"], "status": status, "currentState": {},
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn decide(object: &DynamicObject) -> Result<RestartDecision, String> {
        super::decide(object, &["m3", "m2", "m1"].map(str::to_owned), now())
    }

    #[test]
    fn the_patch_changes_one_annotation() {
        let restart = decide(&object(&json!({}))).unwrap();
        assert_eq!(
            restart.patch,
            json!({
                "spec": { "template": { "metadata": { "annotations": { RESTARTED_AT: "2026-01-02T03:04:05.6Z" } } } },
            })
        );
        assert_eq!(restart.values.0, None);
        let order: Vec<&str> = restart.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!(order, ["m3", "m2", "m1"]);
        assert_eq!(restart.clusters[1].servers, [2, 4]);
        assert!(restart.notes.is_empty(), "{:?}", restart.notes);
    }

    /// The schema reserves annotations below `mczk.io/` for the operator.
    #[test]
    fn the_annotation_is_not_reserved() {
        assert!(!RESTARTED_AT.starts_with("mczk.io/"));
    }

    #[rstest]
    #[case::deleted(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), "being deleted")]
    #[case::paused(json!({ "spec": { "rollout": { "paused": true } } }), "spec.rollout.paused")]
    #[case::no_servers(json!({ "status": { "clusters": [] } }), "no servers")]
    fn nothing_would_restart(#[case] more: Value, #[case] why: &str) {
        let error = decide(&object(&more)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case::two_voters(json!({ "clusters": [{ "name": "m1", "voters": [1, 2] }] }), "2 voters")]
    #[case::under_way(json!({ "records": [record(4, "Deploying")] }), "under way")]
    #[case::behind(json!({ "observedGeneration": 3 }), "not reconciled")]
    fn a_note(#[case] status: Value, #[case] expected: &str) {
        let notes = decide(&object(&json!({ "status": status }))).unwrap().notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains(expected), "{notes:?}");
    }

    #[rstest]
    #[case::operator_behind(4, record(5, "Ready"), Progress::Waiting)]
    #[case::old_record(5, record(4, "Ready"), Progress::Waiting)]
    #[case::deploying(5, record(5, "Deploying"), Progress::Deploying)]
    #[case::complete(5, record(5, "Ready"), Progress::Complete)]
    #[case::newer(6, record(6, "Ready"), Progress::Complete)]
    fn the_progress(#[case] observed: i64, #[case] record: Value, #[case] expected: Progress) {
        let object = object(&json!({ "status": { "observedGeneration": observed, "records": [record] } }));
        assert_eq!(progress(&object, 5), expected);
    }

    /// The order that the command prints is that of the record which the operator then starts.
    #[rstest]
    #[case::the_leader_last(&[], &[], &[], &["m2", "m3", "m1"])]
    #[case::an_unreachable_cluster_after_the_leader(&[], &["m2"], &[], &["m3", "m1", "m2"])]
    #[case::first_where_the_last_record_is_stuck(&[], &["m2"], &["m2"], &["m2", "m3", "m1"])]
    #[case::as_listed(&["m3", "m1"], &[], &[], &["m3", "m1", "m2"])]
    fn the_order_is_that_of_the_operator(
        #[case] listed: &[&str],
        #[case] unreachable: &[&str],
        #[case] deploying: &[&str],
        #[case] expected: &[&str],
    ) {
        let mut observed = running();
        let rollout = observed.object.spec.rollout.get_or_insert_default();
        rollout.order = (!listed.is_empty()).then_some(RolloutOrder::Listed);
        rollout.clusters = listed.iter().map(|name| (*name).to_owned()).collect();
        for cluster in deploying {
            let last = observed.object.status.as_mut().unwrap().records.last_mut().unwrap();
            last.status = RecordStatus::Deploying;
            last.current_state.completed.retain(|completed| completed != cluster);
            last.current_state.deploying.push((*cluster).to_owned());
        }
        for cluster in observed.clusters.iter_mut().filter(|cluster| unreachable.contains(&cluster.name())) {
            cluster.status.conditions[0].status = "False".to_owned();
        }
        observed.object.metadata.generation = Some(2);
        let pods = observed.object.spec.template.metadata.get_or_insert_default();
        pods.annotations.insert(RESTARTED_AT.to_owned(), now().to_string());
        assert_eq!(restart_order(&Known::of(&observed, now())), expected);
        let template = plan(&observed, now());
        let mut observed = reported(written(observed, template));
        let mut template = ZooKeeper::clone(observed.template.as_ref().unwrap());
        template.metadata.generation = Some(2);
        observed.template = Some(template.into());
        let record = plan(&observed, now()).status.records.last().cloned().unwrap();
        assert_eq!(
            (record.observed_generations.multiclusterzookeeper, record.order),
            (2, expected.iter().map(|name| (*name).to_owned()).collect())
        );
    }
}

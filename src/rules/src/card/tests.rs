use rstest::rstest;
use serde_json::{Value, json};

use super::{
    StepCardState::{Done, Next, Now, Waits},
    *,
};
use crate::fixtures::multi_cluster_zookeeper;

/// Five voters in three clusters. m1 is complete, m2 is being changed, m3 is next.
fn object(serving: [i32; 3]) -> DynamicObject {
    let cluster = |name: &str, voters: &[i32], serving: i32| json!({ "name": name, "desired": voters.len(), "serving": serving, "voters": voters, "ready": name == "m1" });
    multi_cluster_zookeeper(json!({
        "metadata": { "generation": 2 },
        "spec": { "replicas": 5 },
        "status": {
            "observedGeneration": 2,
            "rollout": "Deploying m2 (1/3)",
            "readyReplicas": serving.iter().sum::<i32>(),
            "conditions": [
                { "type": "Ready", "status": "False", "reason": "RollingOut", "message": "Deploying m2 (1/3)", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "QuorumSafe", "status": "True", "reason": "Spread", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Progressing", "status": "True", "reason": "Deploying", "message": "m2: server 4 restarts", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Scheduled", "status": "Unknown", "reason": "NoBinding", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
            "records": [{
                "observedGenerations": { "multiclusterzookeeper": 2, "zookeeper": 2 },
                "order": ["m1", "m2", "m3", "m4"],
                "status": "Deploying",
                "currentState": { "pending": ["m3", "m4"], "deploying": ["m2"], "completed": ["m1"] },
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "clusters": [
                cluster("m1", &[1, 2], serving[0]), cluster("m2", &[3, 4], serving[1]), cluster("m3", &[5], serving[2]),
            ],
            "ensemble": { "incarnation": "abcde", "epoch": 1, "leader": { "id": 1, "cluster": "m1" } },
        },
    }))
}

fn binding() -> ResourceBinding {
    let report = |servers: Value| json!({ "servers": servers });
    serde_json::from_value(json!({ "status": { "aggregatedStatus": [
        { "clusterName": "m1", "applied": true, "status": report(json!([
            { "id": 1, "mode": "leader", "serving": true }, { "id": 2, "mode": "follower", "serving": true },
        ])) },
        { "clusterName": "m2", "applied": true, "status": report(json!([
            { "id": 3, "mode": "looking", "serving": false }, { "id": 4, "serving": false },
            { "id": 9, "mode": "observer", "serving": true },
        ])) },
    ] } }))
    .unwrap()
}

#[test]
fn a_rollout() {
    let card = card(&object([2, 1, 1]), Some(&binding()), Some(&[]));
    assert_eq!(
        card.summary,
        "Not ready. Rollout: Deploying m2 (1/3). 4 of 5 voters serve. The leader is server 1 in m1."
    );
    let steps: Vec<_> = card.steps.iter().map(|step| (step.cluster.as_str(), step.state)).collect();
    assert_eq!(steps, [("m1", Done), ("m2", Now), ("m3", Next), ("m4", Waits)]);
    let good: Vec<_> = card.states.iter().map(|state| (state.type_.as_str(), state.good)).collect();
    assert_eq!(good, [("Ready", Some(false)), ("QuorumSafe", Some(true)), ("Progressing", None), ("Scheduled", None)]);
    assert!(card.waits && !card.ready);
    assert!(card.findings.iter().any(|finding| finding.message == "m2: server 4 restarts"), "{:?}", card.findings);
    let states: Vec<_> =
        card.ensemble.clusters.iter().flat_map(|c| &c.servers).map(|server| (server.id, server.state)).collect();
    assert_eq!(states, [(1, "leader"), (2, "follower"), (3, "looking"), (4, "off"), (9, "observer"), (5, "unknown")]);
    assert!(card.ensemble.clusters.iter().all(|cluster| cluster.reachable == Some(false)), "Karmada knows no cluster");
}

#[rstest]
#[case::all_serve([2, 2, 1], "3 of 5 voters are needed, and 5 serve. 2 voters can be lost now. Any one cluster can be lost now.")]
#[case::one_spare([2, 1, 1], "3 of 5 voters are needed, and 4 serve. One voter can be lost now. One of the clusters m2, m3 can be lost now.")]
#[case::one_cluster([3, 0, 1], "3 of 5 voters are needed, and 4 serve. One voter can be lost now. Of whole clusters only m3 can be lost now.")]
#[case::no_spare([2, 0, 1], "3 of 5 voters are needed, and 3 serve. No voter can be lost now. No whole cluster can be lost now.")]
#[case::no_quorum([2, 0, 0], "3 of 5 voters are needed, and 2 serve. Without a quorum nothing is written.")]
fn losses(#[case] serving: [i32; 3], #[case] expected: &str) {
    assert_eq!(card(&object(serving), None, None).quorum.unwrap().text, expected);
}

/// After a demotion fewer servers vote than the list names. While one joins in the place of another, more do.
#[rstest]
#[case::fewer([0, 2, 1], &[3, 4, 5], "2 of 3 voters are needed, and 3 serve. One voter can be lost now. Of whole clusters only m3 can be lost now.")]
#[case::more([2, 2, 1], &[1, 2, 3, 4, 5, 6], "4 of 6 voters are needed, and 5 serve. One voter can be lost now. Of whole clusters only m3 can be lost now.")]
fn losses_by_the_configuration(#[case] serving: [i32; 3], #[case] voters: &[i32], #[case] expected: &str) {
    let mut object = object(serving);
    object.data["status"]["ensemble"]["voters"] = json!(voters);
    assert_eq!(card(&object, None, None).quorum.unwrap().text, expected);
}

#[test]
fn an_object_without_a_status() {
    let card = card(&multi_cluster_zookeeper(json!({ "metadata": { "generation": 1 } })), None, None);
    assert_eq!(card.summary, "Not ready: the operator has not seen the newest spec. No leader is known.");
    assert!(card.waits);
    assert_eq!((card.quorum, card.steps), (None, Vec::new()));
}

/// Programs read the page's JSON as they read that of `mczk status -o json`.
#[test]
fn the_shape_is_that_of_the_status() {
    let object = object([2, 1, 1]);
    let mut ensemble = status::ensemble(&object);
    ensemble.clusters = status::clusters(&object, Some(&binding()), None);
    let status = serde_json::to_value(ensemble).unwrap();
    let card = serde_json::to_value(card(&object, Some(&binding()), None)).unwrap();
    for (field, value) in status.as_object().unwrap() {
        assert_eq!(card[field], *value, "{field}");
    }
}

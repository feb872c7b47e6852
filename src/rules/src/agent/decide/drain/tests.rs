//! Which nodes are drained, and which nodes fit a pod that has to leave one.

use k8s_openapi::api::core::v1::{Node, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn node(name: &str, more: Value) -> Node {
    let mut node = json!({
        "metadata": { "name": name, "labels": { "zone": name, "kubernetes.io/hostname": name } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(node).unwrap()
}

fn tainted(key: &str, effect: &str) -> Node {
    node("n2", json!({ "spec": { "taints": [{ "key": key, "value": "a", "effect": effect }] } }))
}

/// A pod on node n1 with a claim.
fn pod(more: Value) -> Pod {
    let mut spec = json!({
        "nodeName": "n1", "containers": [],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data-0" } }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": { "name": "zk-0", "namespace": "ns", "uid": "u0", "labels": { "app": "zk" } }, "spec": spec,
    }))
    .unwrap()
}

/// What excludes every other node.
fn excluded(pod: &Pod, nodes: &[Node], volume: Option<PodVolume>) -> Option<String> {
    let volumes = volume.map(|volume| ("data-0".to_owned(), volume)).into_iter().collect();
    let other = serde_json::from_value(json!({
        "metadata": { "name": "zk-1", "namespace": "ns", "uid": "u1", "labels": { "app": "zk" } },
        "spec": { "nodeName": "n3", "containers": [] },
    }));
    let pods = [pod.clone(), other.unwrap()];
    other_nodes(pod, Surroundings { pods: &pods, nodes, volumes: &volumes }).err()
}

#[rstest]
#[case::karpenter("karpenter.sh/disrupted", "NoSchedule", true)]
#[case::karpenter_before_version_1("karpenter.sh/disruption", "NoSchedule", true)]
#[case::autoscaler("ToBeDeletedByClusterAutoscaler", "NoSchedule", true)]
#[case::candidate("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", false)]
#[case::other("zone", "NoExecute", false)]
fn taints_that_drain_a_node(#[case] key: &str, #[case] effect: &str, #[case] expected: bool) {
    let tolerant = pod(json!({ "tolerations": [{ "key": key, "operator": "Exists" }] }));
    let node = tainted(key, effect);
    assert_eq!(drains(&node, &pod(json!({}))), expected);
    assert!(!drains(&node, &tolerant), "it could come back to the node");
}

#[rstest]
#[case(json!({ "spec": { "unschedulable": true } }), true)]
#[case(json!({ "spec": {} }), false)]
fn a_cordon_drains_a_node(#[case] more: Value, #[case] expected: bool) {
    assert_eq!(drains(&node("n1", more), &pod(json!({}))), expected);
}

#[rstest]
#[case::none(json!([]), false)]
#[case::all(json!([{ "operator": "Exists" }]), true)]
#[case::this_one(json!([{ "key": "zone", "operator": "Equal", "value": "a", "effect": "NoSchedule" }]), true)]
#[case::by_default(json!([{ "key": "zone", "value": "a" }]), true)]
#[case::another_value(json!([{ "key": "zone", "value": "b" }]), false)]
#[case::another_effect(json!([{ "key": "zone", "operator": "Exists", "effect": "NoExecute" }]), false)]
#[case::another_key(json!([{ "key": "other", "operator": "Exists" }]), false)]
fn a_taint_repels_pods_that_do_not_tolerate_it(#[case] tolerations: Value, #[case] expected: bool) {
    let pod = pod(json!({ "tolerations": tolerations }));
    assert_eq!(excluded(&pod, &[tainted("zone", "NoSchedule")], None).is_none(), expected);
}

fn node_affinity(terms: Value) -> Value {
    json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
}

fn apart(topology: &str) -> Value {
    json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": topology, "labelSelector": { "matchLabels": { "app": "zk" } } }] } } })
}

fn zone(operator: &str, values: Value) -> Value {
    json!([{ "matchExpressions": [{ "key": "zone", "operator": operator, "values": values }] }])
}

/// Nodes n2 and n3; a second server runs on n3.
#[rstest]
#[case::anywhere(json!({}), None)]
#[case::selector(json!({ "nodeSelector": { "zone": "n1" } }), Some("its nodeSelector and affinity admit no other node"))]
#[case::affinity(node_affinity(zone("In", json!(["n1"]))), Some("its nodeSelector and affinity admit no other node"))]
#[case::other_affinity(node_affinity(zone("NotIn", json!(["n1"]))), None)]
#[case::empty_term(node_affinity(json!([{}])), Some("its nodeSelector and affinity admit no other node"))]
#[case::by_name(node_affinity(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n2"] }] }])), None)]
#[case::apart(apart("kubernetes.io/hostname"), None)]
fn the_pods_own_rules(#[case] more: Value, #[case] expected: Option<&str>) {
    let nodes = [node("n1", json!({})), node("n2", json!({})), node("n3", json!({}))];
    let why = excluded(&pod(more), &nodes, None);
    assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
    assert!(expected.is_none_or(|expected| why.unwrap().contains(expected)));
}

#[test]
fn a_node_or_zone_of_another_server_is_excluded_by_anti_affinity() {
    let nodes = [node("n1", json!({})), node("n3", json!({}))];
    let why = excluded(&pod(apart("kubernetes.io/hostname")), &nodes, None);
    assert!(why.unwrap().contains("anti-affinity"));
    let same_zone = json!({ "metadata": { "name": "n2", "labels": { "zone": "n3" } } });
    let nodes = [node("n2", same_zone), node("n3", json!({}))];
    assert_eq!(excluded(&pod(apart("kubernetes.io/hostname")), &nodes, None), None);
    assert!(excluded(&pod(apart("zone")), &nodes, None).unwrap().contains("anti-affinity"));
}

fn volume(spec: Value) -> PodVolume {
    PodVolume::Known(Box::new(serde_json::from_value(json!({ "metadata": { "name": "pv-0" }, "spec": spec })).unwrap()))
}

#[rstest]
#[case::of_this_node(zone("In", json!(["n1"])), false)]
#[case::of_this_zone(zone("In", json!(["n1", "n2"])), true)]
#[case::without_label(zone("DoesNotExist", json!([])), false)]
fn a_volume_moves_to_nodes_of_its_affinity(#[case] terms: Value, #[case] moves: bool) {
    let spec = json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } });
    let why = excluded(&pod(json!({})), &[node("n1", json!({})), node("n2", json!({}))], Some(volume(spec)));
    assert_eq!(why.is_none(), moves, "{why:?}");
    assert!(moves || why.unwrap().contains("its volume pv-0 cannot move"));
}

#[rstest]
#[case::network(volume(json!({ "nfs": { "server": "s", "path": "/" } })), true)]
#[case::local_without_affinity(volume(json!({ "hostPath": { "path": "/data" } })), false)]
#[case::unreadable(PodVolume::Unreadable("pv-0".into()), false)]
fn a_volume_without_affinity(#[case] volume: PodVolume, #[case] moves: bool) {
    let why = excluded(&pod(json!({})), &[node("n2", json!({}))], Some(volume));
    assert_eq!(why.is_none(), moves, "{why:?}");
}

#[rstest]
#[case::cordoned(json!({ "spec": { "unschedulable": true } }))]
#[case::not_ready(json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }))]
#[case::drained_too(json!({ "spec": { "taints": [{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }] } }))]
fn other_nodes_that_accept_no_pod(#[case] more: Value) {
    assert!(excluded(&pod(json!({})), &[node("n1", json!({})), node("n2", more)], None).unwrap().contains("ready"));
}

#[rstest]
#[case::unknown(json!({}), true)]
#[case::enough(json!({ "cpu": "2", "memory": "3Gi", "pods": "2" }), true)]
#[case::cpu(json!({ "cpu": "1500m" }), false)]
#[case::memory(json!({ "memory": "2047Mi" }), false)]
#[case::pods(json!({ "pods": "1" }), false)]
fn room(#[case] allocatable: Value, #[case] fits: bool) {
    let requests =
        |cpu: &str, memory: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } });
    let containers = json!({ "containers": [requests("500m", "1Gi")], "initContainers": [requests("1", "32Mi")] });
    let pod = pod(containers);
    let ended: Pod = serde_json::from_value(json!({ "status": { "phase": "Failed" } })).unwrap();
    let node = node("n2", json!({ "status": { "allocatable": allocatable } }));
    assert_eq!(has_room(&node, &[pod.clone(), ended], &pod), fits);
}

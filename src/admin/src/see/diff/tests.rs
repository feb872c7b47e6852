#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    fixtures::multi_cluster_zookeeper,
    see::plan::tests::{after, running},
};

fn object(more: &Value) -> DynamicObject {
    let observed = running();
    let mut object = serde_json::to_value(&observed.object).unwrap();
    json_patch::merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

/// The diff between the object of a running ensemble and a changed one.
fn diff(more: &Value) -> String {
    let (live, changed) = (object(&json!({})), object(more));
    let next = view::with_object(running(), &changed).unwrap();
    let view =
        view::view(Some(&live), &changed, Some(&running()), &next, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    text::text(&view, false)
}

#[test]
fn no_change() {
    insta::assert_snapshot!(diff(&json!({})), @r"
    n/zk would not change.

    No server joins, leaves or restarts.
    ");
}

#[test]
fn another_image_restarts_servers() {
    insta::assert_snapshot!(diff(&json!({ "spec": { "template": { "image": "zookeeper:3.9.5" } } })), @r#"
    n/zk would change.

      ~ spec.template.image: "zookeeper:3.9.4" -> "zookeeper:3.9.5"

    CLUSTER  VOTERS  OBSERVERS  RESTARTS
    m1       1       0          1
    m2       1       0          1
    m3       1       0          1

    Servers that join: 0; that leave: 0; that restart: 3.
    "#);
}

#[test]
fn more_voters_join() {
    insta::assert_snapshot!(diff(&json!({ "spec": { "replicas": 5 } })), @r"
    n/zk would change.

      ~ spec.replicas: 3 -> 5

    CLUSTER  VOTERS  OBSERVERS  RESTARTS
    m1       1 -> 2  0          0
    m2       1 -> 2  0          0

    Servers that join: 2; that leave: 0; that restart: 0.
    ");
}

#[test]
fn a_placement_without_clusters_is_reported() {
    let placement = json!({ "clusterAffinity": { "clusterNames": ["m9"] } });
    insta::assert_snapshot!(diff(&json!({ "spec": { "placement": placement } })), @r#"
    n/zk would change.

      + spec.placement.clusterAffinity.clusterNames: ["m9"]

    No server joins, leaves or restarts.

    Right after the apply the operator would report:
    ensemble  Scheduled=False NoClusterMatches  No cluster matches spec.placement; the operator leaves what runs as it is. Change spec.placement, or label or join a cluster
                                                -> Change `placement`, or label or join a cluster
    "#);
}

#[test]
fn a_rollout_setting_restarts_nothing() {
    insta::assert_snapshot!(diff(&json!({ "spec": { "rollout": { "holdSeconds": 60 } } })), @r"
    n/zk would change.

      + spec.rollout.holdSeconds: 60

    No server joins, leaves or restarts.
    ");
}

#[test]
fn a_new_object() {
    let new: DynamicObject = multi_cluster_zookeeper(json!({}));
    let after = view::with_object(after(0), &new).unwrap();
    let view = view::view(None, &new, None, &after, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    assert!(view.creates);
    insta::assert_snapshot!(text::text(&view, false), @r"
    n/zk would be created.

    CLUSTER  VOTERS  OBSERVERS  RESTARTS
    m1       0 -> 1  0          0
    m2       0 -> 1  0          0
    m3       0 -> 1  0          0

    Servers that join: 3; that leave: 0; that restart: 0.
    ");
}

#[rstest]
#[case::other_kind(json!({ "apiVersion": "v1", "kind": "Secret" }))]
#[case::no_name(json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": {} }))]
#[case::empty(json!({}))]
fn not_a_multiclusterzookeeper(#[case] object: Value) {
    assert!(matches!(declared(object, "n"), Err(Error::Usage(_))));
}

#[test]
fn the_file_adds_annotations_and_replaces_the_spec() {
    let live = object(
        &json!({ "metadata": { "resourceVersion": "7", "annotations": { "a": "1" } }, "spec": { "rollout": { "paused": true } } }),
    );
    let file: DynamicObject = multi_cluster_zookeeper(json!({ "metadata": { "annotations": { "b": "2" } } }));
    let next = merged(Some(&live), file);
    assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(next.metadata.annotations.unwrap().len(), 2);
    assert!(next.data["spec"].get("rollout").is_none());
    assert!(next.data.get("status").is_some());
}

#[test]
fn a_refusal_names_the_fields() {
    let status = json!({
        "status": "Failure", "message": "long", "reason": "Invalid", "code": 422,
        "details": { "causes": [{ "reason": "FieldValueInvalid", "message": "Invalid value: 0: too small", "field": "spec.replicas" }] },
    });
    let error = refused(kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))).to_string();
    assert_eq!(error, "the API server refuses the object (Invalid): spec.replicas: Invalid value: 0: too small");
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::act::failover::decide::tests::{decided, from, with_spares};

fn why(more: &Value, to: Option<&str>) -> Option<String> {
    let mut observed = with_spares(None);
    let mut object = serde_json::to_value(&observed.object).unwrap();
    json_patch::merge(&mut object, more);
    observed.object = serde_json::from_value(object).unwrap();
    let decision = decided(&observed, &from("m1", to)).unwrap();
    obstacle(observed.object.status.as_ref().unwrap(), &decision, "m1")
}

#[test]
fn all_is_well() {
    assert_eq!(why(&json!({}), None), None);
}

#[rstest]
#[case::requests(json!({ "metadata": { "annotations": { "mczk.io/failover": "m2=m2" } } }), None, "has requests")]
#[case::paused(json!({ "spec": { "rollout": { "paused": true } } }), None, "rollout.paused is set")]
#[case::no_spare(json!({}), Some("m1"), "name a spare")]
#[case::unusable(json!({}), Some("m5"), "m5 has not joined Karmada")]
#[case::demoted(json!({ "status": { "ensemble": { "demoted": [2] } } }), None, "lost their votes")]
#[case::moved(json!({ "status": { "clusters": [{ "name": "m2", "movedTo": "m4" }, { "name": "m1", "voters": [1] }] } }), Some("m4"),
    "the voters of m2 are not at home")]
#[case::not_ready(json!({ "status": { "conditions": [] } }), None, "the condition Ready is not True")]
fn not_all_is_well(#[case] more: Value, #[case] to: Option<&str>, #[case] expected: &str) {
    let why = why(&more, to).unwrap();
    assert!(why.contains(expected), "{why}");
}

#[test]
fn what_is_left() {
    let of = ("n", "zk");
    assert_eq!(left(RehearsalPart::Check, of, "m1"), left(RehearsalPart::Over, of, "m1"));
    insta::assert_snapshot!(left(RehearsalPart::Away, of, "m1"), @r"
    The annotation may request a spare for the voters of m1, which then move there and stay. Bring them home:
      mczk failover zk -n n --back m1 --wait
      mczk failover zk -n n --release m1
    ");
    insta::assert_snapshot!(left(RehearsalPart::Home, of, "m1"), @r"
    The annotation requests the voters of m1 at home, where the operator moves them. End the request then:
      mczk failover zk -n n --back m1 --wait
      mczk failover zk -n n --release m1
    ");
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use rstest::rstest;

use super::*;
use crate::{act::failover::text::text, see::plan::tests::running};

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

/// A running ensemble with voters in m1, m2 and m3, and the usable spare m4. The spare m5 has not joined.
pub(in crate::act::failover) fn with_spares(annotation: Option<&str>) -> Observed {
    let mut observed = running();
    let mut spare = observed.clusters[2].clone();
    spare.metadata.name = Some("m4".to_owned());
    observed.clusters.push(spare);
    let fit = json!({
        "type": "SpareFit", "status": "True", "reason": "ServersAccepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let answers = json!({
        "metadata": {}, "spec": { "resource": { "kind": "ZooKeeper" } },
        "status": { "aggregatedStatus": [{ "clusterName": "m4", "applied": true, "status": { "conditions": [fit] } }] },
    });
    observed.spares = Some(serde_json::from_value(answers).unwrap());
    observed.object.spec.failover = Some(serde_json::from_value(json!({ "spares": ["m5", "m4"] })).unwrap());
    if let Some(value) = annotation {
        observed.object.metadata.annotations.get_or_insert_default().insert(FAILOVER.to_owned(), value.to_owned());
    }
    observed
}

pub(in crate::act::failover) fn object(observed: &Observed) -> DynamicObject {
    serde_json::from_value(serde_json::to_value(&observed.object).unwrap()).unwrap()
}

pub(in crate::act::failover) fn from(cluster: &str, to: Option<&str>) -> Wish {
    Wish::From { cluster: cluster.to_owned(), to: to.map(str::to_owned) }
}

pub(in crate::act::failover) fn decided(observed: &Observed, wish: &Wish) -> Result<MoveDecision, String> {
    decide(&object(observed), Ok(observed), wish, now())
}

fn unseen(observed: &Observed, wish: &Wish) -> Result<MoveDecision, String> {
    decide(&object(observed), Err("no right".to_owned()), wish, now())
}

#[test]
fn the_first_spare_that_can_take_voters() {
    let decision = decided(&with_spares(Some("m2=m2")), &from("m1", None)).unwrap();
    assert_eq!(decision.patch(), json!({ "metadata": { "annotations": { FAILOVER: "m2=m2,m1=m4" } } }));
    assert!(!decision.waits());
    insta::assert_snapshot!(text("n/zk", &decision), @r"
    n/zk: the voters of m1 shall be in m4
      HOME  NOW  THEN  VOTERS
      m1    m1   m4    1
      m2    m2   m2    1
      m3    m3   m3    1
    Change: metadata.annotations[mczk.io/failover]: m2=m2 -> m2=m2,m1=m4
    The operator would report:
      FailedOver=True Moved              The voters of m1 move to m4
      FailoverReady=False SpareUnusable  Spares that can take no voters: m5 has not joined Karmada
    ");
}

#[test]
fn a_request_that_waits_is_written() {
    let mut observed = with_spares(None);
    observed.object.spec.rollout.get_or_insert_default().paused = Some(true);
    let decision = decided(&observed, &from("m1", None)).unwrap();
    assert!(decision.waits());
    insta::assert_snapshot!(text("n/zk", &decision), @r"
    n/zk: the voters of m1 shall be in m4
      HOME  NOW  THEN                    VOTERS
      m1    m1   m1 (the request waits)  1
      m2    m2   m2                      1
      m3    m3   m3                      1
    Change: metadata.annotations[mczk.io/failover]: none -> m1=m4
    The operator would report:
      FailedOver=False AtHome        Every voter is at home, and none has lost its vote
      FailoverReady=False MoveWaits  Moves that wait: m1 to m4: rollout.paused is set
    The request waits. The operator follows it once nothing stands against it.
    ");
    let decision = decided(&with_spares(None), &from("m1", Some("m5"))).unwrap();
    assert!(decision.waits());
    insta::assert_snapshot!(text("n/zk", &decision), @r"
    n/zk: the voters of m1 shall be in m5
      HOME  NOW  THEN                    VOTERS
      m1    m1   m1 (the request waits)  1
      m2    m2   m2                      1
      m3    m3   m3                      1
    Change: metadata.annotations[mczk.io/failover]: none -> m1=m5
    The operator would report:
      FailedOver=False AtHome        Every voter is at home, and none has lost its vote
      FailoverReady=False MoveWaits  Moves that wait: m1 to m5: m5 has not joined Karmada
    The request waits. The operator follows it once nothing stands against it.
    ");
}

#[test]
fn without_rights_the_object_tells() {
    let decision = unseen(&with_spares(None), &from("m1", None)).unwrap();
    insta::assert_snapshot!(text("n/zk", &decision), @r"
    n/zk: the voters of m1 shall be in m5
      HOME  NOW  THEN  VOTERS
      m1    m1   m5    1
      m2    m2   m2    1
      m3    m3   m3    1
    Change: metadata.annotations[mczk.io/failover]: none -> m1=m5
    Whether the operator can follow is unknown: no right.
    ");
}

#[test]
fn the_last_pair_goes_with_the_annotation() {
    let decision = decided(&with_spares(Some("m1=m1")), &Wish::Release("m1".to_owned())).unwrap();
    assert_eq!(decision.patch(), json!({ "metadata": { "annotations": { FAILOVER: null } } }));
    insta::assert_snapshot!(text("n/zk", &decision), @r"
    n/zk: nothing is requested for m1 any more. Its voters stay where they are, until a declared time moves them
      HOME  NOW  THEN  VOTERS
      m1    m1   m1    1
      m2    m2   m2    1
      m3    m3   m3    1
    Change: metadata.annotations[mczk.io/failover]: m1=m1 -> none
    The operator would report:
      FailedOver=False AtHome            Every voter is at home, and none has lost its vote
      FailoverReady=False SpareUnusable  Spares that can take no voters: m5 has not joined Karmada
    ");
}

#[rstest]
#[case::the_same(Some("m1=m1"), Wish::Back("m1".to_owned()))]
#[case::in_other_words(Some(" m1 = m1 , m2=m2"), Wish::Back("m1".to_owned()))]
#[case::nothing_to_release(None, Wish::Release("m1".to_owned()))]
fn nothing_changes(#[case] annotation: Option<&str>, #[case] wish: Wish) {
    assert!(!decided(&with_spares(annotation), &wish).unwrap().changes());
}

/// A pair that the operator refuses keeps it from following the others, so each may be removed.
#[test]
fn a_pair_of_an_unknown_cluster_is_removed() {
    let observed = with_spares(Some("m8=m4,m9=m4"));
    assert!(decided(&observed, &from("m1", Some("m4"))).unwrap_err().contains("names m8"));
    let decision = decided(&observed, &Wish::Release("m9".to_owned())).unwrap();
    assert_eq!(decision.values.1.as_deref(), Some("m8=m4"));
}

#[rstest]
#[case::no_home(from("m9", None), "m9 has no voters of its own")]
#[case::a_free_spare(from("m4", None), "the spare m4 holds the voters of no cluster")]
#[case::no_spare(from("m1", Some("m2")), "names m2, which is no spare")]
#[case::unknown_place(from("m1", Some("m9")), "names m9, which is no spare")]
#[case::back(Wish::Back("m9".to_owned()), "m9 has no voters of its own")]
#[case::release(Wish::Release("m9".to_owned()), "m9 has no voters of its own")]
fn a_bad_name_is_refused(#[case] wish: Wish, #[case] expected: &str) {
    let observed = with_spares(None);
    let error = decided(&observed, &wish).unwrap_err();
    assert!(error.contains(expected), "{error}");
    let error = unseen(&observed, &wish).unwrap_err();
    assert!(error.contains(expected.trim_start_matches("names ").split(',').next().unwrap()), "{error}");
}

#[rstest]
#[case::no_pair(json!({ "metadata": { "annotations": { FAILOVER: "m1" } } }), "has \"m1\", which is no pair CLUSTER=PLACE. Correct it, or remove it: kubectl annotate mczk zk mczk.io/failover-")]
#[case::deleted(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), "being deleted")]
#[case::no_spares(json!({ "spec": { "failover": null } }), "failover.spares names no cluster")]
fn an_object_that_cannot_be_changed(#[case] more: Value, #[case] expected: &str) {
    let mut value = serde_json::to_value(&with_spares(None).object).unwrap();
    json_patch::merge(&mut value, &more);
    let object = serde_json::from_value(value).unwrap();
    let error = decide(&object, Err("no right".to_owned()), &from("m1", None), now()).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use mczk_rules::rollout::plan::Observed;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    act::failover::decide::tests::{decided, from, object, with_spares},
    fixtures::multi_cluster_zookeeper,
};

#[rstest]
#[case::has_voters(from("m1", None), "", true)]
#[case::has_those_of_another(from("m4", None), "", true)]
#[case::has_none(from("m2", None), "", false)]
#[case::moved(Wish::Back("m2".to_owned()), "", true)]
#[case::will_move(Wish::Back("m1".to_owned()), "m1=m4", true)]
#[case::at_home(Wish::Back("m1".to_owned()), "", false)]
#[case::requested(Wish::Release("m1".to_owned()), "m2=m2, m1=m1", true)]
#[case::not_requested(Wish::Release("m1".to_owned()), "m2=m1", false)]
fn which_ensembles_are_concerned(#[case] wish: Wish, #[case] annotation: &str, #[case] expected: bool) {
    let object = multi_cluster_zookeeper(json!({
        "metadata": { "annotations": { "mczk.io/failover": annotation } },
        "status": { "clusters": [
            { "name": "m1", "voters": [1] }, { "name": "m2", "movedTo": "m4" }, { "name": "m4", "voters": [2] },
        ] },
    }));
    assert_eq!(is_concerned(&object, &wish), expected);
}

#[test]
fn a_row_for_each_ensemble() {
    let mut paused = with_spares(None);
    paused.object.spec.rollout.get_or_insert_default().paused = Some(true);
    let requested = |name: &str, observed: &Observed| ConcernedEnsemble {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        request: Ok(CheckedRequest {
            object: object(observed),
            decision: decided(observed, &from("m1", None)).unwrap(),
        }),
    };
    let mut concerned = vec![
        requested("orders", &with_spares(None)),
        requested("carts", &with_spares(Some("m1=m4"))),
        requested("queue", &paused),
    ];
    let refused = Err(Error::Failed(anyhow!("n/old is not changed: no spare can take the voters of m1 now")));
    concerned.push(ConcernedEnsemble { namespace: "n".to_owned(), name: "old".to_owned(), request: refused });
    insta::assert_snapshot!(table(&concerned), @r"
    ENSEMBLE  NOW  THEN  VOTERS  EFFECT
    n/orders  m1   m4    1       moves
    n/carts   m1   m4    1       requested already
    n/queue   m1   m4    1       waits. Moves that wait: m1 to m4: rollout.paused is set
    n/old     -    -     -       failed: n/old is not changed: no spare can take the voters of m1 now
    ");
}

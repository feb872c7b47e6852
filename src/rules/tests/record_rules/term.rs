//! The term of the operator.

use super::*;

/// The term that the OverridePolicy shows.
fn written_term(world: &World) -> Option<String> {
    world
        .observed
        .overrides
        .as_ref()
        .and_then(|overrides| overrides.metadata.annotations.as_ref()?.get(labels::TERM).cloned())
}

#[test]
fn a_leader_writes_its_term_before_anything_else() {
    let mut world = World::new(&json!({}));
    world.observed.term = Some(3);
    world.settle();
    assert_eq!(written_term(&world).as_deref(), Some("3"), "the first leader creates the OverridePolicy with its term");

    let mut former = world.clone();
    world.observed.term = Some(4);
    assert!(world.plan().claim.is_none(), "the plan writes nothing, so a new leader writes no claim");
    world.image("zoo:2");
    let records = world.records();
    assert!(world.pass().claim.is_some());
    assert_eq!((written_term(&world).as_deref(), world.records()), (Some("4"), records));
    assert!(world.pass().claim.is_none(), "once in a term");
    world.pass();
    assert_eq!(world.records().last().unwrap().status, RecordStatus::Deploying);

    former.image("zoo:3");
    former.observed.overrides.clone_from(&world.observed.overrides);
    let plan = former.plan();
    assert_eq!((plan.later_term, &plan.overrides, &plan.template), (Some(4), &ObjectWrite::Leave, &ObjectWrite::Leave));
    assert_eq!(Some(plan.status), former.observed.object.status);
}

#[rstest]
#[case::removed(None)]
#[case::no_number(Some("first"))]
#[case::negative(Some("-1"))]
#[case::beyond_every_lease(Some("2147483647"))]
fn a_term_that_no_leader_wrote_counts_for_nothing(#[case] term: Option<&str>) {
    let mut world = World::new(&json!({}));
    world.observed.term = Some(3);
    world.settle();
    let mut edited = world.observed.overrides.as_deref().unwrap().clone();
    let annotations = edited.metadata.annotations.as_mut().unwrap();
    annotations.remove(labels::TERM);
    annotations.extend(term.map(|term| (labels::TERM.to_owned(), term.to_owned())));
    world.observed.overrides = Some(edited.into());
    world.image("zoo:2");
    assert!(world.pass().claim.is_some());
    assert_eq!(written_term(&world).as_deref(), Some("3"));
}

/// A leader whose term is beyond the bound, after a user wrote the bound into an OverridePolicy, claims once and then acts.
#[test]
fn a_leader_beyond_the_bound_claims_once() {
    let mut world = World::new(&json!({}));
    world.observed.term = Some(3);
    world.settle();
    world.observed.term = Some(i32::MAX);
    world.image("zoo:2");
    assert!(world.pass().claim.is_some());
    assert!(world.pass().claim.is_none(), "once in a term");
    world.pass();
    assert_eq!(world.records().last().unwrap().status, RecordStatus::Deploying);
}

//! Refusals.

use super::*;

#[rstest]
#[case::template("template")]
#[case::policy("policy")]
#[case::overrides("overrides")]
#[case::export("ServiceExport/zk")]
fn nothing_is_written_while_another_owner_has_a_name(#[case] which: &str) {
    let mut world = World::new(&json!({}));
    let ours = World::done(&json!({}));
    match which {
        "template" => world.observed.template = ours.observed.template,
        "policy" => world.observed.policy = ours.observed.policy,
        "overrides" => world.observed.overrides = ours.observed.overrides,
        key => {
            let value = ours.observed.services[key].clone();
            world.observed.services.insert(key.to_owned(), value);
        }
    }
    world.observed.object.metadata.uid = Some("another".to_owned());
    let plan = world.plan();
    assert_eq!(plan.overrides, ObjectWrite::Leave);
    assert_eq!(plan.policy, ObjectWrite::Leave);
    assert_eq!(plan.template, ObjectWrite::Leave);
    assert!(plan.services.is_empty());
    assert_eq!(plan.protect_binding, None);
    world.write(&plan);
    assert_eq!((world.condition("Ready"), world.state()), ("False NameConflict".to_owned(), "none".to_owned()));
}

/// The words of an API server that refuses a write, or the object that another writer contests, reach the user in each phase.
#[rstest]
#[case::bootstrap(false, false)]
#[case::running(true, false)]
#[case::deletion(true, true)]
fn a_failed_write_stands_in_a_condition(#[case] runs: bool, #[case] ends: bool) {
    let mut world = if runs { World::done(&json!({})) } else { World::new(&json!({})) };
    if !runs {
        world.pass();
    }
    world.observed.object.metadata.deletion_timestamp = ends.then_some(Time(world.now));
    let words = "creating Secret zk-abc123-tombstone: ApiError: not before the audit";
    world.observed.failure = Some(words.to_owned());
    let conditions = world.plan().status.conditions;
    let progressing = conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    assert_eq!((progressing.status.as_str(), progressing.reason.as_str()), ("False", "ApplyFailed"));
    assert!(progressing.message.contains(words), "{}", progressing.message);
    world.observed.failure = None;
    let corrected = world.plan().status.conditions;
    assert!(corrected.iter().all(|condition| condition.reason != "ApplyFailed"), "{corrected:?}");
}

#[test]
fn a_cluster_spec_that_is_too_large_is_refused() {
    let mut world = World::done(&json!({}));
    let (overrides, records) = (world.overrides(), world.records());
    world.edit("/template/jvmFlags", &json!(vec!["x".repeat(1024); 64]));
    world.pass();
    world.pass();
    assert_eq!((world.overrides(), world.records()), (overrides, records), "no record begins that cannot be written");
    assert_eq!(world.condition("Progressing"), "False TooLarge");
    world.edit("/template/jvmFlags", &json!([]));
    world.settle();
    assert_eq!(world.condition("Ready"), "True Serving");
}

/// Once the policies are lost, the status holds the only record of the ensemble besides the agents' reports.
#[rstest]
#[case::a_spec_that_is_too_large("/template/jvmFlags", json!(vec!["x".repeat(1024); 64]), "Progressing", "TooLarge", true)]
#[case::no_cluster_matches("/placement/clusterAffinity/clusterNames", json!(["none"]), "Scheduled", "NoClusterMatches", false)]
fn the_status_keeps_an_ensemble_whose_policies_are_lost(
    #[case] field: &str,
    #[case] value: Value,
    #[case] condition: &str,
    #[case] reason: &str,
    #[case] keeps_policy: bool,
) {
    let mut world = World::done(&json!({ "placement": { "clusterAffinity": { "clusterNames": ["m1", "m2", "m3"] } } }));
    let ids =
        |world: &World| world.status().clusters.iter().map(|c| (c.name.clone(), c.voters.clone())).collect::<Vec<_>>();
    let before = (world.status().ensemble.unwrap().incarnation, ids(&world));
    world.edit(field, &value);
    world.pass();
    world.pass();
    world.observed.overrides = None;
    world.observed.policy = world.observed.policy.take().filter(|_| keeps_policy);
    world.pass();
    assert_eq!(world.condition(condition), format!("False {reason}"));
    assert_eq!((world.status().ensemble.unwrap().incarnation, ids(&world)), before);
}

#[test]
fn the_status_keeps_no_incarnation_that_a_tombstone_ended() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.pass();
    let ended = world.status().ensemble.unwrap().incarnation;
    world.observed.tombstones.insert(ended.clone());
    (world.observed.overrides, world.observed.binding) = (None, None);
    world.pass();
    assert!(world.status().ensemble.is_none_or(|ensemble| ensemble.incarnation != ended));
    assert!(world.status().clusters.iter().all(|cluster| cluster.voters.is_empty()));
}

#[test]
fn observers_without_a_voter_in_their_cluster_are_refused() {
    let mut world = World::done(&json!({}));
    let before = world.overrides();
    world.edit("/observers", &json!([{ "cluster": "m4", "count": 1 }]));
    world.pass();
    world.pass();
    assert_eq!(world.overrides(), before);
    assert_eq!(world.condition("Progressing"), "False ObserversWithoutVoter");
}

#[test]
fn the_server_list_is_frozen_until_a_quorum_forms() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.pass();
    let ensemble = world.overrides().ensemble;
    assert_eq!(ensemble.phase, EnsemblePhase::Bootstrapping);
    // The schedule changes before a majority has started.
    world.place(&[("m1", 2), ("m2", 1), ("m3", 2)]);
    world.pass();
    world.pass();
    assert_eq!(world.overrides().ensemble, ensemble);
    assert_eq!(world.overrides().cluster_specs["m1"].replicas, 2);
    world.settle();
    let after = world.overrides().ensemble;
    assert_eq!(after.phase, EnsemblePhase::Running);
    assert_eq!(after.servers.iter().filter(|s| s.cluster == "m3").count(), 2, "the change follows");
    assert!(after.epoch > ensemble.epoch);
}

#[test]
fn scaling_down_keeps_the_replicas_until_the_voters_have_left() {
    let mut world = World::done(&json!({}));
    world.configuration_frozen = true;
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    for _ in 0..6 {
        world.tick();
    }
    assert_eq!(world.overrides().ensemble.servers.len(), 3, "the new list omits two voters");
    let replicas = |world: &World| world.overrides().cluster_specs.values().map(|p| p.replicas).collect::<Vec<_>>();
    assert_eq!(replicas(&world), [2, 2, 1], "which keep running");
    assert!(world.state().starts_with("Deploying"));
    world.configuration_frozen = false;
    world.settle();
    assert_eq!(replicas(&world), [1, 1, 1]);
    assert_eq!(world.condition("Ready"), "True Serving");
}

/// Before the ensemble has the newest list, an older list may still let a voter join that fewer replicas would stop.
#[test]
fn replicas_stay_until_the_ensemble_has_the_newest_list() {
    let mut world = World::done(&json!({}));
    world.frozen_epoch = world.overrides().ensemble.epoch;
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    for _ in 0..6 {
        world.tick();
    }
    let replicas = |world: &World| world.overrides().cluster_specs.values().map(|p| p.replicas).collect::<Vec<_>>();
    assert_eq!(replicas(&world), [2, 2, 1], "no voter has to leave, but one may join again");
    world.frozen_epoch = None;
    world.settle();
    assert_eq!(replicas(&world), [1, 1, 1]);
}

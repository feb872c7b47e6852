//! `plan`, pass by pass.

use super::*;

#[test]
fn the_first_record_has_the_order_of_the_schedule() {
    let mut world = World::new(&json!({}));
    world.place(&[("m2", 2), ("m3", 1), ("m1", 2)]);
    assert_eq!(passes(&mut world, 2), ["none", "Deploying m3,m1|m2|"]);
    let [record] = world.records().try_into().unwrap();
    assert_eq!(record.order, names("m2,m3,m1"));
    assert_eq!(record.observed_generations, ObservedGenerations { multiclusterzookeeper: 1, zookeeper: 3 });
    assert_eq!(world.images(), "m2=zoo:1");
    assert_eq!(world.overrides().ensemble.servers.len(), 5, "the server list is complete from the start");
}

#[test]
fn no_cluster_begins_while_paused() {
    let mut world = World::new(&json!({ "rollout": { "paused": true } }));
    assert_eq!(passes(&mut world, 3), ["none", "Deploying m1,m2,m3||", "Deploying m1,m2,m3||"]);
    assert_eq!((world.condition("Progressing"), world.images()), ("False Paused".to_owned(), String::new()));
    world.edit("/rollout/paused", &json!(false));
    assert_eq!(passes(&mut world, 1), ["Deploying m2,m3|m1|"]);
}

#[test]
fn a_deploying_cluster_finishes_while_paused() {
    let mut world = rolling(&json!({ "rollout": { "paused": false } }));
    world.edit("/rollout/paused", &json!(true));
    world.tick();
    world.tick();
    assert_eq!(world.state(), "Deploying m2,m3||m1");
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:1 m3=zoo:1");
    world.edit("/rollout/paused", &json!(false));
    world.settle();
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
}

/// The request to replace a volume reaches the template at any time, and no record or cluster spec depends on it.
#[rstest]
#[case::a_request("3/0b1c-4d", Some("3/0b1c-4d"))]
#[case::no_request("the third one", Some("the third one"))]
#[case::a_long_text(include_str!("pass_by_pass.rs"), include_str!("pass_by_pass.rs").get(..128))]
fn a_request_to_replace_a_volume_is_passed_on(#[case] value: &str, #[case] expected: Option<&str>) {
    let mut world = rolling(&json!({ "rollout": { "paused": false } }));
    world.edit("/rollout/paused", &json!(true));
    let (state, cluster_specs) = (world.state(), world.overrides().cluster_specs);
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REPLACE_VOLUME.to_owned(), value.to_owned());
    world.pass();
    let passed_on = |world: &World| {
        world.observed.template.as_ref().unwrap().metadata.annotations.as_ref()?.get(labels::REPLACE_VOLUME).cloned()
    };
    assert_eq!(passed_on(&world).as_deref(), expected);
    assert_eq!((world.state(), world.overrides().cluster_specs), (state, cluster_specs));
    world.observed.object.metadata.annotations = None;
    world.pass();
    assert_eq!(passed_on(&world), None, "the user takes the request back");
}

#[test]
fn a_restarted_operator_continues_the_record() {
    let mut world = half_way(&json!({}));
    let before = world.records();
    // A restarted operator knows only what it has written.
    assert_eq!(passes(&mut world, 2), ["Deploying m3|m2|m1", "Deploying m3|m2|m1"]);
    assert_eq!(world.records(), before);
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.records().len(), before.len());
    assert_eq!(world.state(), "Ready ||m1,m2,m3");
}

#[test]
fn a_newer_generation_appends_a_record() {
    let mut world = World::done(&json!({}));
    let first = world.records();
    world.image("zoo:2");
    world.pass();
    assert_eq!(world.records(), first, "the operator writes the template first");
    world.pass();
    assert_eq!(world.records().len(), 2);
    assert_eq!(world.records()[0], first[0]);
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    assert_eq!(world.records()[1].observed_generations, generation(2));
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:1 m3=zoo:1");
}

#[test]
fn a_ready_record_of_the_current_generation_changes_nothing() {
    let mut world = World::done(&json!({}));
    let before = (world.status(), world.overrides());
    world.wait(100_000);
    world.pass();
    assert_eq!((world.status(), world.overrides()), before);
}

#[test]
fn a_record_is_ready_when_every_cluster_is_completed() {
    let mut world = World::done(&json!({}));
    let before = world.overrides();
    let last = world.observed.object.status.as_mut().unwrap().records.last_mut().unwrap();
    last.status = RecordStatus::Deploying;
    world.wait(5);
    assert_eq!(passes(&mut world, 1), ["Ready ||m1,m2,m3"]);
    assert_eq!(world.records()[0].last_transition_time, Time(world.now));
    assert_eq!(world.overrides(), before);
}

#[test]
fn without_a_deploying_cluster_the_first_pending_one_begins() {
    let mut world = half_way(&json!({}));
    let last = world.observed.object.status.as_mut().unwrap().records.last_mut().unwrap();
    last.current_state = CurrentState { pending: names("m2,m3"), deploying: Vec::new(), completed: names("m1") };
    assert_eq!(passes(&mut world, 1), ["Deploying m3|m2|m1"]);
}

/// S1: a late write of another operator gave m2 its spec, and the record does not show it.
#[rstest]
#[case::nothing_deploying("m3,m2", "")]
#[case::another_has_begun_without_a_spec("m2", "m3")]
fn a_cluster_in_progress_begins_before_any_other(#[case] pending: &str, #[case] deploying: &str) {
    let mut world = half_way(&json!({}));
    let last = world.observed.object.status.as_mut().unwrap().records.last_mut().unwrap();
    last.current_state = CurrentState { pending: names(pending), deploying: names(deploying), completed: names("m1") };
    assert_eq!(passes(&mut world, 1), ["Deploying m3|m2|m1"]);
}

#[test]
fn a_cluster_completes_and_the_next_one_begins_in_one_pass() {
    let mut world = rolling(&json!({}));
    world.stopped_agents.extend(names("m2,m3"));
    world.run_agents();
    let plan = world.pass();
    assert_eq!(world.state(), "Deploying m3|m2|m1");
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:1");
    assert!(matches!(plan.overrides, ObjectWrite::Apply(_)));
}

#[rstest]
#[case::other_spec_hash("observedSpecHash", json!("another"))]
#[case::not_completed("completedSpecHash", json!("another"))]
#[case::not_started("startedReplicas", json!(1))]
#[case::not_serving("readyReplicas", json!(1))]
#[case::older_list("ensemble", json!({ "epoch": 0 }))]
#[case::blocked("conditions", json!([{ "type": "Blocked", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": "2026-01-01T00:00:00Z" }]))]
fn nothing_moves_before_the_cluster_is_complete(#[case] field: &str, #[case] value: Value) {
    let mut world = rolling(&json!({}));
    world.run_agents();
    // The agent reports `Progressing` as completed only together with the completed spec hash.
    world.report("m1")["conditions"] = json!([]);
    world.report("m1")[field] = value;
    let before = world.overrides();
    assert_eq!(passes(&mut world, 2), ["Deploying m2,m3|m1|", "Deploying m2,m3|m1|"]);
    assert_eq!(world.overrides(), before);
    assert_eq!(world.condition("Progressing"), "True Deploying");
}

#[test]
fn an_unreadable_report_is_not_a_missing_one() {
    let mut world = rolling(&json!({}));
    world.work("m1").status = Some(json!({ "servers": "of another version" }));
    world.pass();
    let message = world.message("Progressing");
    assert!(message.contains("cannot read the agent's report: bring both to one version"), "{message}");
    world.work("m1").status = None;
    world.pass();
    let message = world.message("Progressing");
    assert!(message.contains("waiting for the first report of the agent"), "{message}");
}

/// A cluster was rebuilt and joined again under its old name, and Karmada still reads its cache of the former one.
#[rstest]
#[case::the_same("a", "a", true)]
#[case::rebuilt("b", "a", false)]
#[case::an_agent_that_reports_no_id("b", "", true)]
#[case::karmada_has_no_id("", "a", true)]
fn a_report_of_another_cluster_moves_nothing(#[case] now: &str, #[case] reported: &str, #[case] is_believed: bool) {
    let mut world = rolling(&json!({}));
    world.run_agents();
    for cluster in world.observed.clusters.iter_mut().filter(|cluster| cluster.name() == "m1") {
        cluster.spec.id = now.to_owned();
    }
    if !reported.is_empty() {
        world.report("m1")["clusterId"] = json!(reported);
    }
    world.pass();
    assert_eq!(world.state() != "Deploying m2,m3|m1|", is_believed, "{}", world.state());
    let causes = ["Progressing", "Degraded"].map(|type_| (world.condition(type_), world.message(type_)));
    for (condition, message) in causes {
        assert_eq!(condition.ends_with(" OtherClusterReported"), !is_believed, "{condition}");
        let words = "not the cluster that reported, with id a in its report and b in Karmada";
        assert_eq!(message.contains(words), !is_believed, "{message}");
    }
}

#[rstest]
#[case::not_applied(false)]
#[case::unreachable(true)]
fn a_stale_report_moves_nothing(#[case] unreachable: bool) {
    let mut world = rolling(&json!({}));
    world.run_agents();
    if unreachable {
        world.unreachable(&["m1"]);
    } else {
        world.work("m1").applied = false;
    }
    assert_eq!(passes(&mut world, 1), ["Deploying m2,m3|m1|"]);
}

/// Karmada cannot apply a Work, before the cluster has reported anything or when it is next in the record.
#[rstest]
#[case::before_any_record("m2", 1, "none")]
#[case::next_in_the_record("m1", 2, "Deploying m2,m3|m1|")]
fn a_refused_work_is_reported_with_cluster_and_cause(
    #[case] cluster: &str,
    #[case] before: usize,
    #[case] state: &str,
) {
    let mut world = World::new(&json!({}));
    passes(&mut world, before);
    let whole = world.work(cluster).clone();
    let refused = world.work(cluster);
    (refused.applied, refused.status) = (false, None);
    refused.applied_message = Some("admission webhook denied: no such class".to_owned());
    let before = world.overrides().cluster_specs;
    assert_eq!(passes(&mut world, 2), [state, state]);
    assert_eq!(world.overrides().cluster_specs, before, "no cluster begins");
    let status = world.status();
    let progressing = status.conditions.iter().find(|c| c.type_ == "Progressing").unwrap();
    for words in [cluster, "admission webhook denied: no such class"] {
        assert!(progressing.message.contains(words), "{}", progressing.message);
    }
    let own = status.clusters.iter().find(|c| c.name == cluster).unwrap();
    assert!(own.message.as_ref().unwrap().contains("admission webhook denied"), "{own:?}");
    // The rollout continues once Karmada can apply the Work.
    *world.work(cluster) = whole;
    world.settle();
}

#[test]
fn the_smallest_volume_is_unknown_while_a_cluster_does_not_report_its_own() {
    let mut world = World::done(&json!({}));
    for (cluster, size) in [("m1", "2Gi"), ("m2", "1536Mi"), ("m3", "3Gi")] {
        world.report(cluster)["smallestVolume"] = json!(size);
    }
    world.pass();
    let smallest = |world: &World| world.status().smallest_volume.map(|size| size.0);
    assert_eq!(smallest(&world).as_deref(), Some("1536Mi"));
    world.report("m3").as_object_mut().unwrap().remove("smallestVolume");
    world.pass();
    assert_eq!(smallest(&world), None);
}

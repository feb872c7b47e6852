//! The rules of the record: first the decision alone, then `plan` in a small world.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::too_many_arguments)]

#[path = "rules/world.rs"]
mod world;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk_api::{
    contract::{certificate_names::Holds, conditions::Reason, labels, server_list},
    karmada::{CONFLICT_RESOLUTION, resource_binding::ResourceBinding},
    multiclusterzookeeper::{CurrentState, ObservedGenerations, Record, RecordStatus},
    mutation::Mutation,
    zookeeper::{EnsemblePhase, ZooKeeperSpec},
};
use mczk_rules::rollout::{
    certificates::{self, IDENTITY_LIFE},
    override_rules,
    plan::{ObjectWrite, Plan},
    record::{self, Rank, RecordInputs, Start},
    steps::PlanStep,
};
use rstest::rstest;
use serde_json::{Value, json};
use world::{World, at};

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|n| !n.is_empty()).map(ToOwned::to_owned).collect()
}

fn generation(zookeeper: i64) -> ObservedGenerations {
    ObservedGenerations { multiclusterzookeeper: zookeeper, zookeeper }
}

fn a_record(status: RecordStatus, zookeeper: i64, pending: &str, deploying: &str, completed: &str) -> Record {
    Record {
        observed_generations: generation(zookeeper),
        order: [names(completed), names(deploying), names(pending)].concat(),
        status,
        current_state: CurrentState {
            pending: names(pending),
            deploying: names(deploying),
            completed: names(completed),
        },
        last_transition_time: Time(at(0)),
    }
}

// ---- The decision alone.

#[rstest]
#[case::ready_and_newer_and_changes(RecordStatus::Ready, 2, true, false, "a,b", Start::NewGeneration)]
#[case::ready_and_newer_without_a_change(RecordStatus::Ready, 2, false, false, "a,b", Start::Unchanged)]
#[case::ready_and_current(RecordStatus::Ready, 1, false, false, "a,b", Start::Continue)]
#[case::ready_and_current_but_rescheduled(RecordStatus::Ready, 1, true, false, "a,b", Start::Rescheduled)]
#[case::deploying_and_current(RecordStatus::Deploying, 1, true, false, "a,b", Start::Continue)]
#[case::deploying_and_newer_and_merely_slow(RecordStatus::Deploying, 2, true, false, "a,b", Start::Continue)]
#[case::deploying_and_newer_and_stuck(RecordStatus::Deploying, 2, true, true, "a,b", Start::Superseded)]
#[case::deploying_and_stuck_with_nothing_newer(RecordStatus::Deploying, 1, true, true, "a,b", Start::Continue)]
#[case::deploying_and_the_deploying_one_is_gone(RecordStatus::Deploying, 1, true, false, "b", Start::ClusterGone)]
#[case::deploying_and_a_pending_one_is_gone(RecordStatus::Deploying, 1, true, false, "a", Start::ClusterGone)]
fn whether_a_record_starts(
    #[case] status: RecordStatus,
    #[case] template: i64,
    #[case] changes: bool,
    #[case] stuck: bool,
    #[case] scheduled: &str,
    #[case] expected: Start,
) {
    let last = match status {
        RecordStatus::Ready => a_record(status, 1, "", "", "a,b"),
        RecordStatus::Deploying => a_record(status, 1, "b", "a", ""),
    };
    let scheduled = names(scheduled);
    let inputs = RecordInputs { generations: generation(template), scheduled: &scheduled, changes, stuck };
    assert_eq!(record::start(Some(&last), &inputs), expected);
}

#[test]
fn without_a_record_the_first_one_starts() {
    let inputs = RecordInputs { generations: generation(1), scheduled: &[], changes: false, stuck: false };
    assert_eq!(record::start(None, &inputs), Start::First);
}

#[test]
fn in_a_new_record_all_clusters_are_pending() {
    let record = record::new(generation(3), names("b,a"), at(7));
    assert_eq!(record.order, names("b,a"));
    assert_eq!(record.current_state, CurrentState { pending: names("b,a"), ..CurrentState::default() });
    assert_eq!((record.status, record.last_transition_time), (RecordStatus::Deploying, Time(at(7))));
}

#[rstest]
#[case::bootstrap_as_scheduled(true, None, "", "c", "a", "", "c,a,b", "c,a,b")]
#[case::healthy_as_scheduled(false, None, "", "", "", "", "c,a,b", "c,a,b")]
#[case::unhealthy_first(false, None, "", "b", "", "", "c,a,b", "b,c,a")]
#[case::leader_last(false, None, "", "", "c", "", "c,a,b", "a,b,c")]
#[case::unhealthy_leader_first(false, None, "", "a", "a", "", "c,a,b", "a,c,b")]
#[case::unreachable_after_the_leader(false, None, "c", "", "a", "", "c,a,b", "b,a,c")]
#[case::stuck_before_all(false, None, "", "b", "", "a", "c,a,b", "a,b,c")]
#[case::listed(false, Some("b,c,a"), "", "a", "b", "", "c,a,b", "b,c,a")]
#[case::listed_without_one(false, Some("b"), "", "", "", "", "c,a,b", "b,c,a")]
#[case::listed_also_at_bootstrap(true, Some("b"), "", "", "", "", "c,a,b", "b,c,a")]
#[case::listed_names_strangers(false, Some("x,a"), "", "", "", "", "c,a,b", "a,c,b")]
#[case::stuck_before_listed(false, Some("b,c,a"), "", "", "", "a", "c,a,b", "a,b,c")]
fn the_order_of_clusters(
    #[case] bootstrap: bool,
    #[case] listed: Option<&str>,
    #[case] unreachable: &str,
    #[case] unhealthy: &str,
    #[case] leader: &str,
    #[case] stuck: &str,
    #[case] scheduled: &str,
    #[case] expected: &str,
) {
    let listed = listed.map(names);
    let order = record::order(&names(scheduled), listed.as_deref(), bootstrap, |cluster| Rank {
        reachable: cluster != unreachable,
        healthy: cluster != unhealthy,
        leader: cluster == leader,
        stuck: cluster == stuck,
    });
    assert_eq!(order, names(expected));
}

// ---- `plan`, pass by pass.

const NEWER_CHANGE: &str = "A newer change of spec waits until the current record is done";

/// The state of the last record after each of some passes.
fn passes(world: &mut World, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            world.pass();
            world.state()
        })
        .collect()
}

/// A new image, which m1 is getting.
fn rolling(more: &Value) -> World {
    let mut world = World::done(more);
    world.image("zoo:2");
    world.pass();
    world.pass();
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    world
}

/// As [`rolling`], but m1 is complete, and m2 is getting the image.
fn half_way(more: &Value) -> World {
    let mut world = rolling(more);
    world.stopped_agents.insert("m2".to_owned());
    world.run_agents();
    world.wait(10);
    world.pass();
    assert_eq!(world.state(), "Deploying m3|m2|m1");
    world
}

#[test]
fn the_first_record_has_the_order_of_the_schedule() {
    let mut world = World::new(&json!({}));
    world.place(&[("m2", 2), ("m3", 1), ("m1", 2)]);
    assert_eq!(passes(&mut world, 2), ["none", "Deploying m3,m1|m2|"]);
    let [record] = world.records().try_into().unwrap();
    assert_eq!(record.order, names("m2,m3,m1"));
    assert_eq!(record.observed_generations, ObservedGenerations { multiclusterzookeeper: 1, zookeeper: 1 });
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
#[case::a_long_text(include_str!("record_rules.rs"), include_str!("record_rules.rs").get(..128))]
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

// ---- Stuck, slow and lost.

#[derive(Clone, Copy, Debug)]
enum StuckBy {
    Deadline,
    Unreachable,
    Report,
}

#[rstest]
fn the_record_that_supersedes_a_stuck_one_begins_where_it_is_stuck(
    #[values(StuckBy::Deadline, StuckBy::Unreachable, StuckBy::Report)] by: StuckBy,
) {
    let mut world = half_way(&json!({ "rollout": { "progressDeadlineSeconds": 60 } }));
    match by {
        StuckBy::Deadline => world.wait(60),
        StuckBy::Unreachable => world.unreachable(&["m2"]),
        StuckBy::Report => {
            let hash = world.overrides().cluster_specs["m2"].spec_hash.clone();
            let report = world.report("m2");
            report["observedSpecHash"] = json!(hash);
            report["conditions"] = json!([{
                "type": "Progressing", "status": "False", "reason": "ImagePull", "message": "no such image",
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            }]);
        }
    }
    // Being stuck starts no record.
    assert_eq!(passes(&mut world, 1), ["Deploying m3|m2|m1"]);
    assert!(world.condition("Progressing").starts_with("False "), "{}", world.condition("Progressing"));
    world.image("zoo:3");
    world.pass();
    world.pass();
    assert_eq!(world.records().len(), 3, "appended");
    let last = world.records()[2].clone();
    assert_eq!(last.order.first().map(String::as_str), Some("m2"), "{:?}", last.order);
    assert_eq!(last.observed_generations, generation(3));
    assert_eq!(world.records()[1].status, RecordStatus::Deploying, "the superseded record stays as it is");
    world.stopped_agents.clear();
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.images(), "m1=zoo:3 m2=zoo:3 m3=zoo:3");
}

#[test]
fn a_slow_record_keeps_its_template_and_is_not_superseded() {
    let mut world = half_way(&json!({ "rollout": { "progressDeadlineSeconds": 600 } }));
    let template = world.observed.template.as_ref().unwrap().spec.clone();
    world.image("zoo:3");
    world.wait(300);
    assert_eq!(passes(&mut world, 2), ["Deploying m3|m2|m1", "Deploying m3|m2|m1"]);
    assert_eq!(world.observed.template.as_ref().unwrap().spec, template);
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:1");
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.records().len(), 3);
    assert_eq!(world.records()[1].status, RecordStatus::Ready, "it finished first");
    assert_eq!(world.images(), "m1=zoo:3 m2=zoo:3 m3=zoo:3");
}

/// A client that waits for Ready must not take the end of an older record for its own change.
#[test]
fn a_rollout_is_not_done_while_a_newer_change_waits() {
    let mut world = half_way(&json!({}));
    world.image("zoo:3");
    world.pass();
    assert_eq!(world.message("Progressing").split_once(". ").unwrap().1, NEWER_CHANGE);
    world.stopped_agents.clear();
    while world.state() != "Ready ||m1,m2,m3" {
        world.tick();
    }
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
    assert_eq!(
        (world.condition("Progressing"), world.condition("Ready")),
        ("True Deploying".to_owned(), "False RollingOut".to_owned())
    );
    assert_eq!(world.message("Progressing"), format!("The last record is rolled out. {NEWER_CHANGE}"));
    world.settle();
    assert_eq!(world.images(), "m1=zoo:3 m2=zoo:3 m3=zoo:3");
    assert_eq!(
        (world.condition("Progressing"), world.condition("Ready")),
        ("False Done".to_owned(), "True Serving".to_owned())
    );
}

#[test]
fn a_changed_schedule_starts_a_record() {
    let mut world = World::done(&json!({}));
    let ids = world.ids();
    world.place(&[("m1", 1), ("m2", 2), ("m3", 2)]);
    world.settle();
    assert_eq!(world.records().len(), 2);
    assert_eq!(world.records()[1].observed_generations, world.records()[0].observed_generations);
    let after = world.ids();
    assert_eq!(after.len(), 5);
    assert_eq!(after.iter().filter(|s| !ids.contains(s)).collect::<Vec<_>>(), [&(6, "m3".to_owned(), 1)]);
    assert_eq!(world.overrides().cluster_specs["m1"].replicas, 1);
}

#[test]
fn a_record_that_loses_a_cluster_is_replaced() {
    let mut world = half_way(&json!({}));
    world.place(&[("m1", 2), ("m3", 3)]);
    world.pass();
    assert_eq!(world.records().len(), 3);
    let last = world.records()[2].clone();
    assert_eq!(last.order.len(), 2);
    assert!(!last.order.contains(&"m2".to_owned()));
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(
        world.images().split(' ').filter(|i| i.ends_with("zoo:2")).count(),
        world.overrides().cluster_specs.len()
    );
}

#[test]
fn a_generation_without_a_change_starts_no_record() {
    let mut world = World::done(&json!({}));
    let (overrides, before) = (world.overrides(), world.records());
    // Another writer touches the template: its generation rises, and its spec is the same.
    world.edit_template(|template| template.metadata.generation = Some(7));
    world.pass();
    let after = world.records();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].observed_generations.zookeeper, 7);
    assert_eq!((after[0].order.clone(), after[0].status), (before[0].order.clone(), RecordStatus::Ready));
    assert_eq!(world.overrides(), overrides);
}

#[rstest]
fn a_lost_status_is_recovered_without_a_rollout(#[values(false, true)] rolling: bool) {
    let mut world = if rolling { half_way(&json!({})) } else { World::done(&json!({})) };
    let (records, overrides) = (world.records(), world.overrides());
    world.observed.object.status = None;
    world.pass();
    assert_eq!((world.records(), world.overrides()), (records.clone(), overrides));
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.records().len(), records.len());
}

#[rstest]
fn a_lost_override_policy_is_recovered_from_the_status(#[values(false, true)] rolling: bool) {
    let mut world = if rolling { half_way(&json!({})) } else { World::done(&json!({})) };
    let (ids, records, images) = (world.ids(), world.records(), world.images());
    world.observed.overrides = None;
    world.pass();
    assert_eq!((world.ids(), world.records()), (ids, records.clone()));
    // A cluster that the record has not reached has no spec, and its agent changes nothing.
    assert!(world.images().split(' ').all(|image| images.contains(image)), "{} {images}", world.images());
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.records().len(), records.len());
}

#[test]
fn with_both_lost_the_ids_are_recovered_from_reports() {
    let mut world = World::done(&json!({}));
    world.place(&[("m1", 1), ("m2", 2), ("m3", 2)]);
    world.settle();
    let ids = world.ids();
    assert!(ids.iter().any(|(id, ..)| *id == 6), "{ids:?}");
    world.observed.overrides = None;
    world.observed.object.status = None;
    world.settle();
    assert_eq!(world.ids(), ids);
}

#[test]
fn with_both_lost_no_server_is_named_before_every_cluster_reports() {
    let mut world = World::done(&json!({}));
    let ids = world.ids();
    world.observed.overrides = None;
    world.observed.object.status = None;
    world.unreachable(&["m2"]);
    world.pass();
    world.pass();
    assert_eq!((world.ids(), world.images()), (Vec::new(), String::new()));
    assert_eq!(world.condition("Progressing"), "True ClusterNotReported");
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.ids(), ids);
}

/// Server list, status and reports hold the highest id. A server that left may still run in an unreachable cluster, so its id
/// is not reused.
#[rstest]
#[case::nothing(false, false)]
#[case::the_policy(true, false)]
#[case::policy_and_status(true, true)]
fn an_id_is_not_reused_whatever_is_lost(#[case] policy: bool, #[case] status: bool) {
    let mut world = World::done(&json!({}));
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    assert_eq!(world.ids().len(), 3);
    let before = world.ids();
    if policy {
        world.observed.overrides = None;
    }
    if status {
        world.observed.object.status = None;
    }
    world.settle();
    assert_eq!(world.ids(), before);
    world.edit("/replicas", &json!(5));
    world.place(&[("m1", 2), ("m2", 2), ("m3", 1)]);
    world.settle();
    let new: Vec<i32> = world.ids().iter().filter(|s| !before.contains(s)).map(|(id, ..)| *id).collect();
    assert_eq!(new, [6, 7]);
}

/// A lost policy that cannot be written gives the same plan every time.
#[test]
fn a_policy_that_cannot_be_written_raises_no_epoch() {
    let mut world = World::done(&json!({}));
    let epoch = |world: &World| world.observed.object.status.as_ref().unwrap().ensemble.as_ref().unwrap().epoch;
    let before = epoch(&world);
    world.observed.overrides = None;
    for _ in 0..5 {
        // The operator writes the status, but cannot write the policy.
        let plan = world.plan();
        world.observed.object.status = Some(plan.status);
    }
    assert_eq!(epoch(&world), before, "the status has the hash of this list");
}

#[test]
fn only_the_agent_of_a_server_can_report_its_volume_as_lost() {
    let mut world = World::done(&json!({}));
    let ids = world.ids();
    world.report("m3")["servers"] = json!([{ "id": 1, "lost": true, "serving": true }]);
    world.pass();
    assert_eq!(world.ids(), ids);
}

/// A correction by the user reaches the template although no cluster can begin.
#[test]
fn a_record_without_a_cluster_that_can_begin_is_superseded_at_its_deadline() {
    let mut world = World::new(&json!({ "replicas": 3, "rollout": { "progressDeadlineSeconds": 60 } }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    world.image("zoo:2");
    passes(&mut world, 2);
    world.edit("/rollout/paused", &json!(true));
    for _ in 0..4 {
        world.pass();
        world.run_agents();
    }
    assert_eq!(world.state(), "Deploying m2,m3||m1");
    world.unreachable(&["m1"]);
    world.edit("/rollout/paused", &json!(false));
    world.pass();
    assert_eq!(world.condition("Progressing"), "False NoQuorum");
    let steps = world.plan().steps;
    let cause = steps.iter().find(|(step, _)| *step == PlanStep::Clusters).and_then(|(_, report)| report.cause());
    assert_eq!(cause.map(|cause| cause.reason), Some(Reason::NoQuorum), "the rule names its reason");
    world.image("zoo:1");
    world.pass();
    assert_eq!(world.observed.template.as_ref().unwrap().spec.template.image, "zoo:2");
    world.wait(61);
    world.pass();
    assert_eq!(world.observed.template.as_ref().unwrap().spec.template.image, "zoo:1");
}

#[test]
fn a_cluster_that_starts_ends_the_overdue_state() {
    let mut world = rolling(&json!({ "rollout": { "paused": false, "progressDeadlineSeconds": 60 } }));
    world.edit("/rollout/paused", &json!(true));
    world.run_agents();
    world.pass();
    world.wait(61);
    world.edit("/rollout/paused", &json!(false));
    world.pass();
    assert_eq!(
        (world.state().as_str(), world.condition("Progressing")),
        ("Deploying m3|m2|m1", "True Deploying".to_owned())
    );
}

/// With one or two voters no restart leaves a majority.
#[rstest]
#[case::one(1, &[("m1", 1)])]
#[case::two(2, &[("m1", 1), ("m2", 1)])]
#[case::two_in_one(2, &[("m1", 2)])]
fn ensembles_of_one_or_two_voters_change_too(#[case] replicas: i32, #[case] placed: &[(&str, i32)]) {
    let mut world = World::new(&json!({ "replicas": replicas }));
    world.place(placed);
    world.settle();
    world.image("zoo:2");
    world.settle();
    assert_eq!(world.condition("Progressing"), "False Done");
    let cluster_specs = override_rules::read(&world.observed.overrides.as_ref().unwrap().spec).cluster_specs;
    assert!(cluster_specs.values().all(|spec| spec.template.image == "zoo:2"));
}

/// A dead voter that the list no longer names stays until a server joins, and no agent restarts a serving voter meanwhile. So
/// the cluster that brings the server starts first.
#[test]
fn a_cluster_that_waits_beside_a_dead_voter_yields_to_one_that_brings_a_server() {
    let listed = json!({ "order": "Listed", "clusters": ["m1", "m2", "m4"] });
    let mut world = World::done(&json!({ "rollout": listed }));
    world.unreachable(&["m3"]);
    world.running.retain(|(cluster, _), _| cluster != "m3");
    // The agent of m1 restarts nothing.
    world.stopped_agents.extend(names("m1"));
    world.image("zoo:2");
    world.place(&[("m1", 2), ("m2", 2), ("m4", 1)]);
    *world.report("m4") = json!({});
    passes(&mut world, 3);
    assert_eq!(world.state(), "Deploying m1,m2|m4|", "{}", world.message("Progressing"));
    world.run_agents();
    assert_eq!(world.voters.len(), 5, "{:?}", world.voters);
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m4=zoo:2");
}

/// The voters of a cluster that leaves as a whole stay until others have joined. A shrinking cluster, which waits for every
/// voter that leaves, lets other clusters grow.
#[test]
fn a_cluster_that_shrinks_lets_others_grow() {
    let listed = json!({ "order": "Listed", "clusters": ["m1", "m2", "m3"] });
    let mut world = World::new(&json!({ "rollout": listed }));
    world.place(&[("m1", 2), ("m2", 1), ("m3", 1), ("m4", 1)]);
    world.settle();
    world.place(&[("m1", 1), ("m2", 2), ("m3", 2)]);
    for _ in 0..30 {
        assert!(world.voters.len() >= 4, "only {:?} vote", world.voters);
        world.tick();
    }
    world.settle();
    assert_eq!(world.voters.len(), 5);
}

/// Another ensemble or a user's own import may have the name that an undeclared import would have.
#[test]
fn an_import_of_another_owner_is_no_conflict_while_none_is_declared() {
    let mut world = World::done(&json!({}));
    let import = json!({ "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport", "metadata": { "name": "zk", "namespace": "ns" } });
    world.observed.services.insert("ServiceImport/zk".to_owned(), import);
    world.image("zoo:2");
    world.settle();
    assert_eq!(world.condition("Progressing"), "False Done");
    assert!(world.observed.services.contains_key("ServiceImport/zk"));
}

// ---- `spec.rollout`.

#[test]
fn a_complete_cluster_is_held_for_hold_seconds() {
    let mut world = rolling(&json!({ "rollout": { "holdSeconds": 30 } }));
    world.stopped_agents.extend(names("m2,m3"));
    world.run_agents();
    let plan = world.pass();
    assert_eq!(
        (world.state().as_str(), world.condition("Progressing").as_str()),
        ("Deploying m2,m3|m1|", "True Holding")
    );
    assert_eq!(plan.requeue_after, Some(std::time::Duration::from_secs(30)));
    world.wait(29);
    assert_eq!(passes(&mut world, 1), ["Deploying m2,m3|m1|"]);
    world.wait(1);
    assert_eq!(passes(&mut world, 1), ["Deploying m3|m2|m1"]);
}

#[test]
fn a_clock_that_is_set_back_extends_no_hold_and_no_deadline() {
    let hour = std::time::Duration::from_secs(3600);
    let mut world = rolling(&json!({ "rollout": { "holdSeconds": 20, "progressDeadlineSeconds": 60 } }));
    world.run_agents();
    world.pass();
    assert_eq!(world.condition("Progressing"), "True Holding");
    world.now -= hour;
    world.pass();
    world.wait(21);
    world.pass();
    assert_eq!(world.state(), "Deploying m3|m2|m1");
    world.now -= hour;
    world.pass();
    world.wait(61);
    world.pass();
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
}

#[test]
fn a_held_cluster_never_counts_as_stuck() {
    let mut world = rolling(&json!({ "rollout": { "holdSeconds": 3000, "progressDeadlineSeconds": 60 } }));
    world.run_agents();
    world.pass();
    world.wait(200);
    world.image("zoo:3");
    world.pass();
    world.pass();
    assert_eq!((world.state().as_str(), world.records().len()), ("Deploying m2,m3|m1|", 2));
    assert_eq!(world.condition("Progressing"), "True Holding");
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:1 m3=zoo:1");
}

#[test]
fn on_failure_pause_waits_for_the_unreachable_cluster() {
    let mut world = World::done(&json!({ "rollout": { "onFailure": "Pause" } }));
    world.unreachable(&["m3"]);
    world.image("zoo:2");
    world.run();
    assert_eq!(world.state(), "Deploying m3||m1,m2");
    assert_eq!(world.condition("Progressing"), "False ClusterUnreachable");
    let message = world.message("Progressing");
    assert!(message.ends_with("To continue without it, set rollout.onFailure to Continue"), "{message}");
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.records().len(), 2);
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
}

#[test]
fn on_failure_continue_leaves_an_unreachable_cluster_out_until_it_is_back() {
    let mut world = World::done(&json!({ "rollout": { "onFailure": "Continue" } }));
    world.unreachable(&["m3"]);
    world.image("zoo:2");
    world.run();
    assert_eq!(world.state(), "Ready ||m1,m2");
    let records = world.records();
    assert_eq!((records.len(), records[1].order.clone()), (2, names("m1,m2")));
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:1");
    world.wait(10_000);
    world.run();
    assert_eq!(world.records(), records, "no endless records");
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.records().len(), 3, "the cluster gets a record of its own when it is back");
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
}

#[test]
fn on_failure_continue_advises_nothing_that_is_set() {
    let mut world = World::done(&json!({ "rollout": { "onFailure": "Continue", "paused": false } }));
    world.edit("/rollout/paused", &json!(true));
    world.image("zoo:2");
    world.run();
    world.unreachable(&["m1", "m2", "m3"]);
    world.edit("/rollout/paused", &json!(false));
    world.pass();
    assert_eq!(
        (world.state().as_str(), world.condition("Progressing").as_str()),
        ("Deploying m1,m2,m3||", "False ClusterUnreachable")
    );
    let message = world.message("Progressing");
    assert!(message.contains("No cluster of the record is complete yet"), "{message}");
    assert!(!message.contains("set rollout.onFailure"), "{message}");
}

#[test]
fn on_failure_continue_waits_while_no_cluster_is_completed() {
    let mut world = World::done(&json!({ "rollout": { "onFailure": "Continue" } }));
    world.unreachable(&["m1", "m2", "m3"]);
    world.image("zoo:2");
    world.run();
    assert!(!world.images().contains("zoo:2"));
    assert!(world.records().iter().all(|r| !r.order.is_empty()), "{:?}", world.records());
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
}

#[rstest]
#[case::one(Some(1), 1)]
#[case::three(Some(3), 3)]
#[case::ten_by_default(None, 10)]
fn records_are_kept_up_to_the_limit(#[case] limit: Option<i32>, #[case] kept: usize) {
    let mut world = World::done(&json!({ "recordHistoryLimit": limit }));
    for number in 2..14 {
        world.image(&format!("zoo:{number}"));
        world.settle();
    }
    let records = world.records();
    assert_eq!(records.len(), kept);
    assert_eq!(records.last().unwrap().observed_generations.zookeeper, 13, "the newest stay");
}

#[test]
fn the_listed_order_is_followed() {
    let mut world = World::new(&json!({ "rollout": { "order": "Listed", "clusters": ["m3", "m1", "m2"] } }));
    world.settle();
    assert_eq!(world.records()[0].order, names("m3,m1,m2"));
    world.leader = Some(world.ids()[0].0);
    world.run_agents();
    world.image("zoo:2");
    world.settle();
    assert_eq!(world.records()[1].order, names("m3,m1,m2"), "although the leader is not last");
}

#[test]
fn the_leaders_cluster_is_last() {
    let mut world = World::done(&json!({}));
    world.leader = world.ids().iter().find(|s| s.1 == "m1").map(|s| s.0);
    world.run_agents();
    world.image("zoo:2");
    world.settle();
    assert_eq!(world.records()[1].order, names("m2,m3,m1"));
}

#[test]
fn the_unhealthy_cluster_is_first() {
    let mut world = World::done(&json!({}));
    world.report("m2")["servers"][0]["serving"] = json!(false);
    world.image("zoo:2");
    world.pass();
    world.pass();
    assert_eq!(world.records()[1].order, names("m2,m1,m3"));
}

// ---- Refusals.

#[rstest]
#[case::template("template")]
#[case::policy("policy")]
#[case::overrides("overrides")]
#[case::export("ServiceExport/zk")]
fn nothing_is_written_while_another_owner_has_a_name(#[case] which: &str) {
    let mut world = World::new(&json!({}));
    let mut ours = World::new(&json!({}));
    ours.pass();
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

// ---- Secrets of users.

/// S6 for Secrets: a server that the record has not reached can restart unchanged.
#[test]
fn a_secret_travels_until_no_cluster_spec_names_it() {
    let tls = |secret: &str| json!({ "quorum": false, "client": { "mode": "Optional", "secretName": secret } });
    let mut world = World::done(&json!({ "tls": tls("old") }));
    let travels = |world: &World| -> Vec<String> {
        let template = world.observed.template.as_ref().unwrap();
        template.spec.dependencies.iter().map(|dependency| dependency.name.clone()).collect()
    };
    world.edit("/template/imagePullSecrets", &json!(["registry"]));
    world.settle();
    assert_eq!(travels(&world), ["old", "registry"]);
    world.edit("/tls", &tls("new"));
    world.edit("/template/imagePullSecrets", &json!([]));
    let mut began = false;
    for _ in 0..30 {
        world.tick();
        let cluster_specs = world.overrides().cluster_specs;
        let names = |spec: &ZooKeeperSpec| spec.tls.client.as_ref().map(|client| client.secret_name.clone());
        let needed: BTreeSet<_> = cluster_specs.values().filter_map(names).collect();
        assert!(needed.iter().all(|name| travels(&world).contains(name)), "{needed:?} of {:?}", travels(&world));
        began |= needed.len() == 2;
        assert!(needed.len() < 2 || travels(&world).contains(&"registry".to_owned()));
    }
    assert!(began, "the clusters get it one after the other");
    let (records, cluster_specs) = (world.records().len(), world.overrides().cluster_specs);
    world.settle();
    assert_eq!(travels(&world), ["new"]);
    assert_eq!(
        (world.records().len(), world.overrides().cluster_specs),
        (records, cluster_specs),
        "its removal changes no cluster"
    );
}

/// The removal of a Secret that no pod needs is no change by the user.
#[test]
fn an_unused_secret_supersedes_no_stuck_record() {
    let tls = |secret: &str| json!({ "quorum": false, "client": { "mode": "Optional", "secretName": secret } });
    let mut world = World::done(&json!({ "tls": tls("old") }));
    world.edit("/tls", &tls("new"));
    world.stopped_agents.insert("m3".to_owned());
    for _ in 0..30 {
        world.tick();
    }
    assert_eq!(world.state(), "Deploying |m3|m1,m2");
    world.wait(100_000);
    assert_eq!(passes(&mut world, 3), ["Deploying |m3|m1,m2"; 3]);
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
    assert_eq!(world.records().len(), 2);
    world.stopped_agents.clear();
    world.settle();
    let travels = world.observed.template.as_ref().unwrap().spec.dependencies.clone();
    assert_eq!(travels.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["new"]);
    assert_eq!(world.records().len(), 2);
}

#[test]
fn refused_client_certificates_degrade_a_serving_ensemble() {
    let mut world = World::done(&json!({}));
    world.report("m2")["conditions"] = json!([{
        "type": "ClientCertificatesKept", "status": "True", "reason": "SecretNotTaken", "message": "Secret s is not here",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    world.pass();
    assert_eq!(world.condition("Degraded"), "True ClientCertificates");
    assert_eq!(world.condition("Ready"), "True Serving");
}

// ---- Certificates of the quorum.

#[test]
fn certificates_exist_before_the_template_that_names_them() {
    let mut world = World::new(&json!({}));
    world.observed.certificates.clear();
    for made in ["authority", "trust", "identity"] {
        let plan = world.pass();
        assert_eq!(plan.certificate.unwrap().holds.word(), made);
        assert!(world.observed.template.is_none() && plan.requeue_after.is_some());
        assert_eq!(world.condition("Progressing"), "False Certificates");
    }
    world.settle();
    let tls = world.overrides().ensemble.tls.unwrap();
    let template = world.observed.template.as_ref().unwrap();
    let travels: Vec<_> = template.spec.dependencies.iter().map(|d| d.name.clone()).collect();
    assert_eq!(travels, [tls.identity, tls.trust[0].clone()]);
}

#[test]
fn without_tls_there_are_no_certificates() {
    let mut world = World::new(&json!({ "tls": { "quorum": false } }));
    assert!(world.observed.certificates.is_empty());
    world.settle();
    assert_eq!((world.overrides().ensemble.tls, world.observed.certificates.len()), (None, 0));
}

/// A renewed identity travels first. Then the server list names it, and the old one no longer travels.
#[test]
fn a_renewed_identity_comes_with_the_list_and_restarts_nothing() {
    let mut world = World::done(&json!({}));
    let cluster_specs = world.overrides().cluster_specs;
    let old = world.overrides().ensemble;
    for secret in world.observed.certificates.iter_mut().filter(|c| c.holds == Holds::Identity) {
        secret.not_after = world.now + IDENTITY_LIFE / 4;
    }
    let mut travelled = BTreeSet::new();
    for _ in 0..30 {
        world.tick();
        let tls = world.overrides().ensemble.tls.unwrap();
        let travels = world.observed.template.as_ref().unwrap().spec.dependencies.clone();
        assert!(certificates::travels(&tls, &travels), "the list names certificates that travel");
        travelled.insert(travels.len());
    }
    world.settle();
    let new = world.overrides().ensemble;
    assert!(new.epoch > old.epoch && new.servers == old.servers);
    assert!(new.tls.as_ref().unwrap().identity.ends_with("-identity-2"), "{:?}", new.tls);
    assert_eq!(travelled, BTreeSet::from([2, 3]), "both identities travel for a while");
    assert_eq!(world.observed.template.as_ref().unwrap().spec.dependencies.len(), 2);
    assert_eq!(world.overrides().cluster_specs, cluster_specs, "no server restarts");
    assert_eq!(world.pass().certificate, None);
}

/// Three server lists replace an authority. Each follows when every cluster has loaded the certificates of the one before.
#[test]
fn an_authority_is_replaced_in_three_steps() {
    let mut world = World::done(&json!({}));
    let (cluster_specs, mut steps) = (world.overrides().cluster_specs, Vec::new());
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REPLACE_AUTHORITY.to_owned(), "now".to_owned());
    for tick in 0..60 {
        world.tick();
        if tick == 8 {
            assert_eq!(world.condition("Progressing"), "True ReplacingAuthority", "m2 has not loaded it");
        }
        if tick < 10 {
            world.report("m2").as_object_mut().unwrap().remove("ensembleTls");
        }
        let tls = world.overrides().ensemble.tls.unwrap();
        let number = |name: &String| name.rsplit_once('-').unwrap().1.to_owned();
        let step = (number(&tls.identity), tls.trust.iter().map(number).collect::<Vec<_>>().join("+"));
        if steps.last() != Some(&step) {
            assert!(tick >= 10 || steps.len() < 2, "{steps:?}: not before m2 has loaded it");
            steps.push(step);
        }
    }
    let expected = [("1", "1"), ("1", "1+2"), ("2", "1+2"), ("2", "2")];
    assert_eq!(steps, expected.map(|(identity, trust)| (identity.to_owned(), trust.to_owned())));
    assert_eq!(world.overrides().cluster_specs, cluster_specs, "no server restarts");
    let authorities = world.observed.certificates.iter().filter(|c| c.holds == Holds::Authority).count();
    assert_eq!((authorities, world.condition("Progressing").as_str()), (2, "False Done"));
    assert_eq!(world.pass().certificate, None);
}

/// Karmada takes a creation that timed out for a success (chaos, seed 10): the operator has it apply the Secret again.
#[test]
fn a_secret_that_a_cluster_misses_is_applied_again() {
    let mut world = World::done(&json!({}));
    let key = "OverridePolicy/mczk-zk.missing";
    let missing = world.overrides().ensemble.tls.unwrap().identity;
    world.report("m2").as_object_mut().unwrap().insert("missingSecrets".to_owned(), json!([missing]));
    let policy = |world: &mut World| match world.pass().services.remove(key) {
        Some(ObjectWrite::Apply(policy)) => Some(policy),
        _ => None,
    };
    let first = policy(&mut world).expect("the Secret is missing");
    assert_eq!(first.pointer("/spec/resourceSelectors/0/name"), Some(&json!(missing)));
    assert_eq!(first.pointer("/spec/overrideRules/0/targetCluster/clusterNames"), Some(&json!(["m2"])));
    assert!(world.pass().requeue_after.is_some_and(|after| after.as_secs() <= 60));
    world.report("m2").as_object_mut().unwrap().remove("missingSecrets");
    assert_eq!(policy(&mut world), None);
}

/// Deleted Secrets change nothing that runs.
#[test]
fn certificates_in_use_stay_when_their_secrets_are_deleted() {
    let mut world = World::done(&json!({}));
    let before = (world.overrides(), world.observed.template.clone());
    world.observed.certificates.retain(|c| c.holds == Holds::Authority);
    for _ in 0..5 {
        world.tick();
    }
    world.settle();
    let tls = world.overrides().ensemble.tls.unwrap();
    assert!(tls.identity.ends_with("-identity-2"), "a name never gets other content: {tls:?}");
    assert_eq!(world.overrides().cluster_specs, before.0.cluster_specs);
    world.observed.certificates.clear();
    let before = (world.overrides(), world.observed.template.clone());
    world.settle();
    assert_eq!((world.overrides().ensemble, world.observed.template.clone()), (before.0.ensemble, before.1));
    assert_eq!(world.pass().certificate, None, "no server would trust another authority");
}

/// Certificates move no voter, and may bring the quorum back.
#[test]
fn renewed_certificates_need_no_quorum() {
    let mut world = World::done(&json!({}));
    for secret in world.observed.certificates.iter_mut().filter(|c| c.holds == Holds::Identity) {
        secret.not_after = world.now + IDENTITY_LIFE / 4;
    }
    for _ in 0..10 {
        world.pass();
        for cluster in ["m1", "m2", "m3"] {
            let report = world.report(cluster);
            report["writable"] = json!(false);
            report["votingMembers"] = json!([]);
            report["servers"].as_array_mut().unwrap().iter_mut().for_each(|s| s["serving"] = json!(false));
        }
    }
    assert!(world.overrides().ensemble.tls.unwrap().identity.ends_with("-identity-2"));
}

#[test]
fn the_first_server_list_waits_for_its_certificates() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.observed.certificates.retain(|c| c.holds == Holds::Authority);
    let identity = |world: &World| world.overrides().ensemble.tls.map(|tls| tls.identity);
    for _ in 0..3 {
        world.tick();
        assert!(world.observed.overrides.is_none() || world.overrides().ensemble.servers.is_empty());
    }
    world.settle();
    assert!(identity(&world).is_some());
}

/// Agents have accepted a newer server list than the restored one, and two lists must not share an epoch.
#[test]
fn a_restored_older_policy_gets_an_epoch_above_every_known_one() {
    let mut world = World::done(&json!({}));
    let older = world.observed.overrides.clone();
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    let known = world.overrides().ensemble.epoch;
    world.observed.overrides = older;
    assert!(world.overrides().ensemble.epoch < known);
    world.pass();
    assert!(world.overrides().ensemble.epoch > known, "{:?}", world.overrides().ensemble.epoch);
    world.settle();
    assert_eq!(world.overrides().ensemble.servers.len(), 3);
    // Of two lists of one epoch neither stays.
    let mut other = world.overrides().ensemble;
    let known = other.epoch;
    other.highest_id = Some(200);
    let other = server_list::with_hash(other).unwrap();
    world.report("m1")["ensemble"] = serde_json::to_value(other).unwrap();
    world.pass();
    assert!(world.overrides().ensemble.epoch > known);
}

// ---- An unsettled schedule.

fn binding(world: &mut World) -> &mut ResourceBinding {
    world.observed.binding.as_mut().unwrap()
}

#[rstest]
#[case::no_binding("NoBinding", |w: &mut World| w.observed.binding = None)]
#[case::other_kind("ForeignBinding", |w: &mut World| binding(w).spec.resource.kind = "Deployment".into())]
#[case::other_uid("ForeignBinding", |w: &mut World| binding(w).spec.resource.uid = Some("t0".into()))]
#[case::no_uid("ForeignBinding", |w: &mut World| w.edit_template(|t| t.metadata.uid = None))]
#[case::no_policy("OtherPolicy", |w: &mut World| binding(w).metadata.annotations = None)]
#[case::other_policy("OtherPolicy", |w: &mut World| {
    let annotations = binding(w).metadata.annotations.as_mut().unwrap();
    annotations.insert("propagationpolicy.karmada.io/name".into(), "theirs".into());
})]
#[case::no_requirements("NotInterpreted", |w: &mut World| binding(w).spec.replica_requirements = None)]
#[case::no_replicas("NotInterpreted", |w: &mut World| binding(w).spec.replicas = None)]
#[case::zero_replicas("NotInterpreted", |w: &mut World| binding(w).spec.replicas = Some(0))]
#[case::other_replicas("Rescheduling", |w: &mut World| binding(w).spec.replicas = Some(3))]
#[case::other_placement("Rescheduling", |w: &mut World| binding(w).spec.placement = Some(json!({})))]
#[case::no_placement("Rescheduling", |w: &mut World| binding(w).spec.placement = None)]
#[case::excluded_in_the_binding("Rescheduling", |w: &mut World| {
    binding(w).spec.placement.as_mut().unwrap()["clusterAffinity"]["exclude"] = json!(["m1"]);
})]
#[case::excluded_in_the_policy("Rescheduling", |w: &mut World| {
    let mut policy = w.observed.policy.as_deref().unwrap().clone();
    policy.spec.placement.cluster_affinity.as_mut().unwrap().exclude_clusters = vec!["m1".to_owned()];
    w.observed.policy = Some(policy.into());
})]
#[case::spread_in_the_policy("Rescheduling", |w: &mut World| {
    let mut policy = w.observed.policy.as_deref().unwrap().clone();
    policy.spec.placement.spread_constraints = Some(vec![json!({ "spreadByField": "cluster", "maxGroups": 2 })]);
    w.observed.policy = Some(policy.into());
})]
#[case::scheduler_refuses("NotScheduled", |w: &mut World| {
    let condition = json!({ "type": "Scheduled", "status": "False", "reason": "NoFit", "message": "0/4 clusters" });
    binding(w).status.conditions = vec![serde_json::from_value(condition).unwrap()];
})]
#[case::scheduler_is_behind("Rescheduling", |w: &mut World| binding(w).metadata.generation = Some(2))]
#[case::never_scheduled("Rescheduling", |w: &mut World| binding(w).status.last_scheduled_time = None)]
#[case::no_cluster("Rescheduling", |w: &mut World| binding(w).spec.clusters.clear())]
#[case::all_zero("Rescheduling", |w: &mut World| {
    binding(w).spec.clusters.iter_mut().for_each(|c| c.replicas = 0);
})]
#[case::sum_too_low("Rescheduling", |w: &mut World| binding(w).spec.clusters[0].replicas = 1)]
#[case::sum_too_high("Rescheduling", |w: &mut World| binding(w).spec.clusters[0].replicas = 3)]
fn an_unsettled_binding_changes_nothing(#[case] reason: &str, #[case] unsettle: impl Fn(&mut World)) {
    let mut world = World::done(&json!({}));
    let before = (world.overrides(), world.records());
    let whole = world.observed.clone();
    unsettle(&mut world);
    let plan = world.plan();
    let ObjectWrite::Apply(overrides) = plan.overrides else { panic!("the policy stays") };
    assert_eq!(override_rules::read(&overrides.spec), before.0);
    assert_eq!(plan.status.records, before.1);
    let scheduled = plan.status.conditions.iter().find(|c| c.type_ == "Scheduled").unwrap();
    assert_eq!((scheduled.status.as_str(), scheduled.reason.as_str()), ("False", reason), "{}", scheduled.message);
    // Nothing has changed when the binding is settled again.
    world.observed = whole;
    world.pass();
    assert_eq!((world.overrides(), world.records()), before);
}

#[test]
fn a_first_deployment_waits_for_a_settled_binding() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.observed.binding.as_mut().unwrap().spec.clusters[0].replicas = 0;
    let plan = world.plan();
    assert!(plan.status.records.is_empty());
}

#[test]
fn duplicated_places_all_replicas_in_each_cluster() {
    let mut world = World::new(&json!({
        "replicas": 1, "placement": { "replicaScheduling": { "replicaSchedulingType": "Duplicated" } }
    }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    assert_eq!(world.ids().len(), 3);
}

// ---- Nothing to do.

#[rstest]
#[case::plain(json!({}))]
#[case::much(json!({
    "observers": [{ "cluster": "m1", "count": 1 }],
    "network": { "mode": "Flat", "clusterDomain": "{clusterId}.local", "importClusters": ["m4"] },
    "overrides": [{ "cluster": "m2", "image": "zoo:other" }],
    "rollout": { "holdSeconds": 20 }
}))]
fn a_done_record_writes_nothing(#[case] more: Value) {
    let mut world = World::new(&more);
    world.run();
    let (observed, plan) = (world.observed.clone(), world.plan());
    assert_eq!(Some(&plan.status), observed.object.status.as_ref());
    assert_eq!(Some(plan.overrides), observed.overrides.as_deref().cloned().map(ObjectWrite::Apply));
    assert_eq!(Some(plan.policy), observed.policy.as_deref().cloned().map(ObjectWrite::Apply));
    let ObjectWrite::Apply(template) = plan.template else { panic!("a template") };
    let live = observed.template.clone().unwrap();
    assert_eq!(template.spec, live.spec);
    assert_eq!(template.metadata.annotations, live.metadata.annotations);
    assert_eq!(template.metadata.labels, live.metadata.labels);
    assert!(plan.events.is_empty(), "{:?}", plan.events);
    for (key, desired) in plan.services {
        assert_eq!(Some(desired), observed.services.get(&key).cloned().map(ObjectWrite::Apply), "{key}");
    }
    world.wait(1_000_000);
    let later = world.plan();
    assert_eq!(Some(&later.status), observed.object.status.as_ref(), "time alone changes nothing");
}

// ---- What other clients do to owned objects.

/// What Karmada does with a ZooKeeper object of the same name in a member cluster.
fn conflict_resolution(world: &World, cluster: &str) -> String {
    let plan = world.plan();
    let (ObjectWrite::Apply(template), ObjectWrite::Apply(overrides)) = (plan.template, plan.overrides) else {
        panic!("a template and an OverridePolicy")
    };
    resolution(&json!(template), &json!(overrides), cluster)
}

/// What Karmada does with a ServiceExport of the same name in a member cluster.
fn export_resolution(world: &World, cluster: &str) -> String {
    let services = world.plan().services;
    let [export, policy] = ["ServiceExport/zk", "OverridePolicy/mczk-zk.exports"].map(|key| match services.get(key) {
        Some(ObjectWrite::Apply(object)) => object.clone(),
        _ => json!({}),
    });
    resolution(&export, &policy, cluster)
}

/// What the policy says about a cluster, else what the object itself says.
fn resolution(object: &Value, policy: &Value, cluster: &str) -> String {
    let is_of_cluster = |rule: &&Value| {
        let names = rule["targetCluster"]["clusterNames"].as_array();
        names.is_none_or(|names| names.contains(&json!(cluster)))
    };
    let rules = policy["spec"]["overrideRules"].as_array().into_iter().flatten().filter(is_of_cluster);
    let mut patches = rules.flat_map(|rule| rule["overriders"]["plaintext"].as_array().into_iter().flatten());
    let of_policy = patches.find(|patch| patch["path"] == "/metadata/annotations/work.karmada.io~1conflict-resolution");
    let of_object = &object["metadata"]["annotations"][CONFLICT_RESOLUTION];
    of_policy.map_or(of_object, |patch| &patch["value"]).as_str().unwrap().to_owned()
}

/// No agent has reported yet.
fn silent(world: &mut World) {
    for cluster in ["m1", "m2", "m3"] {
        world.work(cluster).status = None;
    }
}

/// Karmada completes the deletion of a Work only if it may overwrite the object, once it has removed its labels there.
#[test]
fn karmada_may_overwrite_the_object_of_each_cluster_that_has_reported() {
    let mut world = World::new(&json!({}));
    world.pass();
    let reported = world.observed.binding.clone();
    silent(&mut world);
    world.work("m1").applied = false;
    assert_eq!(conflict_resolution(&world, "m1"), "abort", "an object of another owner may be there");
    world.observed.binding = reported;
    world.settle();
    assert_eq!(conflict_resolution(&world, "m1"), "overwrite");
    // The new placement may give a voter to the fourth cluster, which has not reported.
    world.edit("/replicas", &json!(7));
    assert_eq!(conflict_resolution(&world, "m4"), "abort");
    assert_eq!(conflict_resolution(&world, "m1"), "overwrite");
}

/// m3 had no power while it left the placement: Karmada has released its object there, and made another Work.
#[test]
fn karmada_takes_the_object_of_a_returned_cluster_back_if_its_server_votes() {
    let mut world = World::done(&json!({}));
    let work = world.work("m3");
    (work.status, work.applied) = (None, false);
    let clusters = &mut world.observed.object.status.as_mut().unwrap().clusters;
    clusters.iter_mut().find(|cluster| cluster.name == "m3").unwrap().reported = false;
    assert_eq!(conflict_resolution(&world, "m3"), "overwrite");
    // No vote of m3 is known: an object there may have another owner.
    world.report("m1")["votingMembers"] = json!([]);
    world.report("m2")["votingMembers"] = json!([]);
    assert_eq!(conflict_resolution(&world, "m3"), "abort");
}

/// m3 had no power while it left the placement and came back, so Karmada has released its object there.
fn with_a_released_object() -> World {
    let mut world = World::done(&json!({}));
    let work = world.work("m3");
    (work.status, work.applied) = (None, false);
    world
}

/// Karmada must deliver the end to a released object too, also after the OverridePolicy or the template is lost.
#[test]
fn the_end_reaches_an_object_that_karmada_released() {
    let mut world = with_a_released_object();
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    world.observed.overrides = None;
    let ObjectWrite::Apply(overrides) = world.plan().overrides else { panic!("an OverridePolicy") };
    let template = json!(world.observed.template.as_deref().unwrap());
    assert_eq!(resolution(&template, &json!(overrides), "m3"), "overwrite");
    assert_eq!(resolution(&template, &json!(overrides), "m4"), "abort");
    world.observed.template = None;
    let ObjectWrite::Apply(template) = world.plan().template else { panic!("a template") };
    assert_eq!(resolution(&json!(template), &json!({}), "m3"), "abort", "an object of another owner may be there");
}

/// The OverridePolicy is the only record of that after a restore without the status.
#[test]
fn karmada_may_overwrite_a_released_object_although_the_status_is_lost() {
    let mut world = with_a_released_object();
    for cluster in ["m1", "m2"] {
        world.report(cluster)["votingMembers"] = json!([]);
    }
    world.observed.object.status = None;
    assert_eq!(conflict_resolution(&world, "m3"), "overwrite");
}

/// S7, also at the end: while servers may run, the operator waits for the user, and adopts nothing.
#[rstest]
#[case::template("ZooKeeper zk", |world: &mut World| world.edit_template(|template| template.metadata.owner_references = None))]
#[case::policy("PropagationPolicy mczk-zk", |world: &mut World| {
    let mut policy = world.observed.policy.as_deref().unwrap().clone();
    policy.metadata.owner_references = None;
    world.observed.policy = Some(policy.into());
})]
#[case::overrides("OverridePolicy mczk-zk", |world: &mut World| {
    let mut policy = world.observed.overrides.as_deref().unwrap().clone();
    policy.metadata.owner_references = None;
    world.observed.overrides = Some(policy.into());
})]
fn the_end_adopts_no_object_of_another_owner(#[case] named: &str, #[case] lose_owner: impl Fn(&mut World)) {
    let mut world = World::done(&json!({}));
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    lose_owner(&mut world);
    let plan = world.pass();
    assert_eq!(world.condition("Progressing"), "False NameConflict");
    assert!(world.message("Progressing").starts_with(named), "{}", world.message("Progressing"));
    assert_eq!(
        (plan.template, plan.policy, plan.overrides),
        (ObjectWrite::Leave, ObjectWrite::Leave, ObjectWrite::Leave)
    );
    assert!(plan.services.is_empty());
}

#[test]
fn karmada_may_overwrite_the_exports_of_the_operators_own_services() {
    let mut world = World::done(&json!({}));
    assert_eq!(["m1", "m4"].map(|cluster| export_resolution(&world, cluster)), ["overwrite", "abort"]);
    // A user's Service has the name: so may a user's export.
    world.report("m1")["conditions"] = json!([{
        "type": "Blocked", "status": "True", "reason": "NameConflict", "message": "", "lastTransitionTime": "2026-11-23T00:00:00Z"
    }]);
    assert_eq!(["m1", "m2"].map(|cluster| export_resolution(&world, cluster)), ["abort", "overwrite"]);
}

#[test]
fn the_binding_of_a_deleted_template_loses_its_protection() {
    let mut world = World::done(&json!({}));
    assert_eq!(world.plan().protect_binding, Some(true));
    world.observed.template = None;
    assert_eq!(world.plan().protect_binding, Some(false));
    world.pass();
    world.edit_template(|template| template.metadata.uid = Some("t2".to_owned()));
    assert_eq!(world.plan().protect_binding, Some(false), "it is still that of the deleted template");
    binding(&mut world).spec.resource.uid = Some("t2".to_owned());
    assert_eq!(world.plan().protect_binding, Some(true));
}

#[rstest]
#[case::karmada("karmada-system", true)]
#[case::clusters("karmada-cluster", true)]
#[case::execution("karmada-es-m1", true)]
#[case::kubernetes("kube-public", true)]
#[case::of_a_user("karmada-zookeeper", false)]
fn a_reserved_namespace_is_refused(#[case] namespace: &str, #[case] refused: bool) {
    let mut world = World::new(&json!({}));
    world.observed.object.metadata.namespace = Some(namespace.to_owned());
    world.pass();
    assert_eq!(world.condition("Ready") == "False ReservedNamespace", refused, "{}", world.condition("Ready"));
    assert_eq!(world.observed.template.is_none(), refused);
}

/// The scale subresource compares both numbers.
#[test]
fn replicas_counts_voters_of_this_incarnation() {
    let mut world = World::done(&json!({ "observers": [{ "cluster": "m1", "count": 2 }] }));
    assert_eq!(world.status().replicas, Some(5));
    world.report("m2")["ensemble"]["incarnation"] = json!("former");
    world.pass();
    assert_eq!(world.status().replicas, Some(3));
}

#[test]
fn a_version_that_loses_writes_is_named() {
    let mut world = World::done(&json!({}));
    assert_eq!(world.condition("UnsafeVersion"), "False NoKnownLoss");
    world.report("m2")["servers"][1]["version"] = json!("3.9.3");
    world.pass();
    assert_eq!(world.condition("UnsafeVersion"), "True LosesWrites");
    let message = world.message("UnsafeVersion");
    assert!(
        message.contains("in cluster m2 (3.9.3, ZOOKEEPER-4925). Upgrade spec.template.image to 3.9.4"),
        "{message}"
    );
}

#[test]
fn a_certificate_that_agents_see_expiring_is_a_condition_and_one_event() {
    let mut world = World::done(&json!({}));
    assert_eq!(world.condition("CertificatesExpire"), "False CertificatesValid");
    let condition = json!({
        "type": "CertificatesExpire", "status": "True", "reason": "ClientCertificateExpires",
        "message": "The certificate for clients in Secret zk-tls expires on 2026-12-01 00:00 UTC",
        "lastTransitionTime": "2026-11-21T08:00:00Z",
    });
    world.report("m2")["conditions"] = json!([condition]);
    let count = |plan: &Plan| plan.events.iter().filter(|event| format!("{event:?}").contains("zk-tls")).count();
    assert_eq!([count(&world.pass()), count(&world.pass())], [1, 0]);
    assert_eq!(world.condition("CertificatesExpire"), "True ClientCertificateExpires");
    let message = world.message("CertificatesExpire");
    assert!(message.starts_with("m2: ") && message.contains("2026-12-01"), "{message}");
}

/// C4.
#[test]
fn a_cluster_with_an_unsupported_kubernetes_is_named() {
    let mut world = World::done(&json!({}));
    for (version, expected) in [("v1.35.3", "False NoKnownLoss"), ("v1.22.1", "Unknown UnsupportedVersion")] {
        let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
        m2.status.kubernetes_version = version.to_owned();
        world.pass();
        assert_eq!(world.condition("UnsafeVersion"), expected);
    }
    let message = world.message("UnsafeVersion");
    assert!(message.contains("m2 (v1.22.1). Supported are 1.31 to 1.35"), "{message}");
}

// ---- The operator divides the voters.

/// The voters of each cluster, as Karmada gets them.
fn decided(world: &World) -> String {
    world.weights().into_iter().map(|(cluster, weight)| format!("{cluster} {weight}")).collect::<Vec<_>>().join(", ")
}

fn among(names: &str) -> Value {
    json!({ "clusterAffinity": { "clusterNames": self::names(names) } })
}

/// Seen on Karmada: the placement changed while a cluster was coming back, and another one got 3 of 5 voters for good.
#[test]
fn the_voters_of_a_cluster_that_comes_back_go_to_no_other() {
    let mut world = World::new(&json!({ "placement": among("m1,m3,m4") }));
    world.place(&[("m1", 2), ("m3", 2), ("m4", 1)]);
    world.settle();
    world.edit("/placement", &among("m1,m2,m3"));
    world.unreachable(&["m2"]);
    world.pass();
    assert_eq!(decided(&world), "m1 2, m2 1, m3 2", "the fewest moves");
    world.place_by_weight(&["m1", "m3"]);
    let plan = world.pass();
    assert_eq!(world.condition("Scheduled"), "False OtherDivision");
    let message = "Karmada placed m1 3, m3 2 instead of m1 2, m2 1, m3 2. It does so because cluster m2 is not Ready in Karmada. The operator waits for it. To continue without it, remove it from spec.placement";
    assert_eq!(world.message("Scheduled"), message);
    assert_eq!(plan.reschedule, None);
    world.run();
    assert_eq!(world.ids().iter().filter(|(_, cluster, _)| cluster == "m1").count(), 2);
    // Karmada moves nothing back by itself.
    world.unreachable(&[]);
    assert_eq!(world.pass().reschedule, Some(world.now));
    assert!(world.message("Scheduled").ends_with("The operator has asked Karmada to schedule again"));
    let asked = world.now;
    binding(&mut world).spec.reschedule_triggered_at = Some(Time(asked));
    let plan = world.pass();
    assert_eq!(plan.reschedule, None, "not at once again");
    assert!(plan.requeue_after.is_some_and(|after| after.as_secs() <= 30), "{:?}", plan.requeue_after);
    world.wait(30);
    assert_eq!(world.pass().reschedule, Some(world.now));
    // The operator's clock is behind: Karmada ignores a request before its last schedule.
    let after = |seconds| world.now + Duration::from_secs(seconds);
    let (scheduled, request) = (after(3600), after(3601));
    binding(&mut world).status.last_scheduled_time = Some(scheduled);
    assert_eq!(world.plan().reschedule, Some(request));
    binding(&mut world).spec.reschedule_triggered_at = Some(Time(request));
    for (asked, expected) in [(None, Some(request)), (Some(29), None), (Some(30), Some(request))] {
        world.observed.asked = asked.map(Duration::from_secs);
        assert_eq!(world.plan().reschedule, expected, "{asked:?}");
    }
    world.place_by_weight(&["m1", "m2", "m3"]);
    world.settle();
    let counts = ["m1", "m2", "m3"].map(|name| world.ids().iter().filter(|(_, cluster, _)| cluster == name).count());
    assert_eq!(counts, [2, 1, 2]);
}

/// H10: the annotation of the OverridePolicy decides which clusters have voters.
#[test]
fn a_selection_that_another_client_edited_moves_no_voter() {
    let mut world = World::done(&json!({ "placement": among("m1,m2,m3") }));
    let (before, selected) = (decided(&world), "mczk.io/selected-placement");
    let mut policy = world.observed.overrides.as_deref().unwrap().clone();
    let stored = policy.metadata.annotations.as_mut().unwrap().get_mut(selected).unwrap();
    *stored = stored.replace("m3", "m4");
    world.observed.overrides = Some(policy.into());
    world.pass();
    assert_eq!(decided(&world), before);
    let stored = world.observed.overrides.as_deref().unwrap().metadata.annotations.clone().unwrap();
    assert!(!stored[selected].contains("m4"));
}

#[test]
fn a_change_of_replicas_moves_the_fewest_voters() {
    let mut world = World::new(&json!({ "replicas": 3, "placement": among("m1,m2,m3,m4") }));
    world.pass();
    assert_eq!(decided(&world), "m1 1, m2 1, m3 1");
    world.place_by_weight(&["m1", "m2", "m3"]);
    world.settle();
    world.edit("/replicas", &json!(5));
    world.pass();
    assert_eq!(decided(&world), "m1 2, m2 1, m3 1, m4 1");
    world.place_by_weight(&["m1", "m2", "m3", "m4"]);
    world.settle();
    world.edit("/replicas", &json!(3));
    world.pass();
    assert_eq!(decided(&world), "m1 1, m2 1, m3 1");
}

/// The division is decided once. A lost policy is no reason to decide again.
#[rstest]
#[case::overrides(true, false)]
#[case::policy(false, true)]
#[case::both(true, true)]
fn a_lost_policy_moves_no_voter(#[case] overrides: bool, #[case] policy: bool) {
    let mut world = World::new(&json!({ "placement": among("m1,m3,m4") }));
    world.place(&[("m1", 2), ("m3", 2), ("m4", 1)]);
    world.settle();
    world.edit("/placement", &among("m1,m2,m3"));
    world.pass();
    world.place_by_weight(&["m1", "m2", "m3"]);
    world.settle();
    let (before, ids) = (decided(&world), world.ids());
    assert_eq!(before, "m1 2, m2 1, m3 2");
    if overrides {
        world.observed.overrides = None;
    }
    if policy {
        world.observed.policy = None;
    }
    world.settle();
    assert_eq!((decided(&world), world.ids()), (before, ids));
}

/// The user says how Karmada divides: its division stands, unless an absent cluster is the reason of a new majority.
#[test]
fn an_absent_cluster_gives_no_other_one_a_majority() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m4"]);
    world.place(&[("m1", 3), ("m2", 2)]);
    world.pass();
    assert_eq!(world.condition("Scheduled"), "False OtherDivision");
    assert!(
        world.message("Scheduled").contains("cluster m1 alone would hold a majority"),
        "{}",
        world.message("Scheduled")
    );
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.condition("Scheduled"), "True Placed");
}

/// The last cluster of a bootstrap is still missing, but a quorum existed: its loss is no first start.
#[test]
fn a_lost_quorum_is_reported_before_the_last_cluster_has_started() {
    let mut world = World::new(&json!({}));
    world.stopped_agents.insert("m3".to_owned());
    world.run();
    assert_eq!(world.overrides().ensemble.phase, EnsemblePhase::Formed);
    for cluster in ["m1", "m2"] {
        let report = world.report(cluster);
        report["writable"] = json!(false);
        report["votingMembers"] = json!([]);
        report["servers"].as_array_mut().unwrap().iter_mut().for_each(|server| server["serving"] = json!(false));
    }
    world.pass();
    assert_eq!(world.condition("Degraded"), "True QuorumNotSeen");
}

/// Otherwise `kubectl wait --for=condition=Ready` returns before the rollout begins.
#[test]
fn an_ensemble_is_not_ready_while_its_newest_spec_has_no_schedule() {
    let mut world = World::done(&json!({}));
    assert_eq!(world.condition("Ready"), "True Serving");
    world.edit("/replicas", &json!(7));
    world.pass();
    let scheduled = world.condition("Scheduled");
    assert!(scheduled.starts_with("False"), "{scheduled}");
    assert_eq!(world.condition("Ready"), "False RollingOut");
    world.place(&[("m1", 3), ("m2", 2), ("m3", 2)]);
    world.settle();
    assert_eq!(world.condition("Ready"), "True Serving");
}

// ---- The term of the operator.

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

// ---- The network check before the first server.

/// The plan for a first deployment that requires the check. Each cluster reports this, for the round of the request unless it
/// names another one.
fn checked(reports: &[(&str, Value)]) -> (World, Plan) {
    let mut world = World::new(&json!({ "network": { "preflight": "Required" } }));
    world.pass();
    world.pass();
    let round = request(&world.plan()).expect("a request")["round"].clone();
    for (cluster, report) in reports {
        let mut report = report.clone();
        if report["round"].is_null() {
            report["round"] = round.clone();
        }
        world.report(cluster)["preflight"] = report;
    }
    let plan = world.plan();
    (world, plan)
}

/// The request to check the network that a plan gives to all clusters.
fn request(plan: &Plan) -> Option<Value> {
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let rules = policy.spec.override_rules.iter().filter(|rule| rule.target_cluster.is_none());
    let mut patches = rules.flat_map(|rule| &rule.overriders.plaintext);
    patches.find(|patch| patch.path == "/spec/preflight")?.value.clone()
}

/// True if a plan gives any cluster a spec or a server list.
fn starts(plan: &Plan) -> bool {
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let content = override_rules::read(&policy.spec);
    !content.cluster_specs.is_empty() || !content.ensemble.servers.is_empty()
}

/// Reason and message of the condition `Progressing`.
fn progressing(plan: &Plan) -> (String, String) {
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    (condition.reason.clone(), condition.message.clone())
}

fn passed(clusters: &[&'static str]) -> Vec<(&'static str, Value)> {
    clusters.iter().map(|cluster| (*cluster, json!({}))).collect()
}

fn problem(to: &str, more: &Value) -> Value {
    let mut problem = json!({ "to": to, "host": format!("zk-0.{to}") });
    problem.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "problems": [problem] })
}

#[rstest]
#[case::no_report(passed(&["m1", "m3"]), "NetworkUnchecked", "clusters: m2. No server starts")]
#[case::name_missing(
    [passed(&["m1", "m2"]), vec![("m3", problem("m1", &json!({ "problem": "NoSuchName" })))]].concat(),
    "NetworkBroken", "m3 to m1: zk-0.m1: NoSuchName. Mend"
)]
#[case::port_blocked(
    [passed(&["m1", "m2"]), vec![("m3", problem("m2", &json!({ "problem": "TimedOut", "port": 3888 })))]].concat(),
    "NetworkBroken", "m3 to m2: zk-0.m2 port 3888: TimedOut. Mend"
)]
#[case::wrong_cluster_id(
    [passed(&["m2", "m3"]), vec![("m1", problem("m2", &json!({ "problem": "WrongServer", "port": 8443, "answered": "m3" })))]].concat(),
    "NetworkBroken", "m1 to m2: zk-0.m2 port 8443: WrongServer (cluster m3 answers). Mend"
)]
#[case::more_than_a_report_names(
    [passed(&["m1", "m2"]), vec![("m3", {
        let mut report = problem("m1", &json!({ "problem": "NoSuchName" }));
        report["more"] = json!(40);
        report
    })]].concat(),
    "NetworkBroken", "m3 to m1: zk-0.m1: NoSuchName and 38 more. Mend"
)]
#[case::another_round(
    [passed(&["m1", "m2"]), vec![("m3", json!({ "round": "0123456789abcdef" }))]].concat(),
    "NetworkUnchecked", "clusters: m3. No server starts"
)]
#[case::probe_does_not_run(
    [passed(&["m1", "m2"]), vec![("m3", json!({ "failure": "Pod zk-0: no node fits its pod" }))]].concat(),
    "NetworkUnchecked", "m3 (Pod zk-0: no node fits its pod)"
)]
fn no_server_starts_before_every_cluster_has_passed_the_check(
    #[case] reports: Vec<(&str, Value)>,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (mut world, plan) = checked(&reports);
    let progressing = progressing(&plan);
    assert_eq!(progressing.0, reason);
    assert!(progressing.1.contains(message), "{}", progressing.1);
    assert!(!starts(&plan) && plan.status.records.is_empty());
    assert!(request(&plan).is_some());
    world.wait(1_000_000);
    assert!(!starts(&world.plan()), "time alone starts no server");
    assert!(Mutation::with(Some(Mutation::SkipPreflight), || starts(&world.plan())), "the broken rule starts servers");
    world.edit("/network/preflight", &json!("Skip"));
    world.pass();
    assert!(starts(&world.plan()), "the user skips the check");
}

/// The ensemble existed before, and its server list is lost. With a new list it could form without its data.
#[rstest]
#[case::checked("Required")]
#[case::skipped("Skip")]
fn no_first_server_starts_where_volumes_of_the_incarnation_are_left(#[case] mode: &str) {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let id = override_rules::read(&policy.spec).ensemble.incarnation.unwrap();
    let volume = format!("data-zk-{id}-0");
    world.report("m2")["volumes"] = json!([volume, "data-zk-0000000-0"]);
    world.edit("/network/preflight", &json!(mode));
    world.pass();
    let plan = world.plan();
    let (reason, message) = progressing(&plan);
    assert!(!starts(&plan) && plan.status.records.is_empty());
    assert_eq!(reason, "ServerListUnknown");
    assert!(message.contains(&format!("are left: {volume} in cluster m2. No server starts")), "{message}");
    assert!(message.contains("Restore status.ensemble") && !message.contains("to Skip"), "{message}");
    world.report("m2")["volumes"] = json!([]);
    world.edit("/network/preflight", &json!("Skip"));
    world.pass();
    assert!(starts(&world.plan()), "the user removed what was left");
}

#[test]
fn servers_start_with_the_end_of_the_check_and_it_never_returns() {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    assert!(starts(&plan));
    assert_eq!(request(&plan), None);
    world.write(&plan);
    world.settle();
    // Reports of agents that run no probe.
    assert!(world.report("m1")["preflight"].is_null());
    world.edit("/replicas", &json!(7));
    world.settle();
    assert_eq!(request(&world.plan()), None);
}

/// S8: Karmada keeps the last report of a cluster that it does not reach.
#[test]
fn a_check_of_an_unreachable_cluster_does_not_count() {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    assert!(starts(&plan));
    world.unreachable(&["m2"]);
    assert!(!starts(&world.plan()));
}

/// The agent of each cluster finds its own name in the request.
#[test]
fn the_request_names_the_first_server_of_each_cluster() {
    let mut world = World::new(
        &json!({ "network": { "preflight": "Required", "clusterIds": [{ "cluster": "m2", "id": "zwei" }] } }),
    );
    world.pass();
    world.pass();
    let request = request(&world.plan()).unwrap();
    let id = request["incarnation"].as_str().unwrap().to_owned();
    let host = |cluster: &str| format!("zk-{id}-0.{cluster}.zk-{id}.ns.svc.clusterset.local");
    let names = [("m1", "m1"), ("m2", "zwei"), ("m3", "m3")];
    let names: Vec<Value> = names.map(|(cluster, id)| json!({ "cluster": cluster, "host": host(id) })).into();
    assert_eq!(request["names"], json!(names));
}

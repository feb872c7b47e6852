//! Stuck, slow and lost.

use super::*;

const NEWER_CHANGE: &str = "A newer change of spec waits until the current record is done";

#[derive(Clone, Copy, Debug)]
enum StuckBy {
    Deadline,
    Unreachable,
    Report,
    /// The agent accepts the spec, and the API server refuses an object of it.
    ObjectRefused,
    /// The agent does not accept the spec.
    SpecRefused,
    /// Karmada cannot apply the object.
    NotApplied,
}

fn blocked(reason: &str) -> Value {
    json!([{ "type": "Blocked", "status": "True", "reason": reason, "message": "exceeded quota: compute",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }])
}

#[rstest]
fn the_record_that_supersedes_a_stuck_one_begins_where_it_is_stuck(
    #[values(
        StuckBy::Deadline,
        StuckBy::Unreachable,
        StuckBy::Report,
        StuckBy::ObjectRefused,
        StuckBy::SpecRefused,
        StuckBy::NotApplied
    )]
    by: StuckBy,
) {
    let mut world = half_way(&json!({ "rollout": { "progressDeadlineSeconds": 60 } }));
    match by {
        StuckBy::Deadline => world.wait(60),
        StuckBy::Unreachable => world.unreachable(&["m2"]),
        StuckBy::ObjectRefused => {
            let hash = world.overrides().cluster_specs["m2"].spec_hash.clone();
            let report = world.report("m2");
            report["observedSpecHash"] = json!(hash);
            report["conditions"] = blocked("ObjectRefused");
        }
        StuckBy::SpecRefused => world.report("m2")["conditions"] = blocked("SpecRefused"),
        StuckBy::NotApplied => {
            let work = world.work("m2");
            (work.applied, work.applied_message) = (false, Some("spec.template: Invalid value".to_owned()));
        }
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
    let superseded = world.records()[1].clone();
    assert_eq!(superseded.status, RecordStatus::Superseded);
    assert_eq!(superseded.current_state.deploying, ["m2"], "it shows how far it came");
    world.stopped_agents.clear();
    world.unreachable(&[]);
    (world.work("m2").applied, world.work("m2").applied_message) = (true, None);
    world.settle();
    assert_eq!(world.images(), "m1=zoo:3 m2=zoo:3 m3=zoo:3");
}

/// Such a state passes by itself, or no spec ends it.
#[rstest]
#[case::still_votes("StillVotes")]
#[case::deleted("Deleted")]
#[case::unknown("SomethingNewer")]
fn a_blocked_cluster_that_another_spec_cannot_help_is_not_superseded(#[case] reason: &str) {
    let mut world = half_way(&json!({}));
    let hash = world.overrides().cluster_specs["m2"].spec_hash.clone();
    let report = world.report("m2");
    report["observedSpecHash"] = json!(hash);
    report["conditions"] = blocked(reason);
    world.image("zoo:3");
    assert_eq!(passes(&mut world, 2), ["Deploying m3|m2|m1", "Deploying m3|m2|m1"]);
    assert_eq!(world.records().len(), 2);
}

/// The user reads the words of the API server, with cluster, kind and name.
#[test]
fn a_refusal_stands_in_the_conditions_of_the_ensemble() {
    let mut world = half_way(&json!({}));
    let hash = world.overrides().cluster_specs["m2"].spec_hash.clone();
    let report = world.report("m2");
    report["observedSpecHash"] = json!(hash);
    report["conditions"] = blocked("ObjectRefused");
    world.pass();
    assert_eq!(world.condition("Progressing"), "False ClusterFailed");
    let message = world.message("Progressing");
    assert!(message.starts_with("Cluster m2 reports ObjectRefused: exceeded quota: compute"), "{message}");
    let clusters = world.status().clusters;
    let m2 = clusters.iter().find(|cluster| cluster.name == "m2").unwrap();
    assert!(m2.message.as_ref().unwrap().contains("exceeded quota: compute"), "{m2:?}");
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

/// S1: an older copy of the control plane was restored, and no spec of it holds for m3, whose agent has a later one.
#[rstest]
#[case::half_changed("8-a", "Deploying m2,m3||m1")]
#[case::complete("9-a", "Deploying m3|m2|m1")]
fn no_cluster_starts_beside_an_unreachable_one_that_is_half_changed(#[case] completed: &str, #[case] state: &str) {
    let mut world = rolling(&json!({}));
    let report = world.report("m3");
    (report["observedSpecHash"], report["completedSpecHash"]) = (json!("9-a"), json!(completed));
    world.unreachable(&["m3"]);
    world.stopped_agents.insert("m2".to_owned());
    (0..4).for_each(|_| drop(world.tick()));
    assert_eq!(world.state(), state, "{}", world.message("Progressing"));
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
    assert_eq!(world.records()[1].status, RecordStatus::Superseded);
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

/// The policy lost the specs of a rollout, and a cluster all its objects. The agent of the deploying cluster restarts nothing
/// beside the dead voter, which only a spec brings back.
#[test]
fn a_cluster_that_waits_yields_to_one_that_lost_its_servers_and_its_spec() {
    let mut world = half_way(&json!({}));
    world.observed.overrides = None;
    world.pass();
    assert!(!world.overrides().cluster_specs.contains_key("m3"), "{}", world.images());
    world.running.retain(|(cluster, _), _| cluster != "m3");
    *world.report("m3") = json!({});
    passes(&mut world, 3);
    assert_eq!(world.state(), "Deploying m2|m3|m1", "{}", world.message("Progressing"));
    world.run_agents();
    world.stopped_agents.clear();
    world.settle();
    assert_eq!(world.images(), "m1=zoo:2 m2=zoo:2 m3=zoo:2");
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

/// Karmada writes the version of the control plane, so a definition that serves the newer one alone takes no export.
#[test]
fn a_cluster_that_serves_exports_in_a_newer_version_alone_is_named_with_its_remedy() {
    let mut world = World::declared(&json!({}));
    let kinds = world.observed.clusters.iter_mut().filter(|cluster| cluster.name() == "m2");
    for enablement in kinds.flat_map(|cluster| &mut cluster.status.api_enablements) {
        enablement.group_version = enablement.group_version.replace("x-k8s.io/v1alpha1", "x-k8s.io/v1beta1");
    }
    world.pass();
    assert_eq!(world.condition("Scheduled"), "False KindsNotServed");
    let message = world.message("Scheduled");
    let remedy = "In m2 let the definition there serve multicluster.x-k8s.io/v1alpha1 beside v1beta1";
    assert!(message.contains(remedy) && message.contains("For others run `mczk install`"), "{message}");
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

/// The record is done, and its spec stays complete. Later a server or a volume is not as declared.
#[rstest]
#[case::a_pod_does_not_start(
    "ServerFailed",
    "zk-0 does not start: no such image",
    1,
    "1 of 2 servers serve: zk-0 does not start: no such image"
)]
#[case::an_observer_does_not_start(
    "ServerFailed",
    "zk-o-0 does not start: no such image",
    0,
    "In progress: zk-o-0 does not start: no such image"
)]
#[case::a_volume_grows("GrowingVolume", "data-zk-0 has 1Gi", 0, "In progress: data-zk-0 has 1Gi")]
fn a_cluster_that_is_no_longer_as_declared_is_not_ready(
    #[case] reason: &str,
    #[case] words: &str,
    #[case] down: i64,
    #[case] expected: &str,
) {
    let mut world = World::done(&json!({}));
    let report = world.report("m1");
    report["readyReplicas"] = json!(2 - down);
    report["conditions"] = progressing(reason, words);
    world.pass();
    assert_eq!(world.condition("Ready"), "False ClusterNotReady");
    assert_eq!(world.message("Ready"), format!("Cluster m1: {expected}"));
    assert_eq!(world.condition("Progressing"), "False Done", "the record is done");
}

/// The condition `Draining` has its words. The servers serve until then.
#[rstest]
#[case::restarting("Restarting")]
#[case::waiting("Waiting")]
fn a_server_that_serves_until_it_leaves_its_node_leaves_the_ensemble_ready(#[case] reason: &str) {
    let mut world = World::done(&json!({}));
    world.report("m1")["conditions"] = progressing(reason, "zk-0 has to leave node n1");
    world.pass();
    assert_eq!(world.condition("Ready"), "True Serving");
}

fn progressing(reason: &str, message: &str) -> Value {
    let status = if reason == "ServerFailed" { "False" } else { "True" };
    json!([{ "type": "Progressing", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" }])
}

/// Its agent cannot say whether they serve. A cluster that certainly does not is changed first.
#[rstest]
#[case::cannot_continue("RequestRefused", "unknown", "Deploying m1,m2|m3|")]
#[case::cannot_read_its_object("UnsupportedSpec", "unknown", "Deploying m1,m2|m3|")]
#[case::sees_that_they_do_not("UnsupportedSpec", "looking", "Deploying m3,m2|m1|")]
fn servers_of_an_agent_that_cannot_continue_may_serve(
    #[case] reason: &str,
    #[case] mode: &str,
    #[case] expected: &str,
) {
    let mut world = World::new(&json!({ "replicas": 3 }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    world.report("m3")["servers"][0]["serving"] = json!(false);
    let report = world.report("m1");
    (report["servers"][0]["serving"], report["servers"][0]["mode"]) = (json!(false), json!(mode));
    report["conditions"] = json!([{ "type": "Blocked", "status": "True", "reason": reason, "message": "",
                                    "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    world.image("zoo:2");
    passes(&mut world, 3);
    assert_eq!(world.state(), expected);
}

/// Its Java ended once after its first start was recorded. No other server could say whether it voted: none ran.
#[rstest]
#[case::other_voters_can_tell("WaitingForVoters", "Deploying m3|m2|m1")]
#[case::its_pod_starts("Starting", "Deploying m2,m3|m1|")]
fn a_first_cluster_that_waits_for_other_voters_lets_them_start(#[case] reason: &str, #[case] expected: &str) {
    let mut world = World::new(&json!({ "replicas": 3 }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    passes(&mut world, 3);
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    let hash = world.overrides().cluster_specs["m1"].spec_hash.clone();
    let report = world.report("m1");
    (report["observedSpecHash"], report["startedReplicas"]) = (json!(hash), json!(0));
    report["conditions"] = progressing(reason, "zk-0 waits: the agent has recorded another volume of server 1");
    passes(&mut world, 2);
    assert_eq!(world.state(), expected);
}

/// Karmada drops the report of a cluster that leaves. Its Work remains until the cluster is back, and some time after that:
/// meanwhile the status keeps what it knows of the object there.
#[test]
fn a_cluster_that_left_without_power_keeps_its_entry() {
    let mut world = World::done(&json!({}));
    let entry = |world: &World, name: &str| {
        let status = world.plan().status;
        status.clusters.into_iter().find(|cluster| cluster.name == name)
    };
    let hash = entry(&world, "m3").unwrap().spec_hash;
    world.unreachable(&["m3"]);
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3", "m4"] } }));
    world.place(&[("m1", 3), ("m2", 2)]);
    world.observed.works = vec![work_of("m3", Some(world.now))];
    world.settle();
    for unreachable in [&["m3"][..], &[]] {
        world.unreachable(unreachable);
        let kept = entry(&world, "m3").unwrap();
        assert_eq!((kept.reported, kept.spec_hash, kept.desired), (true, hash.clone(), 0), "{unreachable:?}");
        assert!(kept.voters.is_empty() && kept.message.unwrap().contains("has left the ensemble"));
        assert_eq!(world.condition("Ready"), "True Serving");
    }
    world.observed.works.clear();
    assert_eq!(entry(&world, "m3"), None);
}

//! `spec.rollout`.

use super::*;

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
    assert_eq!(records.last().unwrap().observed_generations.zookeeper, 15, "the newest stay");
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

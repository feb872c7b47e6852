//! Moves of voters to a spare, and home again: rows, and a search over faults and users.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod scene;
mod search;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../rules/world.rs"]
mod world;

use mczk_api::mutation::Mutation;
use rstest::rstest;
use scene::Scene;
use serde_json::{Value, json};
use world::SpareAnswer;

fn spares() -> Value {
    json!({ "spares": ["m4"] })
}

fn automatic() -> Value {
    json!({ "spares": ["m4"], "moveAfterSeconds": 100, "moveBackAfterSeconds": 200 })
}

#[test]
fn a_command_moves_the_voters_of_a_healthy_cluster_and_back() {
    let mut scene = Scene::new(&spares());
    assert_eq!(scene.seats(), "m1 2, m2 2, m3 1");
    assert_eq!(scene.world.condition("FailoverReady"), "True SparesUsable");
    assert_eq!(scene.world.condition("FailedOver"), "False AtHome");
    let ids: Vec<(i32, String)> = scene.listed().into_iter().filter(|(_, cluster)| cluster != "m1").collect();
    scene.request(Some("m1=m4"));
    scene.tick();
    assert_eq!(scene.world.message("FailedOver"), "The voters of m1 move to m4");
    scene.settle();
    assert_eq!((scene.seats(), scene.moved()), ("m2 2, m3 1, m4 2".to_owned(), "m1=m4".to_owned()));
    assert!(ids.iter().all(|kept| scene.listed().contains(kept)), "the others keep their ids");
    assert_eq!(scene.world.condition("FailedOver"), "True Moved");
    assert_eq!(scene.world.message("FailedOver"), "The voters of m1 are in m4");
    assert_eq!(scene.world.condition("FailoverReady"), "False NoSpareLeft");
    assert_eq!(scene.world.condition("Ready"), "True Serving");
    scene.request(None);
    scene.settle();
    assert_eq!(scene.moved(), "m1=m4", "without a request nothing moves");
    scene.request(Some("m1=m1"));
    scene.settle();
    assert_eq!((scene.seats(), scene.moved()), ("m1 2, m2 2, m3 1".to_owned(), String::new()));
    assert_eq!(scene.world.condition("FailedOver"), "False AtHome");
}

/// Karmada drops the report of m1 once the schedule names m4, and the voters of m1 vote until those of m4 do.
#[test]
fn a_move_of_a_healthy_cluster_looks_healthy() {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4"));
    for tick in 0..14 {
        let voters = scene.tick().measures.voters.unwrap();
        assert!(voters.tolerated_voters >= 2 && voters.tolerated_clusters == 1, "{tick}: {voters:?}");
        assert_eq!(scene.world.condition("QuorumSafe"), "True Spread", "{tick}");
        assert_ne!(scene.world.condition("Degraded"), "True VotersDown", "{tick}");
    }
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
}

/// Karmada has no report of m1 any more. The agents of m2 and m3 say whether its two voters count.
#[rstest]
#[case::they_follow(|_: &mut Scene| (), 5, "True Spread")]
#[case::one_is_missing(|scene: &mut Scene| of_m2_and_m3(scene, "missingVoters", &json!([1])), 4, "False VotersDown")]
#[case::no_agent_sees_the_leader(|scene: &mut Scene| of_m2_and_m3(scene, "leader", &Value::Null), 3, "False VotersDown")]
#[case::karmada_does_not_reach_them(|scene: &mut Scene| scene.hide("m1"), 3, "False VotersDown")]
#[case::for_too_long(|scene: &mut Scene| {
    scene.world.pass();
    scene.world.wait(200);
}, 3, "False VotersDown")]
fn voters_without_a_report_count_if_the_leader_sees_them(
    #[case] edit: Edit,
    #[case] following: usize,
    #[case] safe: &str,
) {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4"));
    scene.tick();
    assert!(scene.world.placed.iter().all(|(name, _)| name != "m1"), "{:?}", scene.world.placed);
    edit(&mut scene);
    let voters = scene.world.pass().measures.voters.unwrap();
    assert_eq!((voters.serving, voters.tolerated_voters), (following, following - 3));
    assert_eq!(scene.world.condition("QuorumSafe"), safe);
}

fn of_m2_and_m3(scene: &mut Scene, field: &str, value: &Value) {
    for name in ["m2", "m3"] {
        scene.world.report(name)[field] = value.clone();
    }
}

/// A user says how Karmada divides, or that each cluster gets all.
#[rstest]
#[case::three_one_one(json!({ "weightPreference": { "staticWeightList": [
    { "targetCluster": { "clusterNames": ["m1"] }, "weight": 3 },
    { "targetCluster": { "clusterNames": ["m2"] }, "weight": 1 },
    { "targetCluster": { "clusterNames": ["m3"] }, "weight": 1 } ] } }), 5, "m1 3, m2 1, m3 1", "m2 1, m3 1, m4 3")]
#[case::duplicated(json!({ "replicaSchedulingType": "Duplicated" }), 1, "m1 1, m2 1, m3 1", "m2 1, m3 1, m4 1")]
fn the_numbers_of_the_other_clusters_stay(
    #[case] scheduling: Value,
    #[case] replicas: i32,
    #[case] home: &str,
    #[case] away: &str,
) {
    let mut scene = Scene::of(&json!({
        "replicas": replicas,
        "placement": { "clusterAffinity": { "clusterNames": ["m1", "m2", "m3"] }, "replicaScheduling": scheduling },
    }));
    assert_eq!(scene.seats(), home);
    for (request, seats) in [("m1=m4", away), ("m1=m1", home)] {
        scene.request(Some(request));
        scene.settle();
        assert_eq!(scene.seats(), seats);
    }
}

#[rstest]
#[case::no_pair("m1", "write CLUSTER=PLACE")]
#[case::other_home("m9=m4", "names m9, which spec.placement does not select. Selected are m1, m2, m3")]
#[case::no_spare("m1=m2", "names m2, which is no spare. failover.spares has m4")]
#[case::two_places("m1=m4,m1=m1", "names m1 twice, with two places")]
fn a_request_that_cannot_be_followed_is_named(#[case] request: &str, #[case] why: &str) {
    let mut scene = Scene::new(&automatic());
    scene.request(Some(request));
    scene.settle();
    assert_eq!(scene.world.condition("FailoverReady"), "False RequestUnclear");
    assert!(scene.world.message("FailoverReady").contains(why), "{}", scene.world.message("FailoverReady"));
    assert_eq!(scene.seats(), "m1 2, m2 2, m3 1");
}

/// A cluster without storage, or with a full quota, would otherwise be found out while another one is lost.
#[rstest]
#[case::refused(SpareAnswer::Refuses("Pod zk-spare-0: exceeded quota: q"))]
#[case::its_agent_is_blocked(SpareAnswer::Blocked("Pod zk-spare-0: exceeded quota: q"))]
fn a_spare_that_would_refuse_servers_is_unusable_before_it_is_needed(#[case] answer: SpareAnswer) {
    let mut scene = Scene::new(&automatic());
    assert_eq!(scene.world.condition("FailoverReady"), "True SparesUsable");
    scene.world.spares.insert("m4", answer);
    scene.settle();
    assert_eq!(scene.world.condition("FailoverReady"), "False SpareUnusable");
    let says = "m4 would not accept servers. Pod zk-spare-0: exceeded quota: q";
    assert!(scene.world.message("FailoverReady").contains(says), "{}", scene.world.message("FailoverReady"));
    scene.lose("m1");
    scene.ticks(60);
    assert_eq!(scene.seats(), "m1 2, m2 2, m3 1");
    assert!(scene.world.message("FailoverReady").contains(says), "{}", scene.world.message("FailoverReady"));
    scene.world.spares.clear();
    scene.settle();
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
}

/// Its agent may just be older than the operator, and the network check of the move is the last word.
#[test]
fn a_spare_that_does_not_answer_is_named_and_used() {
    let mut scene = Scene::new(&automatic());
    scene.world.spares.insert("m4", SpareAnswer::Silent);
    scene.settle();
    assert_eq!(scene.world.condition("FailoverReady"), "False SpareUnanswered");
    assert!(scene.world.message("FailoverReady").contains("the agent of m4 has not answered"));
    scene.lose("m1");
    scene.ticks(60);
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
}

/// The agent may be wrong, such as about a webhook that refuses dry runs alone.
#[test]
fn a_user_may_move_voters_to_a_spare_that_would_refuse_them() {
    let mut scene = Scene::new(&automatic());
    scene.world.spares.insert("m4", SpareAnswer::Refuses("no"));
    scene.settle();
    scene.request(Some("m1=m4"));
    scene.settle();
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
}

/// A move brings its own object to the spare, and an ensemble without spares asks nothing.
#[test]
fn only_spares_without_voters_are_asked() {
    let mut scene = Scene::new(&spares());
    let asked = |scene: &Scene| {
        let services = &scene.world.observed.services;
        let policy = services.get("PropagationPolicy/mczk-zk.spares");
        assert_eq!(policy.is_some(), services.contains_key("ZooKeeper/zk.spares"));
        policy.map(|policy| policy["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone())
    };
    assert_eq!(asked(&scene), Some(json!(["m4"])));
    let check = &scene.world.observed.services["ZooKeeper/zk.spares"];
    assert_eq!((&check["spec"]["spareOf"], &check["spec"]["replicas"]), (&json!("zk"), &json!(0)));
    assert_eq!(check["spec"]["source"]["surveys"], true, "Karmada brings it although it has no replicas");
    scene.request(Some("m1=m4"));
    scene.settle();
    assert_eq!(asked(&scene), None);
    scene.request(Some("m1=m1"));
    scene.settle();
    assert_eq!(asked(&scene), Some(json!(["m4"])));
    scene.world.edit("/failover", &Value::Null);
    scene.settle();
    assert_eq!(asked(&scene), None);
}

type Edit = fn(&mut Scene);

fn spare(scene: &mut Scene) -> &mut mczk_api::karmada::cluster::Cluster {
    scene.world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m4").unwrap()
}

fn pause(scene: &mut Scene) {
    scene.world.edit("/rollout", &json!({ "paused": true }));
}

fn record(scene: &mut Scene) {
    scene.world.image("zoo:2");
    scene.world.stopped_agents.insert("m1".to_owned());
    scene.tick();
    scene.tick();
}

fn no_quorum(scene: &mut Scene) {
    scene.lose("m2");
    scene.lose("m3");
    scene.ticks(2);
}

#[rstest]
#[case::paused(pause, "rollout.paused is set")]
#[case::record(record, "a record is being rolled out")]
#[case::no_quorum(no_quorum, "no cluster reports a quorum")]
#[case::not_ready(|scene: &mut Scene| scene.lose("m4"), "m4 is not Ready")]
#[case::not_joined(|scene: &mut Scene| scene.world.observed.clusters.retain(|cluster| cluster.name() != "m4"), "m4 has not joined")]
#[case::without_kinds(|scene: &mut Scene| spare(scene).status.api_enablements.clear(), "m4 does not serve ZooKeeper")]
#[case::leaving(|scene: &mut Scene| {
    let now = scene.world.now;
    spare(scene).metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
}, "m4 is leaving")]
#[case::tainted(|scene: &mut Scene| {
    let taint = json!([{ "key": "gpu", "effect": "NoSchedule" }]);
    spare(scene).spec.taints = serde_json::from_value(taint).unwrap();
}, "m4 has the taint gpu:NoSchedule")]
fn a_move_waits_and_says_why(#[case] edit: Edit, #[case] why: &str) {
    let mut scene = Scene::new(&spares());
    edit(&mut scene);
    scene.request(Some("m1=m4"));
    let again = scene.tick().requeue_after;
    assert!(again.is_some_and(|after| after.as_secs() <= 20), "no event may say that the obstacle is gone: {again:?}");
    assert_eq!(scene.world.condition("FailoverReady"), "False MoveWaits");
    let message = scene.world.message("FailoverReady");
    assert!(message.contains(why), "{message}");
    assert_eq!(scene.moved(), "");
}

#[test]
fn two_moves_follow_each_other() {
    let mut scene = Scene::new(&json!({ "spares": ["m4"] }));
    let placement = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] } });
    scene.world.edit("/placement", &placement);
    scene.settle();
    assert_eq!(scene.seats(), "m1 3, m2 2");
    scene.world.edit("/failover", &json!({ "spares": ["m3", "m4"] }));
    scene.request(Some("m1=m3,m2=m4"));
    let mut seen = Vec::new();
    for _ in 0..20 {
        scene.tick();
        if seen.last() != Some(&scene.moved()) {
            seen.push(scene.moved());
        }
    }
    assert_eq!(seen, ["m1=m3", "m1=m3,m2=m4"]);
    assert_eq!(scene.seats(), "m3 3, m4 2");
}

/// Passes until the voters of m1 have moved, and the seconds that took.
fn until_moved(scene: &mut Scene) -> Option<u64> {
    let began = scene.world.now;
    for _ in 0..60 {
        scene.tick();
        if !scene.moved().is_empty() {
            return scene.world.now.duration_since(began).as_secs().try_into().ok();
        }
    }
    None
}

#[test]
fn the_voters_of_a_lost_cluster_move_and_return() {
    let mut scene = Scene::new(&automatic());
    scene.lose("m1");
    scene.ticks(2);
    assert_eq!(scene.world.condition("FailedOver"), "False ClusterLost");
    assert!(
        scene.world.message("FailedOver").contains("m1 (its voters move at"),
        "{}",
        scene.world.message("FailedOver")
    );
    let after = until_moved(&mut scene).unwrap();
    assert!((80..=120).contains(&after), "{after}");
    // The second look.
    scene.ticks(4);
    assert_eq!(scene.seats(), "m1 2, m2 2, m3 1");
    assert_eq!(scene.world.condition("Progressing"), "True SecondLook");
    scene.ticks(12);
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
    assert!(scene.world.voters.len() == 5, "{:?}", scene.world.voters);
    scene.restore("m1");
    scene.ticks(15);
    assert_eq!(scene.moved(), "m1=m4", "the declared time is not over");
    scene.ticks(20);
    assert_eq!((scene.seats(), scene.moved()), ("m1 2, m2 2, m3 1".to_owned(), String::new()));
}

#[rstest]
#[case::karmada_alone_does_not_reach_it(|scene: &mut Scene| scene.hide("m1"), None)]
#[case::its_servers_alone_are_down(|scene: &mut Scene| scene.world.running.retain(|(cluster, _), _| cluster != "m1"), None)]
#[case::no_time_is_declared(|scene: &mut Scene| {
    scene.world.edit("/failover", &spares());
    scene.lose("m1");
}, None)]
#[case::a_request_keeps_it_at_home(|scene: &mut Scene| {
    scene.request(Some("m1=m1"));
    scene.lose("m1");
}, Some(Mutation::IgnoreRequest))]
#[case::paused(|scene: &mut Scene| {
    pause(scene);
    scene.lose("m1");
}, Some(Mutation::IgnorePause))]
#[case::no_majority(|scene: &mut Scene| {
    scene.lose("m1");
    scene.lose("m2");
}, None)]
fn nothing_moves_by_itself(#[case] edit: Edit, #[case] broken: Option<Mutation>) {
    let mut scene = Scene::new(&automatic());
    edit(&mut scene);
    let mut other = scene.clone();
    assert_eq!(until_moved(&mut scene), None, "{}", scene.world.message("FailedOver"));
    if let Some(broken) = broken {
        let _active = broken.activate();
        assert!(until_moved(&mut other).is_some());
    }
}

/// F1: Karmada's sight alone moves nothing.
#[test]
fn a_broken_rule_moves_voters_that_follow() {
    let mut scene = Scene::new(&automatic());
    scene.hide("m1");
    let _active = Mutation::MoveOnNotReady.activate();
    assert!(until_moved(&mut scene).is_some());
}

/// F7: a signal that breaks begins the time again.
#[test]
fn a_cluster_that_flaps_stays() {
    let mut scene = Scene::new(&automatic());
    for _ in 0..5 {
        scene.lose("m1");
        scene.ticks(8);
        scene.restore("m1");
        scene.ticks(3);
    }
    assert_eq!(scene.moved(), "");
    scene.lose("m1");
    let after = until_moved(&mut scene).unwrap();
    assert!((100..=120).contains(&after), "{after}");
}

/// F7: Karmada does not reach m1 all the time, and its voters follow for a while.
#[rstest]
#[case::as_it_is(None)]
#[case::broken(Some(Mutation::KeepLoss))]
fn voters_that_follow_for_a_moment_begin_the_time_again(#[case] broken: Option<Mutation>) {
    let mut scene = Scene::new(&automatic());
    let _active = broken.map(Mutation::activate);
    scene.lose("m1");
    scene.ticks(7);
    scene.return_unseen("m1");
    scene.ticks(2);
    scene.lose("m1");
    scene.ticks(5);
    assert_eq!(scene.moved().is_empty(), broken.is_none());
}

#[rstest]
#[case::as_it_is(None)]
#[case::broken(Some(Mutation::MoveBlind))]
fn a_move_is_called_off_if_the_cluster_comes_back(#[case] broken: Option<Mutation>) {
    let mut scene = Scene::new(&automatic());
    scene.lose("m1");
    until_moved(&mut scene).unwrap();
    let _active = broken.map(Mutation::activate);
    scene.ticks(3);
    scene.restore("m1");
    scene.ticks(10);
    assert_eq!(scene.moved().is_empty(), broken.is_none());
    assert_eq!(scene.seats() == "m1 2, m2 2, m3 1", broken.is_none(), "{}", scene.seats());
}

/// A spare that dies before or after it has the voters: the next one gets them.
#[rstest]
#[case::before_the_list(1)]
#[case::after_the_list(15)]
fn a_lost_spare_gives_way_to_the_next(#[case] passes: usize) {
    let placement = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] } });
    let times = json!({ "spares": ["m3", "m4"], "moveAfterSeconds": 100 });
    let mut scene = Scene::of(&json!({ "placement": placement, "failover": times }));
    assert_eq!(scene.seats(), "m1 3, m2 2");
    scene.lose("m2");
    until_moved(&mut scene).unwrap();
    assert_eq!(scene.moved(), "m2=m3");
    scene.ticks(passes);
    scene.lose("m3");
    scene.ticks(90);
    assert_eq!((scene.moved(), scene.seats()), ("m2=m4".to_owned(), "m1 3, m4 2".to_owned()));
}

/// Two homes with 3 and 2 voters, and two spares. Voters of m2 move after 100 s.
fn two_spares() -> Scene {
    Scene::of(&json!({
        "placement": { "clusterAffinity": { "clusterNames": ["m1", "m2"] } },
        "failover": { "spares": ["m3", "m4"], "moveAfterSeconds": 100 },
        "rollout": { "progressDeadlineSeconds": 60 },
    }))
}

/// A spare that is Ready, and of no use.
#[rstest]
#[case::its_servers_never_start(|scene: &mut Scene| scene.stalled.extend(["m3"]))]
#[case::karmada_gives_it_nothing(|scene: &mut Scene| scene.refused.extend(["m3"]))]
fn a_spare_of_no_use_gives_way_to_the_next(#[case] edit: Edit) {
    let mut scene = two_spares();
    edit(&mut scene);
    scene.lose("m2");
    let mut places = vec![String::new()];
    for _ in 0..120 {
        scene.tick();
        if places.last() != Some(&scene.moved()) {
            places.push(scene.moved());
        }
    }
    assert_eq!(places, ["", "m2=m3", "m2=m4"]);
    assert_eq!(scene.seats(), "m1 3, m4 2");
}

/// A spare was selected before it was one, and has no voters.
#[test]
fn a_selected_cluster_without_voters_becomes_a_spare() {
    let mut scene = Scene::of(&json!({ "replicas": 3, "placement": null, "failover": null }));
    assert_eq!(scene.seats(), "m1 1, m2 1, m3 1");
    let before = scene.listed();
    scene.world.edit("/failover", &spares());
    scene.settle();
    assert_eq!(scene.listed(), before);
    scene.request(Some("m1=m4"));
    scene.settle();
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m2 1, m3 1, m4 1", "m1=m4"));
}

#[test]
fn a_place_that_gets_no_voters_any_more_holds_nothing_up() {
    let mut scene = Scene::of(&json!({ "replicas": 3 }));
    scene.request(Some("m3=m4"));
    scene.settle();
    scene.request(None);
    scene.world.edit("/replicas", &json!(2));
    scene.settle();
    assert_eq!(scene.listed().len(), 2);
}

/// The voters of a lost cluster follow again, or the user takes the permission back, before the list names the spare.
#[rstest]
#[case::they_follow_unseen(|scene: &mut Scene| scene.return_unseen("m1"), "")]
#[case::no_time_is_declared_any_more(|scene: &mut Scene| scene.world.edit("/failover", &spares()), "")]
#[case::paused(pause, "m1=m4")]
#[case::paused_and_back(|scene: &mut Scene| {
    pause(scene);
    scene.restore("m1");
}, "")]
#[case::held_at_home(|scene: &mut Scene| scene.request(Some("m1=m1")), "")]
fn nothing_moves_after_a_decision(#[case] edit: Edit, #[case] moved: &str) {
    let mut scene = Scene::new(&automatic());
    scene.lose("m1");
    until_moved(&mut scene).unwrap();
    scene.ticks(2);
    edit(&mut scene);
    scene.ticks(15);
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m1 2, m2 2, m3 1", moved));
}

/// A spare with voters is lost, and returns before the list names the home again.
#[test]
fn a_way_home_from_a_lost_spare_is_called_off() {
    let mut scene = two_spares();
    scene.lose("m2");
    until_moved(&mut scene).unwrap();
    scene.ticks(15);
    scene.restore("m2");
    scene.ticks(5);
    scene.lose("m3");
    for _ in 0..30 {
        scene.tick();
        if scene.moved().is_empty() {
            break;
        }
    }
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m1 3, m3 2", ""));
    assert_eq!(scene.world.message("FailedOver"), "The voters of m2 move home from m3");
    scene.ticks(2);
    scene.restore("m3");
    scene.ticks(15);
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m1 3, m3 2", "m2=m3"));
}

/// The home holds most voters, and reports nothing any more once the schedule names the spare.
#[test]
fn a_request_for_a_spare_of_no_use_can_be_taken_back() {
    let mut scene = two_spares();
    scene.stalled.insert("m3");
    scene.request(Some("m1=m3"));
    scene.ticks(30);
    assert_eq!(scene.moved(), "m1=m3");
    scene.request(Some("m1=m1"));
    scene.settle();
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m1 3, m2 2", ""));
}

/// The voters are in m3 while one place after another is requested for them.
#[test]
fn a_request_that_changes_before_the_list_keeps_the_numbers() {
    let weight = |name: &str, weight: i32| json!({ "targetCluster": { "clusterNames": [name] }, "weight": weight });
    let weights = json!({ "staticWeightList": [weight("m1", 4), weight("m2", 1)] });
    let scheduling = json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted", "weightPreference": weights });
    let placement = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] }, "replicaScheduling": scheduling });
    let mut scene = Scene::of(&json!({ "placement": placement, "failover": { "spares": ["m3", "m4"] } }));
    scene.request(Some("m1=m3"));
    scene.settle();
    assert_eq!(scene.seats(), "m2 1, m3 4");
    scene.request(Some("m1=m4"));
    scene.tick();
    scene.request(Some("m1=m1"));
    for _ in 0..20 {
        scene.tick();
        assert_eq!(scene.listed().iter().filter(|(_, cluster)| cluster == "m2").count(), 1);
    }
    assert_eq!(scene.seats(), "m1 4, m2 1");
}

#[test]
fn two_homes_get_no_spare_together() {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4,m2=m4"));
    scene.ticks(2);
    assert!(scene.world.message("FailoverReady").contains("m2 to m4: "), "{}", scene.world.message("FailoverReady"));
    scene.settle();
    assert_eq!(scene.seats(), "m2 2, m3 1, m4 2");
}

/// F8: policies and status are lost, one or both.
#[rstest]
#[case::overrides(true, false, false)]
#[case::policy(false, true, false)]
#[case::both(true, true, false)]
#[case::overrides_and_status(true, false, true)]
fn the_pairs_outlive_lost_policies(#[case] overrides: bool, #[case] policy: bool, #[case] status: bool) {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4"));
    scene.settle();
    scene.request(None);
    if status {
        scene.world.observed.object.status = None;
    }
    if overrides {
        scene.world.observed.overrides = None;
    }
    if policy {
        scene.world.observed.policy = None;
    }
    scene.settle();
    assert_eq!((scene.seats(), scene.moved()), ("m2 2, m3 1, m4 2".to_owned(), "m1=m4".to_owned()));
}

/// F9: a changed placement wins. Naming the spare instead of the home moves no voter.
#[rstest]
#[case::the_spare_instead(&["m2", "m3", "m4"], "m2 2, m3 1, m4 2", "")]
#[case::without_another(&["m1", "m3"], "m3 2, m4 3", "m1=m4")]
#[case::without_the_home(&["m2", "m3"], "m2 3, m3 2", "")]
fn a_changed_placement_wins(#[case] names: &[&str], #[case] seats: &str, #[case] moved: &str) {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4"));
    scene.settle();
    let before = scene.listed();
    scene.request(None);
    if names.contains(&"m4") {
        scene.world.edit("/failover", &json!({}));
    }
    scene.world.edit("/placement", &json!({ "clusterAffinity": { "clusterNames": names } }));
    scene.settle();
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), (seats, moved));
    if moved.is_empty() && names.contains(&"m4") {
        assert_eq!(scene.listed(), before);
    }
}

/// A request that was carried out and taken back does nothing again after a restore, until it is changed.
#[rstest]
#[case::as_it_is(None, false)]
#[case::the_operator_dies_after_its_status(None, true)]
#[case::broken(Some(Mutation::RepeatRequest), false)]
fn a_restored_request_does_nothing(#[case] broken: Option<Mutation>, #[case] dies: bool) {
    let mut scene = Scene::new(&spares());
    scene.request(Some("m1=m4"));
    let mut backup = scene.clone();
    scene.settle();
    scene.request(Some("m1=m1"));
    scene.settle();
    // The control plane is that of the backup; member clusters have what they have.
    let live = scene.world.observed.clone();
    backup.world.observed.binding = live.binding;
    backup.world.observed.clusters = live.clusters;
    scene.world.observed = backup.world.observed;
    let _active = broken.map(Mutation::activate);
    if dies {
        let overrides = scene.world.observed.overrides.clone();
        scene.tick();
        scene.world.observed.overrides = overrides;
    }
    scene.settle();
    assert_eq!(scene.moved().is_empty(), broken.is_none(), "{}", scene.moved());
    if broken.is_none() {
        assert_eq!(scene.world.condition("FailoverReady"), "False RequestUnclear");
        scene.request(Some("m2=m2,m1=m4"));
        scene.settle();
        assert_eq!(scene.moved(), "m1=m4");
    }
}

#[test]
fn observers_of_a_home_rest_while_its_voters_are_away() {
    let mut scene =
        Scene::of(&json!({ "observers": [{ "cluster": "m1", "count": 1 }, { "cluster": "m4", "count": 1 }] }));
    let observers = |scene: &Scene| {
        let list = scene.world.overrides().ensemble.servers;
        let observers = list.into_iter().filter(|server| server.role == mczk_api::zookeeper::Role::Observer);
        observers.map(|server| server.cluster).collect::<Vec<_>>()
    };
    assert_eq!(observers(&scene), ["m1"]);
    scene.request(Some("m1=m4"));
    scene.settle();
    assert_eq!(observers(&scene), ["m4"]);
    assert_eq!(scene.world.condition("Ready"), "True Serving");
}

/// A changed placement is no move: nothing calls it off.
#[test]
fn a_home_that_becomes_a_spare_gives_its_voters_away() {
    let mut scene = Scene::new(&json!({}));
    scene.world.edit("/failover", &json!({ "spares": ["m1"], "moveAfterSeconds": 100 }));
    scene.world.edit("/placement", &json!({ "clusterAffinity": { "clusterNames": ["m2", "m3", "m4"] } }));
    scene.settle();
    assert_eq!((scene.seats().as_str(), scene.moved().as_str()), ("m2 2, m3 2, m4 1", ""));
}

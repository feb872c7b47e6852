//! The numbers of the operator's metrics, beside the conditions of the same worlds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code)] // Other tests use more of it.
#[path = "rules/world.rs"]
mod world;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mczk_api::contract::{
    certificate_names::Holds,
    conditions::{ConditionStatus, ConditionType, Reason},
};
use mczk_rules::rollout::{
    certificates::Certificate,
    measures::{Measures, RecordMeasures, VoterMeasures},
};
use rstest::rstest;
use serde_json::{Value, json};
use world::World;

fn measures(world: &World) -> Measures {
    world.plan().measures
}

fn report_condition(world: &mut World, cluster: &str, type_: &str, status: &str) {
    world.report(cluster)["conditions"] = json!([
        { "type": type_, "status": status, "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }
    ]);
}

#[test]
fn a_finished_rollout() {
    let world = World::done(&json!({}));
    let all = measures(&world);
    let voters = VoterMeasures {
        desired: 5,
        votes: 5,
        serving: 5,
        tolerated_voters: 2,
        tolerated_clusters: 1,
        moved_clusters: 0,
    };
    assert_eq!(all.voters, Some(voters));
    assert_eq!(all.conditions[&ConditionType::Ready], (ConditionStatus::True, Reason::Serving));
    assert_eq!(all.conditions.len(), 11, "every condition of the object");
    let transition = world.records().last().unwrap().last_transition_time.0;
    assert_eq!(all.record, Some(RecordMeasures { transition, pending: 0, deploying: 0, completed: 3 }));
    // The world's first certificates have no end.
    assert_eq!((all.identity_not_after, all.authority_not_after), (Some(Timestamp::MAX), Some(Timestamp::MAX)));
    assert!(all.cluster_conditions.values().all(|clusters| *clusters == 0), "{:?}", all.cluster_conditions);
}

#[test]
fn a_rollout_in_progress() {
    let mut world = World::done(&json!({}));
    world.image("zoo:2");
    world.pass();
    world.pass();
    let record = measures(&world).record.unwrap();
    assert_eq!((record.pending, record.deploying, record.completed), (2, 1, 0));
}

#[test]
fn an_object_that_the_operator_has_not_reconciled_yet() {
    let mut world = World::declared(&json!({}));
    world.observed.object.metadata.finalizers = None;
    assert_eq!(
        Measures { cluster_conditions: measures(&world).cluster_conditions, ..Measures::default() },
        measures(&world)
    );
}

/// The voters stop on purpose: no number of them may look like a failure.
#[test]
fn an_ensemble_that_is_being_deleted_shows_its_progress_alone() {
    let mut world = World::done(&json!({}));
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let all = measures(&world);
    assert_eq!(all.conditions[&ConditionType::Ready], (ConditionStatus::False, Reason::Deleting));
    let types: Vec<_> = all.conditions.keys().collect();
    assert_eq!(types, [&ConditionType::Ready, &ConditionType::Progressing]);
    assert_eq!(all, Measures { conditions: all.conditions.clone(), ..Measures::default() });
}

#[test]
fn the_certificate_that_ends_first_counts() {
    let mut world = World::done(&json!({}));
    let end = world.now;
    let trusted = world.observed.certificates.iter_mut().find(|certificate| certificate.holds == Holds::Trust);
    trusted.unwrap().not_after = end;
    assert_eq!(measures(&world).authority_not_after, Some(end));
    assert_eq!(measures(&world).identity_not_after, Some(Timestamp::MAX));
}

/// Its servers have loaded an older certificate than the one that the list names.
#[test]
fn certificates_of_a_cluster_that_karmada_does_not_reach_count() {
    let mut world = World::done(&json!({}));
    let identity = world.observed.certificates.iter().find(|certificate| certificate.holds == Holds::Identity).unwrap();
    let older = Certificate { name: "older".to_owned(), not_after: world.now, ..identity.clone() };
    world.observed.certificates.push(older);
    world.unreachable(&["m2"]);
    world.report("m2")["ensembleTls"]["identity"] = json!("older");
    assert_eq!(measures(&world).identity_not_after, Some(world.now));
}

/// A report of a cluster that Karmada does not reach may be out of date.
#[test]
fn conditions_of_reachable_clusters_count() {
    let mut world = World::done(&json!({}));
    report_condition(&mut world, "m1", "DiskPressure", "True");
    report_condition(&mut world, "m2", "DiskPressure", "True");
    report_condition(&mut world, "m3", "DiskPressure", "False");
    let full = |world: &World| measures(world).cluster_conditions[&ConditionType::DiskPressure];
    assert_eq!(full(&world), 2);
    world.unreachable(&["m2"]);
    assert_eq!(full(&world), 1);
}

/// Fewer or more servers vote than the list names.
#[rstest]
#[case::without_the_lost_cluster(&["m1"], &[3, 4, 5], 1, 0, Reason::VotesLost)]
#[case::one_joins(&[], &[1, 2, 3, 4, 5, 6], 1, 0, Reason::VotersDown)]
#[case::as_listed(&[], &[1, 2, 3, 4, 5], 2, 1, Reason::Spread)]
fn what_may_be_lost_follows_from_the_configuration(
    #[case] lost: &[&str],
    #[case] voting: &[i32],
    #[case] voters: usize,
    #[case] clusters: usize,
    #[case] safe: Reason,
) {
    let mut world = World::done(&json!({}));
    for cluster in ["m1", "m2", "m3"] {
        let status = world.report(cluster);
        status["votingMembers"] = json!(voting);
        status["configVersion"] = json!(99);
    }
    world.unreachable(lost);
    let all = measures(&world);
    let numbers = all.voters.map(|all| (all.votes, all.tolerated_voters, all.tolerated_clusters));
    assert_eq!(numbers, Some((voting.len(), voters, clusters)));
    assert_eq!(all.conditions[&ConditionType::QuorumSafe].1, safe);
}

/// Whichever servers do not serve and whichever cluster is unreachable: `QuorumSafe` is `True` if and only if a cluster may be
/// lost.
#[rstest]
#[case::spread(&[("m1", 2), ("m2", 2), ("m3", 1)])]
#[case::majority_in_one(&[("m1", 3), ("m2", 1), ("m3", 1)])]
#[case::two_clusters(&[("m1", 3), ("m2", 2)])]
#[case::four_clusters(&[("m1", 2), ("m2", 1), ("m3", 1), ("m4", 1)])]
fn a_cluster_may_be_lost_if_the_quorum_is_safe(#[case] placed: &[(&str, i32)]) {
    let mut done = World::new(&json!({}));
    done.place(placed);
    done.settle();
    let mut safe = 0;
    for silent in 0..1_u32 << 5 {
        for lost in [&[][..], &["m1"], &["m2"], &["m3"]] {
            let mut world = done.clone();
            for (id, cluster, _) in done.ids() {
                let servers = world.report(&cluster)["servers"].as_array_mut().unwrap();
                let server = servers.iter_mut().find(|server| server["id"] == id).unwrap();
                server["serving"] = Value::Bool(silent >> (id - 1) & 1 == 0);
            }
            world.unreachable(lost);
            let all = measures(&world);
            let (status, reason) = all.conditions[&ConditionType::QuorumSafe];
            assert_eq!(
                status == ConditionStatus::True,
                all.voters.unwrap().tolerated_clusters > 0,
                "{silent:05b} {lost:?} {reason}"
            );
            safe += u32::from(status == ConditionStatus::True);
        }
    }
    assert_eq!(safe > 0, placed.iter().all(|(_, voters)| *voters < 3), "some outcomes are safe");
}

/// The declared time reaches the agents without a record. Votes that are lost, and that return, stand in status, conditions and
/// events.
#[test]
fn lost_votes_are_shown() {
    let mut world = World::done(&json!({}));
    let (epoch, records) = (world.overrides().ensemble.epoch, world.records().len());
    world.edit("/failover", &json!({ "demoteAfterSeconds": 300 }));
    world.settle();
    let list = world.overrides().ensemble;
    assert_eq!((list.demote_after_seconds, list.epoch), (Some(300), epoch.map(|epoch| epoch + 1)));
    assert_eq!(world.records().len(), records, "no cluster changes");
    assert_eq!(measures(&world).conditions[&ConditionType::FailedOver], (ConditionStatus::False, Reason::AtHome));

    let configure = |world: &mut World, voting: &[i32], version: i64| {
        for cluster in ["m1", "m2", "m3"] {
            let status = world.report(cluster);
            status["votingMembers"] = json!(voting);
            status["configVersion"] = json!(version);
        }
    };
    configure(&mut world, &[3, 4, 5], 90);
    world.unreachable(&["m1"]);
    let plan = world.plan();
    assert_eq!(plan.status.ensemble.as_ref().unwrap().demoted, [1, 2]);
    assert_eq!(plan.measures.conditions[&ConditionType::FailedOver], (ConditionStatus::True, Reason::Demoted));
    let messages: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert!(messages.contains(&"Server 1 does not follow, and has lost its vote"), "{messages:?}");
    world.write(&plan);

    world.unreachable(&[]);
    configure(&mut world, &[1, 3, 4, 5], 91);
    let plan = world.plan();
    assert_eq!(plan.status.ensemble.as_ref().unwrap().demoted, [2]);
    let degraded = plan.status.conditions.iter().find(|condition| condition.type_ == "Degraded").unwrap();
    assert_eq!(degraded.message, "Voters that have lost their votes: 2");
    let messages: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert!(messages.contains(&"Server 1 follows, and has its vote back"), "{messages:?}");
}

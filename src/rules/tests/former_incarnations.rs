//! Clusters that are unreachable when their ensemble ends: the tombstone names them, and the next ensemble of the name lists
//! the former incarnation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

#[path = "rules/world.rs"]
mod world;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk_api::contract::{labels::ABANDON_CLUSTERS, tombstone::Tombstone};
use mczk_rules::rollout::plan::{ObjectWrite, Plan};
use rstest::rstest;
use serde_json::json;
use world::{World, work_of};

/// Continues a deletion until the operator releases the objects in member clusters.
fn delete(world: &mut World) -> Option<Plan> {
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    for _ in 0..6 {
        let plan = world.plan();
        if matches!(&plan.policy, ObjectWrite::Apply(p) if p.spec.preserve_resources_on_deletion == Some(false)) {
            return Some(plan);
        }
        world.write(&plan);
        decommission(world);
    }
    None
}

/// Agents in reachable clusters decommission their servers.
fn decommission(world: &mut World) {
    let list = world.overrides().ensemble;
    let reached: Vec<String> =
        world.observed.clusters.iter().filter(|c| c.ready()).map(|c| c.name().to_owned()).collect();
    for item in &mut world.observed.binding.as_mut().unwrap().status.aggregated_status {
        if list.phase.is_ending() && reached.contains(&item.cluster_name) {
            let condition = json!({ "type": "Decommissioned", "status": "True", "reason": "Decommissioned", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            item.status = Some(json!({ "ensemble": list, "conditions": [condition] }));
        }
    }
}

fn abandon(world: &mut World, clusters: &str) {
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(ABANDON_CLUSTERS.to_owned(), clusters.to_owned());
}

fn clusters(tombstone: &Tombstone) -> Vec<&str> {
    tombstone.clusters.iter().map(String::as_str).collect()
}

#[test]
fn without_unreachable_clusters_there_is_no_tombstone() {
    let mut world = World::done(&json!({}));
    abandon(&mut world, "m3");
    assert_eq!(delete(&mut world).unwrap().tombstone, None, "m3 is abandoned, but has reported");
}

#[test]
fn the_tombstone_names_an_abandoned_cluster() {
    let mut world = World::done(&json!({}));
    let id = world.overrides().ensemble.incarnation.unwrap();
    world.unreachable(&["m3"]);
    assert!(delete(&mut world).is_none(), "the operator waits for m3");
    abandon(&mut world, "m2, m3");
    let tombstone = delete(&mut world).unwrap().tombstone.unwrap();
    assert_eq!(
        (tombstone.incarnation.as_str(), tombstone.name.as_str(), clusters(&tombstone)),
        (id.as_str(), "zk", vec!["m3"])
    );
}

/// Karmada removes a Work only when it reaches the cluster.
#[test]
fn the_work_of_an_abandoned_cluster_is_not_awaited() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    abandon(&mut world, "m3");
    let plan = delete(&mut world).unwrap();
    world.write(&plan);
    (world.observed.template, world.observed.binding) = (None, None);
    world.observed.services.clear();
    let works = [work_of("m1", Some(world.now)), work_of("m3", None), work_of("m3", Some(world.now))];
    for (nth, (work, waits)) in works.into_iter().zip([true, true, false]).enumerate() {
        world.observed.works = vec![work];
        assert_eq!(world.plan().policy == ObjectWrite::Leave, waits, "{nth}");
    }
}

/// Its tombstone waits for it.
#[test]
fn the_work_of_a_lost_cluster_with_a_tombstone_is_not_awaited() {
    let mut world = World::done(&json!({}));
    let incarnation = world.overrides().ensemble.incarnation.unwrap();
    let plan = delete(&mut world).unwrap();
    world.write(&plan);
    (world.observed.template, world.observed.binding) = (None, None);
    world.observed.services.clear();
    world.observed.works = vec![work_of("m3", Some(world.now))];
    world.unreachable(&["m3"]);
    for (tombstones, waits) in [(BTreeSet::new(), true), (BTreeSet::from([incarnation]), false)] {
        world.observed.tombstones = tombstones;
        assert_eq!(world.plan().policy == ObjectWrite::Leave, waits);
    }
}

/// The servers of m3 leave the ensemble while Karmada does not reach m3. Then the ensemble ends. If Karmada reaches m3 again
/// before, the agent there may still not know that its servers have left.
#[rstest]
#[case::unreachable(&["m3"])]
#[case::it_is_back(&[])]
fn the_tombstone_names_a_cluster_that_the_schedule_has_left(#[case] unreachable: &[&str]) {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3", "m4"] } }));
    world.place(&[("m1", 3), ("m2", 2)]);
    world.settle();
    // Karmada keeps the Work of a cluster that it does not reach, and leaves it out of the binding's status.
    let mut left = work_of("m3", Some(world.now));
    left.spec.preserve_resources_on_deletion = Some(true);
    world.observed.works = vec![left];
    world.unreachable(unreachable);
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let plan = world.plan();
    world.observed.overrides = match plan.overrides {
        ObjectWrite::Apply(wanted) => Some(wanted.into()),
        other => panic!("{other:?}"),
    };
    // Karmada may remove the Work before the others have ended.
    assert_eq!(clusters(&world.plan().tombstone.unwrap()), ["m3"]);
    decommission(&mut world);
    let tombstone = world.plan().tombstone.unwrap();
    assert_eq!(clusters(&tombstone), ["m3"]);
    let plan = world.plan();
    world.write(&plan);
    // Karmada ends the Work in a cluster that it reaches.
    world.observed.works.retain(|_| !unreachable.is_empty());
    assert_eq!(world.plan().template, ObjectWrite::Delete, "{}", world.message("Progressing"));
}

/// The servers of m3 leave the ensemble while Karmada does not reach m3. Before they have, the ensemble ends and m3 is back.
/// Karmada has no object for it any more.
#[test]
fn a_cluster_that_left_the_selection_is_not_awaited_once_it_has_a_tombstone() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    world.configuration_frozen = true;
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3", "m4"] } }));
    world.place(&[("m1", 3), ("m2", 2)]);
    world.pass();
    world.pass();
    world.unreachable(&[]);
    let incarnation = world.overrides().ensemble.incarnation.unwrap();
    assert!(world.overrides().cluster_specs.contains_key("m3"), "its voter has not left");
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let plan = world.plan();
    world.write(&plan);
    decommission(&mut world);
    assert_eq!(clusters(&world.plan().tombstone.unwrap()), ["m3"]);
    let progress = |world: &World| {
        let conditions = world.plan().status.conditions;
        conditions.into_iter().find(|condition| condition.type_ == "Progressing").unwrap().message
    };
    assert!(progress(&world).contains("to decommission their servers: m3"), "{}", progress(&world));
    world.observed.tombstones = BTreeSet::from([incarnation]);
    assert!(!progress(&world).contains("m3"), "{}", progress(&world));
}

/// They say why a restart waits, and not why the end does.
#[test]
fn what_agents_said_before_they_had_the_last_list_is_no_cause() {
    let mut world = World::done(&json!({}));
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let plan = world.plan();
    world.write(&plan);
    let last = json!(world.overrides().ensemble);
    world.report("m1")["conditions"] = json!([{ "type": "Progressing", "status": "False", "reason": "Waiting",
        "message": "m2 holds the restart lock", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let says = |world: &World| json!(world.plan().status.conditions).to_string().contains("holds the restart lock");
    assert!(!says(&world));
    world.report("m1")["ensemble"] = last;
    assert!(says(&world));
}

#[test]
fn the_next_ensemble_lists_incarnations_that_have_a_tombstone() {
    let mut world = World::new(&json!({}));
    world.observed.tombstones = BTreeSet::from(["abc123".to_owned(), "def456".to_owned()]);
    world.settle();
    assert_eq!(world.overrides().ensemble.former_incarnations, ["abc123", "def456"]);
    // A recovered server list keeps them.
    world.observed.overrides = None;
    world.settle();
    assert_eq!(world.overrides().ensemble.former_incarnations, ["abc123", "def456"]);
    world.observed.object.status = None;
    world.observed.overrides = None;
    world.settle();
    assert_eq!(world.overrides().ensemble.former_incarnations, ["abc123", "def456"]);
}

/// A cluster that returns reports another incarnation, which is not a lost server list of this one. It has ended.
#[test]
fn a_report_of_a_former_incarnation_does_not_block_the_next_one() {
    let mut old = World::done(&json!({}));
    let ended = old.overrides().ensemble.incarnation.unwrap();
    let report = old.report("m2").clone();
    let mut world = World::declared(&json!({ "tls": { "quorum": false } }));
    world.observed.object.metadata.uid = Some("u2".to_owned());
    world.observed.tombstones.insert(ended);
    while world.observed.binding.is_none() {
        world.pass();
    }
    *world.report("m2") = report;
    world.settle();
}

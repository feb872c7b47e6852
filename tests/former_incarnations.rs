//! What becomes of a cluster that was away when its ensemble ended: who is named in the note, and which lives the next
//! ensemble of that name lists as former ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

#[path = "rules/world.rs"]
mod world;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk::{
    api::karmada::work::Work,
    contract::{labels::ABANDON_CLUSTERS, tombstone::Tombstone},
    rollout::plan::{Desired, Plan},
};
use serde_json::json;
use world::World;

/// Goes on with the deletion until reports are released or nothing changes.
fn end(world: &mut World) -> Option<Plan> {
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    for _ in 0..6 {
        let plan = world.look();
        if matches!(&plan.policy, Desired::Apply(p) if p.spec.preserve_resources_on_deletion == Some(false)) {
            return Some(plan);
        }
        world.write(&plan);
        dissolve(world);
    }
    None
}

/// Clusters that are reached dissolve.
fn dissolve(world: &mut World) {
    let told = world.told().ensemble;
    let reached: Vec<String> =
        world.observed.clusters.iter().filter(|c| c.ready()).map(|c| c.name().to_owned()).collect();
    for item in &mut world.observed.binding.as_mut().unwrap().status.aggregated_status {
        if told.phase.is_ending() && reached.contains(&item.cluster_name) {
            let condition = json!({ "type": "Decommissioned", "status": "True", "reason": "Decommissioned", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            item.status = Some(json!({ "ensemble": told, "conditions": [condition] }));
        }
    }
}

fn give_up(world: &mut World, clusters: &str) {
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(ABANDON_CLUSTERS.to_owned(), clusters.to_owned());
}

fn clusters(ended: &Tombstone) -> Vec<&str> {
    ended.clusters.iter().map(String::as_str).collect()
}

#[test]
fn where_all_dissolved_nothing_is_noted() {
    let mut world = World::done(&json!({}));
    give_up(&mut world, "m3");
    assert_eq!(end(&mut world).unwrap().tombstone, None, "it was heard after all");
}

#[test]
fn a_cluster_that_was_given_up_is_told_when_it_is_back() {
    let mut world = World::done(&json!({}));
    let id = world.told().ensemble.incarnation.unwrap();
    world.unreachable(&["m3"]);
    assert!(end(&mut world).is_none(), "it is waited for");
    give_up(&mut world, "m2, m3");
    let ended = end(&mut world).unwrap().tombstone.unwrap();
    assert_eq!((ended.incarnation.as_str(), ended.name.as_str(), clusters(&ended)), (id.as_str(), "zk", vec!["m3"]));
}

/// Karmada removes a Work when it reaches the cluster: nobody waits for that where the cluster was given up.
#[test]
fn a_work_of_a_cluster_that_was_given_up_is_not_waited_for() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    give_up(&mut world, "m3");
    let plan = end(&mut world).unwrap();
    world.write(&plan);
    (world.observed.template, world.observed.binding) = (None, None);
    world.observed.services.clear();
    let work = |cluster: &str, going: bool| {
        let mut work = Work::default();
        work.metadata.namespace = Some(format!("karmada-es-{cluster}"));
        work.metadata.deletion_timestamp = going.then_some(Time(world.now));
        work
    };
    let works = [work("m1", true), work("m3", false), work("m3", true)];
    for (nth, (work, waits)) in works.into_iter().zip([true, true, false]).enumerate() {
        world.observed.works = vec![work];
        assert_eq!(world.look().policy == Desired::Leave, waits, "{nth}");
    }
}

/// Its servers left the ensemble while it was away, and then the ensemble ended: no quorum is left to ask.
#[test]
fn a_cluster_that_left_while_it_was_away_is_told_too() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3"] } }));
    world.place(&[("m1", 3), ("m2", 2)]);
    world.settle();
    // Karmada deletes a Work only where it reaches the cluster.
    let gone = serde_json::from_value(
        json!({ "clusterName": "m3", "applied": true, "status": { "observedSpecHash": "1-x" } }),
    );
    world.observed.binding.as_mut().unwrap().status.aggregated_status.push(gone.unwrap());
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let plan = world.look();
    world.observed.overrides = match plan.overrides {
        Desired::Apply(wanted) => Some(wanted),
        other => panic!("{other:?}"),
    };
    dissolve(&mut world);
    let ended = world.look().tombstone.unwrap();
    assert_eq!(clusters(&ended), ["m3"]);
}

#[test]
fn the_next_ensemble_of_the_name_lists_what_was_noted() {
    let mut world = World::new(&json!({}));
    world.observed.tombstones = BTreeSet::from(["abc123".to_owned(), "def456".to_owned()]);
    world.settle();
    assert_eq!(world.told().ensemble.former_incarnations, ["abc123", "def456"]);
    // And goes on to, wherever the list is found again.
    world.observed.overrides = None;
    world.settle();
    assert_eq!(world.told().ensemble.former_incarnations, ["abc123", "def456"]);
    world.observed.object.status = None;
    world.observed.overrides = None;
    world.settle();
    assert_eq!(world.told().ensemble.former_incarnations, ["abc123", "def456"]);
}

/// The report of a cluster that came back is of another life: it must not be taken for what was forgotten of this one.
#[test]
fn what_a_cluster_reports_of_a_former_life_does_not_stop_the_next_one() {
    let mut old = World::done(&json!({}));
    let report = old.report("m2").clone();
    let mut world = World::new(&json!({ "tls": { "quorum": false } }));
    world.observed.object.metadata.uid = Some("u2".to_owned());
    while world.observed.binding.is_none() {
        world.pass();
    }
    *world.report("m2") = report;
    world.settle();
}

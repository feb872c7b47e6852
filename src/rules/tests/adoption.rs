//! The control plane was lost, and its objects are created again: another uid, and so another incarnation, under the same name.
//! The servers of the former one run on, and their agents report them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

#[path = "rules/world.rs"]
mod world;

use mczk_api::{
    contract::{
        certificate_names::Holds,
        labels::{ADOPT, DECLARE_OVER},
    },
    mutation::Mutation,
    tls::EnsembleTls,
    zookeeper::{Ensemble, EnsemblePhase},
};
use rstest::rstest;
use serde_json::{Value, json};
use world::World;

/// The ensemble whose control plane is lost.
struct Former {
    id: String,
    list: Ensemble,
}

/// A finished rollout whose control plane is lost, and the object that its user creates again.
fn lost(more: &Value) -> (World, Former) {
    let mut world = World::done(more);
    let list = world.overrides().ensemble;
    let former = Former { id: list.incarnation.clone().unwrap(), list };
    let observed = &mut world.observed;
    observed.object.metadata.uid = Some("u2".to_owned());
    observed.object.status = None;
    (observed.template, observed.policy, observed.overrides) = (None, None, None);
    observed.services.clear();
    observed.certificates.clear();
    (world, former)
}

fn annotate(world: &mut World, annotation: &str, value: &str) {
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.to_owned(), value.to_owned());
}

/// Passes in which the agents have nothing to do, since no server list arrives.
fn passes(world: &mut World) {
    for _ in 0..8 {
        world.tick();
    }
}

fn starts_nothing(world: &World) {
    assert_eq!((world.ids(), world.images()), (vec![], String::new()));
}

#[test]
fn no_server_starts_beside_a_former_incarnation() {
    let (mut world, former) = lost(&json!({}));
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False IncarnationLives");
    let message = world.message("Ready");
    for part in [
        "m1 (2 servers, 2 volumes",
        "m2 (2 servers, 2 volumes",
        "m3 (1 servers, 1 volumes",
        "mczk adopt zk",
        "mczk declare-over zk",
        &former.id,
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// Volumes and servers that no server list names any more are a life too, and one report of one cluster is enough.
#[rstest]
#[case::servers(json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 1 }] }), "True", "False IncarnationLives")]
#[case::volumes(json!({ "otherIncarnations": [{ "incarnation": "abc123", "volumes": 2 }] }), "True", "False IncarnationLives")]
#[case::a_stale_report(json!({ "otherIncarnations": [{ "incarnation": "abc123", "volumes": 2 }] }), "Unknown", "False IncarnationLives")]
#[case::an_old_agent(json!({}), "True", "False RollingOut")]
#[case::nothing(json!({ "otherIncarnations": [] }), "True", "True Serving")]
fn the_first_server_waits_for_every_report(#[case] report: Value, #[case] reached: &str, #[case] ready: &str) {
    let mut world = World::new(&json!({}));
    while world.observed.binding.is_none() {
        world.pass();
    }
    *world.report("m2") = report;
    if reached != "True" {
        world.unreachable(&["m2"]);
    }
    world.run();
    let is_served = ready == "True Serving";
    assert_eq!(world.ids().is_empty(), !is_served, "{:?}", world.condition("Progressing"));
    assert!(
        world.condition("Ready") == ready || !is_served && ready == "False RollingOut",
        "{}",
        world.condition("Ready")
    );
}

#[test]
fn an_adopted_incarnation_continues_with_its_list_and_a_new_authority() {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": true } }));
    passes(&mut world);
    annotate(&mut world, ADOPT, &former.id);
    let before = world.voters.clone();
    let mut lists: Vec<Ensemble> = Vec::new();
    for _ in 0..60 {
        world.tick();
        let list = world.overrides().ensemble;
        assert!(world.voters == before && (list.servers.is_empty() || list.servers == former.list.servers), "{list:?}");
        if lists.last() != Some(&list) && !list.servers.is_empty() {
            lists.push(list);
        }
    }
    world.settle();
    let (first, last) = (&lists[0], lists.last().unwrap());
    assert_eq!((first.incarnation.as_deref(), first.phase), (Some(former.id.as_str()), EnsemblePhase::Running));
    assert_eq!((first.tls.clone(), first.highest_id), (former.list.tls.clone(), former.list.highest_id));
    assert!(first.epoch > former.list.epoch);
    // The key of the former authority is lost. The numbers after the last known ones may have been used.
    let EnsembleTls { identity, trust } = last.tls.clone().unwrap();
    let name =
        |holds: Holds, number: u32| mczk_api::contract::certificate_names::secret_name("zk", &former.id, holds, number);
    assert_eq!((identity, trust), (name(Holds::Identity, 3), vec![name(Holds::Trust, 3)]));
    assert!(lists.iter().any(|list| list.tls.as_ref().unwrap().trust.len() == 2), "both are trusted in between");
    assert_eq!(world.condition("Ready"), "True Serving");
    // The annotation has done its work, and does nothing again.
    let plan = world.plan();
    assert!(plan.certificate.is_none(), "{:?}", plan.certificate);
}

/// A cluster that the new object does not select may know a newer server list.
fn adopts_without_a_cluster() -> bool {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": false } }));
    passes(&mut world);
    annotate(&mut world, ADOPT, &former.id);
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3", "m4"] } }));
    world.observed.binding.as_mut().unwrap().status.aggregated_status.retain(|item| item.cluster_name != "m3");
    world.place(&[("m1", 3), ("m2", 2)]);
    for _ in 0..8 {
        world.pass();
    }
    !world.ids().is_empty()
}

#[test]
fn adoption_waits_for_every_cluster_of_the_incarnation() {
    assert!(!adopts_without_a_cluster());
    assert!(Mutation::with(Some(Mutation::AdoptWithoutReport), adopts_without_a_cluster));
}

#[test]
fn a_start_beside_a_living_incarnation_is_found() {
    let starts = || {
        let (mut world, _) = lost(&json!({ "tls": { "quorum": false } }));
        passes(&mut world);
        !world.ids().is_empty()
    };
    assert!(!starts());
    assert!(Mutation::with(Some(Mutation::BeginBesideOther), starts));
}

#[test]
fn an_unknown_incarnation_is_not_adopted() {
    let (mut world, _) = lost(&json!({ "tls": { "quorum": true } }));
    annotate(&mut world, ADOPT, "abc123");
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    assert!(world.observed.certificates.is_empty(), "its authority may have any number");
}

#[test]
fn an_incarnation_that_is_declared_over_is_former() {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": false } }));
    passes(&mut world);
    annotate(&mut world, DECLARE_OVER, &former.id);
    // The agents follow the new list, and report it.
    world.settle();
    let list = world.overrides().ensemble;
    assert_ne!(list.incarnation.as_deref(), Some(former.id.as_str()));
    assert_eq!(list.former_incarnations, [former.id]);
    // Others may follow while it runs.
    annotate(&mut world, DECLARE_OVER, "abc123, def456");
    world.settle();
    let list = world.overrides().ensemble;
    assert!(["abc123", "def456"].iter().all(|id| list.former_incarnations.iter().any(|former| former == id)));
}

#[rstest]
#[case::malformed(ADOPT, "zk-abc-0", "is no incarnation")]
#[case::another_one(ADOPT, "abc123", "has a server list of incarnation")]
#[case::itself(DECLARE_OVER, "", "delete the MultiClusterZooKeeper")]
fn an_annotation_that_cannot_be_followed_is_named_and_stops_no_server(
    #[case] annotation: &str,
    #[case] value: &str,
    #[case] why: &str,
) {
    let mut world = World::done(&json!({}));
    let (list, own) = (world.overrides().ensemble, world.overrides().ensemble.incarnation.unwrap());
    annotate(&mut world, annotation, if value.is_empty() { &own } else { value });
    passes(&mut world);
    assert_eq!(world.overrides().ensemble, list);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    assert!(world.message("Ready").contains(why), "{}", world.message("Ready"));
}

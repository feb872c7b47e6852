//! The control plane was lost, and its objects are created again: another uid, and so another incarnation, under the same name.
//! The servers of the former one run on, and their agents report them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

#[path = "rules/world.rs"]
mod world;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ResourceExt;

use mczk_api::{
    contract::{
        certificate_names::{self, Holds},
        labels::{ABANDON_CLUSTERS, ADOPT, APPLY_AGAIN, DECLARE_OVER, REPLACE_AUTHORITY},
        naming, server_list,
    },
    karmada::resource_binding::AggregatedStatusItem,
    mutation::Mutation,
    tls::EnsembleTls,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server},
};
use mczk_rules::rollout::{
    override_rules,
    plan::{Finalizer, ObjectWrite, Observed},
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

impl World {
    /// A server list of another incarnation: three servers in one cluster.
    fn list_of(incarnation: &str, cluster: &str) -> Ensemble {
        let server = |ordinal: i32| Server {
            id: 50 + ordinal,
            cluster: cluster.to_owned(),
            ordinal,
            host: format!("zk-{incarnation}-{ordinal}.{cluster}"),
            role: Role::Voter,
        };
        let incarnation = Some(incarnation.to_owned());
        let (servers, highest_id) = ((0..3).map(server).collect(), Some(52));
        server_list::with_hash(Ensemble { incarnation, epoch: Some(4), servers, highest_id, ..Ensemble::default() })
            .unwrap()
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

/// The scheduler gives no voter to the cluster where the former servers live, so it would have no object to report with.
#[rstest]
#[case::lives(json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] }), &[], "False IncarnationLives")]
#[case::an_old_agent(json!({}), &[], "False RollingOut")]
#[case::unreachable(json!({ "otherIncarnations": [] }), &["m4"], "False RollingOut")]
#[case::nothing(json!({ "otherIncarnations": [] }), &[], "True Serving")]
fn a_selected_cluster_without_voters_reports_first(
    #[case] report: Value,
    #[case] unreachable: &[&str],
    #[case] ready: &str,
) {
    let mut world = World::declared(&json!({}));
    world.pass();
    *world.report("m4") = report;
    world.unreachable(unreachable);
    world.run();
    assert_eq!(world.condition("Ready"), ready, "{}", world.message("Progressing"));
    if ready == "True Serving" {
        assert!(!world.images().contains("m4"), "{}", world.images());
        return;
    }
    starts_nothing(&world);
    assert!(world.message("Progressing").contains("m4"), "{}", world.message("Progressing"));
    // The PropagationPolicy shows the survey too.
    world.observed.overrides = None;
    passes(&mut world);
    starts_nothing(&world);
    world.unreachable(&[]);
    *world.report("m4") = json!({ "otherIncarnations": [] });
    world.settle();
    assert_eq!(world.condition("Ready"), "True Serving", "{}", world.message("Progressing"));
}

/// The message says of each cluster what it waits for.
#[rstest]
#[case::unreachable(|world: &mut World| world.unreachable(&["m4"]), "m4 (not Ready in Karmada, or without a Ready node)")]
#[case::left(|world: &mut World| world.observed.clusters.retain(|cluster| cluster.name() != "m4"), "m4 (it is no cluster of Karmada any more)")]
#[case::an_old_agent(|world: &mut World| *world.report("m4") = json!({}), "older than the operator")]
#[case::a_new_agent(|world: &mut World| *world.report("m4") = json!({ "ensemble": 7 }), "newer than the operator")]
#[case::refused(|world: &mut World| refuse(world, "m4", "taken"), "m4 (Karmada could not apply the object: taken)")]
#[case::no_report(|world: &mut World| item(world, "m4").status = None, "m4 (no report yet")]
#[case::blocked(|world: &mut World| *world.report("m4") = json!({ "conditions": [blocked("RequestRefused", "It may not read pods")] }), "m4 (It may not read pods)")]
fn the_survey_says_what_it_waits_for(#[case] happens: fn(&mut World), #[case] why: &str) {
    let mut world = World::declared(&json!({}));
    world.pass();
    happens(&mut world);
    passes(&mut world);
    starts_nothing(&world);
    let message = world.message("Progressing");
    assert!(message.contains(why) && message.contains(ABANDON_CLUSTERS), "{message}");
}

/// After the loss of a control plane a cluster may join later than the objects are created again.
#[rstest]
#[case::joins(|world: &mut World| join(world, "m9"))]
#[case::is_abandoned(|world: &mut World| annotate(world, ABANDON_CLUSTERS, "m9"))]
#[case::is_no_longer_named(|world: &mut World| world.edit("/placement/clusterAffinity/clusterNames", &json!(["m1", "m2", "m3"])))]
fn no_server_starts_before_each_named_cluster_has_joined(#[case] happens: fn(&mut World)) {
    let named = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2", "m3", "m9"] } });
    let mut world = World::declared(&json!({ "placement": named }));
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Scheduled"), "False ClusterNotJoined");
    let message = world.message("Scheduled");
    assert!(message.contains(": m9.") && message.contains(ABANDON_CLUSTERS), "{message}");
    happens(&mut world);
    passes(&mut world);
    assert_ne!(world.condition("Scheduled"), "False ClusterNotJoined");
}

/// A cluster like m4 joins.
fn join(world: &mut World, name: &str) {
    let mut cluster = world.observed.clusters.iter().find(|cluster| cluster.name() == "m4").unwrap().clone();
    cluster.metadata.name = Some(name.to_owned());
    world.observed.clusters.push(cluster);
}

/// Its taint keeps Karmada from bringing the object there.
#[test]
fn the_survey_names_a_cluster_without_the_object() {
    let mut world = World::declared(&json!({}));
    world.pass();
    world.observed.binding.as_mut().unwrap().status.aggregated_status.retain(|item| item.cluster_name != "m4");
    let status = world.plan().status;
    let message = &status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap().message;
    assert!(message.contains("m4 (Karmada has not brought the object there: if it lasts, see the taints"), "{message}");
}

fn refuse(world: &mut World, cluster: &str, why: &str) {
    let item = item(world, cluster);
    (item.applied, item.applied_message) = (false, Some(why.to_owned()));
}

fn blocked(reason: &str, message: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({ "type": "Blocked", "status": "True", "reason": reason, "message": message, "lastTransitionTime": time })
}

fn item<'w>(world: &'w mut World, cluster: &str) -> &'w mut AggregatedStatusItem {
    let items = &mut world.observed.binding.as_mut().unwrap().status.aggregated_status;
    items.iter_mut().find(|item| item.cluster_name == cluster).unwrap()
}

/// The annotation names all selected clusters, before a server is listed. To Karmada, no cluster means every cluster.
#[test]
fn clusters_are_selected_although_all_are_abandoned() {
    let mut world = World::declared(&json!({}));
    world.pass();
    annotate(&mut world, ABANDON_CLUSTERS, "m1,m2,m3,m4");
    passes(&mut world);
    assert_eq!(world.condition("Scheduled"), "False NoClusterMatches");
    let placement = &world.observed.policy.as_ref().unwrap().spec.placement;
    assert_eq!(placement.cluster_affinity.as_ref().unwrap().cluster_names.len(), 4);
}

/// The operator divides, and each of four clusters gets a voter: none is asked before. A former incarnation lives in this one.
fn lives_among_voters(cluster: &str) -> World {
    let mut world = World::declared(&json!({ "placement": null, "replicas": 4 }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1), ("m4", 1)]);
    world.pass();
    *world.report(cluster) = json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] });
    passes(&mut world);
    starts_nothing(&world);
    world
}

/// Fewer voters leave the clusters out in which another incarnation lives. A lost OverridePolicy does not count as an answer.
#[rstest]
#[case::at_once(|_: &mut World| ())]
#[case::after_the_policy_is_lost(|world: &mut World| {
    world.observed.overrides = None;
    passes(world);
})]
fn fewer_replicas_need_a_survey(#[case] happens: fn(&mut World)) {
    let mut world = lives_among_voters("m4");
    happens(&mut world);
    world.edit("/replicas", &json!(3));
    world.placed.pop();
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False IncarnationLives");
}

/// Without a survey too, nothing else is reported as the reason to wait: no certificate is made for servers that do not start.
#[test]
fn the_condition_names_what_lives_where_each_cluster_gets_a_voter() {
    let world = lives_among_voters("m2");
    assert_eq!(world.condition("Ready"), "False IncarnationLives", "{}", world.message("Progressing"));
}

/// During an upgrade an older webhook may answer: to it a survey is a workload of no replicas, and Karmada gives the object to no
/// cluster.
#[test]
fn karmada_asks_again_after_the_answer_of_an_older_webhook() {
    let mut world = World::declared(&json!({}));
    world.pass();
    let mut asked = Vec::new();
    for _ in 0..4 {
        let binding = world.observed.binding.as_mut().unwrap();
        binding.spec.replica_requirements = Some(json!({}));
        binding.status.aggregated_status.clear();
        assert_eq!(world.pass().requeue_after, Some(Duration::from_secs(30)));
        asked.push(world.observed.template.as_ref().unwrap().annotations()[APPLY_AGAIN].clone());
        world.wait(20);
    }
    let distinct: BTreeSet<&String> = asked.iter().collect();
    assert_eq!(distinct.len(), 2, "{asked:?}");
    assert_eq!(world.condition("Scheduled"), "False NotInterpreted");
    assert!(world.message("Scheduled").contains("older version"), "{}", world.message("Scheduled"));
    world.settle();
    assert_eq!(world.condition("Ready"), "True Serving");
    assert!(!world.observed.template.as_ref().unwrap().annotations().contains_key(APPLY_AGAIN));
}

/// The binding still has what the webhook said of the former template.
#[test]
fn the_answer_for_a_former_template_is_none_of_an_older_webhook() {
    let mut world = World::declared(&json!({}));
    world.pass();
    let binding = world.observed.binding.as_mut().unwrap();
    (binding.spec.replica_requirements, binding.spec.replicas) = (Some(json!({})), Some(3));
    binding.status.aggregated_status.clear();
    world.pass();
    assert_ne!(world.condition("Scheduled"), "False NotInterpreted");
}

/// Karmada leaves the Secrets of a template in a cluster that it takes the object from.
#[rstest]
#[case::placed(|_: &mut World| ())]
#[case::narrowed(|world: &mut World| world.edit("/placement/clusterAffinity", &json!({ "clusterNames": ["m1", "m2", "m3"] })))]
fn no_secret_travels_to_a_cluster_that_gets_no_voter(#[case] happens: fn(&mut World)) {
    let mut world = World::declared(&json!({}));
    let mut travelled = BTreeSet::new();
    world.pass();
    happens(&mut world);
    for _ in 0..10 {
        let plan = world.plan();
        // Karmada's scheduler acts after the distributor of Secrets.
        let clusters = world.observed.binding.as_ref().unwrap().spec.clusters.clone();
        world.write(&plan);
        let has_secrets = !world.observed.template.as_ref().unwrap().spec.dependencies.is_empty();
        travelled.extend(clusters.iter().filter(|_| has_secrets).map(|cluster| cluster.name.clone()));
        let has_secrets = !world.observed.template.as_ref().unwrap().spec.dependencies.is_empty();
        let clusters = &world.observed.binding.as_ref().unwrap().spec.clusters;
        travelled.extend(clusters.iter().filter(|_| has_secrets).map(|cluster| cluster.name.clone()));
    }
    let expected: BTreeSet<String> = ["m1", "m2", "m3"].map(str::to_owned).into();
    assert_eq!(travelled, expected);
}

/// Seen on Karmada: it kept 2, 2 and 1 of the 5 that each cluster had got, where room asks for 3, 1 and 1.
#[test]
fn a_survey_leaves_karmada_no_replicas_to_keep() {
    let mut world = World::declared(&json!({}));
    world.pass();
    let binding = world.observed.binding.as_ref().unwrap();
    assert_eq!(binding.spec.clusters.iter().map(|cluster| cluster.replicas).collect::<Vec<_>>(), [0; 4]);
    assert_eq!((binding.spec.replicas, &binding.spec.replica_requirements), (Some(0), &None));
}

/// It lives where the scheduler gives no voter, and is adopted or over.
#[rstest]
#[case::over(DECLARE_OVER)]
#[case::adopted(ADOPT)]
fn the_survey_ends_with_the_answer_of_the_user(#[case] annotation: &str) {
    let mut world = World::declared(&json!({}));
    world.pass();
    *world.report("m4") = json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] });
    passes(&mut world);
    starts_nothing(&world);
    annotate(&mut world, annotation, "abc123");
    passes(&mut world);
    let waits_for_list = world.message("Progressing").contains("abc123");
    assert_eq!((world.ids().is_empty(), waits_for_list), (annotation == ADOPT, annotation == ADOPT));
}

/// No server list, which would name it as former, reaches the cluster where its servers are.
#[test]
fn a_cluster_without_voters_learns_that_an_incarnation_is_over() {
    let mut world = World::declared(&json!({}));
    world.pass();
    *world.report("m4") = json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] });
    passes(&mut world);
    annotate(&mut world, DECLARE_OVER, "abc123,def456");
    let mut ended = Vec::new();
    for _ in 0..8 {
        let surveys = world.observed.template.as_ref().unwrap().spec.surveys();
        let plan = world.pass();
        ended.extend(plan.tombstone.map(|tombstone| (tombstone.incarnation, tombstone.clusters, surveys)));
    }
    assert_eq!(ended, [("abc123".to_owned(), BTreeSet::from(["m4".to_owned()]), true)]);
    assert!(!world.ids().is_empty(), "{}", world.message("Progressing"));
}

/// Its cluster is lost for good, and every other cluster gets a voter. It may come back.
#[test]
fn a_cluster_that_is_abandoned_learns_that_an_incarnation_is_over() {
    let mut world = World::declared(&json!({ "placement": null, "replicas": 3 }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.pass();
    *world.report("m4") = json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] });
    passes(&mut world);
    world.unreachable(&["m4"]);
    annotate(&mut world, DECLARE_OVER, "abc123");
    passes(&mut world);
    starts_nothing(&world);
    annotate(&mut world, ABANDON_CLUSTERS, "m4");
    let mut ended = Vec::new();
    for _ in 0..8 {
        let has_started = !world.ids().is_empty();
        let plan = world.tick();
        ended.extend(plan.tombstone.map(|tombstone| (tombstone.incarnation, tombstone.clusters, has_started)));
    }
    assert_eq!(ended, [("abc123".to_owned(), BTreeSet::from(["m4".to_owned()]), false)]);
    assert!(!world.ids().is_empty(), "{}", world.message("Progressing"));
}

/// A survey whose user names another incarnation than the one that lives is not over: the cluster still gets the object.
#[rstest]
#[case::removed(None)]
#[case::corrected(Some("abc123"))]
fn the_survey_goes_on_if_an_adopted_incarnation_is_unknown(#[case] then: Option<&str>) {
    let mut world = World::declared(&json!({ "tls": { "quorum": false } }));
    world.pass();
    let living = World::list_of("abc123", "m4");
    *world.report("m4") = json!({ "otherIncarnations": [{ "incarnation": "abc123", "servers": 3 }] });
    annotate(&mut world, ADOPT, "fed123");
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    world.observed.object.metadata.annotations = None;
    if let Some(id) = then {
        annotate(&mut world, ADOPT, id);
        *world.report("m4") = json!({ "ensemble": living, "otherIncarnations": [] });
    }
    passes(&mut world);
    if then.is_some() {
        assert_eq!(world.overrides().ensemble.servers, living.servers, "{}", world.message("Progressing"));
    } else {
        starts_nothing(&world);
        assert_eq!(world.condition("Ready"), "False IncarnationLives");
    }
}

/// Karmada would divide the voters before the operator knows where they are, and take the object from their cluster.
#[test]
fn the_survey_goes_on_until_all_servers_of_an_adopted_incarnation_are_known() {
    let mut world = World::declared(&json!({ "tls": { "quorum": false } }));
    world.pass();
    let living = World::list_of("abc123", "m4");
    *world.report("m4") = json!({ "ensemble": living, "otherIncarnations": [] });
    world.unreachable(&["m3"]);
    annotate(&mut world, ADOPT, "abc123");
    passes(&mut world);
    starts_nothing(&world);
    assert!(world.message("Progressing").contains("m3"), "{}", world.message("Progressing"));
    world.unreachable(&[]);
    passes(&mut world);
    assert_eq!(world.overrides().ensemble.servers, living.servers, "{}", world.message("Progressing"));
    assert!(!world.observed.template.as_ref().unwrap().spec.surveys());
}

/// Template and policies are lost in a bootstrap: the status has the list. Its record is recovered, and must not keep the survey.
#[test]
fn a_recovered_list_ends_the_survey() {
    let mut world = World::new(&json!({}));
    (0..4).for_each(|_| drop(world.pass()));
    let list = world.overrides().ensemble;
    assert!(!list.servers.is_empty());
    let observed = &mut world.observed;
    (observed.template, observed.policy, observed.overrides, observed.binding) = (None, None, None, None);
    passes(&mut world);
    assert_eq!(world.overrides().ensemble.servers, list.servers, "{}", world.message("Progressing"));
    assert!(!world.observed.template.as_ref().unwrap().spec.surveys(), "{}", world.message("Progressing"));
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

/// The incarnation of the new object waited. Nothing of it may stay in the member clusters.
#[test]
fn an_adopted_ensemble_keeps_nothing_of_the_incarnation_that_waited() {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": true } }));
    let waited = naming::incarnation("u2", 0);
    let is_exported = |world: &World| world.observed.services.contains_key(&format!("ServiceExport/zk-{waited}"));
    for _ in 0..8 {
        world.tick();
        assert!(!is_exported(&world), "Karmada would leave it in the member clusters");
        let is_taken = world.observed.services.contains_key("ServiceExport/zk");
        assert!(!is_taken, "with the object that waits, Karmada would delete the export of the former servers");
    }
    annotate(&mut world, ADOPT, &former.id);
    world.settle();
    assert!(!is_exported(&world) && world.observed.services.contains_key(&format!("ServiceExport/zk-{}", former.id)));
    // Agents remove the Secrets of former incarnations.
    assert_eq!(world.overrides().ensemble.former_incarnations, [waited]);
}

/// Seen by reading: the list was never taken over.
#[test]
fn an_adoption_waits_for_no_cluster_that_its_user_abandons() {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": false } }));
    passes(&mut world);
    world.unreachable(&["m3"]);
    annotate(&mut world, ADOPT, &former.id);
    passes(&mut world);
    starts_nothing(&world);
    assert!(world.message("Progressing").contains(ABANDON_CLUSTERS), "{}", world.message("Progressing"));
    annotate(&mut world, ABANDON_CLUSTERS, "m3");
    passes(&mut world);
    assert_eq!(world.overrides().ensemble.incarnation, Some(former.id), "{}", world.message("Progressing"));
    assert_eq!(world.ids().len(), 5);
}

/// After a move, the list still names the voters that left as leaving. Their cluster may be gone.
#[test]
fn an_adoption_waits_for_no_cluster_that_the_ensemble_has_left() {
    let (mut world, _) = lost(&json!({ "tls": { "quorum": false } }));
    let mut list = world.accepted.clone();
    list.leaving = vec![Server { id: 200, cluster: "m4".to_owned(), host: "h".to_owned(), ..list.servers[0].clone() }];
    let list = server_list::with_hash(list).unwrap();
    for cluster in ["m1", "m2", "m3"] {
        world.report(cluster)["ensemble"] = serde_json::to_value(&list).unwrap();
    }
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m4"] } }));
    passes(&mut world);
    annotate(&mut world, ADOPT, &list.incarnation.unwrap());
    passes(&mut world);
    assert_eq!(world.ids().len(), 5, "{}", world.message("Ready"));
}

/// The user says what becomes of the former incarnation, under a placement that leaves out a cluster with one of its servers.
fn answered_without_m3(annotation: &str) -> (World, Former) {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": false } }));
    passes(&mut world);
    annotate(&mut world, annotation, &former.id);
    world.edit("/placement", &json!({ "clusterAffinity": { "exclude": ["m3", "m4"] } }));
    world.observed.binding.as_mut().unwrap().status.aggregated_status.retain(|item| item.cluster_name != "m3");
    world.place(&[("m1", 3), ("m2", 2)]);
    (world, former)
}

/// The user gives the object up while its adoption waits for a cluster.
#[test]
fn the_end_of_an_object_that_waits_to_adopt_ends_no_server() {
    let (mut world, former) = answered_without_m3(ADOPT);
    passes(&mut world);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    for _ in 0..8 {
        let plan = world.plan();
        if let ObjectWrite::Apply(policy) = &plan.overrides {
            let list = override_rules::read(&policy.spec).ensemble;
            assert!(list.incarnation != Some(former.id.clone()) && !list.phase.is_ending(), "{list:?}");
        }
        assert_eq!(plan.tombstone, None);
        world.write(&plan);
    }
}

/// One of its clusters gets no object, and its server would serve on.
#[test]
fn an_incarnation_is_over_once_all_its_clusters_can_learn_it() {
    let (mut world, _) = answered_without_m3(DECLARE_OVER);
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    let message = world.message("Ready");
    assert!(message.contains("does not select: m3") && message.contains(ABANDON_CLUSTERS), "{message}");
    annotate(&mut world, ABANDON_CLUSTERS, "m3");
    let ended: BTreeSet<String> =
        (0..12).flat_map(|_| world.tick().tombstone.into_iter().flat_map(|tombstone| tombstone.clusters)).collect();
    assert!(!world.ids().is_empty() && ended.contains("m3"), "{ended:?} {}", world.message("Progressing"));
}

/// Servers with TLS among themselves do not reach those without, and agents dial as the object says.
#[rstest]
#[case::declared_without(true)]
#[case::declared_with(false)]
fn an_adoption_needs_the_encryption_that_the_servers_have(#[case] encrypted: bool) {
    let (mut world, former) = lost(&json!({ "tls": { "quorum": encrypted } }));
    world.observed.object.spec.tls.quorum = !encrypted;
    passes(&mut world);
    annotate(&mut world, ADOPT, &former.id);
    passes(&mut world);
    starts_nothing(&world);
    assert_eq!(world.condition("Ready"), "False FormerIncarnationUnclear");
    let message = world.message("Ready");
    assert!(message.contains(&format!("Create it again with tls.quorum {encrypted}")), "{message}");
    world.observed.object.spec.tls.quorum = encrypted;
    world.settle();
    assert_eq!(world.overrides().ensemble.incarnation, Some(former.id), "{}", world.message("Progressing"));
}

/// A cluster that the new object does not select may know a newer server list.
fn adopts_without_a_cluster() -> bool {
    let (mut world, _) = answered_without_m3(ADOPT);
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

/// A finished rollout, whose control plane is restored from a copy that is older than these changes. Member clusters keep what they
/// have, and those that the older schedule names report it.
fn restored(since: fn(&mut World)) -> (World, Ensemble) {
    let mut world = World::done(&json!({ "tls": { "quorum": true } }));
    let (copy, placed) = (world.observed.clone(), world.placed.clone());
    since(&mut world);
    world.settle();
    let newest = world.overrides().ensemble;
    let Observed { clusters, binding, .. } = world.observed;
    world.observed = Observed { clusters, binding, ..copy };
    let placed: Vec<(&str, i32)> = placed.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    world.place(&placed);
    (world, newest)
}

fn scale_up(world: &mut World) {
    world.edit("/replicas", &json!(7));
    world.place(&[("m1", 3), ("m2", 2), ("m3", 2)]);
}

fn scale_down(world: &mut World) {
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
}

fn move_on(world: &mut World) {
    world.edit("/placement/clusterAffinity", &json!({ "exclude": ["m3"] }));
    world.place(&[("m1", 2), ("m2", 2), ("m4", 1)]);
}

fn replace_authority(world: &mut World) {
    annotate(world, REPLACE_AUTHORITY, "1");
}

fn renew_identity(world: &mut World) {
    for secret in world.observed.certificates.iter_mut().filter(|secret| secret.holds == Holds::Identity) {
        secret.not_after = world.now;
    }
}

/// The numbers of the certificates that a list names: identities, and authorities.
fn numbers(list: &Ensemble) -> [Vec<u32>; 2] {
    let number = |name: &String| certificate_names::numbered(name).unwrap().1;
    let tls = list.tls.as_ref().unwrap();
    [vec![number(&tls.identity)], tls.trust.iter().map(number).collect()]
}

/// Why a list contradicts the newest one that agents know. Neither an id nor the number of a certificate is given out twice (S4).
/// The lost control plane may have made one more Secret than any list names.
fn contradiction(list: &Ensemble, newest: &Ensemble) -> Option<String> {
    let is_known =
        |server: &Server| newest.servers.iter().any(|known| known.id == server.id && known.host == server.host);
    let is_new = |server: &&Server| !is_known(server) && Some(server.id) <= newest.highest_id;
    if let Some(reused) = list.servers.iter().find(is_new) {
        return Some(format!("{reused:?}"));
    }
    let mut certificates = numbers(list).into_iter().zip(numbers(newest));
    let again = |(all, known): (Vec<u32>, Vec<u32>)| {
        let highest = known.iter().max().copied().unwrap();
        all.iter().any(|number| !known.contains(number) && *number <= highest + 1)
    };
    let is_older = list.epoch <= newest.epoch || list.highest_id < newest.highest_id;
    (is_older || certificates.any(again)).then(|| format!("{list:?}"))
}

/// What the operator writes after the restore, and once the user has declared the newest spec again.
fn follow_newest(since: fn(&mut World)) -> Result<(), String> {
    let (mut world, newest) = restored(since);
    let older = world.overrides().ensemble;
    let mut before = newest.clone();
    for pass in 0..80 {
        if pass == 40 {
            since(&mut world);
        }
        world.tick();
        let list = world.overrides().ensemble;
        if list == older {
            continue;
        }
        let renamed = |server: &&Server| before.servers.iter().any(|of| of.host == server.host && of.id != server.id);
        let renamed = list.servers.iter().find(renamed).map(|server| format!("{server:?} had another id"));
        if let Some(why) = renamed.or_else(|| contradiction(&list, &newest)) {
            return Err(format!("pass {pass}: {why}, newest {newest:?}"));
        }
        before = list;
    }
    let (list, ready) = (world.overrides().ensemble, world.condition("Ready"));
    let is_done = ready == "True Serving" && list.epoch > newest.epoch && list.servers.len() == newest.servers.len();
    if is_done {
        Ok(())
    } else {
        Err(format!("{ready}: {} {}: {list:?}", world.message("Ready"), world.message("Progressing")))
    }
}

#[rstest]
#[case::scale_up(scale_up)]
#[case::removal(scale_down)]
#[case::new_authority(replace_authority)]
#[case::new_identity(renew_identity)]
fn a_restored_control_plane_takes_over_the_newest_list(#[case] since: fn(&mut World)) {
    assert_eq!(follow_newest(since), Ok(()));
}

#[test]
fn a_forgotten_newer_list_is_found() {
    assert!(Mutation::with(Some(Mutation::ForgetNewerList), || follow_newest(scale_up)).is_err());
}

#[test]
fn a_restored_control_plane_waits_for_a_cluster_that_it_does_not_select() {
    let (mut world, newest) = restored(move_on);
    world.observed.object.spec.placement =
        serde_json::from_value(json!({ "clusterAffinity": { "exclude": ["m4"] } })).unwrap();
    let older = world.overrides().ensemble;
    for _ in 0..8 {
        world.tick();
        assert_eq!(world.overrides().ensemble, older);
    }
    assert_eq!(world.condition("Progressing"), "False NewerServerList");
    let message = world.message("Progressing");
    assert!(message.contains("spec.placement does not select: m4"), "{message}");
    move_on(&mut world);
    *world.report("m4") = json!({ "ensemble": newest, "otherIncarnations": [] });
    world.settle();
    let list = world.overrides().ensemble;
    assert_eq!((list.servers, world.condition("Ready").as_str()), (newest.servers, "True Serving"));
}

/// The copy knows nothing of the cluster that joined since, and the object is deleted before that is declared again.
#[test]
fn a_restored_control_plane_ends_the_servers_of_clusters_that_it_does_not_know() {
    let (mut world, newest) = restored(move_on);
    assert!(newest.servers.iter().any(|server| server.cluster == "m4"));
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    let pass = |world: &mut World| world.tick().tombstone.into_iter().flat_map(|tombstone| tombstone.clusters);
    assert!((0..8).flat_map(|_| pass(&mut world)).next().is_none());
    let message = world.message("Progressing");
    assert!(message.contains("decommission their servers: m1, m2, m3, m4"), "{message}");
    annotate(&mut world, ABANDON_CLUSTERS, "m1,m2,m3,m4");
    let ended: Vec<String> = (0..8).flat_map(|_| pass(&mut world)).collect();
    assert!(ended.contains(&"m4".to_owned()), "{ended:?} {}", world.message("Progressing"));
}

/// The only cluster that might know a newer list is lost with the control plane.
#[test]
fn a_restored_control_plane_waits_for_no_cluster_that_its_user_abandons() {
    let (mut world, newest) = restored(scale_up);
    world.unreachable(&["m3"]);
    let older = world.overrides().ensemble;
    passes(&mut world);
    assert_eq!(world.overrides().ensemble, older);
    assert!(world.message("Progressing").contains(ABANDON_CLUSTERS), "{}", world.message("Progressing"));
    annotate(&mut world, ABANDON_CLUSTERS, "m3");
    passes(&mut world);
    assert!(world.overrides().ensemble.epoch > newest.epoch, "{}", world.message("Progressing"));
}

/// Another control plane adopts the ensemble of this one, which counted as lost, and returns.
fn adopted_elsewhere(world: &mut World) -> Ensemble {
    let own = world.overrides().ensemble;
    let former_incarnations = vec![naming::incarnation("u2", 0)];
    let epoch = own.epoch.map(|epoch| epoch + 3);
    let adopted = server_list::with_hash(Ensemble { epoch, former_incarnations, ..own }).unwrap();
    follow(world, &adopted);
    adopted
}

/// All agents follow a list.
fn follow(world: &mut World, list: &Ensemble) {
    for cluster in ["m1", "m2", "m3"] {
        world.report(cluster)["ensemble"] = json!(list);
    }
}

fn some_passes(world: &mut World) {
    (0..4).for_each(|_| drop(world.pass()));
}

/// Each would take over the lists of the other one, under ever higher epochs. Which of its objects are lost changes nothing.
#[rstest]
#[case::whole(|_: &mut World| ())]
#[case::without_its_policy(|world: &mut World| world.observed.overrides = None)]
#[case::with_an_annotation_of_its_own_adoption(annotate_own)]
#[case::with_both(|world: &mut World| { annotate_own(world); world.observed.overrides = None; })]
fn a_control_plane_whose_ensemble_another_one_has_adopted_changes_nothing(#[case] happens: fn(&mut World)) {
    let mut world = World::done(&json!({}));
    let adopted = adopted_elsewhere(&mut world);
    let specs = world.observed.object.status.clone().unwrap().clusters;
    happens(&mut world);
    world.image("zoo:2");
    let before = world.observed.clone();
    some_passes(&mut world);
    assert_eq!((&world.observed.overrides, &world.observed.template), (&before.overrides, &before.template));
    assert_eq!(
        (&world.observed.policy, &world.observed.object.status.as_ref().unwrap().clusters),
        (&before.policy, &specs)
    );
    assert_eq!(world.condition("Progressing"), "False NewerServerList");
    let message = world.message("Progressing");
    assert!(message.contains("Another control plane") && message.contains("mczk declare-over zk"), "{message}");
    // Its user decides for this control plane. The other one does not know what its lists name then.
    annotate_own(&mut world);
    annotate(&mut world, DECLARE_OVER, &naming::incarnation("u2", 0));
    some_passes(&mut world);
    let list = world.overrides().ensemble;
    let is_new = |id: &String| !adopted.former_incarnations.contains(id) && *id != naming::incarnation("u2", 0);
    assert!(list.epoch > adopted.epoch && list.former_incarnations.iter().any(is_new), "{list:?}");
}

/// Its user tidies it up. The living servers are not its own any more, also if the user then declares anything over.
#[rstest]
#[case::whole(|_: &mut World| ())]
#[case::without_its_policy(|world: &mut World| world.observed.overrides = None)]
#[case::with_an_annotation_of_its_own_adoption(annotate_own)]
#[case::declared_over_since(|world: &mut World| annotate(world, DECLARE_OVER, &naming::incarnation("u2", 0)))]
fn the_end_of_an_object_whose_ensemble_another_control_plane_has_adopted_ends_no_server(
    #[case] happens: fn(&mut World),
) {
    let mut world = World::done(&json!({}));
    adopted_elsewhere(&mut world);
    world.observed.object.metadata.deletion_timestamp = Some(Time(world.now));
    happens(&mut world);
    let plan = world.plan();
    assert_eq!((plan.finalizer, &plan.overrides, &plan.tombstone), (Finalizer::Keep, &ObjectWrite::Leave, &None));
    world.write(&plan);
    let message = world.message("Progressing");
    assert!(message.contains("ends no server") && !message.contains("declare-over"), "{message}");
}

/// It lost its OverridePolicy alone: agents follow the last list that it wrote.
#[test]
fn a_control_plane_knows_its_own_list_by_its_status() {
    let mut world = World::done(&json!({}));
    annotate(&mut world, DECLARE_OVER, "abc123");
    world.settle();
    let list = world.overrides().ensemble;
    assert_eq!(list.former_incarnations, ["abc123"]);
    world.observed.object.metadata.annotations.as_mut().unwrap().remove(DECLARE_OVER);
    world.observed.overrides = None;
    world.settle();
    assert_eq!(world.condition("Ready"), "True Serving", "{}", world.message("Progressing"));
}

/// As a control plane has it that has adopted its ensemble itself.
fn annotate_own(world: &mut World) {
    let own = world.observed.object.status.clone().unwrap().ensemble.unwrap().incarnation;
    annotate(world, ADOPT, &own);
}

/// The control plane that has adopted an ensemble takes over what the returned one has written meanwhile, also without its
/// annotation. It stops if the user of that one continues the ensemble there.
#[test]
fn the_adopting_control_plane_keeps_the_ensemble() {
    let (mut world, former) = lost(&json!({}));
    annotate(&mut world, ADOPT, &former.id);
    world.settle();
    let adopted = world.overrides().ensemble;
    assert_eq!(world.condition("Ready"), "True Serving");
    let newer = |more: i64, former: &[String]| {
        let (epoch, former_incarnations) = (adopted.epoch.map(|epoch| epoch + more), former.to_vec());
        server_list::with_hash(Ensemble { epoch, former_incarnations, ..adopted.clone() }).unwrap()
    };
    let here = &adopted.former_incarnations;
    follow(&mut world, &newer(9, &[here.as_slice(), &["marked".to_owned()]].concat()));
    some_passes(&mut world);
    assert_eq!(
        (world.overrides().ensemble, world.condition("Ready").as_str()),
        (adopted.clone(), "False NewerServerList")
    );
    world.observed.object.metadata.annotations.as_mut().unwrap().remove(ADOPT);
    follow(&mut world, &newer(5, &[]));
    world.settle();
    let list = world.overrides().ensemble;
    assert!(list.epoch > newer(5, &[]).epoch && list.former_incarnations == *here, "{list:?}");
}

/// The copy is from before the incarnation that lives: agents follow another one, and by its list the one of the copy is over.
#[rstest]
#[case::of_another_object("abc123", true)]
#[case::of_another_list("abc123", false)]
fn a_restored_control_plane_moves_nothing_beside_a_later_incarnation(#[case] living: &str, #[case] is_over: bool) {
    let mut world = World::done(&json!({}));
    let own = world.overrides().ensemble;
    let id = own.incarnation.clone().unwrap();
    let former = if is_over { id.clone() } else { "fedcba".to_owned() };
    // Each incarnation counts its epochs from the first one.
    let (incarnation, epoch) = (Some(living.to_owned()), Some(1));
    let list = Ensemble { incarnation, epoch, former_incarnations: vec![former], hash: None, ..own };
    let text = serde_json::to_string(&list).unwrap().replace(&format!("zk-{id}"), &format!("zk-{living}"));
    let list = json!(server_list::with_hash(serde_json::from_str(&text).unwrap()).unwrap());
    world.report("m1")["ensemble"] = list.clone();
    world.image("zoo:2");
    (0..3).for_each(|_| drop(world.pass()));
    assert_eq!(world.condition("Progressing") == "False NewerServerList", is_over, "{}", world.message("Progressing"));
    assert_eq!(world.images().contains("zoo:2"), !is_over);
    if is_over {
        assert!(world.message("Progressing").contains("mczk adopt zk abc123"), "{}", world.message("Progressing"));
        annotate(&mut world, ADOPT, living);
        for cluster in ["m2", "m3"] {
            world.report(cluster)["ensemble"] = list.clone();
        }
        (0..6).for_each(|_| drop(world.pass()));
        let taken = world.overrides().ensemble;
        assert_eq!((taken.incarnation.as_deref(), taken.epoch, taken.servers.len()), (Some(living), Some(2), 5));
    }
}

/// The copy is from the bootstrap that a later one of the same object has replaced. A cluster may be lost with the control plane.
#[rstest]
#[case::all_report(&["m1", "m2", "m3"])]
#[case::one_is_lost(&["m1", "m2"])]
fn a_restored_control_plane_continues_the_later_incarnation_of_its_object(#[case] reporting: &[&str]) {
    let mut world = World::done(&json!({}));
    let list = world.overrides().ensemble;
    let uid = world.observed.object.metadata.uid.clone().unwrap();
    let [former, living] = [0, 1].map(|number| naming::incarnation(&uid, number));
    assert_eq!(list.incarnation.as_ref(), Some(&former));
    let of = |incarnation: &str, phase: EnsemblePhase, former: &[&String]| {
        let former_incarnations = former.iter().map(|id| (*id).clone()).collect();
        let incarnation = Some(incarnation.to_owned());
        server_list::with_hash(Ensemble { incarnation, phase, former_incarnations, hash: None, ..list.clone() })
            .unwrap()
    };
    let policy = world.observed.overrides.clone().unwrap();
    let text = serde_json::to_string(&*policy)
        .unwrap()
        .replace(&format!("{}", json!(list)), &format!("{}", json!(of(&former, EnsemblePhase::Bootstrapping, &[]))));
    world.observed.overrides =
        Some(serde_json::from_str::<mczk_api::karmada::policy::OverridePolicy>(&text).unwrap().into());
    world.observed.object.status = None;
    for cluster in reporting {
        world.report(cluster)["ensemble"] = json!(of(&living, EnsemblePhase::Running, &[&former]));
    }
    if !reporting.contains(&"m3") {
        world.unreachable(&["m3"]);
        (0..6).for_each(|_| drop(world.pass()));
        assert_eq!(world.overrides().ensemble.servers, []);
        assert!(world.message("Progressing").contains(ABANDON_CLUSTERS), "{}", world.message("Progressing"));
        annotate(&mut world, ABANDON_CLUSTERS, "m3");
    }
    (0..6).for_each(|_| drop(world.pass()));
    let taken = world.overrides().ensemble;
    assert_eq!(taken.incarnation.as_ref(), Some(&living), "{}", world.message("Progressing"));
    assert_eq!(taken.servers.len(), list.servers.len());
}

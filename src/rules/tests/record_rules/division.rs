//! The operator divides the voters.

use super::*;

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
    let message = "Karmada placed m1 3, m3 2 instead of m1 2, m2 1, m3 2. It does so because cluster m2 is not Ready in Karmada. The operator waits for it. To continue without it, remove it from spec.placement. Before the first server starts, check that no servers of this name run there";
    assert_eq!(world.message("Scheduled"), message);
    assert_eq!(plan.reschedule, None);
    world.run();
    assert_eq!(world.ids().iter().filter(|(_, cluster, _)| cluster == "m1").count(), 2);
    // Karmada moves nothing back by itself.
    world.unreachable(&[]);
    assert_eq!(world.pass().reschedule, Some(world.now));
    assert!(world.message("Scheduled").ends_with("The operator has asked Karmada to schedule again"));
    let taint = |effect: &str| {
        serde_json::from_value(json!([{ "key": "maintenance", "value": "now", "effect": effect }])).unwrap()
    };
    for (effect, named) in [("NoSchedule", true), ("NoExecute", false), ("PreferNoSchedule", false)] {
        let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
        m2.spec.taints = taint(effect);
        world.pass();
        let words = "Cluster m2 has the taint maintenance:NoSchedule: remove it, or tolerate it in spec.placement.clusterTolerations. The operator has asked";
        assert_eq!(world.message("Scheduled").contains(words), named, "{}", world.message("Scheduled"));
    }
    let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
    let served = std::mem::take(&mut m2.status.api_enablements);
    world.pass();
    let words = "Cluster m2 does not serve ZooKeeper and ServiceExport any more: run `mczk install`";
    assert!(world.message("Scheduled").contains(words), "{}", world.message("Scheduled"));
    let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
    m2.status.api_enablements = served;
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

/// An eviction is no change of the declaration: each selected cluster keeps its voters.
#[rstest]
#[case::by_the_operator(None, &[("m1", 2), ("m2", 2), ("m3", 1)], &[("m1", 3), ("m3", 2)], "m1 3, m3 2 instead of m1 2, m2 2, m3 1")]
#[case::duplicated(
    Some("Duplicated"), &[("m1", 1), ("m2", 1), ("m3", 1)], &[("m1", 1), ("m3", 1)], "m1 1, m3 1 instead of m1 1, m2 1, m3 1",
)]
fn an_evicted_cluster_keeps_its_voters(
    #[case] kind: Option<&str>,
    #[case] placed: &[(&str, i32)],
    #[case] left: &[(&str, i32)],
    #[case] expected: &str,
) {
    let mut placement = among("m1,m2,m3");
    if let Some(kind) = kind {
        placement["replicaScheduling"] = json!({ "replicaSchedulingType": kind });
    }
    let replicas = if kind.is_some() { 1 } else { 5 };
    let mut world = World::new(&json!({ "replicas": replicas, "placement": placement }));
    world.place(placed);
    world.settle();
    let ids = world.ids();
    world.place(left);
    binding(&mut world).spec.graceful_eviction_tasks = vec![GracefulEvictionTask { from_cluster: "m2".to_owned() }];
    world.pass();
    assert_eq!(world.condition("Scheduled"), "False OtherDivision");
    let message = format!(
        "Karmada placed {expected}. It does so because it is evicting cluster m2: see gracefulEvictionTasks of the \
         ResourceBinding. The operator asks Karmada to schedule again until the cluster is back"
    );
    assert_eq!(world.message("Scheduled"), message);
    // The eviction has ended, and Karmada moves nothing back by itself.
    world.run();
    assert_eq!(world.ids(), ids);
    world.wait(30);
    assert_eq!(world.pass().reschedule, Some(world.now));
    world.place(placed);
    world.settle();
    assert_eq!((world.condition("Scheduled").as_str(), world.ids()), ("True Placed", ids));
}

/// Clients there find no Service, and only this says so. The servers serve.
#[rstest]
#[case::a_mistyped_name("m44", |_: &mut World| (), Some("m44 (Karmada has no cluster of this name)"))]
#[case::unreachable("m4", |world: &mut World| world.unreachable(&["m4"]), Some("m4 (not Ready in Karmada)"))]
#[case::without_the_kind("m4", |world: &mut World| serves(world, "v1", "Service"), Some("m4 (it does not serve ServiceImport)"))]
#[case::with_the_newer_kind_alone("m4", |world: &mut World| serves(world, NEWER_MCS_API_VERSION, "ServiceImport"), Some("v1alpha1 beside v1beta1"))]
#[case::as_declared("m4", |world: &mut World| serves(world, MCS_API_VERSION, "ServiceImport"), None)]
fn a_cluster_that_gets_no_import_is_named(
    #[case] cluster: &str,
    #[case] happens: fn(&mut World),
    #[case] why: Option<&str>,
) {
    let mut world = World::new(&json!({ "network": { "mode": "MCS", "importClusters": [cluster] } }));
    world.settle();
    happens(&mut world);
    world.run();
    let expected = if why.is_some() { "True NotImported" } else { "False Healthy" };
    assert_eq!((world.condition("Degraded").as_str(), world.condition("Ready").as_str()), (expected, "True Serving"));
    assert!(why.is_none_or(|why| world.message("Degraded").contains(why)), "{}", world.message("Degraded"));
}

/// The override never reaches a server, and nothing else would say so.
#[rstest]
#[case::of_overrides("/overrides", json!([{ "cluster": "m22", "jvmFlags": ["-Xss1m"] }]), "m22 (spec.overrides)")]
#[case::of_the_order("/rollout", json!({ "order": "Listed", "clusters": ["m1", "m22"] }), "m22 (spec.rollout.clusters)")]
fn a_declared_cluster_that_does_not_exist_is_named(#[case] field: &str, #[case] value: Value, #[case] named: &str) {
    let mut world = World::new(&json!({}));
    world.edit(field, &value);
    world.settle();
    assert_eq!(
        (world.condition("Degraded").as_str(), world.condition("Ready").as_str()),
        ("True ClusterUnknown", "True Serving")
    );
    assert!(world.message("Degraded").contains(&format!(": {named}. ")), "{}", world.message("Degraded"));
}

/// Cluster m4 serves this kind alone.
fn serves(world: &mut World, group_version: &str, kind: &str) {
    let m4 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m4").unwrap();
    let enabled = json!([{ "groupVersion": group_version, "resources": [{ "kind": kind }] }]);
    m4.status.api_enablements = serde_json::from_value(enabled).unwrap();
}

/// The user names these clusters: a taint that moves replicas elsewhere takes no Service from their clients.
#[test]
fn taints_take_no_import_from_a_named_cluster() {
    let mut world = World::new(&json!({ "network": { "mode": "MCS", "importClusters": ["m4"] } }));
    world.settle();
    let (_, policy) = world.observed.services.iter().find(|(key, _)| key.ends_with(".import")).unwrap();
    let effects: Vec<_> = policy["spec"]["placement"]["clusterTolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|toleration| toleration["effect"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(effects, ["NoExecute", "NoSchedule"]);
}

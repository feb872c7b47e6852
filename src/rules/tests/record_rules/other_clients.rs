//! What other clients do to owned objects.

use super::*;

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
    let mut world = World::declared(&json!({}));
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
    let mut world = World::declared(&json!({}));
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
        message.contains("in cluster m2 (3.9.3, ZOOKEEPER-4925). Upgrade spec.template.image to 3.9.5"),
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

/// Its last report is all that is known. A certificate does not wait until the cluster is reached again.
#[test]
fn a_certificate_expires_although_karmada_does_not_reach_its_cluster() {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m2"]);
    world.pass();
    assert_eq!(world.condition("CertificatesExpire"), "False CertificatesValid");
    let message = world.message("CertificatesExpire");
    assert_eq!(
        message,
        "No certificate of the ensemble expires soon, by the last report of m2, which may be out of date"
    );
    world.report("m2")["conditions"] = json!([{
        "type": "CertificatesExpire", "status": "True", "reason": "ClientCertificateExpires",
        "message": "The certificate for clients in Secret zk-tls expires on 2026-12-01 00:00 UTC",
        "lastTransitionTime": "2026-11-21T08:00:00Z",
    }]);
    world.pass();
    assert_eq!(world.condition("CertificatesExpire"), "True ClientCertificateExpires");
    assert!(world.message("CertificatesExpire").starts_with("m2: The certificate for clients"));
    // Another cluster has the name now: the report is of servers that may exist no longer.
    world.unreachable(&[]);
    world.report("m2")["clusterId"] = json!("former");
    let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
    m2.spec.id = "new".to_owned();
    world.pass();
    assert_eq!(world.condition("CertificatesExpire"), "False CertificatesValid");
}

/// C4.
#[test]
fn versions_without_a_run_are_named_and_are_not_unsafe() {
    let mut world = World::done(&json!({}));
    for (version, expected) in [("v1.35.3", "False Tested"), ("v1.22.1", "True NotTested")] {
        let m2 = world.observed.clusters.iter_mut().find(|cluster| cluster.name() == "m2").unwrap();
        m2.status.kubernetes_version = version.to_owned();
        world.pass();
        assert_eq!(
            [world.condition("UntestedVersion"), world.condition("UnsafeVersion")],
            [expected, "False NoKnownLoss"]
        );
    }
    world.report("m2")["servers"][1]["version"] = json!("3.9.2");
    world.pass();
    assert_eq!(world.condition("UnsafeVersion"), "False NoKnownLoss");
    let message = world.message("UntestedVersion");
    for words in [
        "Kubernetes v1.22.1 in m2",
        "ZooKeeper 3.9.2 in m2",
        "tested with ZooKeeper 3.9.4, 3.9.5 and Kubernetes 1.34, 1.35",
    ] {
        assert!(message.contains(words), "{message}");
    }
}

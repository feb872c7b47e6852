//! An unsettled schedule.

use super::*;

#[rstest]
#[case::no_binding("NoBinding", |w: &mut World| w.observed.binding = None)]
#[case::other_kind("ForeignBinding", |w: &mut World| binding(w).spec.resource.kind = "Deployment".into())]
#[case::other_uid("ForeignBinding", |w: &mut World| binding(w).spec.resource.uid = Some("t0".into()))]
#[case::no_uid("ForeignBinding", |w: &mut World| w.edit_template(|t| t.metadata.uid = None))]
#[case::no_policy("OtherPolicy", |w: &mut World| binding(w).metadata.annotations = None)]
#[case::other_policy("OtherPolicy", |w: &mut World| {
    let annotations = binding(w).metadata.annotations.as_mut().unwrap();
    annotations.insert("propagationpolicy.karmada.io/name".into(), "theirs".into());
})]
#[case::no_requirements("NotInterpreted", |w: &mut World| binding(w).spec.replica_requirements = None)]
#[case::no_replicas("NotInterpreted", |w: &mut World| binding(w).spec.replicas = None)]
#[case::zero_replicas("NotInterpreted", |w: &mut World| binding(w).spec.replicas = Some(0))]
#[case::other_replicas("Rescheduling", |w: &mut World| binding(w).spec.replicas = Some(3))]
#[case::other_placement("Rescheduling", |w: &mut World| binding(w).spec.placement = Some(json!({})))]
#[case::no_placement("Rescheduling", |w: &mut World| binding(w).spec.placement = None)]
#[case::excluded_in_the_binding("Rescheduling", |w: &mut World| {
    binding(w).spec.placement.as_mut().unwrap()["clusterAffinity"]["exclude"] = json!(["m1"]);
})]
#[case::excluded_in_the_policy("Rescheduling", |w: &mut World| {
    let mut policy = w.observed.policy.as_deref().unwrap().clone();
    policy.spec.placement.cluster_affinity.as_mut().unwrap().exclude_clusters = vec!["m1".to_owned()];
    w.observed.policy = Some(policy.into());
})]
#[case::spread_in_the_policy("Rescheduling", |w: &mut World| {
    let mut policy = w.observed.policy.as_deref().unwrap().clone();
    policy.spec.placement.spread_constraints = Some(vec![json!({ "spreadByField": "cluster", "maxGroups": 2 })]);
    w.observed.policy = Some(policy.into());
})]
#[case::scheduler_refuses("NotScheduled", |w: &mut World| {
    let condition = json!({ "type": "Scheduled", "status": "False", "reason": "NoFit", "message": "0/4 clusters" });
    binding(w).status.conditions = vec![serde_json::from_value(condition).unwrap()];
})]
#[case::scheduler_is_behind("Rescheduling", |w: &mut World| binding(w).metadata.generation = Some(2))]
#[case::never_scheduled("Rescheduling", |w: &mut World| binding(w).status.last_scheduled_time = None)]
#[case::no_cluster("Rescheduling", |w: &mut World| binding(w).spec.clusters.clear())]
#[case::all_zero("Rescheduling", |w: &mut World| {
    binding(w).spec.clusters.iter_mut().for_each(|c| c.replicas = 0);
})]
#[case::sum_too_low("Rescheduling", |w: &mut World| binding(w).spec.clusters[0].replicas = 1)]
#[case::sum_too_high("Rescheduling", |w: &mut World| binding(w).spec.clusters[0].replicas = 3)]
fn an_unsettled_binding_changes_nothing(#[case] reason: &str, #[case] unsettle: impl Fn(&mut World)) {
    let mut world = World::done(&json!({}));
    let before = (world.overrides(), world.records());
    let whole = world.observed.clone();
    unsettle(&mut world);
    let plan = world.plan();
    let ObjectWrite::Apply(overrides) = plan.overrides else { panic!("the policy stays") };
    assert_eq!(override_rules::read(&overrides.spec), before.0);
    assert_eq!(plan.status.records, before.1);
    let scheduled = plan.status.conditions.iter().find(|c| c.type_ == "Scheduled").unwrap();
    assert_eq!((scheduled.status.as_str(), scheduled.reason.as_str()), ("False", reason), "{}", scheduled.message);
    // Nothing has changed when the binding is settled again.
    world.observed = whole;
    world.pass();
    assert_eq!((world.overrides(), world.records()), before);
}

/// Karmada's webhook denies the scheduler's own write, so the scheduler has observed no newer binding.
#[test]
fn a_quota_that_refuses_the_schedule_is_named() {
    let mut world = World::done(&json!({}));
    let message = "FederatedResourceQuota(ns/team) exceeded for resource cpu: requested sum 5, limit 3.";
    let condition = json!({ "type": "Scheduled", "status": "False", "reason": "QuotaExceeded", "message": message });
    let binding = binding(&mut world);
    binding.status.conditions = vec![serde_json::from_value(condition).unwrap()];
    binding.metadata.generation = Some(2);
    world.pass();
    assert_eq!(world.condition("Scheduled"), "False NotScheduled");
    let said = world.message("Scheduled");
    assert!(said.contains(message) && said.contains("the FederatedResourceQuota named"), "{said}");
}

/// Karmada's scheduler passes over such a binding, and sets no condition.
#[rstest]
#[case::scheduling(json!({ "scheduling": true }), Some("spec.suspension.scheduling of"))]
#[case::dispatching(json!({ "dispatching": true }), Some("spec.suspension.dispatching of"))]
#[case::of_some_clusters(json!({ "dispatchingOnClusters": { "clusterNames": ["m1"] } }), None)]
#[case::nothing(json!({ "scheduling": false, "dispatchingOnClusters": {} }), None)]
fn a_binding_that_another_client_holds_back_is_named(#[case] suspension: Value, #[case] why: Option<&str>) {
    let mut world = World::done(&json!({}));
    let binding = binding(&mut world);
    binding.spec.suspension = serde_json::from_value(suspension).unwrap();
    binding.metadata.generation = Some(binding.metadata.generation.unwrap_or_default() + i64::from(why.is_some()));
    world.pass();
    let expected = if why.is_some() { "False NotScheduled" } else { "True Placed" };
    assert_eq!(world.condition("Scheduled"), expected);
    assert!(why.is_none_or(|why| world.message("Scheduled").contains(why)), "{}", world.message("Scheduled"));
}

/// The other clusters change meanwhile, so the schedule counts.
#[test]
fn clusters_that_another_client_holds_back_are_named() {
    let mut world = World::done(&json!({}));
    let suspension = json!({ "dispatchingOnClusters": { "clusterNames": ["m1", "m3"] } });
    binding(&mut world).spec.suspension = serde_json::from_value(suspension).unwrap();
    world.pass();
    assert_eq!(
        (world.condition("Degraded").as_str(), world.condition("Ready").as_str()),
        ("True HeldBack", "True Serving")
    );
    assert!(world.message("Degraded").contains("to: m1, m3. "), "{}", world.message("Degraded"));
}

#[test]
fn a_first_deployment_waits_for_a_settled_binding() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.observed.binding.as_mut().unwrap().spec.clusters[0].replicas = 0;
    let plan = world.plan();
    assert!(plan.status.records.is_empty());
}

#[test]
fn duplicated_places_all_replicas_in_each_cluster() {
    let mut world = World::new(&json!({
        "replicas": 1, "placement": {
            "clusterAffinity": { "exclude": ["m4"] }, "replicaScheduling": { "replicaSchedulingType": "Duplicated" }
        }
    }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    assert_eq!(world.ids().len(), 3);
}

//! Nothing to do.

use super::*;

#[rstest]
#[case::plain(json!({}))]
#[case::much(json!({
    "observers": [{ "cluster": "m1", "count": 1 }],
    "network": { "mode": "Flat", "clusterDomain": "{clusterId}.local", "importClusters": ["m4"] },
    "overrides": [{ "cluster": "m2", "image": "zoo:other" }],
    "rollout": { "holdSeconds": 20 }
}))]
fn a_done_record_writes_nothing(#[case] more: Value) {
    let mut world = World::new(&more);
    world.run();
    let (observed, plan) = (world.observed.clone(), world.plan());
    assert_eq!(Some(&plan.status), observed.object.status.as_ref());
    assert_eq!(Some(plan.overrides), observed.overrides.as_deref().cloned().map(ObjectWrite::Apply));
    assert_eq!(Some(plan.policy), observed.policy.as_deref().cloned().map(ObjectWrite::Apply));
    let ObjectWrite::Apply(template) = plan.template else { panic!("a template") };
    let live = observed.template.clone().unwrap();
    assert_eq!(template.spec, live.spec);
    assert_eq!(template.metadata.annotations, live.metadata.annotations);
    assert_eq!(template.metadata.labels, live.metadata.labels);
    assert!(plan.events.is_empty(), "{:?}", plan.events);
    for (key, desired) in plan.services {
        assert_eq!(Some(desired), observed.services.get(&key).cloned().map(ObjectWrite::Apply), "{key}");
    }
    world.wait(1_000_000);
    let later = world.plan();
    assert_eq!(Some(&later.status), observed.object.status.as_ref(), "time alone changes nothing");
}

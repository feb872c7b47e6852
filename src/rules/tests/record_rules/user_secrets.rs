//! Secrets of users.

use super::*;

/// S6 for Secrets: a server that the record has not reached can restart unchanged.
#[test]
fn a_secret_travels_until_no_cluster_spec_names_it() {
    let tls = |secret: &str| json!({ "quorum": false, "client": { "mode": "Optional", "secretName": secret } });
    let mut world = World::done(&json!({ "tls": tls("old") }));
    let travels = |world: &World| -> Vec<String> {
        let template = world.observed.template.as_ref().unwrap();
        template.spec.dependencies.iter().map(|dependency| dependency.name.clone()).collect()
    };
    world.edit("/template/imagePullSecrets", &json!(["registry"]));
    world.settle();
    assert_eq!(travels(&world), ["old", "registry"]);
    world.edit("/tls", &tls("new"));
    world.edit("/template/imagePullSecrets", &json!([]));
    let mut began = false;
    for _ in 0..30 {
        world.tick();
        let cluster_specs = world.overrides().cluster_specs;
        let names = |spec: &ZooKeeperSpec| spec.tls.client.as_ref().map(|client| client.secret_name.clone());
        let needed: BTreeSet<_> = cluster_specs.values().filter_map(names).collect();
        assert!(needed.iter().all(|name| travels(&world).contains(name)), "{needed:?} of {:?}", travels(&world));
        began |= needed.len() == 2;
        assert!(needed.len() < 2 || travels(&world).contains(&"registry".to_owned()));
    }
    assert!(began, "the clusters get it one after the other");
    let (records, cluster_specs) = (world.records().len(), world.overrides().cluster_specs);
    world.settle();
    assert_eq!(travels(&world), ["new"]);
    assert_eq!(
        (world.records().len(), world.overrides().cluster_specs),
        (records, cluster_specs),
        "its removal changes no cluster"
    );
}

/// The removal of a Secret that no pod needs is no change by the user.
#[test]
fn an_unused_secret_supersedes_no_stuck_record() {
    let tls = |secret: &str| json!({ "quorum": false, "client": { "mode": "Optional", "secretName": secret } });
    let mut world = World::done(&json!({ "tls": tls("old") }));
    world.edit("/tls", &tls("new"));
    world.stopped_agents.insert("m3".to_owned());
    for _ in 0..30 {
        world.tick();
    }
    assert_eq!(world.state(), "Deploying |m3|m1,m2");
    world.wait(100_000);
    assert_eq!(passes(&mut world, 3), ["Deploying |m3|m1,m2"; 3]);
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
    assert_eq!(world.records().len(), 2);
    world.stopped_agents.clear();
    world.settle();
    let travels = world.observed.template.as_ref().unwrap().spec.dependencies.clone();
    assert_eq!(travels.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["new"]);
    assert_eq!(world.records().len(), 2);
}

#[test]
fn refused_client_certificates_degrade_a_serving_ensemble() {
    let mut world = World::done(&json!({}));
    world.report("m2")["conditions"] = json!([{
        "type": "ClientCertificatesKept", "status": "True", "reason": "SecretNotTaken", "message": "Secret s is not here",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    world.pass();
    assert_eq!(world.condition("Degraded"), "True ClientCertificates");
    assert_eq!(world.condition("Ready"), "True Serving");
}

//! Certificates of the quorum.

use super::*;

#[test]
fn certificates_exist_before_the_template_that_names_them() {
    let mut world = World::declared(&json!({}));
    world.observed.certificates.clear();
    for made in ["authority", "trust", "identity"] {
        let plan = world.pass();
        assert_eq!(plan.certificate.unwrap().holds.word(), made);
        assert!(world.observed.template.is_none() && plan.requeue_after.is_some());
        assert_eq!(world.condition("Progressing"), "False Certificates");
    }
    world.settle();
    let tls = world.overrides().ensemble.tls.unwrap();
    let template = world.observed.template.as_ref().unwrap();
    let travels: Vec<_> = template.spec.dependencies.iter().map(|d| d.name.clone()).collect();
    assert_eq!(travels, [tls.identity, tls.trust[0].clone()]);
}

#[test]
fn without_tls_there_are_no_certificates() {
    let mut world = World::new(&json!({ "tls": { "quorum": false } }));
    assert!(world.observed.certificates.is_empty());
    world.settle();
    assert_eq!((world.overrides().ensemble.tls, world.observed.certificates.len()), (None, 0));
}

/// A renewed identity travels first. Then the server list names it, and the old one no longer travels.
#[test]
fn a_renewed_identity_comes_with_the_list_and_restarts_nothing() {
    let mut world = World::done(&json!({}));
    let cluster_specs = world.overrides().cluster_specs;
    let old = world.overrides().ensemble;
    for secret in world.observed.certificates.iter_mut().filter(|c| c.holds == Holds::Identity) {
        secret.not_after = world.now + IDENTITY_LIFE / 4;
    }
    let mut travelled = BTreeSet::new();
    for _ in 0..30 {
        world.tick();
        let tls = world.overrides().ensemble.tls.unwrap();
        let travels = world.observed.template.as_ref().unwrap().spec.dependencies.clone();
        assert!(certificates::travels(&tls, &travels), "the list names certificates that travel");
        travelled.insert(travels.len());
    }
    world.settle();
    let new = world.overrides().ensemble;
    assert!(new.epoch > old.epoch && new.servers == old.servers);
    assert!(new.tls.as_ref().unwrap().identity.ends_with("-identity-2"), "{:?}", new.tls);
    assert_eq!(travelled, BTreeSet::from([2, 3]), "both identities travel for a while");
    assert_eq!(world.observed.template.as_ref().unwrap().spec.dependencies.len(), 2);
    assert_eq!(world.overrides().cluster_specs, cluster_specs, "no server restarts");
    assert_eq!(world.pass().certificate, None);
}

/// Nothing else that is wrong hides it.
#[test]
fn a_private_key_that_travels_is_named_beside_other_trouble() {
    let mut world = World::done(&json!({}));
    world.observed.certificates.iter_mut().for_each(|secret| secret.propagated_by = Some("all-secrets".to_owned()));
    world
        .observed
        .clusters
        .iter_mut()
        .filter(|cluster| cluster.name() == "m1")
        .for_each(|m1| m1.status.conditions.clear());
    world.pass();
    assert_eq!(world.condition("Degraded"), "True ClusterUnreachable");
    let message = world.message("Degraded");
    assert!(message.contains("m1") && message.contains("by policy all-secrets"), "{message}");
}

/// Whatever carried the key, only another authority ends it. The former one is not trusted any more then.
#[rstest]
#[case::of_the_authority(Holds::Authority, true)]
#[case::of_an_identity(Holds::Identity, true)]
#[case::a_trust_has_no_key(Holds::Trust, false)]
fn a_private_key_that_a_policy_carries_degrades(#[case] holds: Holds, #[case] degrades: bool) {
    let mut world = World::done(&json!({}));
    for secret in world.observed.certificates.iter_mut().filter(|secret| secret.holds == holds) {
        secret.propagated_by = Some("all-secrets".to_owned());
    }
    world.pass();
    assert_eq!(world.condition("Degraded") == "True KeyPropagated", degrades, "{}", world.condition("Degraded"));
    if degrades {
        let message = world.message("Degraded");
        let words = format!("-{}-1 by policy all-secrets", holds.word());
        assert!(
            message.contains(&words) && message.contains("annotate mczk zk mczk.io/replace-authority="),
            "{message}"
        );
        let request = ("mczk.io/replace-authority".to_owned(), "leaked".to_owned());
        world.observed.object.metadata.annotations.get_or_insert_default().extend([request]);
        world.settle();
        assert_eq!(world.condition("Degraded"), "False Healthy");
    }
}

/// The list moves on without a cluster that is away, and the cluster follows when it is back.
#[test]
fn a_cluster_that_was_away_longer_than_the_validity_comes_back_by_itself() {
    let mut world = World::done(&json!({}));
    let cluster_specs = world.overrides().cluster_specs;
    world.unreachable(&["m3"]);
    for secret in world.observed.certificates.iter_mut().filter(|c| c.holds == Holds::Identity) {
        secret.not_after = world.now - IDENTITY_LIFE;
    }
    for _ in 0..10 {
        world.tick();
    }
    let identity = world.overrides().ensemble.tls.unwrap().identity;
    assert!(identity.ends_with("-identity-2"), "{identity}");
    assert_ne!(world.report("m3")["ensembleTls"]["identity"], identity);
    assert_eq!(world.condition("CertificatesExpire"), "True QuorumCertificateExpires");
    let message = world.message("CertificatesExpire");
    assert!(message.contains("-identity-1 has expired") && message.contains("clusters m3 use it"), "{message}");
    world.unreachable(&[]);
    world.settle();
    assert_eq!(world.report("m3")["ensembleTls"]["identity"], identity);
    assert_eq!(world.condition("CertificatesExpire"), "False CertificatesValid");
    assert_eq!(world.overrides().cluster_specs, cluster_specs, "no server restarts");
}

/// Three server lists replace an authority. Each follows when every cluster has loaded the certificates of the one before.
#[test]
fn an_authority_is_replaced_in_three_steps() {
    let mut world = World::done(&json!({}));
    let (cluster_specs, mut steps) = (world.overrides().cluster_specs, Vec::new());
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REPLACE_AUTHORITY.to_owned(), "now".to_owned());
    for tick in 0..60 {
        world.tick();
        if tick == 8 {
            assert_eq!(world.condition("Progressing"), "True ReplacingAuthority", "m2 has not loaded it");
        }
        if tick < 10 {
            world.report("m2").as_object_mut().unwrap().remove("ensembleTls");
        }
        let tls = world.overrides().ensemble.tls.unwrap();
        let number = |name: &String| name.rsplit_once('-').unwrap().1.to_owned();
        let step = (number(&tls.identity), tls.trust.iter().map(number).collect::<Vec<_>>().join("+"));
        if steps.last() != Some(&step) {
            assert!(tick >= 10 || steps.len() < 2, "{steps:?}: not before m2 has loaded it");
            steps.push(step);
        }
    }
    let expected = [("1", "1"), ("1", "1+2"), ("2", "1+2"), ("2", "2")];
    assert_eq!(steps, expected.map(|(identity, trust)| (identity.to_owned(), trust.to_owned())));
    assert_eq!(world.overrides().cluster_specs, cluster_specs, "no server restarts");
    let authorities = world.observed.certificates.iter().filter(|c| c.holds == Holds::Authority).count();
    assert_eq!((authorities, world.condition("Progressing").as_str()), (2, "False Done"));
    assert_eq!(world.pass().certificate, None);
}

/// Karmada takes a creation that timed out for a success (chaos, seed 10): the operator has it apply the Secret again.
#[test]
fn a_secret_that_a_cluster_misses_is_applied_again() {
    let mut world = World::done(&json!({}));
    let key = "OverridePolicy/mczk-zk.missing";
    let missing = world.overrides().ensemble.tls.unwrap().identity;
    world.report("m2").as_object_mut().unwrap().insert("missingSecrets".to_owned(), json!([missing]));
    let policy = |world: &mut World| match world.pass().services.remove(key) {
        Some(ObjectWrite::Apply(policy)) => Some(policy),
        _ => None,
    };
    let first = policy(&mut world).expect("the Secret is missing");
    assert_eq!(first.pointer("/spec/resourceSelectors/0/name"), Some(&json!(missing)));
    assert_eq!(first.pointer("/spec/overrideRules/0/targetCluster/clusterNames"), Some(&json!(["m2"])));
    assert!(world.pass().requeue_after.is_some_and(|after| after.as_secs() <= 60));
    assert_eq!(world.condition("Degraded"), "True CertificatesMissing");
    let words = [missing.as_str(), "not reached cluster m2", "--namespace karmada-es-m2 get works"];
    assert!(words.iter().all(|words| world.message("Degraded").contains(words)), "{}", world.message("Degraded"));
    assert_eq!(world.condition("Ready"), "True Serving");
    world.report("m2").as_object_mut().unwrap().remove("missingSecrets");
    assert_eq!(policy(&mut world), None);
    assert_eq!(world.condition("Degraded"), "False Healthy");
}

/// Deleted Secrets change nothing that runs.
#[test]
fn certificates_in_use_stay_when_their_secrets_are_deleted() {
    let mut world = World::done(&json!({}));
    let before = (world.overrides(), world.observed.template.clone());
    world.observed.certificates.retain(|c| c.holds == Holds::Authority);
    for _ in 0..5 {
        world.tick();
    }
    world.settle();
    let tls = world.overrides().ensemble.tls.unwrap();
    assert!(tls.identity.ends_with("-identity-2"), "a name never gets other content: {tls:?}");
    assert_eq!(world.overrides().cluster_specs, before.0.cluster_specs);
    world.observed.certificates.clear();
    let before = (world.overrides(), world.observed.template.clone());
    world.settle();
    assert_eq!((world.overrides().ensemble, world.observed.template.clone()), (before.0.ensemble, before.1));
    assert_eq!(world.pass().certificate, None, "no server would trust another authority");
}

/// Certificates move no voter, and may bring the quorum back.
#[test]
fn renewed_certificates_need_no_quorum() {
    let mut world = World::done(&json!({}));
    for secret in world.observed.certificates.iter_mut().filter(|c| c.holds == Holds::Identity) {
        secret.not_after = world.now + IDENTITY_LIFE / 4;
    }
    for _ in 0..10 {
        world.pass();
        for cluster in ["m1", "m2", "m3"] {
            let report = world.report(cluster);
            report["writable"] = json!(false);
            report["votingMembers"] = json!([]);
            report["servers"].as_array_mut().unwrap().iter_mut().for_each(|s| s["serving"] = json!(false));
        }
    }
    assert!(world.overrides().ensemble.tls.unwrap().identity.ends_with("-identity-2"));
}

#[test]
fn the_first_server_list_waits_for_its_certificates() {
    let mut world = World::new(&json!({}));
    world.pass();
    world.observed.certificates.retain(|c| c.holds == Holds::Authority);
    let identity = |world: &World| world.overrides().ensemble.tls.map(|tls| tls.identity);
    for _ in 0..3 {
        world.tick();
        assert!(world.observed.overrides.is_none() || world.overrides().ensemble.servers.is_empty());
    }
    world.settle();
    assert!(identity(&world).is_some());
}

/// Agents have accepted a newer server list than the restored one. The status knows it, and two lists must not share an epoch.
#[test]
fn a_restored_older_policy_gets_the_newest_list_again() {
    let mut world = World::done(&json!({}));
    let older = world.observed.overrides.clone();
    world.edit("/replicas", &json!(3));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    let newest = world.overrides().ensemble;
    world.observed.overrides = older;
    assert!(world.overrides().ensemble.epoch < newest.epoch);
    world.pass();
    assert_eq!(world.overrides().ensemble, newest);
    world.settle();
    assert_eq!(world.overrides().ensemble.servers.len(), 3);
    // Of two lists of one epoch neither stays.
    let mut other = world.overrides().ensemble;
    let known = other.epoch;
    other.highest_id = Some(200);
    let other = server_list::with_hash(other).unwrap();
    world.report("m1")["ensemble"] = serde_json::to_value(other).unwrap();
    world.pass();
    assert!(world.overrides().ensemble.epoch > known);
}

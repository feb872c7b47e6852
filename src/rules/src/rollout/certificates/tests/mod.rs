use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::json;

use super::{state::number, *};
use crate::{
    fixtures::multi_cluster_zookeeper,
    rollout::{objects, report::ClusterReport},
};
use mczk_api::{
    contract::{
        certificate_names::former,
        labels::{CERTIFICATE, INCARNATION_LABEL, NOT_AFTER},
    },
    multiclusterzookeeper::EnsembleStatus,
    zookeeper::Ensemble,
};

mod search;

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(day * 86_400).unwrap()
}

fn have(holds: Holds, number: u32, until: i64) -> Certificate {
    let name = format!("zk-abc-{}-{number}", holds.word());
    let authority = if holds == Holds::Identity { 1 } else { number };
    Certificate {
        incarnation: "abc".into(),
        holds,
        number,
        authority,
        name,
        not_after: day(until),
        requested: None,
        propagated_by: None,
    }
}

/// The decision before the first quorum, without any cluster.
fn before_quorum(incarnation: &str, used: Option<&EnsembleTls>, observed: &[Certificate], now: Timestamp) -> Decision {
    let loaded = BTreeMap::new();
    let inputs = CertificateInputs {
        adopted: false,
        ensemble: "zk",
        incarnation,
        used,
        observed,
        requested: None,
        formed: false,
        loaded: &loaded,
    };
    decide(&inputs, now)
}

#[rstest]
#[case::nothing(&[], Some("zk-abc-authority-1"), false)]
#[case::an_authority(&[have(Holds::Authority, 1, 3650)], Some("zk-abc-trust-1"), false)]
#[case::an_authority_that_ended(&[have(Holds::Authority, 1, 0)], Some("zk-abc-authority-2"), false)]
#[case::trust(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650)], Some("zk-abc-identity-1"), false)]
#[case::all(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], None, true)]
#[case::due(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 121)], Some("zk-abc-identity-2"), true)]
#[case::renewed(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 121), have(Holds::Identity, 2, 365)], None, true)]
#[case::no_longer_than_its_authority(&[have(Holds::Authority, 1, 100), have(Holds::Trust, 1, 100), have(Holds::Identity, 1, 100)], None, true)]
#[case::trust_deleted(&[have(Holds::Authority, 1, 3650), have(Holds::Identity, 1, 365)], Some("zk-abc-trust-1"), false)]
#[case::identity_deleted_after_its_renewal(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 200)], None, true)]
#[case::authority_deleted(&[have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 10)], None, true)]
fn the_next_secret_depends_on_those_that_exist(
    #[case] observed: &[Certificate],
    #[case] made: Option<&str>,
    #[case] used: bool,
) {
    let decision = before_quorum("abc", None, observed, day(1));
    assert_eq!(decision.make.map(|make| make.name).as_deref(), made);
    assert_eq!(decision.tls.is_some(), used);
    let other = before_quorum("def", None, observed, day(1));
    assert_eq!(
        (other.tls, other.make.map(|m| m.name)),
        (None, Some("zk-def-authority-1".into())),
        "another incarnation"
    );
}

#[test]
fn every_secret_is_signed_by_one_that_exists() {
    let mut observed = Vec::new();
    while let Some(make) = before_quorum("abc", None, &observed, day(1)).make {
        assert!(make.authority.as_ref().is_none_or(|(_, a)| observed.iter().any(|s: &Certificate| s.name == *a)));
        observed.push(make.made(day(365)));
    }
    let tls = before_quorum("abc", None, &observed, day(1)).tls.unwrap();
    assert_eq!((tls.identity.as_str(), &tls.trust), ("zk-abc-identity-1", &vec!["zk-abc-trust-1".to_owned()]));
    observed.retain(|secret| secret.holds != Holds::Identity);
    let again = before_quorum("abc", Some(&tls), &observed, day(1));
    assert_eq!(again.make.unwrap().name, "zk-abc-identity-2", "a name never gets another content");
    observed.push(have(Holds::Identity, 1, 365));
    let used = EnsembleTls { identity: "zk-abc-identity-3".to_owned(), ..tls };
    let older = before_quorum("abc", Some(&used), &observed, day(1));
    assert_eq!(older.tls, None, "the observed Secrets are older than the ones in use");
    assert_eq!(older.make.unwrap().name, "zk-abc-identity-5", "number 4 may have been made after a backup");
}

#[test]
fn karmada_propagates_both_identities_until_the_new_one_is_in_use() {
    let tls = |number: u32| EnsembleTls { identity: format!("i{number}"), trust: vec!["t1".into()] };
    let all = dependencies(Some(&tls(1)), Some(&tls(2)));
    assert!(travels(&tls(1), &all) && travels(&tls(2), &all) && !travels(&tls(3), &all));
}

#[test]
fn only_owned_secrets_are_read() {
    let object = multi_cluster_zookeeper(json!({}));
    let mut meta = objects::metadata(&object, "zk-abc-trust-3".into(), None);
    assert_eq!(Certificate::read(&meta, &object), None);
    meta.labels.as_mut().unwrap().insert(INCARNATION_LABEL.into(), "abc".into());
    let annotations = [(CERTIFICATE, "trust/3"), (NOT_AFTER, "1970-01-11T00:00:00Z")];
    meta.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    assert_eq!(Certificate::read(&meta, &object), Some(have(Holds::Trust, 3, 10)));
    meta.owner_references = None;
    assert_eq!(Certificate::read(&meta, &object), None);
}

#[test]
fn a_created_secret_is_read_back() {
    let object = multi_cluster_zookeeper(json!({}));
    for (holds, authority, requested) in
        [(Holds::Authority, None, Some("now")), (Holds::Identity, Some((2, "zk-abc-authority-2".to_owned())), None)]
    {
        let name = format!("zk-abc-{}-3", holds.word());
        let requested = requested.map(str::to_owned);
        let make = Make { incarnation: "abc".into(), holds, number: 3, name, authority, requested };
        let mut meta = objects::metadata(&object, make.name.clone(), None);
        meta.labels.as_mut().unwrap().insert(INCARNATION_LABEL.into(), "abc".into());
        meta.annotations = Some(make.annotations(day(10)));
        assert_eq!(Certificate::read(&meta, &object), Some(make.made(day(10))));
    }
}

#[rstest]
#[case::first("zk-abc-identity-1", &["zk-abc-trust-1"], &[])]
#[case::renewed("zk-abc-identity-3", &["zk-abc-trust-1"], &["zk-abc-identity-2", "zk-abc-identity-1"])]
#[case::both("zk-abc-identity-2", &["zk-abc-trust-1", "zk-abc-trust-2"], &["zk-abc-identity-1"])]
#[case::replaced("zk-abc-identity-2", &["zk-abc-trust-2"], &["zk-abc-identity-1", "zk-abc-trust-1"])]
#[case::after_years(
    "zk-abc-identity-9", &["zk-abc-trust-3"],
    &["zk-abc-identity-8", "zk-abc-identity-7", "zk-abc-identity-6", "zk-abc-trust-2", "zk-abc-trust-1"]
)]
#[case::not_ours("identity", &["trust"], &[])]
fn former_secrets_are_listed_newest_first(#[case] identity: &str, #[case] trust: &[&str], #[case] expected: &[&str]) {
    let trust = trust.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(former(&EnsembleTls { identity: identity.to_owned(), trust }, 3), expected);
}

fn tls(identity: u32, trust: &[u32]) -> EnsembleTls {
    EnsembleTls {
        identity: format!("zk-abc-identity-{identity}"),
        trust: trust.iter().map(|n| format!("zk-abc-trust-{n}")).collect(),
    }
}

#[test]
fn the_newest_server_list_counts() {
    let list =
        |epoch: i64, tls: &EnsembleTls| Ensemble { epoch: Some(epoch), tls: Some(tls.clone()), ..Ensemble::default() };
    let (old, new) = (list(3, &tls(1, &[1])), list(5, &tls(2, &[2])));
    let none = Ensemble::default();
    assert_eq!(newest(&old, Some(&new), None), new.tls.as_ref(), "an older OverridePolicy was restored");
    assert_eq!(newest(&new, Some(&old), None), new.tls.as_ref());
    let recorded =
        EnsembleStatus { incarnation: "abc".into(), epoch: 6, tls: old.tls.clone(), ..EnsembleStatus::default() };
    assert_eq!(newest(&none, None, Some(&recorded)), old.tls.as_ref());
    assert_eq!(newest(&new, Some(&old), Some(&recorded)), old.tls.as_ref());
    assert_eq!(newest(&none, None, None), None);
}

/// The causes of a new authority, once a quorum has formed.
#[rstest]
#[case::nothing(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], None, true, None)]
#[case::requested(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], Some("a"), true, Some("zk-abc-authority-2"))]
#[case::requested_before_the_first_quorum(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], Some("a"), false, None)]
#[case::requested_at_creation(&[Certificate { requested: Some("a".into()), ..have(Holds::Authority, 1, 3650) }, have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], Some("a"), true, None)]
#[case::its_last_third(&[have(Holds::Authority, 1, 1200), have(Holds::Trust, 1, 1200), have(Holds::Identity, 1, 365)], None, true, Some("zk-abc-authority-2"))]
#[case::ended(&[have(Holds::Authority, 1, 0), have(Holds::Trust, 1, 0), have(Holds::Identity, 1, 0)], None, true, Some("zk-abc-authority-2"))]
#[case::its_secret_is_gone(&[have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], None, true, Some("zk-abc-authority-2"))]
#[case::no_secret_is_observed(&[], None, true, None)]
fn a_new_authority_is_made_for_these_causes(
    #[case] observed: &[Certificate],
    #[case] requested: Option<&str>,
    #[case] formed: bool,
    #[case] made: Option<&str>,
) {
    let (used, loaded) = (tls(1, &[1]), BTreeMap::new());
    let inputs = CertificateInputs {
        adopted: false,
        ensemble: "zk",
        incarnation: "abc",
        used: Some(&used),
        observed,
        requested,
        formed,
        loaded: &loaded,
    };
    let decision = decide(&inputs, day(1));
    assert_eq!(decision.make.as_ref().map(|make| make.name.as_str()), made);
    assert_eq!(decision.replacing.is_some(), made.is_some());
    assert!(decision.tls.is_none_or(|tls| tls == used), "the certificates in use stay");
}

#[test]
fn the_message_names_the_clusters_that_lack_certificates() {
    let observed = [
        have(Holds::Authority, 1, 3650),
        have(Holds::Authority, 2, 3650),
        have(Holds::Trust, 1, 3650),
        have(Holds::Trust, 2, 3650),
        have(Holds::Identity, 1, 365),
    ];
    let used = tls(1, &[1, 2]);
    let loaded = BTreeMap::from([
        ("m1".to_owned(), Some(used.clone())),
        ("m2".to_owned(), Some(tls(1, &[1]))),
        ("m3".to_owned(), None),
    ]);
    let inputs = CertificateInputs {
        adopted: false,
        ensemble: "zk",
        incarnation: "abc",
        used: Some(&used),
        observed: &observed,
        requested: None,
        formed: true,
        loaded: &loaded,
    };
    let decision = decide(&inputs, day(1));
    assert_eq!((decision.tls, decision.make), (Some(used.clone()), None));
    let replacing = decision.replacing.unwrap();
    assert_eq!(replacing.reason, Reason::ReplacingAuthority);
    assert!(
        replacing.message.contains("step 1 of 3: waiting until all servers trust it in m2, m3"),
        "{}",
        replacing.message
    );
}

/// Karmada drops the report of a cluster that is no longer scheduled. Its servers count while they are voters.
#[rstest]
#[case::it_votes(json!([1, 2]), true)]
#[case::it_left(json!([1]), false)]
fn a_server_that_leaves_counts_while_it_votes(#[case] voting: serde_json::Value, #[case] counts: bool) {
    let server = |id: i32| json!({ "id": id, "cluster": format!("m{id}"), "ordinal": 0, "host": "h", "role": "voter" });
    let list = json!({ "servers": [server(1)], "leaving": [server(2)] });
    let list: Ensemble = serde_json::from_value(list).unwrap();
    let status = json!({ "votingMembers": voting, "ensembleTls": tls(1, &[1]) });
    let member = ClusterReport {
        cluster: "m1".into(),
        reachable: true,
        other_cluster: None,
        applied: true,
        status: serde_json::from_value(status).unwrap(),
        ..ClusterReport::default()
    };
    let reports = BTreeMap::from([("m1".to_owned(), member)]);
    let loaded = loaded(&[&list], &BTreeMap::new(), &reports);
    assert_eq!(loaded["m1"], Some(tls(1, &[1])));
    assert_eq!(loaded.get("m2"), counts.then_some(&None));
}

//! An installation without a fault, for tests: each one injects one fault. Its objects are those that the program itself makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::time::Duration;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::{DynamicObject, ObjectMeta};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    finding::{DoctorFinding, FindingSeverity},
    observed::{
        DoctorObserved, Host, IncarnationKey, IncarnationObjects, LeaseState, MemberCluster, MemberObjects, Rights,
    },
};
use crate::{
    fixtures::merged,
    install::webhook_authority::{Authority, Name},
    register::{
        Part, Settings,
        agents::Agents,
        credential::TOKEN,
        host,
        interpreter::{Endpoint, Registration},
        pods::PodSettings,
        rbac::Identity,
    },
};
use mczk_api::{
    contract::labels::{CERTIFICATE, ENSEMBLE_LABEL, INCARNATION_LABEL, NOT_AFTER},
    crd,
    karmada::CLAIMED_BY,
};
use mczk_rules::interpreter::wire::Operation;
use mczk_runtime::pki;

const IMAGE: &str = "registry.example/mczk:0.1.0";
const SERVICE: &str = "mczk.mczk-system.svc";

/// The time of the examination.
pub(super) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// So many days after [`now`].
pub(super) fn days(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

/// A certificate of the webhook, valid for a year, under an authority of its own.
pub(super) struct Webhook {
    pub(super) pem: String,
    pub(super) chain: Vec<Vec<u8>>,
    /// The `caBundle`.
    pub(super) bundle: String,
}

impl Webhook {
    pub(super) fn make(name: &str) -> Self {
        let authority = Authority::make(now(), 3650).unwrap();
        let pem = authority.certify(&[Name::Dns(name.to_owned())], now(), 365).unwrap().pem;
        Self::of(&authority.pem, pem)
    }

    /// As cert-manager makes one: it begins now, and is valid for so many days.
    pub(super) fn beginning_now(length: i64) -> Self {
        let (own, key) = (pki::new_key().unwrap(), pki::new_key().unwrap());
        let authority = pki::authority_params("cert-manager", now(), days(3650)).unwrap();
        let bundle = authority.self_signed(&key).unwrap().pem();
        let mut params = pki::params("webhook", now(), days(length)).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVICE.try_into().unwrap())];
        let pem = params.signed_by(&own, &rcgen::Issuer::new(authority, key)).unwrap().pem();
        Self::of(&bundle, pem)
    }

    fn of(authority: &str, pem: String) -> Self {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|der| der.unwrap().to_vec()).collect();
        Self { chain, pem, bundle: STANDARD.encode(authority) }
    }
}

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// An object of any kind.
pub(super) fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str, more: Value) -> DynamicObject {
    let metadata = json!({ "name": name, "namespace": namespace });
    parsed(merged(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }), more))
}

/// A token with these times, in seconds since 1970.
pub(super) fn token(begin: i64, end: i64) -> String {
    format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(json!({ "iat": begin, "exp": end }).to_string()))
}

/// A Secret with these texts.
pub(super) fn opaque_secret(data: &[(&str, &str)]) -> Secret {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret { data: Some(data.collect()), ..Secret::default() }
}

/// A Secret with a certificate.
pub(super) fn tls_secret(pem: &str) -> Secret {
    opaque_secret(&[("tls.crt", pem)])
}

/// The first member cluster, `m1`.
pub(super) fn member(observed: &mut DoctorObserved) -> &mut MemberCluster {
    &mut observed.clusters.as_mut().unwrap()[0]
}

/// Changes the webhook of the registration by a merge patch.
pub(super) fn register_with(observed: &mut DoctorObserved, patch: Value) {
    let registration = &mut observed.registrations.as_mut().unwrap()[0];
    let webhook = registration.data.pointer_mut("/webhooks/0").unwrap();
    *webhook = merged(webhook.take(), patch);
}

/// Changes the ensemble by a merge patch.
pub(super) fn ensemble_with(observed: &mut DoctorObserved, patch: Value) {
    let ensemble = &mut observed.ensembles.as_mut().unwrap()[0];
    *ensemble = parsed(merged(serde_json::to_value(&*ensemble).unwrap(), patch));
}

/// Asserts one finding.
fn assert_one(findings: &[DoctorFinding], severity: FindingSeverity, message: &str, remedy: &str) {
    let [finding] = findings else { panic!("not one finding: {findings:#?}") };
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.message.contains(message), "{finding:?}");
    assert!(finding.remedy.contains(remedy), "{finding:?}");
}

/// Asserts one fault whose message and remedy have these parts.
pub(super) fn assert_fault(findings: &[DoctorFinding], message: &str, remedy: &str) {
    assert_one(findings, FindingSeverity::Fault, message, remedy);
}

/// Asserts one warning whose message and remedy have these parts.
pub(super) fn assert_warning(findings: &[DoctorFinding], message: &str, remedy: &str) {
    assert_one(findings, FindingSeverity::Warning, message, remedy);
}

/// Asserts that a subject is skipped, and nothing else.
pub(super) fn assert_skipped(findings: &[DoctorFinding], subject: &str) {
    assert_one(findings, FindingSeverity::Skipped, " examined", "");
    assert_eq!(findings[0].subject, subject);
}

/// The installation: an operator, two member clusters and one ensemble.
pub(super) fn healthy() -> DoctorObserved {
    let webhook = Webhook::make(SERVICE);
    let account = || Identity::ServiceAccount { namespace: "mczk-system".to_owned(), name: "mczk-operator".to_owned() };
    let settings = Settings {
        dashboard: false,
        operator: account(),
        namespaces: BTreeSet::new(),
        interpreter: Some(Registration {
            endpoint: Endpoint::service("mczk-system/mczk:8443", None).unwrap(),
            ca_bundle: webhook.bundle.clone(),
            timeout_seconds: 10,
            operations: Operation::ALL.to_vec(),
        }),
        agents: Some(Agents::of_image(IMAGE.to_owned())),
    };
    let bodies = |part: Part| part.objects(&settings).unwrap().into_iter().map(|object| object.body);
    let definitions = crd::definitions().unwrap().into_iter();
    let is_policy = |object: &DynamicObject| object.types.as_ref().unwrap().kind == "ClusterPropagationPolicy";
    let policies = bodies(Part::Propagation).chain(bodies(Part::Agents).filter(is_policy)).chain([own_policy()]);
    DoctorObserved {
        definitions: definitions.map(|wanted| (wanted.metadata.name.clone().unwrap(), Ok(Some(wanted)))).collect(),
        rights: Ok(Rights { operator: Some(account()), denied: BTreeSet::new() }),
        registrations: Ok(bodies(Part::Interpreter).collect()),
        customizations: Ok(vec![]),
        service: Ok(None),
        failed_call: Ok(None),
        webhook: Some(Ok(webhook.chain.clone())),
        policies: Ok(policies.collect()),
        autoscalers: Ok(vec![]),
        lease: Ok(Some(LeaseState {
            holder: Some("mczk-1".to_owned()),
            renewed: true,
            waited: Duration::from_secs(2),
        })),
        clusters: Ok(["m1", "m2"].map(member_cluster).into()),
        ending_works: Ok(vec![]),
        agent_image: Ok(Some(IMAGE.to_owned())),
        ensembles: Ok(vec![ensemble()]),
        certificates: [(
            "n".to_owned(),
            Ok(vec![certificate("abc", "identity", "1/1", 400), certificate("abc", "trust", "1/1", 3650)]),
        )]
        .into(),
        host: Some(host(&webhook)),
    }
}

/// The metadata of a Secret with certificates of the ensemble: its incarnation, what it holds, the numbers of it and of its
/// authority, and the days for which it is valid.
pub(super) fn certificate(incarnation: &str, holds: &str, numbers: &str, valid: i64) -> ObjectMeta {
    let number = numbers.split('/').next().unwrap();
    parsed(json!({
        "name": format!("zk-{incarnation}-{holds}-{number}"), "namespace": "n",
        "labels": { ENSEMBLE_LABEL: "zk", INCARNATION_LABEL: incarnation, CLAIMED_BY: "mczk" },
        "annotations": { CERTIFICATE: format!("{holds}/{numbers}"), NOT_AFTER: days(valid) },
        "ownerReferences": [{ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "name": "zk", "uid": "u" }],
    }))
}

/// The operator's own policy of the ensemble.
fn own_policy() -> DynamicObject {
    let owner = json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "name": "zk", "uid": "u" });
    let selector = json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "name": "zk", "namespace": "n" });
    let more = json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "resourceSelectors": [selector] } });
    object("policy.karmada.io/v1alpha1", "OverridePolicy", Some("n"), "mczk-zk", more)
}

fn ensemble() -> DynamicObject {
    let condition = |type_: &str, status: &str, reason: &str| json!({ "type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": now() });
    let conditions = [condition("Ready", "True", "Serving"), condition("Progressing", "False", "Done")];
    let clusters = [json!({ "name": "m1", "voters": [1, 2] }), json!({ "name": "m2", "voters": [3] })];
    let tls = json!({ "identity": "zk-abc-identity-1", "trust": ["zk-abc-trust-1"] });
    crate::fixtures::multi_cluster_zookeeper(json!({
        "metadata": { "generation": 1 },
        "status": {
            "observedGeneration": 1, "conditions": conditions, "clusters": clusters,
            "ensemble": { "incarnation": "abc", "epoch": 1, "tls": tls },
        },
    }))
}

fn member_cluster(name: &str) -> MemberCluster {
    let kinds = |group: &str, kinds: &[&str]| {
        let resources: Vec<Value> = kinds.iter().map(|kind| json!({ "name": kind, "kind": kind })).collect();
        json!({ "groupVersion": group, "resources": resources })
    };
    let agent = |image: &str| {
        json!({
            "metadata": { "name": "mczk-agent", "namespace": "mczk-system" },
            "spec": { "replicas": 2, "selector": {}, "template": { "spec": { "containers": [{ "name": "agent", "image": image }] } } },
            "status": { "availableReplicas": 2 },
        })
    };
    let class = json!({
        "metadata": { "name": "standard", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "example",
    });
    let served = [
        kinds("mczk.io/v1alpha1", &["ZooKeeper"]),
        kinds("multicluster.x-k8s.io/v1alpha1", &["ServiceExport", "ServiceImport"]),
    ];
    MemberCluster {
        cluster: parsed(json!({
            "metadata": { "name": name }, "spec": { "syncMode": "Push" },
            "status": {
                "kubernetesVersion": "v1.35.0", "apiEnablements": served, "conditions": [{ "type": "Ready", "status": "True" }],
            },
        })),
        ready_message: String::new(),
        objects: Some(MemberObjects {
            definition: Ok(crd::definitions().unwrap().pop()),
            agents: Ok(vec![parsed(agent(IMAGE))]),
            storage_classes: Ok(vec![parsed(class)]),
            incarnations: Ok([(incarnation("n", "zk", "abc"), IncarnationObjects { servers: 1, volumes: 1 })].into()),
        }),
    }
}

/// An incarnation of the ensemble of this namespace and name.
pub(super) fn incarnation(namespace: &str, ensemble: &str, id: &str) -> IncarnationKey {
    IncarnationKey { namespace: namespace.to_owned(), ensemble: ensemble.to_owned(), id: id.to_owned() }
}

fn host(webhook: &Webhook) -> Host {
    let settings = host::HostSettings {
        start: String::new(),
        dashboard: false,
        namespace: "mczk-system".to_owned(),
        replicas: 2,
        member_image: IMAGE.to_owned(),
        certificate_secret: host::CERTIFICATE_SECRET.to_owned(),
        pods: PodSettings { image: IMAGE.to_owned(), ..PodSettings::default() },
    };
    let deployment = host::objects(&settings).unwrap().pop().unwrap().body;
    // The mode of a volume is an octal number in the manifest, which JSON does not have.
    let volumes = json!({ "template": { "spec": { "volumes": null } } });
    let status = json!({ "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 });
    let deployment = merged(serde_json::to_value(deployment).unwrap(), json!({ "spec": volumes, "status": status }));
    let pod = |name: &str| {
        parsed(json!({
            "metadata": { "name": name }, "spec": { "containers": [{ "name": "operator", "image": IMAGE }] }, "status": {},
        }))
    };
    Host {
        namespace: "mczk-system".to_owned(),
        deployment: Ok(Some(parsed(deployment))),
        pods: Ok(vec![pod("mczk-1"), pod("mczk-2")]),
        certificate: Ok(Some(tls_secret(&webhook.pem))),
        credential: Ok(Some(opaque_secret(&[(TOKEN, &token(now().as_second(), days(30).as_second()))]))),
        karmada_image: Ok(Some("docker.io/karmada/karmada-controller-manager:v1.18.2".to_owned())),
    }
}

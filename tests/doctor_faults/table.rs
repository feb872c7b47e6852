//! The faults. Those that need a failing machine, such as a cluster that stops, are the scenarios' part.

use mczk_api::contract::labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL};
use serde_json::{Value, json};

use super::{
    Change, Expected, Fault, What,
    webhook::{expired_authority, no_authority},
};

const MCZK: &str = "mczk.io/v1alpha1";
const CONFIG: &str = "config.karmada.io/v1alpha1";
const POLICY: &str = "policy.karmada.io/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// All faults with their names. `port` is that of a webhook with a foreign certificate on localhost.
pub(super) fn faults(port: u16, host: &str) -> Vec<(&'static str, Fault)> {
    let mut all = of_clusters();
    all.extend(of_karmada());
    all.extend(of_operator(host));
    all.extend(of_registration(port));
    all.extend(of_others());
    all.extend(of_ensembles());
    all.extend(of_incarnations());
    all
}

fn fault(changes: Vec<Change>, findings: Vec<Expected>) -> Fault {
    Fault { changes, flags: Vec::new(), findings }
}

const fn is_fault(area: &'static str, message: &'static str, remedy: &'static str) -> Expected {
    Expected { area, severity: "fault", message, remedy }
}

const fn is_warning(area: &'static str, message: &'static str, remedy: &'static str) -> Expected {
    Expected { area, severity: "warning", message, remedy }
}

/// A new object.
fn create(api_version: &str, kind: &str, metadata: &Value, more: Value) -> Change {
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    if let Value::Object(more) = more {
        object.as_object_mut().unwrap().extend(more);
    }
    Change::of(object, What::Create)
}

/// An object of the whole cluster that exists.
fn existing(api_version: &str, kind: &str, name: &str, what: What) -> Change {
    Change::of(json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } }), what)
}

fn edit(api_version: &str, kind: &str, name: &str, edit: impl Fn(&mut Value) + 'static) -> Change {
    existing(api_version, kind, name, What::Edit(Box::new(edit)))
}

fn registration(change: impl Fn(&mut Value) + 'static) -> Change {
    edit(CONFIG, "ResourceInterpreterWebhookConfiguration", "mczk", move |data| change(&mut data["webhooks"][0]))
}

/// A cluster of mode Pull without an agent: no program changes its status.
fn cluster(status: &Value) -> Change {
    let more = json!({ "spec": { "syncMode": "Pull" }, "status": status });
    create("cluster.karmada.io/v1alpha1", "Cluster", &json!({ "name": "ghost" }), more)
}

fn ensemble() -> Change {
    let storage = json!({ "size": "1Gi" });
    let spec = json!({ "replicas": 3, "template": { "image": "zookeeper:3.9.4", "storage": storage } });
    create(MCZK, "MultiClusterZooKeeper", &json!({ "name": "zk", "namespace": "default" }), json!({ "spec": spec }))
}

fn of_clusters() -> Vec<(&'static str, Fault)> {
    let tainted = edit("cluster.karmada.io/v1alpha1", "Cluster", "m1", |data| {
        data["spec"]["taints"] = json!([{ "key": "maintenance", "effect": "NoSchedule" }]);
    });
    let ready = json!({ "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    vec![
        (
            "a tainted cluster",
            fault(
                vec![tainted],
                vec![is_warning("clusters", "the taint maintenance:NoSchedule", "karmadactl taint clusters m1")],
            ),
        ),
        (
            "a cluster that is not Ready",
            fault(
                vec![cluster(&json!({}))],
                vec![is_fault("clusters", "The cluster is not Ready in Karmada", "kubectl describe cluster ghost")],
            ),
        ),
        (
            "an old cluster that does not answer and serves no exports",
            fault(
                vec![cluster(&json!({ "kubernetesVersion": "v1.29.4", "conditions": [ready] }))],
                vec![
                    is_warning("versions", "The cluster runs Kubernetes v1.29.4", "Use Kubernetes 1.34, 1.35, 1.37"),
                    is_fault("network", "does not serve ServiceExport and ServiceImport", "karmada-es-ghost get works"),
                    is_warning("clusters", "through Karmada's proxy", "clusters/ghost/proxy/version"),
                ],
            ),
        ),
    ]
}

fn of_karmada() -> Vec<(&'static str, Fault)> {
    let crd = "apiextensions.k8s.io/v1";
    let other_version = edit(crd, "CustomResourceDefinition", "multiclusterzookeepers.mczk.io", |data| {
        data["spec"]["names"]["shortNames"] = json!(["other"]);
    });
    let differs = "CustomResourceDefinition multiclusterzookeepers.mczk.io is of another version than this program";
    vec![
        (
            "a definition of another version",
            fault(vec![other_version], vec![is_fault("definitions", differs, "mczk register --only crds")]),
        ),
        (
            "a role without rules",
            fault(
                vec![edit(RBAC, "ClusterRole", "mczk-operator", |data| data["rules"] = json!([]))],
                vec![is_fault("rights", "more rights", "mczk register --only rbac")],
            ),
        ),
        (
            "no binding of the role",
            fault(
                vec![existing(RBAC, "ClusterRoleBinding", "mczk-operator", What::Delete)],
                vec![is_fault("rights", "The ClusterRoleBinding mczk-operator does not exist", "mczk install")],
            ),
        ),
    ]
}

fn of_operator(host: &str) -> Vec<(&'static str, Fault)> {
    let lease = |holder: &str| {
        let metadata = json!({ "name": "mczk-operator", "namespace": "karmada-system" });
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 1 });
        create("coordination.k8s.io/v1", "Lease", &metadata, json!({ "spec": spec }))
    };
    let mut absent = fault(
        Vec::new(),
        vec![is_fault("host", "The Deployment mczk-system/mczk does not exist in the host", "mczk install")],
    );
    absent.flags = vec!["--host-kubeconfig".to_owned(), host.to_owned()];
    let silent = "The operator gone holds the Lease, and did not renew it";
    vec![
        ("an expired Lease", fault(vec![lease("gone")], vec![is_fault("operator", silent, "logs deployment/mczk")])),
        (
            "a released Lease",
            fault(
                vec![lease("")],
                vec![is_fault("operator", "the last one released the Lease", "logs deployment/mczk")],
            ),
        ),
        ("no operator in the host", absent),
    ]
}

fn of_registration(port: u16) -> Vec<(&'static str, Fault)> {
    let bundle = |bundle: String| registration(move |webhook| webhook["clientConfig"]["caBundle"] = json!(bundle));
    let foreign = registration(move |webhook| {
        webhook["clientConfig"]["url"] = json!(format!("https://localhost:{port}/interpreter"));
    });
    let service = registration(|webhook| {
        let bundle = webhook["clientConfig"]["caBundle"].clone();
        let service = json!({ "namespace": "default", "name": "shadow", "port": 8443, "path": "/interpreter" });
        webhook["clientConfig"] = json!({ "caBundle": bundle, "service": service });
    });
    let shadow = json!({ "spec": { "ports": [{ "port": 443 }] } });
    let shadow = create("v1", "Service", &json!({ "name": "shadow", "namespace": "default" }), shadow);
    let kind = "ResourceInterpreterWebhookConfiguration";
    vec![
        (
            "no registration",
            fault(
                vec![existing(CONFIG, kind, "mczk", What::Delete)],
                vec![is_fault("registration", "WebhookConfiguration mczk does not exist", "mczk register --only")],
            ),
        ),
        (
            "a wrong port, and a Service that clusters of mode Pull cannot resolve",
            fault(
                vec![shadow, service],
                vec![
                    is_fault("registration", "a Service of that name without the port 8443", "delete service shadow"),
                    is_fault("clusters", "shadow.default.svc does not resolve there", "mczk install --url"),
                ],
            ),
        ),
        (
            "a certificate of another authority",
            fault(
                vec![foreign],
                vec![is_fault("certificates", "does not match the caBundle of the registration", "--ca-file")],
            ),
        ),
        (
            "an authority that has expired",
            fault(
                vec![bundle(expired_authority())],
                vec![is_fault("certificates", "registration has expired on 2021-01-01", "mczk install again")],
            ),
        ),
        (
            "no authority",
            fault(
                vec![bundle(no_authority())],
                vec![is_fault("certificates", "The caBundle of the registration holds no certificate", "--ca-file")],
            ),
        ),
    ]
}

fn of_others() -> Vec<(&'static str, Fault)> {
    let ours = json!([{ "apiVersion": MCZK, "kind": "ZooKeeper" }]);
    let lua = json!({ "luaScript": "function InterpretHealth(observedObj)\n  return true\nend" });
    let spec = json!({ "target": { "apiVersion": MCZK, "kind": "ZooKeeper" },
        "customizations": { "healthInterpretation": lua } });
    let named = json!({ "name": "foreign" });
    let customization = create(CONFIG, "ResourceInterpreterCustomization", &named, json!({ "spec": spec }));
    let plaintext = json!([{ "path": "/metadata/annotations/a", "operator": "add", "value": "b" }]);
    let spec = json!({ "resourceSelectors": ours, "overrideRules": [{ "overriders": { "plaintext": plaintext } }] });
    let of_cluster = create(POLICY, "ClusterOverridePolicy", &named, json!({ "spec": spec }));
    let metadata = json!({ "name": "foreign", "namespace": "default" });
    let of_namespace = create(POLICY, "OverridePolicy", &metadata, json!({ "spec": spec }));
    let selects = "It selects all ZooKeeper objects: agents refuse";
    let by_load = |api_version: &str, kind: &str| {
        let target = json!({ "apiVersion": MCZK, "kind": "MultiClusterZooKeeper", "name": "zk" });
        let spec = json!({ "scaleTargetRef": target, "maxReplicas": 9 });
        create(api_version, kind, &metadata, json!({ "spec": spec }))
    };
    let autoscalers = vec![
        by_load("autoscaling.karmada.io/v1alpha1", "FederatedHPA"),
        by_load("autoscaling/v2", "HorizontalPodAutoscaler"),
    ];
    let targets = "It targets MultiClusterZooKeeper zk, and does not scale it";
    vec![
        (
            "a customization of others",
            fault(
                vec![customization],
                vec![is_fault(
                    "interpreters",
                    "Karmada prefers it to the webhook",
                    "resourceinterpretercustomizations foreign",
                )],
            ),
        ),
        (
            "an override of others in the cluster",
            fault(
                vec![of_cluster],
                vec![is_fault("policies", selects, "kubectl edit clusteroverridepolicies foreign")],
            ),
        ),
        (
            "an override of others in a namespace",
            fault(
                vec![ensemble(), of_namespace],
                vec![is_fault("policies", selects, "kubectl --namespace default edit overridepolicies foreign")],
            ),
        ),
        (
            "autoscalers by load",
            fault(
                autoscalers,
                vec![
                    is_warning("autoscalers", targets, "edit federatedhpa foreign"),
                    is_warning("autoscalers", targets, "edit horizontalpodautoscaler foreign"),
                ],
            ),
        ),
    ]
}

fn of_ensembles() -> Vec<(&'static str, Fault)> {
    let tls = json!({ "identity": "zk-quorum-1", "trust": ["zk-authority-1"] });
    let status = json!({ "ensemble": { "incarnation": "abcde", "epoch": 1, "tls": tls } });
    let mut with_status = ensemble();
    with_status.object.data["status"] = status;
    let mut with_spare = ensemble();
    let spec = &mut with_spare.object.data["spec"];
    spec["placement"] = json!({ "clusterAffinity": { "clusterNames": ["m2"] } });
    spec["failover"] = json!({ "spares": ["m1"] });
    spec["overrides"] = json!([{ "cluster": "m1", "storageClassName": "of-spare" }]);
    spec["network"] = json!({ "mode": "MCS", "clusterIds": [{ "cluster": "m2", "id": "two" }] });
    vec![
        (
            "an ensemble that no operator reconciles, without a storage class",
            fault(
                vec![ensemble()],
                vec![
                    is_fault("ensembles", "The operator has not reconciled generation 1", "mczk why zk"),
                    is_fault("storage", "no default storage class, and default/zk names none", "annotate storageclass"),
                ],
            ),
        ),
        (
            "a spare without its storage class and its name in DNS",
            fault(
                vec![with_spare],
                vec![
                    is_fault("storage", "The storage class of-spare of default/zk does not exist", "Create it"),
                    is_warning("network", "no entry for the spare m1", "to spec.network.clusterIds"),
                ],
            ),
        ),
        (
            "a quorum without its certificates",
            fault(
                vec![with_status],
                vec![is_fault("quorum", "The Secret zk-quorum-1 with the identity of the quorum does not", "mczk why")],
            ),
        ),
    ]
}

/// Objects of agents in a member cluster, of an ensemble that was lost with its control plane.
fn of_incarnations() -> Vec<(&'static str, Fault)> {
    let labels = json!({
        ENSEMBLE_LABEL: "lost", INCARNATION_LABEL: "abc123", MANAGED_BY_LABEL: MANAGED_BY_AGENT,
    });
    let of_agent = |api_version: &str, kind: &str, name: &str, spec: Value| {
        let metadata = json!({ "name": name, "namespace": "default", "labels": labels });
        Change { in_member: true, ..create(api_version, kind, &metadata, json!({ "spec": spec })) }
    };
    let pod =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "server", "image": "none" }] } });
    let selector = json!({ "matchLabels": labels });
    let servers = json!({ "serviceName": "lost-abc123", "replicas": 2, "selector": selector, "template": pod });
    let requests = json!({ "requests": { "storage": "1Gi" } });
    let volume = json!({ "accessModes": ["ReadWriteOnce"], "resources": requests });
    let volume = || of_agent("v1", "PersistentVolumeClaim", "data-lost-abc123-0", volume.clone());
    let running =
        "Incarnation abc123 is in cluster m1 (servers: 2, volumes: 1), and no MultiClusterZooKeeper has this name";
    vec![
        (
            "servers of an ensemble that karmada-apiserver does not have",
            fault(
                vec![volume(), of_agent("apps/v1", "StatefulSet", "lost-abc123", servers)],
                vec![is_fault("incarnations", running, "mczk adopt lost abc123 --namespace default")],
            ),
        ),
        (
            "volumes of an ensemble that karmada-apiserver does not have",
            fault(
                vec![volume()],
                vec![is_warning(
                    "incarnations",
                    "cluster m1 (servers: 0, volumes: 1)",
                    "mczk why lost --namespace default",
                )],
            ),
        ),
    ]
}

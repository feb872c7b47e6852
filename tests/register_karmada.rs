//! `mczk register` and `mczk unregister` with a real Karmada: its webhooks accept the objects, a second run changes nothing,
//! and the objects arrive in the member clusters.
//!
//! Starts its own federation: about a minute, and about 12 more the first time, while the rig builds its programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod doctor_faults;
mod patience;
mod program;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
        core::v1::Secret,
        rbac::v1::ClusterRoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, Config,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use mczk_api::MultiClusterZooKeeper;
use patience::wait_for;
use rig::{Options, Rig};
use serde_json::{Value, json};

const OURS: &str = "zookeepers.mczk.io";
const EXPORTS: &str = "serviceexports.multicluster.x-k8s.io";
const IMPORTS: &str = "serviceimports.multicluster.x-k8s.io";
const MANAGED: &str = "karmada.io/managed";

async fn client(rig: &Rig, cluster: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(rig.kubeconfig(cluster)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn definitions(rig: &Rig, cluster: &str) -> Api<CustomResourceDefinition> {
    Api::all(client(rig, cluster).await)
}

fn mczk(rig: &Rig, arguments: &[&str]) -> Output {
    Command::new(program::mczk())
        .args(arguments)
        .env_clear()
        .env("MCZK_KUBECONFIG", rig.kubeconfig("karmada"))
        .output()
        .unwrap()
}

/// The table that a successful call prints: kind and name, and the result.
fn table(output: &Output) -> Vec<(String, String)> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines()
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words[..2].join(" "), words[2..].join(" "))
        })
        .collect()
}

fn managed(definition: &CustomResourceDefinition) -> bool {
    definition.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED))
}

fn short_names(definition: &CustomResourceDefinition) -> Vec<String> {
    definition.spec.names.short_names.clone().unwrap_or_default()
}

#[tokio::test]
async fn register_and_unregister() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("register-{}", std::process::id()));
    let rig = Rig::up(Options { dir: Some(folder.clone()), members: 2, ..Options::default() }).await.unwrap();
    let authority = folder.with_extension("crt");
    std::fs::write(&authority, rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem())
        .unwrap();
    let flags = [
        "register",
        "--url",
        "https://localhost:1",
        "--ca-file",
        authority.to_str().unwrap(),
        "--namespaces",
        "default",
    ];

    // m1 already has an implementation of multi-cluster services with its own definition.
    let m1 = definitions(&rig, "m1").await;
    let foreign: CustomResourceDefinition = serde_json::from_value(foreign_definition()).unwrap();
    m1.create(&PostParams::default(), &foreign).await.unwrap();

    // Refused in a member cluster.
    let output = mczk(&rig, &[&flags[..], &["--kubeconfig", rig.kubeconfig("m1").to_str().unwrap()]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("does not serve policy.karmada.io: it is not karmada-apiserver"), "{error}");
    assert_eq!(output.status.code(), Some(1));

    let created = table(&mczk(&rig, &flags));
    assert_eq!(created.len(), 11, "{created:?}");
    assert!(created.iter().all(|(_, change)| change == "created"), "{created:?}");
    let again = table(&mczk(&rig, &flags));
    assert!(again.iter().all(|(_, change)| change == "unchanged"), "{again:?}");
    // Only the object that differs is reported as changed.
    let changed = table(&mczk(&rig, &[&flags[..], &["--timeout-seconds", "5"]].concat()));
    for (object, change) in changed {
        let expected = if object.starts_with("ResourceInterpreterWebhook") { "changed" } else { "unchanged" };
        assert_eq!(change, expected, "{object}");
    }

    keeps_the_identity(&rig).await;
    doctor(&rig, &flags).await;
    arrives(&rig, &foreign).await;
    agents(&rig).await;
    rights(&rig).await;
    unregister(&rig, &flags).await;
    std::fs::remove_file(authority).unwrap();
}

/// The messages that `mczk doctor` prints for an area, each after its severity.
fn diagnosed(rig: &Rig, area: &str) -> Vec<String> {
    let output = mczk(rig, &["doctor", "-o", "json"]);
    // No operator runs here, which is a fault.
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let areas = report["areas"].as_array().unwrap();
    let found = areas.iter().find(|found| found["area"] == area).unwrap()["findings"].as_array().unwrap().clone();
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    found.iter().map(|finding| format!("{}: {}", text(finding, "severity"), text(finding, "message"))).collect()
}

/// `mczk doctor` accepts what `mczk register` made, reads member clusters through Karmada, and names what is missing.
async fn doctor(rig: &Rig, flags: &[&str]) {
    for area in ["clusters", "versions", "definitions", "rights", "policies", "interpreters", "network"] {
        wait_for(&format!("{area} are fine"), async || diagnosed(rig, area).is_empty()).await;
    }
    for (area, expected) in [
        ("operator", "fault: No operator runs: the Lease karmada-system/mczk-operator does not exist"),
        ("registration", "warning: https://localhost:1/interpreter is not reachable from here: "),
        ("agents", "fault: The cluster has no agent"),
        ("storage", "warning: The cluster has no storage class"),
    ] {
        let found = diagnosed(rig, area);
        assert!(!found.is_empty() && found.iter().all(|finding| finding.starts_with(expected)), "{area}: {found:?}");
    }
    table(&mczk(rig, &[flags, &["--operations", "InterpretReplica"]].concat()));
    let found = diagnosed(rig, "registration");
    assert!(found[0].starts_with("fault: The rules of the registration lack ReviseReplica"), "{found:?}");
    table(&mczk(rig, flags));

    let report = |arguments: &[&str]| -> Value {
        let output = mczk(rig, arguments);
        // Without an operator there is always a fault.
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let host = rig.kubeconfig("m1");
    let (karmada, member) = (client(rig, "karmada").await, client(rig, "m1").await);
    doctor_faults::each_is_named(&karmada, &member, report, host.to_str().unwrap()).await;
}

fn foreign_definition() -> Value {
    json!({
        "metadata": {"name": EXPORTS},
        "spec": {
            "group": "multicluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "ServiceExport", "plural": "serviceexports", "shortNames": ["foreign"]},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// Agents are propagated to every member cluster, and stay there, with their namespace, after `unregister`.
async fn agents(rig: &Rig) {
    let output = mczk(rig, &["register", "--only", "agents"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--agent-image"));
    let flags = ["register", "--only", "agents", "--agent-image", "registry.example/mczk:2"];
    let created = table(&mczk(rig, &flags));
    assert_eq!(created.len(), 8, "{created:?}");
    assert!(created.iter().all(|(_, change)| change == "created"), "{created:?}");
    let deployments = async |place: &str| Api::<Deployment>::namespaced(client(rig, place).await, "mczk-system");
    let members = [deployments("m1").await, deployments("m2").await];
    let image = async |member: &Api<Deployment>| {
        let found = member.get_opt("mczk-agent").await.unwrap()?;
        found.spec?.template.spec?.containers.first()?.image.clone()
    };
    for member in &members {
        wait_for("the agent arrives", async || image(member).await.as_deref() == Some("registry.example/mczk:2")).await;
    }
    let mut removed = table(&mczk(rig, &["unregister", "--only", "agents"]));
    removed.retain(|(object, _)| !object.starts_with("CustomResourceDefinition"));
    assert_eq!(removed.len(), 7, "{removed:?}");
    assert!(
        removed.iter().all(|(object, change)| change == "removed" && !object.starts_with("Namespace")),
        "{removed:?}"
    );
    let karmada = deployments("karmada").await;
    wait_for("it goes from Karmada", async || karmada.get_opt("mczk-agent").await.unwrap().is_none()).await;
    // Longer than the propagation took.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for member in &members {
        let left = member.get_opt("mczk-agent").await.unwrap().expect("it stays");
        assert!(left.metadata.deletion_timestamp.is_none());
    }
}

async fn arrives(rig: &Rig, foreign: &CustomResourceDefinition) {
    let (karmada, m1, m2) =
        (definitions(rig, "karmada").await, definitions(rig, "m1").await, definitions(rig, "m2").await);
    for (member, name) in [(&m1, OURS), (&m2, OURS), (&m2, EXPORTS), (&m1, IMPORTS), (&m2, IMPORTS)] {
        wait_for(name, async || member.get_opt(name).await.unwrap().is_some_and(|found| managed(&found))).await;
    }
    // An upgrade of mczk changes our definition, also in a cluster where Karmada does not recognize it as its own any more.
    let strip = json!({"metadata": {"labels": {MANAGED: null}, "annotations": null},
        "spec": {"names": {"shortNames": ["old"]}}});
    m1.patch(OURS, &PatchParams::default(), &Patch::Merge(strip)).await.unwrap();
    let upgrade = json!({"spec": {"names": {"shortNames": ["zk", "newer"]}}});
    karmada.patch(OURS, &PatchParams::default(), &Patch::Merge(upgrade)).await.unwrap();
    for member in [&m1, &m2] {
        wait_for("the newer definition", async || short_names(&member.get(OURS).await.unwrap()) == ["zk", "newer"])
            .await;
    }
    // Karmada has had time to overwrite foreign definitions.
    let found = m1.get(EXPORTS).await.unwrap();
    assert_eq!(short_names(&found), short_names(foreign));
    assert!(!managed(&found));
}

/// Rights of the operator's user, as the API server evaluates them.
/// Without a flag that names the operator, the identity that has the rights keeps them.
async fn keeps_the_identity(rig: &Rig) {
    let rbac = ["register", "--only", "rbac", "--namespaces", "default"];
    let account = ["--operator-service-account", "mczk-system/mczk-operator"];
    let changed = table(&mczk(rig, &[&rbac[..], &account].concat()));
    let bindings =
        |(object, _): &&(String, String)| object.split(' ').next().is_some_and(|kind| kind.ends_with("Binding"));
    assert!(changed.iter().filter(bindings).all(|(_, change)| change == "changed"), "{changed:?}");
    let kept = table(&mczk(rig, &rbac));
    assert!(kept.iter().all(|(_, change)| change == "unchanged"), "{kept:?}");
    // A user has deleted one of the bindings.
    let everywhere: Api<ClusterRoleBinding> = Api::all(client(rig, "karmada").await);
    everywhere.delete("mczk-operator", &DeleteParams::default()).await.unwrap();
    let restored = table(&mczk(rig, &rbac));
    assert!(restored.iter().all(|(_, change)| change == "unchanged" || change == "created"), "{restored:?}");
    let subjects = everywhere.get("mczk-operator").await.unwrap().subjects.unwrap();
    assert_eq!((subjects[0].kind.as_str(), subjects[0].name.as_str()), ("ServiceAccount", "mczk-operator"));
    let user = table(&mczk(rig, &[&rbac[..], &["--operator-user", "mczk-operator"]].concat()));
    assert!(user.iter().filter(bindings).all(|(_, change)| change == "changed"), "{user:?}");
}

async fn rights(rig: &Rig) {
    let operator = client(rig, "mczk-operator").await;
    let credentials: Api<Secret> = Api::namespaced(operator.clone(), "karmada-cluster");
    let refused = credentials.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot list resource \"secrets\""), "{refused}");
    for (verb, group, resource, namespace, expected) in [
        ("patch", "mczk.io", "zookeepers", "a", true),
        ("update", "mczk.io", "multiclusterzookeepers/status", "a", true),
        ("create", "mczk.io", "multiclusterzookeepers", "a", false),
        ("delete", "policy.karmada.io", "overridepolicies", "a", true),
        ("patch", "policy.karmada.io", "clusterpropagationpolicies", "", false),
        ("watch", "work.karmada.io", "resourcebindings", "", true),
        ("delete", "work.karmada.io", "resourcebindings", "a", false),
        ("list", "work.karmada.io", "works", "karmada-es-m1", true),
        ("update", "work.karmada.io", "works", "karmada-es-m1", false),
        ("watch", "cluster.karmada.io", "clusters", "", true),
        ("get", "cluster.karmada.io", "clusters", "", false),
        ("get", "cluster.karmada.io", "clusters/proxy", "", false),
        ("create", "multicluster.x-k8s.io", "serviceexports", "a", true),
        ("create", "events.k8s.io", "events", "a", true),
        ("update", "coordination.k8s.io", "leases", "karmada-system", false),
        // The certificates of the quorum are immutable: created once, and deleted with their MultiClusterZooKeeper.
        ("create", "", "secrets", "default", true),
        ("get", "", "secrets", "default", true),
        ("patch", "", "secrets", "default", false),
        ("update", "", "secrets", "default", false),
        ("delete", "", "secrets", "default", false),
        // C6: this namespace holds the credentials of all member clusters.
        ("get", "", "secrets", "karmada-cluster", false),
        ("list", "", "secrets", "karmada-cluster", false),
        ("list", "", "secrets", "", false),
        ("watch", "", "secrets", "", false),
        ("get", "", "secrets", "a", false),
        ("get", "", "configmaps", "a", false),
    ] {
        let (resource, subresource) =
            resource.split_once('/').map_or((resource, None), |(r, s)| (r, Some(s.to_owned())));
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..Default::default()
        };
        let answer = Api::all(operator.clone()).create(&PostParams::default(), &review).await.unwrap();
        assert_eq!(answer.status.unwrap().allowed, expected, "{verb} {resource} {group}");
    }
}

async fn unregister(rig: &Rig, flags: &[&str]) {
    let ensembles: Api<MultiClusterZooKeeper> = Api::namespaced(client(rig, "karmada").await, "default");
    let ensemble = serde_json::from_value(json!({
        "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": {"name": "zk"},
        "spec": {"replicas": 3, "template": {"image": "zookeeper:3.9.4", "storage": {"size": "1Gi"}}},
    }))
    .unwrap();
    ensembles.create(&PostParams::default(), &ensemble).await.unwrap();
    let output = mczk(rig, &["unregister"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("holds MultiClusterZooKeeper default/zk: "), "{error}");
    // Definitions with objects stay, also with --force, and the message names the next command.
    let output = mczk(rig, &["unregister", "--only", "crds"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let remedy = "delete them first, while the operator runs (kubectl delete mczk NAME --namespace NAMESPACE), which \
                  also deletes volumes with reclaim Delete, then run `mczk unregister --only crds`";
    assert!(error.contains(remedy), "{error}");
    let left = table(&mczk(rig, &["unregister", "--only", "crds", "--force"]));
    assert!(left.iter().all(|(_, change)| change.starts_with("left: ") && change.ends_with(remedy)), "{left:?}");

    ensembles.delete("zk", &kube::api::DeleteParams::default()).await.unwrap();
    let removed = table(&mczk(rig, &["unregister"]));
    assert_eq!(removed.len(), 11, "{removed:?}");
    for (object, change) in removed {
        let definition = object.starts_with("CustomResourceDefinition");
        assert_eq!(change, if definition { "left: removed only by --only crds" } else { "removed" }, "{object}");
    }
    let removed = table(&mczk(rig, &["unregister", "--only", "crds"]));
    assert!(removed.iter().all(|(_, change)| change == "removed"), "{removed:?}");
    let karmada = definitions(rig, "karmada").await;
    wait_for("the definition goes", async || karmada.get_opt(OURS).await.unwrap().is_none()).await;
    let absent = table(&mczk(rig, &["unregister"]));
    assert!(absent.iter().filter(|(object, _)| !object.starts_with("Custom")).all(|(_, change)| change == "absent"));
    // Member clusters keep theirs: the deletion of a definition deletes its objects.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for member in ["m1", "m2"] {
        assert!(definitions(rig, member).await.get_opt(OURS).await.unwrap().is_some(), "{member}");
    }
    // Registered again.
    let back = table(&mczk(rig, flags));
    assert!(back.iter().all(|(_, change)| change == "created"), "{back:?}");
}

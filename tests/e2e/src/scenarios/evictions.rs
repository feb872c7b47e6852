//! Taints of member clusters, and evictions. Karmada's taint manager evicts here: the rig sets its flag.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use mczk_api::contract::naming::binding_name;
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

/// The cluster that is tainted.
const CLUSTER: &str = "m2";
const TAINT: &str = "e2e.example.com/maintenance";
const EACH: [&str; 2] = ["zoo", "each"];
/// Deployments whose policies tolerate nothing, by their kind of scheduling: what Karmada's failover does with them.
const BYSTANDERS: [&str; 2] = ["divided", "duplicated"];

pub(super) async fn tainted(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "tainted", Behaviour::default()).await?;
    // Karmada takes the first toleration that matches: the user's, which ends, must not come before the operator's.
    let ends = json!([{ "key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 }]);
    scene.create(&ensemble("zoo", 3, &json!({ "placement": { "clusterTolerations": ends } }))).await?;
    let duplicated = json!({ "replicaScheduling": { "replicaSchedulingType": "Duplicated" } });
    scene.create(&ensemble("each", 1, &json!({ "placement": duplicated }))).await?;
    let elsewhere = json!({ "clusterAffinity": { "exclude": [CLUSTER] } });
    let imported = json!({ "placement": elsewhere, "network": { "importClusters": [CLUSTER] } });
    scene.create(&ensemble("imported", 1, &imported)).await?;
    for name in EACH.into_iter().chain(["imported"]) {
        scene.settled(name).await?;
        scene.members_match(name).await?;
    }
    for name in BYSTANDERS {
        bystander(&scene, name).await?;
        are_at(&scene, name, &[("m1", 2), (CLUSTER, 2)]).await?;
    }
    is_imported(&scene).await?;
    taint(&scene, json!([{ "key": TAINT, "effect": "NoExecute" }])).await?;
    let result = while_tainted(&scene).await;
    taint(&scene, json!(null)).await?;
    result?;
    forced(&scene).await?;
    for name in EACH.into_iter().chain(["imported"]) {
        scene.delete(name).await?;
    }
    Ok(())
}

/// Karmada evicts what does not tolerate the taint, and nothing of an ensemble.
async fn while_tainted(scene: &Scene<'_>) -> Result<()> {
    let before = futures::future::try_join_all(EACH.map(|name| scene.generations(name))).await?;
    are_at(scene, "divided", &[("m1", 4)]).await?;
    are_at(scene, "duplicated", &[("m1", 2)]).await?;
    // Longer than the user's own toleration lasts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for name in EACH {
        let (placed, evicted) = placed(scene, &binding_name(name)).await?;
        ensure!(placed.len() == 3 && evicted.is_empty(), "{name} is in {placed:?}, and leaves {evicted:?}");
    }
    let after = futures::future::try_join_all(EACH.map(|name| scene.generations(name))).await?;
    ensure!(after == before, "a taint changed the servers: {before:?}, then {after:?}");
    is_imported(scene).await
}

/// An eviction that nothing tolerates: another client makes it, and holds it.
async fn forced(scene: &Scene<'_>) -> Result<()> {
    let bindings = bindings(scene);
    let servers = futures::future::try_join_all(EACH.map(|name| scene.generations(name))).await?;
    let task = |suppressed| {
        json!([{ "fromCluster": CLUSTER, "reason": "TaintUntolerated", "producer": "TaintManager",
        "suppressDeletion": suppressed, "replicas": 1 }])
    };
    for name in EACH {
        let others = json!([{ "name": "m1", "replicas": 1 }, { "name": "m3", "replicas": 1 }]);
        let evicted = json!({ "spec": { "clusters": others, "gracefulEvictionTasks": task(true) } });
        bindings.patch(&binding_name(name), &PatchParams::default(), &Patch::Merge(&evicted)).await?;
    }
    for name in EACH {
        let message = scene.condition(name, "Scheduled", "False", "OtherDivision").await?;
        ensure!(message.contains(&format!("evicting cluster {CLUSTER}")), "the message of {name} is {message}");
    }
    // The operator would begin a record at once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let now = futures::future::try_join_all(EACH.map(|name| scene.generations(name))).await?;
    ensure!(now == servers, "an eviction changed the servers: {servers:?}, then {now:?}");
    for name in EACH {
        let status = scene.member(CLUSTER, name).await?.status.unwrap_or_default();
        ensure!(status.ready_replicas == Some(1), "{name} in {CLUSTER} has {:?} servers", status.ready_replicas);
        let ended = json!({ "spec": { "gracefulEvictionTasks": task(false) } });
        bindings.patch(&binding_name(name), &PatchParams::default(), &Patch::Merge(&ended)).await?;
    }
    for name in EACH {
        scene.settled(name).await?;
        scene.members_match(name).await?;
        let records = scene.get(name).await?.status.unwrap_or_default().records;
        ensure!(records.len() == 1, "an eviction began a record of {name}: {records:?}");
    }
    let now = futures::future::try_join_all(EACH.map(|name| scene.generations(name))).await?;
    ensure!(now == servers, "the end of an eviction changed the servers: {servers:?}, then {now:?}");
    Ok(())
}

fn bindings(scene: &Scene<'_>) -> Api<DynamicObject> {
    scene.untyped("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings")
}

/// The clusters of a binding, and those that it leaves.
async fn placed(scene: &Scene<'_>, binding: &str) -> Result<(Vec<String>, Vec<String>)> {
    let spec = bindings(scene).get(binding).await?.data.get("spec").cloned().unwrap_or_default();
    let names = |list: &str, field: &str| -> Vec<String> {
        let all = spec.get(list).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|one| one.get(field)?.as_str().map(str::to_owned)).collect()
    };
    let mut placed = names("clusters", "name");
    placed.sort();
    Ok((placed, names("gracefulEvictionTasks", "fromCluster")))
}

async fn bystander(scene: &Scene<'_>, name: &str) -> Result<()> {
    let labels = json!({ "app": name });
    let pods =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web" }] } });
    let replicas = if name == "divided" { 4 } else { 2 };
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": pods } });
    let deployments = scene.untyped("apps/v1", "Deployment", "deployments");
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
    let kind = "PropagationPolicy";
    let policies = scene.untyped("policy.karmada.io/v1alpha1", kind, "propagationpolicies");
    let scheduling = if name == "divided" {
        json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted" })
    } else {
        json!({ "replicaSchedulingType": "Duplicated" })
    };
    let policy = json!({ "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": {
        "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": name }],
        "placement": { "clusterAffinity": { "clusterNames": ["m1", CLUSTER] }, "replicaScheduling": scheduling },
    }});
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await.map(drop).context("the policy")
}

/// Waits until a Deployment has these replicas in its clusters.
async fn are_at(scene: &Scene<'_>, name: &str, expected: &[(&str, i64)]) -> Result<()> {
    wait_for(&format!("the replicas of {name} are in {expected:?}"), PATIENCE, || async {
        let binding = bindings(scene).get(&format!("{name}-deployment")).await?;
        let clusters = binding.data.pointer("/spec/clusters").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut placed: Vec<(&str, i64)> = clusters
            .iter()
            .filter_map(|cluster| Some((cluster.get("name")?.as_str()?, cluster.get("replicas")?.as_i64()?)))
            .collect();
        placed.sort_unstable();
        ensure!(placed == expected, "they are in {placed:?}");
        Ok(())
    })
    .await
}

/// Checks that the tainted cluster has the import.
async fn is_imported(scene: &Scene<'_>) -> Result<()> {
    let client = scene.federation.members.get(CLUSTER).cloned().context("the cluster has no client")?;
    let import = kind("multicluster.x-k8s.io/v1alpha1", "ServiceImport", "serviceimports");
    let imports: Api<DynamicObject> = Api::namespaced_with(client, &scene.namespace, &import);
    wait_for("the cluster has the import", PATIENCE, || async {
        let found = imports.get_opt("imported").await?.context("there is none")?;
        ensure!(found.metadata.deletion_timestamp.is_none(), "it is being deleted");
        let (placed, evicted) = placed(scene, "imported-serviceimport").await?;
        ensure!(placed == [CLUSTER] && evicted.is_empty(), "it is in {placed:?}, and leaves {evicted:?}");
        Ok(())
    })
    .await
}

/// Sets the taints of the cluster, as `karmadactl taint` does.
async fn taint(scene: &Scene<'_>, taints: Value) -> Result<()> {
    let clusters: Api<DynamicObject> =
        Api::all_with(scene.federation.karmada.clone(), &kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters"));
    let patch = json!({ "spec": { "taints": taints } });
    clusters.patch(CLUSTER, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

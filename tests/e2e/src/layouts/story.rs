//! The story of each layout: `mczk install` as the documentation names it, a webhook that Karmada's controllers call,
//! `mczk doctor`, and `mczk uninstall`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Api;
use mczk_api::MultiClusterZooKeeper;
use serde_json::{Value, json};

use super::{
    control_plane::ControlPlane,
    ground::{Ground, HOST, PULL, PUSH},
};
use crate::{
    members::spec,
    patience::wait_for,
    scene::{IMAGE, conditions, ensemble, is_settled},
};

/// The namespace of the ensembles.
const NAMESPACE: &str = "layouts";
/// The node's port of the webhook, for members of mode Pull.
const PORT: u16 = 30_443;
const PATIENCE: Duration = Duration::from_secs(120);

/// Plays the story.
pub(super) async fn play(ground: &Ground, karmada: &ControlPlane) -> Result<()> {
    karmada.kubectl(ground, &["create", "namespace", NAMESPACE]).await?;

    ground.report("mczk install");
    let installed = install(ground, karmada, &[]).await?;
    for line in ["operator: ready after", "agents: ready after"] {
        ensure!(installed.contains(line), "no {line:?} in {installed}");
    }
    ensure!(!installed.contains(&format!("Cluster {PUSH} is of mode")), "{installed}");
    create(ground, karmada, "push", PUSH).await?;
    wait_for("Karmada knows the replicas", PATIENCE, || answered(ground, karmada)).await?;
    ground.report("Karmada's controllers call the webhook by the name of the Service");

    let mut names = vec!["push"];
    if karmada.has_pull {
        reach_from_pull(ground, karmada, &installed).await?;
        names.push("pull");
    }
    for name in &names {
        settled(karmada, name).await?;
    }
    // Karmada updates what it knows of a member every 10 s.
    wait_for("mczk doctor finds no fault", PATIENCE, || async {
        let examined = ground.mczk(karmada, "doctor", &[]).await?;
        ensure!(examined.code == 0, "{}", examined.text);
        Ok(())
    })
    .await?;
    ground.report("the ensembles serve, and mczk doctor finds no fault");

    remove(ground, karmada, &names).await?;
    ground.report("mczk uninstall leaves nothing");
    Ok(())
}

/// The member of mode Pull does not reach the Service: the command and `mczk doctor` name it. With `--url` it does.
async fn reach_from_pull(ground: &Ground, karmada: &ControlPlane, installed: &str) -> Result<()> {
    let line = format!("Cluster {PULL} is of mode Pull");
    ensure!(installed.contains(&line), "no {line:?} in {installed}");
    let examined = ground.mczk(karmada, "doctor", &[]).await?;
    ensure!(examined.code == 3 && examined.text.contains("The cluster is of mode Pull"), "{}", examined.text);

    ground.report("mczk install --url");
    expose(ground).await?;
    let url = format!("https://{}:{PORT}", ground.host_address().await?);
    let installed = install(ground, karmada, &["--url", &url]).await?;
    ensure!(!installed.contains("is of mode Pull"), "{installed}");
    create(ground, karmada, "pull", PULL).await
}

/// Runs `mczk install` with the flags of the documentation. It ends with 3 if and only if a member does not reach the
/// webhook.
async fn install(ground: &Ground, karmada: &ControlPlane, more: &[&str]) -> Result<String> {
    let flags: Vec<&str> = karmada.flags.iter().map(String::as_str).collect();
    let all = [&["--image", rig::MCZK, "--namespaces", NAMESPACE][..], &flags, more].concat();
    let ended = ground.mczk(karmada, "install", &all).await?;
    let expected = if ended.text.contains("is of mode Pull") { 3 } else { 0 };
    ensure!(ended.code == expected, "mczk install ended with {}: {}", ended.code, ended.text);
    Ok(ended.text)
}

/// A port of the host's node for the webhook, as a load balancer of a user would have it.
async fn expose(ground: &Ground) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "mczk-from-outside", "namespace": "mczk-system" },
        "spec": {
            "type": "NodePort", "selector": { "app.kubernetes.io/name": "mczk" },
            "ports": [{ "port": 8443, "targetPort": "webhook", "nodePort": PORT }],
        },
    });
    let file = ground.file("service.json", &service.to_string())?;
    ground.kubectl(HOST, &["apply", "-f", &file]).await.map(drop)
}

/// Declares an ensemble of one server in a cluster.
async fn create(ground: &Ground, karmada: &ControlPlane, name: &str, cluster: &str) -> Result<()> {
    let mut object = ensemble(name, 1, &spec::first(IMAGE, spec::FOLDERS, &[cluster.to_owned()], false));
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(NAMESPACE));
    }
    let file = ground.file(&format!("{name}.json"), &object.to_string())?;
    karmada.kubectl(ground, &["apply", "-f", &file]).await.map(drop)
}

/// Karmada writes replicas and their requirements of a ZooKeeper only after the operation `InterpretReplica`.
async fn answered(ground: &Ground, karmada: &ControlPlane) -> Result<()> {
    let text = karmada.kubectl(ground, &["-n", NAMESPACE, "get", "resourcebindings", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list.pointer("/items").and_then(Value::as_array).context("no list of bindings")?;
    let binding = items.iter().find(|item| item.pointer("/spec/resource/kind").is_some_and(|kind| kind == "ZooKeeper"));
    let spec = binding.and_then(|binding| binding.get("spec")).context("Karmada has no binding of a ZooKeeper")?;
    let replicas = spec.get("replicas").and_then(Value::as_i64).unwrap_or(0);
    ensure!(replicas > 0 && spec.get("replicaRequirements").is_some(), "the binding has {spec}");
    Ok(())
}

/// Waits until an ensemble serves, and Karmada's health and status of it have come through the webhook.
async fn settled(karmada: &ControlPlane, name: &str) -> Result<()> {
    let api: Api<MultiClusterZooKeeper> = Api::namespaced(karmada.client().await?, NAMESPACE);
    wait_for(&format!("the ensemble {name} serves"), PATIENCE, || async {
        let object = api.get(name).await?;
        if is_settled(&object) { Ok(()) } else { bail!(conditions(&object)) }
    })
    .await
}

/// Deletes the ensembles, then everything of mczk.
async fn remove(ground: &Ground, karmada: &ControlPlane, names: &[&str]) -> Result<()> {
    let delete = ["-n", NAMESPACE, "delete", "multiclusterzookeepers", "--timeout=120s"];
    karmada.kubectl(ground, &[&delete[..], names].concat()).await?;
    wait_for("the templates are gone", PATIENCE, || async {
        let left = karmada.kubectl(ground, &["-n", NAMESPACE, "get", "zookeepers.mczk.io", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await?;
    let removed = ground.mczk(karmada, "uninstall", &[]).await?;
    for object in ["Deployment mczk-system/mczk\n", "CustomResourceDefinition multiclusterzookeepers.mczk.io\n"] {
        ensure!(removed.text.contains(&format!("removed    {object}")), "{}", removed.text);
    }
    let left = ground.mczk(karmada, "uninstall", &["--dry-run"]).await?;
    ensure!(left.code == 0 && !left.text.contains("  remove "), "{}", left.text);
    Ok(())
}

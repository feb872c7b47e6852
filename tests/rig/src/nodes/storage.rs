//! Volumes: a folder on the node where the pod shall run, made for each claim of the class `local` and removed after it.
//! They are volumes of the type `local`, to which kubelet applies a pod's fsGroup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::api::{Api, wait_for};
use crate::control_plane::{Cluster, Plan};
use crate::layout::{Component, Layout};
use crate::nodes::address::Node;
use crate::nodes::cgroup::CONTROL;
use crate::nodes::component;

const CLASS: &str = "local";
/// Where volumes lie, as a node sees it.
const VOLUMES: &str = "lib/rig-volumes";
/// Where the scheduler writes which node a claim's pod shall run on.
const SELECTED: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
const HOST_NAME: &str = "kubernetes.io/hostname";
const PAUSE: Duration = Duration::from_millis(400);

/// Where a node's volumes lie, as this machine sees them.
pub(crate) fn volumes(layout: &Layout, node: &str) -> PathBuf {
    layout.node(node).join("var").join(VOLUMES)
}

/// The volume that a claim waits for, and its node; nothing if the claim has one, or its pod has no node yet.
fn wanted(claim: &Value) -> Option<(String, String, Value)> {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str);
    if text("/spec/storageClassName") != Some(CLASS) || text("/spec/volumeName").is_some() {
        return None;
    }
    let node = text(SELECTED)?;
    let uid = text("/metadata/uid")?;
    let name = format!("{CLASS}-{uid}");
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": claim.pointer("/spec/resources/requests")?,
            "accessModes": claim.pointer("/spec/accessModes")?,
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": format!("/var/{VOLUMES}/{name}")},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": text("/metadata/namespace")?,
                "name": text("/metadata/name")?,
                "uid": uid,
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": HOST_NAME, "operator": "In", "values": [node]}]}]}},
        },
    });
    Some((name, node.to_owned(), volume))
}

/// The name of a volume that nobody claims any more.
fn released(volume: &Value) -> Option<&str> {
    let text = |path: &str| volume.pointer(path).and_then(Value::as_str);
    let name = text("/metadata/name")?;
    (text("/spec/storageClassName") == Some(CLASS) && text("/status/phase") == Some("Released")).then_some(name)
}

/// Serves claims until it is killed.
pub(crate) async fn provide(layout: &Layout, kubeconfig: &Path, nodes: &[String]) -> Result<()> {
    let api = Api::of(kubeconfig).await?;
    wait_for("the storage class is there", || async {
        api.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            &json!({
                "metadata": {
                    "name": CLASS,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": "rig.local/volumes",
                // The scheduler chooses the node first, and the volume is made there.
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
        )
        .await
        .map(Some)
    })
    .await?;
    loop {
        tokio::time::sleep(PAUSE).await;
        // An API server that is stopped, or a folder in use: the next round tries again.
        if let Err(e) = round(layout, &api, nodes).await {
            eprintln!("{e:#}");
        }
    }
}

async fn round(layout: &Layout, api: &Api, nodes: &[String]) -> Result<()> {
    for claim in items(api, "/api/v1/persistentvolumeclaims").await? {
        let Some((name, node, volume)) = wanted(&claim) else { continue };
        if !nodes.contains(&node) {
            continue;
        }
        let folder = volumes(layout, &node).join(&name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        api.create("/api/v1/persistentvolumes", &volume).await?;
        println!("made {name} on {node}");
    }
    for volume in items(api, "/api/v1/persistentvolumes").await? {
        let Some(name) = released(&volume) else { continue };
        api.delete(&format!("/api/v1/persistentvolumes/{name}")).await?;
        for node in nodes {
            let folder = volumes(layout, node).join(name);
            if folder.exists() {
                fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
                println!("removed {name} on {node}");
            }
        }
    }
    Ok(())
}

async fn items(api: &Api, path: &str) -> Result<Vec<Value>> {
    // From the API server's memory: this asks often.
    let list = api.get(&format!("{path}?resourceVersion=0")).await?;
    Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
}

impl Plan {
    pub(crate) fn volumes(&self, cluster: &Cluster, program: &Path) -> Component {
        let nodes = self.nodes_of(cluster);
        let mut flags = vec![
            "volumes".to_owned(),
            format!("--dir={}", self.layout.dir.display()),
            format!("--kubeconfig={}", self.layout.kubeconfig(&cluster.name).display()),
        ];
        flags.extend(nodes.iter().map(|node| format!("--node={}", node.name)));
        let first = nodes.first().cloned().unwrap_or_else(|| Node::first(&cluster.name, cluster.index));
        component(&first, CONTROL, "volumes", program, flags)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::expect_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn claim() -> Value {
        json!({
            "metadata": {"name": "data-zk-0", "namespace": "n", "uid": "u1",
                "annotations": {"volume.kubernetes.io/selected-node": "m1-2"}},
            "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        })
    }

    #[test]
    fn a_volume_lies_on_the_node_of_its_pod_and_belongs_to_its_claim() {
        let (name, node, volume) = wanted(&claim()).expect("it waits for one");
        assert_eq!((name.as_str(), node.as_str()), ("local-u1", "m1-2"));
        assert_eq!(volume["spec"]["claimRef"]["uid"], "u1");
        assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["m1-2"]));
    }

    #[test]
    fn a_claim_without_a_node_with_a_volume_or_of_another_class_gets_none() {
        for change in [
            |c: &mut Value| c["metadata"]["annotations"] = json!({}),
            |c: &mut Value| c["spec"]["volumeName"] = json!("v"),
            |c: &mut Value| c["spec"]["storageClassName"] = json!("fast"),
        ] {
            let mut claim = claim();
            change(&mut claim);
            assert!(wanted(&claim).is_none());
        }
    }

    #[test]
    fn only_released_volumes_of_the_class_are_removed() {
        let volume = |phase: &str, class: &str| json!({"metadata": {"name": "v"}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
        assert_eq!(released(&volume("Released", "local")), Some("v"));
        assert_eq!(released(&volume("Bound", "local")), None);
        assert_eq!(released(&volume("Released", "other")), None);
    }
}

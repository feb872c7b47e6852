//! Volumes, made for each claim and removed after it. One of the class `local` is a folder on the node that the scheduler
//! chose, of the type `local`, so that kubelet applies the fsGroup of the pod. One of the class `network` is a folder outside
//! the nodes, like a network disk, so that its pod may move to another node. One of the class `growing` is a disk of the node.

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
use crate::nodes::disks::{self, Disks, FILE_SYSTEM, GROWING};

/// The default class: bound to a node.
const LOCAL: &str = "local";
/// The class for all nodes of a cluster.
const NETWORK: &str = "network";
const CLASSES: [&str; 3] = [LOCAL, NETWORK, GROWING];
/// The folder of volumes in a node.
const VOLUMES: &str = "lib/rig-volumes";
/// The annotation of a claim that names the node that the scheduler chose.
const SELECTED: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
const HOST_NAME: &str = "kubernetes.io/hostname";
const PAUSE: Duration = Duration::from_millis(400);

/// The folder of the volumes of a node, on the machine.
pub(crate) fn volumes(layout: &Layout, node: &str) -> PathBuf {
    layout.node(node).join("var").join(VOLUMES)
}

/// The folder of volumes of the class `network`. The path is the same on the machine and in all nodes.
pub(crate) fn shared(layout: &Layout) -> PathBuf {
    layout.nodes().join("network-volumes")
}

/// A volume to make.
#[derive(Debug)]
struct Wanted {
    name: String,
    node: String,
    class: &'static str,
    object: Value,
}

/// The volume that a claim waits for. None if the claim has one, or its pod has no node yet.
fn wanted(claim: &Value, shared: &Path) -> Option<Wanted> {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str);
    let class = CLASSES.into_iter().find(|class| text("/spec/storageClassName") == Some(class))?;
    if text("/spec/volumeName").is_some() {
        return None;
    }
    let node = text(SELECTED)?;
    let uid = text("/metadata/uid")?;
    let name = format!("{class}-{uid}");
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": claim.pointer("/spec/resources/requests")?,
            "accessModes": claim.pointer("/spec/accessModes")?,
            "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": text("/metadata/namespace")?,
                "name": text("/metadata/name")?,
                "uid": uid,
            },
        },
    });
    let spec = object.get_mut("spec")?.as_object_mut()?;
    let nodes = if class == NETWORK {
        spec.insert("hostPath".into(), json!({"path": shared.join(&name), "type": "Directory"}));
        // Without it the agent would take the folder for one of this node alone.
        json!([{"key": HOST_NAME, "operator": "Exists"}])
    } else {
        let mut local = json!({"path": format!("/var/{VOLUMES}/{name}")});
        if let (GROWING, Some(local)) = (class, local.as_object_mut()) {
            local.insert("fsType".into(), FILE_SYSTEM.into());
        }
        spec.insert("local".into(), local);
        json!([{"key": HOST_NAME, "operator": "In", "values": [node]}])
    };
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": nodes}]}});
    spec.insert("nodeAffinity".into(), affinity);
    Some(Wanted { name, node: node.to_owned(), class, object })
}

/// The name of a volume without a claim.
fn released(volume: &Value) -> Option<&str> {
    let text = |path: &str| volume.pointer(path).and_then(Value::as_str);
    let name = text("/metadata/name")?;
    let ours = text("/spec/storageClassName").is_some_and(|class| CLASSES.contains(&class));
    (ours && text("/status/phase") == Some("Released")).then_some(name)
}

/// Serves claims until it is killed.
pub(crate) async fn provide(layout: &Layout, kubeconfig: &Path, nodes: &[String]) -> Result<()> {
    let api = Api::of(kubeconfig).await?;
    for class in CLASSES {
        wait_for("the storage class is there", || async {
            api.create(
                "/apis/storage.k8s.io/v1/storageclasses",
                &json!({
                    "metadata": {
                        "name": class,
                        "annotations": {"storageclass.kubernetes.io/is-default-class": (class == LOCAL).to_string()},
                    },
                    "provisioner": "rig.local/volumes",
                    "allowVolumeExpansion": class == GROWING,
                    // The scheduler chooses the node first, and the volume is made there then.
                    "volumeBindingMode": "WaitForFirstConsumer",
                }),
            )
            .await
            .map(Some)
        })
        .await?;
    }
    let mut disks = Disks::default();
    loop {
        tokio::time::sleep(PAUSE).await;
        // The API server may be stopped, or a folder in use. The next round tries again.
        if let Err(e) = round(layout, &api, nodes, &mut disks).await {
            eprintln!("{e:#}");
        }
    }
}

async fn round(layout: &Layout, api: &Api, nodes: &[String], disks: &mut Disks) -> Result<()> {
    let claims = items(api, "/api/v1/persistentvolumeclaims").await?;
    for claim in &claims {
        let Some(Wanted { name, node, class, object }) = wanted(claim, &shared(layout)) else { continue };
        if !nodes.contains(&node) {
            continue;
        }
        if class != GROWING {
            let folder = if class == LOCAL { volumes(layout, &node) } else { shared(layout) }.join(&name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        }
        api.create("/api/v1/persistentvolumes", &object).await?;
        println!("made {name} on {node}");
    }
    for volume in items(api, "/api/v1/persistentvolumes").await? {
        if let Some(name) = released(&volume) {
            api.delete(&format!("/api/v1/persistentvolumes/{name}")).await?;
            for node in nodes {
                disks.remove(layout, name, &volumes(layout, node))?;
            }
            for folder in nodes.iter().map(|node| volumes(layout, node)).chain([shared(layout)]) {
                let folder = folder.join(name);
                if folder.exists() {
                    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
                    println!("removed {}", folder.display());
                }
            }
        } else if let Some((name, node, size)) = disk(&volume) {
            disks.attach(layout, name, &volumes(layout, node), size)?;
        }
    }
    let growing: Vec<&Value> = claims.iter().filter(|claim| disks.has_volume_of(claim)).collect();
    if growing.is_empty() {
        return Ok(());
    }
    let class = api.get(&format!("/apis/storage.k8s.io/v1/storageclasses/{GROWING}")).await?;
    let pods = items(api, "/api/v1/pods").await?;
    for claim in growing {
        disks::grow(layout, api, claim, &class, &pods).await?;
    }
    Ok(())
}

/// The name, the node and the size of a volume that is a disk.
fn disk(volume: &Value) -> Option<(&str, &str, u64)> {
    let text = |path: &str| volume.pointer(path).and_then(Value::as_str);
    let node = text("/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0")?;
    let size = disks::bytes(text("/spec/capacity/storage")?)?;
    (text("/spec/storageClassName")? == GROWING).then_some((text("/metadata/name")?, node, size))
}

async fn items(api: &Api, path: &str) -> Result<Vec<Value>> {
    // From the cache of the API server, because this is frequent.
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
        let Wanted { name, node, object: volume, .. } = wanted(&claim(), Path::new("/x")).expect("it waits for one");
        assert_eq!((name.as_str(), node.as_str()), ("local-u1", "m1-2"));
        assert_eq!(volume["spec"]["claimRef"]["uid"], "u1");
        assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["m1-2"]));
    }

    #[test]
    fn a_volume_in_the_network_is_bound_to_no_node() {
        let mut claim = claim();
        claim["spec"]["storageClassName"] = json!("network");
        let volume = wanted(&claim, Path::new("/x")).expect("it waits for one").object;
        assert_eq!(volume["spec"]["hostPath"]["path"], "/x/network-u1");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["operator"], "Exists");
    }

    #[test]
    fn a_volume_that_grows_is_a_disk_of_the_node() {
        let mut claim = claim();
        claim["spec"]["storageClassName"] = json!("growing");
        let volume = wanted(&claim, Path::new("/x")).expect("it waits for one").object;
        assert_eq!(volume["spec"]["local"], json!({"path": "/var/lib/rig-volumes/growing-u1", "fsType": "xfs"}));
        assert_eq!(disk(&volume), Some(("growing-u1", "m1-2", 1 << 30)));
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
            assert!(wanted(&claim, Path::new("/x")).is_none());
        }
    }

    #[test]
    fn only_released_volumes_of_the_class_are_removed() {
        let volume = |phase: &str, class: &str| json!({"metadata": {"name": "v"}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
        assert_eq!(released(&volume("Released", "local")), Some("v"));
        assert_eq!(released(&volume("Released", "network")), Some("v"));
        assert_eq!(released(&volume("Released", "growing")), Some("v"));
        assert_eq!(released(&volume("Bound", "local")), None);
        assert_eq!(released(&volume("Released", "other")), None);
    }
}

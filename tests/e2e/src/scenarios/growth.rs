//! Growth of volumes. No node runs here, so the scenario plays the driver: it makes volumes, and grows them in the steps of an
//! external resizer and of a kubelet.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::Federation,
    scene::{Scene, ensemble},
};

/// The storage class. Its driver grows volumes that are in use.
const CLASS: &str = "e2e-grows";
const PAUSE: Duration = Duration::from_millis(200);

/// How far a volume may grow at present.
const RESIZING: u8 = 1;
const FILE_SYSTEM: u8 = 2;
const DONE: u8 = 3;

pub(super) async fn volumes_grow(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "grows", Behaviour::default()).await?;
    for client in federation.members.values() {
        let class = json!({ "metadata": { "name": CLASS }, "provisioner": "e2e.example.com/disks", "allowVolumeExpansion": true });
        Api::<StorageClass>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(class)?)
            .await?;
    }
    let limit = AtomicU8::new(DONE);
    let result = tokio::select! {
        result = grow(&scene, &limit) => result,
        failed = drive(&scene, &limit) => failed,
    };
    for client in federation.members.values() {
        Api::<StorageClass>::all(client.clone()).delete(CLASS, &DeleteParams::default()).await?;
        for volume in Api::<PersistentVolume>::all(client.clone()).list(&ListParams::default()).await? {
            if is_own(&volume) {
                Api::<PersistentVolume>::all(client.clone())
                    .delete(&volume.name_any(), &DeleteParams::default())
                    .await?;
            }
        }
    }
    result
}

async fn grow(scene: &Scene<'_>, limit: &AtomicU8) -> Result<()> {
    let storage = |size| json!({ "template": { "storage": { "size": size, "storageClassName": CLASS } } });
    scene.create(&ensemble("zoo", 3, &storage("1Gi"))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let pods = pods(scene).await?;
    limit.store(RESIZING, Ordering::Relaxed);
    scene.change("zoo", storage("2Gi")).await?;
    for (step, words) in [(FILE_SYSTEM, "Resizing"), (DONE, "FileSystemResizePending: waiting for the kubelet")] {
        let message = waits(scene, words).await?;
        ensure!(message.contains("has 1Gi and not template.storage.size 2Gi"), "the message is {message}");
        limit.store(step, Ordering::Relaxed);
    }
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let sizes = sizes(scene).await?;
    ensure!(sizes == ["2Gi"; 3], "the object is Ready, and its volumes have {sizes:?}");
    ensure!(self::pods(scene).await? == pods, "a growth in use restarted servers");
    // A StatefulSet makes new claims with the first size. They grow too.
    scene.change("zoo", json!({ "replicas": 5 })).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let sizes = self::sizes(scene).await?;
    ensure!(sizes == ["2Gi"; 5], "the object is Ready, and its volumes have {sizes:?}");
    ensure!(self::pods(scene).await?.is_superset(&pods), "a growth in use restarted servers");
    scene.one_after_the_other("zoo")?;
    scene.delete("zoo").await
}

/// Waits until the object says that a volume grows, with these words of Kubernetes.
async fn waits(scene: &Scene<'_>, words: &str) -> Result<String> {
    crate::patience::wait_for(&format!("Progressing says {words}"), crate::scene::PATIENCE, || async {
        let status = scene.get("zoo").await?.status.unwrap_or_default();
        let progressing = status.conditions.into_iter().find(|condition| condition.type_ == "Progressing");
        let message = progressing.map(|condition| condition.message).unwrap_or_default();
        ensure!(message.contains(words), "the message is {message}");
        Ok(message)
    })
    .await
}

/// Uids of the pods of servers.
async fn pods(scene: &Scene<'_>) -> Result<BTreeSet<String>> {
    let all = lists::<Pod>(scene).await?;
    Ok(all.into_iter().filter_map(|(_, pod)| pod.metadata.uid).collect())
}

/// The sizes that volumes have.
async fn sizes(scene: &Scene<'_>) -> Result<Vec<String>> {
    let all = lists::<PersistentVolumeClaim>(scene).await?;
    Ok(all.iter().map(|(_, claim)| capacity(claim).unwrap_or_default()).collect())
}

/// The objects of a kind in all members, with their clusters' clients.
async fn lists<K>(scene: &Scene<'_>) -> Result<Vec<(Client, K)>>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let lists = scene.federation.members.values().map(|client| async {
        let api: Api<K> = Api::namespaced(client.clone(), &scene.namespace);
        let found = api.list(&ListParams::default()).await?;
        anyhow::Ok(found.into_iter().map(|object| (client.clone(), object)).collect::<Vec<_>>())
    });
    Ok(try_join_all(lists).await?.concat())
}

fn requested(claim: &PersistentVolumeClaim) -> Option<String> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").map(|size| size.0.clone())
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.status.as_ref()?.capacity.as_ref()?.get("storage").map(|Quantity(size)| size.clone())
}

fn is_own(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.storage_class_name.as_deref() == Some(CLASS))
}

/// Makes the volumes of new claims, and takes each growth one step further, up to the limit. It never ends, except with an
/// error: two volumes must not grow at once.
async fn drive(scene: &Scene<'_>, limit: &AtomicU8) -> Result<()> {
    loop {
        let mut growing = Vec::new();
        for (client, claim) in lists::<PersistentVolumeClaim>(scene).await? {
            match capacity(&claim) {
                None => make(&client, &claim).await?,
                Some(size) if requested(&claim).as_ref() != Some(&size) => growing.push((client, claim)),
                Some(_) => {}
            }
        }
        let names: Vec<String> = growing.iter().map(|(_, claim)| claim.name_any()).collect();
        ensure!(names.len() < 2, "{names:?} grow at the same time");
        for (client, claim) in growing {
            step(&client, &claim, limit.load(Ordering::Relaxed)).await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Makes the volume of a claim, unless it is there. The controller of the cluster binds it.
async fn make(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let uid = claim.uid().unwrap_or_default();
    let volume = json!({ "metadata": { "name": format!("e2e-{uid}") }, "spec": {
        "capacity": { "storage": requested(claim) }, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
        "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": "e2e.example.com", "volumeHandle": uid },
        "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(),
            "name": claim.name_any(), "uid": uid },
    }});
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    match volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The next step of a growth.
async fn step(client: &Client, claim: &PersistentVolumeClaim, limit: u8) -> Result<()> {
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let has = |type_: &str| conditions.iter().any(|condition| condition.type_ == type_);
    let next = if has("FileSystemResizePending") {
        DONE
    } else if has("Resizing") {
        FILE_SYSTEM
    } else {
        RESIZING
    };
    if next > limit {
        return Ok(());
    }
    let size = requested(claim);
    if next == FILE_SYSTEM {
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let patch = json!({ "spec": { "capacity": { "storage": size } } });
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        volumes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    let condition = |type_: &str, message: &str| json!([{ "type": type_, "status": "True", "message": message }]);
    let status: Value = match next {
        RESIZING => json!({ "conditions": condition("Resizing", "") }),
        FILE_SYSTEM => json!({ "conditions": condition("FileSystemResizePending", "waiting for the kubelet") }),
        _ => json!({ "conditions": null, "capacity": { "storage": size } }),
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({ "status": status }));
    claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

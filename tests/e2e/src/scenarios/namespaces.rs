//! The deletion of an ensemble's namespace in the control plane. `docs/how-to/backup.md` warns of it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use mczk_api::contract::labels::ENSEMBLE_LABEL;
use serde_json::json;

use super::{
    control_plane::pods,
    refusals::{OVERRIDE, Refusal},
};
use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble},
};

const NAME: &str = "zoo";
/// An ensemble whose volumes end with it.
const BRIEF: &str = "brief";
/// Karmada's label on a namespace that it brings to no cluster.
const SKIP: &str = "namespace.karmada.io/skip-auto-propagation";
/// Kubernetes tries again after twice the time, at most after a minute, because the operator's objects are protected.
const SLOW: Duration = Duration::from_secs(300);

pub(super) async fn namespace_deleted(federation: &Federation) -> Result<()> {
    futures::try_join!(propagated(federation), kept(federation))?;
    Ok(())
}

/// Karmada has brought the namespace to the member clusters, and deletes it there after the ensemble. The volumes go with it,
/// although they should stay.
async fn propagated(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "namespace", Behaviour::default()).await?;
    scene.create(&ensemble(NAME, 3, &json!({ "template": { "storage": { "reclaim": "Retain" } } }))).await?;
    scene.settled(NAME).await?;
    scene.members_match(NAME).await?;
    ensure!(volumes(&scene, NAME).await?.len() == 3, "a server has no volume");
    let (before, generations) = (pods(&scene).await?, scene.generations(NAME).await?);
    // The operator cannot write the server list that ends the ensemble.
    let refusal = Refusal::of(&federation.karmada, &scene.namespace, OVERRIDE).await?;
    delete(&federation.karmada, &scene.namespace).await?;
    is_ending(&scene).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    serves(&scene).await?;
    ensure!(scene.generations(NAME).await? == generations, "a spec changed before the ensemble ended");
    let now = pods(&scene).await?;
    ensure!(now == before, "servers stopped before the ensemble ended: {now:?}, before {before:?}");
    refusal.ends().await?;
    is_gone(&federation.karmada, &scene.namespace).await.context("in the control plane")?;
    for (cluster, client) in &federation.members {
        is_gone(client, &scene.namespace).await.with_context(|| format!("in {cluster}"))?;
    }
    wait_for("no Work is left", PATIENCE, || async {
        let works = scene.works(NAME).await?;
        ensure!(works.is_empty(), "{works:?}");
        Ok(())
    })
    .await
}

/// Karmada leaves a namespace with its label alone, so the volumes stay or go as `reclaim` says.
async fn kept(federation: &Federation) -> Result<()> {
    let name = "namespace-kept";
    let object = json!({ "metadata": { "name": format!("e2e-{name}"), "labels": { SKIP: "true" } } });
    let object: Namespace = serde_json::from_value(object)?;
    for client in federation.members.values().chain([&federation.karmada]) {
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
    }
    let scene = Scene::new(federation, name, Behaviour::default()).await?;
    for (name, reclaim) in [(NAME, "Retain"), (BRIEF, "Delete")] {
        scene.create(&ensemble(name, 1, &json!({ "template": { "storage": { "reclaim": reclaim } } }))).await?;
    }
    for name in [NAME, BRIEF] {
        scene.settled(name).await?;
        ensure!(volumes(&scene, name).await?.len() == 1, "the server of {name} has no volume");
    }
    let before = volumes(&scene, NAME).await?;
    delete(&federation.karmada, &scene.namespace).await?;
    is_gone(&federation.karmada, &scene.namespace).await?;
    wait_for("the servers are gone, and one volume stays", PATIENCE, || async {
        for name in [NAME, BRIEF] {
            let objects = scene.in_members(name).await?;
            ensure!(objects.is_empty(), "{:?} have {name}", objects.keys());
        }
        let servers = pods(&scene).await?;
        ensure!(servers.is_empty(), "{servers:?}");
        let (stays, goes) = (volumes(&scene, NAME).await?, volumes(&scene, BRIEF).await?);
        ensure!(stays == before && goes.is_empty(), "the volumes are {stays:?} and {goes:?}, before {before:?}");
        Ok(())
    })
    .await?;
    for client in federation.members.values() {
        delete(client, &scene.namespace).await?;
    }
    Ok(())
}

async fn delete(client: &Client, namespace: &str) -> Result<()> {
    Api::<Namespace>::all(client.clone()).delete(namespace, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until Kubernetes deletes the ensemble, and has deleted what neither a finalizer nor Karmada protects.
async fn is_ending(scene: &Scene<'_>) -> Result<()> {
    wait_for("the ensemble is being deleted, without its Secrets", PATIENCE, || async {
        let object = scene.get(NAME).await?;
        ensure!(object.metadata.deletion_timestamp.is_some(), "it is not being deleted");
        let secrets = scene.api::<Secret>().list(&ListParams::default()).await?.items.len();
        ensure!(secrets == 0, "it has {secrets} Secrets");
        Ok(())
    })
    .await
}

/// Checks that each cluster has its server, in a namespace that is not being deleted.
async fn serves(scene: &Scene<'_>) -> Result<()> {
    for (cluster, client) in &scene.federation.members {
        let namespace = Api::<Namespace>::all(client.clone()).get(&scene.namespace).await?;
        ensure!(namespace.metadata.deletion_timestamp.is_none(), "Karmada deletes the namespace in {cluster}");
        let ready = scene.member(cluster, NAME).await?.status.unwrap_or_default().ready_replicas;
        ensure!(ready == Some(1), "{cluster} has {ready:?} ready servers");
    }
    Ok(())
}

/// Waits until a namespace is gone. Its conditions name what is left, and which finalizers hold it.
async fn is_gone(client: &Client, namespace: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait_for(&format!("the namespace {namespace} is gone"), SLOW, || async {
        let Some(found) = namespaces.get_opt(namespace).await? else { return Ok(()) };
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let left: Vec<String> = conditions.into_iter().filter_map(|condition| condition.message).collect();
        bail!("{left:?}")
    })
    .await
}

/// Uids of the volumes of an ensemble, in all member clusters.
async fn volumes(scene: &Scene<'_>, name: &str) -> Result<BTreeSet<Option<String>>> {
    let mut all = BTreeSet::new();
    for client in scene.federation.members.values() {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &scene.namespace);
        let own = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name}"));
        all.extend(claims.list(&own).await?.into_iter().map(|claim| claim.uid()));
    }
    Ok(all)
}

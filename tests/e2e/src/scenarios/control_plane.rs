//! The loss of the whole control plane, and the return of an older copy of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use mczk_api::{
    ZooKeeper,
    contract::labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
};
use serde_json::json;

use super::faults::deployed;
use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

const NAME: &str = "zoo";

pub(super) async fn adopted(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "adopted", 5).await?;
    let (pods, list) = (pods(&scene).await?, list(&scene).await?);
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "adopted").await?;
    scene.create(&ensemble(NAME, 5, &json!({}))).await?;
    let former = list.incarnation.clone().context("the list has no incarnation")?;
    waits_for(&scene, &former).await?;
    let waited = scene.get(NAME).await?.uid().context("no uid")?;
    let waited = mczk_api::contract::naming::incarnation(&waited, 0);
    scene.command(&["adopt", NAME, &former]).await?;
    scene.settled(NAME).await?;
    let now = self::list(&scene).await?;
    ensure!(now.servers == list.servers && now.incarnation == list.incarnation, "the servers are {now:?}");
    let tls = |list: &mczk_api::zookeeper::Ensemble| list.tls.as_ref().map(|tls| tls.trust.clone());
    ensure!(tls(&now) != tls(&list), "the key of the authority is lost, and it was not replaced");
    ensure!(self::pods(&scene).await? == pods, "pods were restarted");
    wait_for("nothing is left of the incarnation that waited", PATIENCE, || async {
        let left = left_in_members(&scene, &waited).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    scene.image(NAME, super::faults::SECOND).await?;
    scene.settled(NAME).await?;
    scene.one_after_the_other(NAME)
}

/// The former server is where the new object would get no voter, and so no object in the member cluster.
pub(super) async fn adopted_elsewhere(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "elsewhere", Behaviour::default()).await?;
    let only = federation.members.keys().next_back().context("there is no cluster")?;
    let there = json!({ "placement": { "clusterAffinity": { "clusterNames": [only] } } });
    scene.create(&ensemble(NAME, 1, &there)).await?;
    scene.settled(NAME).await?;
    let (pods, list) = (pods(&scene).await?, list(&scene).await?);
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "elsewhere").await?;
    scene.create(&ensemble(NAME, 1, &json!({}))).await?;
    let former = list.incarnation.clone().context("the list has no incarnation")?;
    waits_for(&scene, &former).await?;
    ensure!(self::pods(&scene).await? == pods, "servers started beside the former one");
    scene.command(&["adopt", NAME, &former]).await?;
    scene.settled(NAME).await?;
    ensure!(self::pods(&scene).await? == pods, "pods were restarted");
    wait_for("only the cluster with the server keeps the object", PATIENCE, || async {
        let objects = scene.in_members(NAME).await?;
        ensure!(objects.keys().eq([only]), "{:?} have it", objects.keys());
        Ok(())
    })
    .await
}

pub(super) async fn declared_over(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "over", 5).await?;
    let former = list(&scene).await?.incarnation.context("the list has no incarnation")?;
    let volumes = volumes(&scene, &former).await?;
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "over").await?;
    scene.create(&ensemble(NAME, 5, &json!({ "template": { "storage": { "reclaim": "Delete" } } }))).await?;
    waits_for(&scene, &former).await?;
    scene.command(&["declare-over", NAME, &former, "--yes"]).await?;
    scene.settled(NAME).await?;
    ensure!(list(&scene).await?.incarnation.as_ref() != Some(&former), "the former incarnation runs on");
    wait_for("the former servers stop", PATIENCE, || async {
        let pods = pods(&scene).await?;
        ensure!(!pods.keys().any(|(_, pod)| pod.contains(&former)), "{pods:?}");
        Ok(())
    })
    .await?;
    ensure!(self::volumes(&scene, &former).await? == volumes, "volumes of the former incarnation are gone");
    Ok(())
}

pub(super) async fn restored(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "restored", 5).await?;
    let copy = federation.folder.join("karmada.json");
    federation.rig.copy_karmada(&copy).await?;
    scene.change(NAME, json!({ "replicas": 7 })).await?;
    scene.settled(NAME).await?;
    let newest = list(&scene).await?;
    federation.restore_control_plane(&copy).await?;
    // The restored object declares five voters.
    wait_for("the operator follows the newest server list", PATIENCE, || async {
        let now = list(&scene).await?;
        ensure!(now.epoch > newest.epoch && now.servers.len() == 5, "the list is {now:?}");
        Ok(())
    })
    .await?;
    scene.settled(NAME).await?;
    scene.change(NAME, json!({ "replicas": 7 })).await?;
    scene.settled(NAME).await?;
    let now = list(&scene).await?;
    let reused = now.servers.iter().find(|server| {
        newest.servers.iter().all(|known| known.id != server.id) && Some(server.id) <= newest.highest_id
    });
    ensure!(reused.is_none() && now.servers.len() == 7, "server {reused:?} has an id that was given out before");
    scene.members_match(NAME).await.map(drop)
}

/// The namespace in the new control plane.
async fn again<'a>(scene: &Scene<'a>, name: &str) -> Result<Scene<'a>> {
    Scene::new(scene.federation, name, Behaviour::default()).await
}

/// Waits until the condition names what lives.
async fn waits_for(scene: &Scene<'_>, former: &str) -> Result<()> {
    let message = scene.condition(NAME, "Ready", "False", "IncarnationLives").await?;
    ensure!(message.contains(&format!("mczk adopt {NAME} {former}")), "{message}");
    Ok(())
}

/// The server list that all member clusters follow.
async fn list(scene: &Scene<'_>) -> Result<mczk_api::zookeeper::Ensemble> {
    let objects = scene.in_members(NAME).await?;
    let mut lists = objects.into_values().filter_map(|object: ZooKeeper| object.status?.ensemble);
    let first = lists.next().context("no member cluster follows a list")?;
    let same = lists.all(|list| list.hash == first.hash);
    ensure!(same, "the member clusters follow different lists");
    Ok(first)
}

/// Uids of all pods, by cluster and name.
async fn pods(scene: &Scene<'_>) -> Result<BTreeMap<(String, String), Option<String>>> {
    let mut all = BTreeMap::new();
    for (cluster, client) in &scene.federation.members {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &scene.namespace);
        let own = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={NAME}"));
        all.extend(pods.list(&own).await?.into_iter().map(|pod| ((cluster.clone(), pod.name_any()), pod.uid())));
    }
    Ok(all)
}

/// Uids of all volumes of an incarnation.
async fn volumes(scene: &Scene<'_>, incarnation: &str) -> Result<BTreeSet<Option<String>>> {
    let mut all = BTreeSet::new();
    for client in scene.federation.members.values() {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &scene.namespace);
        let own = ListParams::default().labels(&format!("{INCARNATION_LABEL}={incarnation}"));
        all.extend(claims.list(&own).await?.into_iter().map(|claim| claim.uid()));
    }
    ensure!(!all.is_empty(), "incarnation {incarnation} has no volume");
    Ok(all)
}

/// What Karmada brought for an incarnation, in all member clusters.
async fn left_in_members(scene: &Scene<'_>, incarnation: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (cluster, client) in &scene.federation.members {
        for (version, name, plural) in
            [("v1", "Secret", "secrets"), ("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serviceexports")]
        {
            let of_kind = kind(version, name, plural);
            let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client.clone(), &scene.namespace, &of_kind);
            let all = api.list(&ListParams::default()).await?.into_iter().map(|object| object.name_any());
            left.extend(all.filter(|name| name.contains(incarnation)).map(|name| format!("{name} in {cluster}")));
        }
    }
    Ok(left)
}

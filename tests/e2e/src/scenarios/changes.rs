//! Changes of a running ensemble.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use mczk_api::{MultiClusterZooKeeper, multiclusterzookeeper::RecordStatus};
use serde_json::{Value, json};

use crate::{
    agent::{BROKEN, Behaviour, SILENT, What},
    federation::Federation,
    patience::wait_for,
    scene::{IMAGE, PATIENCE, Scene, ensemble, kind},
};

const SECOND: &str = "zookeeper:3.9.6";
const THIRD: &str = "zookeeper:3.9.7";

pub(super) async fn deployed<'a>(
    federation: &'a Federation,
    name: &str,
    replicas: i32,
    more: Value,
) -> Result<Scene<'a>> {
    let scene = Scene::new(federation, name, Behaviour::default()).await?;
    scene.create(&ensemble("zoo", replicas, &more)).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    Ok(scene)
}

fn slow() -> Behaviour {
    Behaviour { restart: Duration::from_millis(1500), ..Behaviour::default() }
}

pub(super) async fn cluster_by_cluster(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "change", 5, json!({})).await?;
    let leader = scene.get("zoo").await?.status.and_then(|s| s.ensemble).and_then(|e| e.leader);
    let before = scene.generations("zoo").await?;
    scene.behave(slow())?;
    scene.image("zoo", SECOND).await?;
    let record = scene.first_deploying("zoo", 2).await?;
    if let Some(first) = record.current_state.deploying.first() {
        scene.has_image(first, "zoo", SECOND).await?;
    }
    for cluster in &record.current_state.pending {
        let object = scene.member(cluster, "zoo").await?;
        let image = &object.spec.template.image;
        ensure!(image == IMAGE, "{cluster} has {image} before its position");
        let generation = object.metadata.generation.unwrap_or(0);
        ensure!(before.get(cluster).map(|b| b.1) == Some(generation), "{cluster} changed before its position");
    }
    ensure!(record.order.last() == leader.as_ref().map(|l| &l.cluster), "the leader's cluster is not the last one");
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    let order = scene.history()?.order(&scene.key("zoo"), SECOND);
    ensure!(order == record.order, "clusters changed in the order {order:?}, not {:?}", record.order);
    Ok(())
}

pub(super) async fn second_change(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "second", 3, json!({})).await?;
    scene.behave(slow())?;
    scene.image("zoo", SECOND).await?;
    scene.first_deploying("zoo", 2).await?;
    scene.image("zoo", THIRD).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    let (history, key) = (scene.history()?, scene.key("zoo"));
    for image in [SECOND, THIRD] {
        let order = history.order(&key, image);
        ensure!(order.len() == 3, "only {order:?} received {image}:\n{}", history.first_lines(&key, 99));
    }
    let records = scene.get("zoo").await?.status.unwrap_or_default().records;
    ensure!(records.len() == 3, "the status has {} records after three generations", records.len());
    ensure!(records.iter().all(|r| r.status == RecordStatus::Ready), "a record is not Ready");
    Ok(())
}

pub(super) async fn superseded(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "stuck", 5, json!({})).await?;
    let broken = format!("zookeeper:{BROKEN}");
    scene.image("zoo", &broken).await?;
    let message = scene.condition("zoo", "Progressing", "False", "ClusterFailed").await?;
    let first = scene.record("zoo").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let clusters = scene.history()?.order(&scene.key("zoo"), &broken);
    ensure!(clusters.len() == 1, "the broken image reached {clusters:?}");
    ensure!(clusters.first().is_some_and(|cluster| message.contains(cluster.as_str())), "the message is {message}");
    scene.image("zoo", THIRD).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let records = scene.get("zoo").await?.status.unwrap_or_default().records;
    let superseded = records.iter().filter(|record| record.status == RecordStatus::Superseded).count();
    ensure!(superseded == 1, "{superseded} records are superseded: {records:?}");
    let record = scene.record("zoo").await?;
    ensure!(record.order.first() == first.order.first(), "the stuck cluster is not the first of {:?}", record.order);
    let clusters = scene.history()?.order(&scene.key("zoo"), &broken);
    ensure!(clusters.len() == 1, "the broken image reached {clusters:?}");
    scene.one_after_the_other("zoo")
}

pub(super) async fn no_progress(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "no-progress", 3, json!({ "rollout": { "progressDeadlineSeconds": 3 } })).await?;
    let silent = format!("zookeeper:{SILENT}");
    scene.image("zoo", &silent).await?;
    scene.condition("zoo", "Progressing", "False", "ProgressDeadlineExceeded").await?;
    scene.image("zoo", THIRD).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let clusters = scene.history()?.order(&scene.key("zoo"), &silent);
    ensure!(clusters.len() == 1, "the silent image reached {clusters:?}");
    scene.one_after_the_other("zoo")
}

pub(super) async fn scaled(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "scale", 3, json!({})).await?;
    let ids = |held: &std::collections::BTreeMap<String, mczk_api::ZooKeeper>| -> Vec<i32> {
        let servers = held.values().next().map(|o| o.spec.ensemble.servers.clone()).unwrap_or_default();
        servers.iter().map(|s| s.id).collect()
    };
    let three = ids(&scene.members_match("zoo").await?);
    let patch = Patch::Merge(json!({ "spec": { "replicas": 7 } }));
    scene.api::<MultiClusterZooKeeper>().patch_scale("zoo", &PatchParams::default(), &patch).await?;
    scene.settled("zoo").await?;
    let seven = ids(&scene.members_match("zoo").await?);
    ensure!(three.iter().all(|id| seven.contains(id)), "ids changed from {three:?} to {seven:?}");
    scene.one_after_the_other("zoo")?;
    scene.change("zoo", json!({ "replicas": 3 })).await?;
    scene.settled("zoo").await?;
    let again = ids(&scene.members_match("zoo").await?);
    ensure!(again.iter().all(|id| seven.contains(id)), "a removal changed ids from {seven:?} to {again:?}");
    scene.change("zoo", json!({ "replicas": 5 })).await?;
    scene.settled("zoo").await?;
    let five = ids(&scene.members_match("zoo").await?);
    let reused: Vec<_> = five.iter().filter(|id| seven.contains(id) && !again.contains(id)).collect();
    ensure!(reused.is_empty(), "removed ids were used again: {reused:?}");
    scene.one_after_the_other("zoo")
}

pub(super) async fn no_cluster_matches(federation: &Federation) -> Result<()> {
    let three = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2", "m3"] } });
    let scene = deployed(federation, "nowhere", 3, json!({ "placement": three })).await?;
    let (before, records) = (scene.generations("zoo").await?, scene.record("zoo").await?);
    scene.change("zoo", json!({ "placement": { "clusterAffinity": { "clusterNames": ["m9"] } } })).await?;
    scene.condition("zoo", "Scheduled", "False", "NoClusterMatches").await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    ensure!(scene.generations("zoo").await? == before, "specs changed");
    for (cluster, object) in scene.in_members("zoo").await? {
        let started = object.status.as_ref().and_then(|s| s.started_replicas);
        ensure!(started == Some(1) && object.spec.replicas == 1, "{cluster} runs {started:?}");
    }
    scene.change("zoo", json!({ "placement": three })).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    ensure!(scene.generations("zoo").await? == before, "specs changed when the placement returned");
    ensure!(scene.record("zoo").await?.order == records.order, "a record began, though no spec changed");
    Ok(())
}

pub(super) async fn observers(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "observers", 3, json!({})).await?;
    scene.change("zoo", json!({ "observers": [{ "cluster": "m1", "count": 2 }] })).await?;
    scene.settled("zoo").await?;
    let object = scene.member("m1", "zoo").await?;
    let status = object.status.unwrap_or_default();
    ensure!(status.completed_spec_hash == object.spec.spec_hash, "m1 has not completed its spec");
    let modes: Vec<_> = status.servers.iter().filter_map(|s| s.mode.clone()).filter(|m| m == "observer").collect();
    ensure!(modes.len() == 2 && status.voting_members.len() == 3, "m1 reports {:?}", status.servers);
    scene.change("zoo", json!({ "observers": [] })).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")
}

pub(super) async fn cluster_leaves(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "leaves", 3, json!({})).await?;
    scene.change("zoo", json!({ "placement": { "clusterAffinity": { "exclude": ["m3"] } } })).await?;
    scene.settled("zoo").await?;
    let held = scene.members_match("zoo").await?;
    ensure!(!held.contains_key("m3"), "m3 still has servers");
    wait_for("m3 has no object", PATIENCE, || async {
        let left = scene.in_members("zoo").await?.remove("m3");
        ensure!(left.is_none(), "m3 has {left:?}");
        Ok(())
    })
    .await?;
    scene.one_after_the_other("zoo")?;
    scene.change("zoo", json!({ "placement": null })).await?;
    scene.settled("zoo").await?;
    ensure!(scene.members_match("zoo").await?.len() == 3, "m3 has no servers again");
    scene.one_after_the_other("zoo")?;
    scene.delete("zoo").await
}

pub(super) async fn imported(federation: &Federation) -> Result<()> {
    let elsewhere = json!({ "placement": { "clusterAffinity": { "exclude": ["m3"] } } });
    let scene = deployed(federation, "imported", 3, elsewhere).await?;
    let before = scene.generations("zoo").await?;
    let client = federation.members.get("m3").cloned().context("there is no cluster m3")?;
    let kind = kind("multicluster.x-k8s.io/v1alpha1", "ServiceImport", "serviceimports");
    let imports: Api<DynamicObject> = Api::namespaced_with(client, &scene.namespace, &kind);
    let import_is = |wanted: bool| {
        let imports = &imports;
        wait_for(if wanted { "m3 has the import" } else { "m3 has no import" }, PATIENCE, move || async move {
            let found = imports.get_opt("zoo").await?;
            let port = found.as_ref().and_then(|import| import.data.pointer("/spec/ports/0/port"));
            ensure!(port == wanted.then(|| json!(2181)).as_ref(), "m3 has {found:?}");
            Ok(())
        })
    };
    scene.change("zoo", json!({ "network": { "importClusters": ["m3"] } })).await?;
    import_is(true).await?;
    scene.change("zoo", json!({ "network": { "importClusters": null } })).await?;
    import_is(false).await?;
    let after = scene.generations("zoo").await?;
    ensure!(after == before, "an import changed the servers: {before:?}, then {after:?}");
    scene.delete("zoo").await
}

pub(super) async fn one_cluster_differs(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "differs", 3, json!({})).await?;
    let before = scene.generations("zoo").await?;
    scene.change("zoo", json!({ "overrides": [{ "cluster": "m2", "image": SECOND }] })).await?;
    scene.settled("zoo").await?;
    scene.has_image("m2", "zoo", SECOND).await?;
    let after = scene.generations("zoo").await?;
    for (cluster, generation) in &before {
        ensure!((after.get(cluster) != Some(generation)) == (cluster == "m2"), "{before:?}, then {after:?}");
    }
    scene.one_after_the_other("zoo")
}

pub(super) async fn paused_and_ordered(federation: &Federation) -> Result<()> {
    let order = json!({ "rollout": { "order": "Listed", "clusters": ["m3", "m1", "m2"], "holdSeconds": 2 } });
    let scene = deployed(federation, "ordered", 3, order).await?;
    let before = scene.generations("zoo").await?;
    scene.change("zoo", json!({ "rollout": { "paused": true }, "template": { "image": SECOND } })).await?;
    scene.condition("zoo", "Progressing", "False", "Paused").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(scene.generations("zoo").await? == before, "specs changed while paused");
    scene.change("zoo", json!({ "rollout": { "paused": false } })).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let (history, key) = (scene.history()?, scene.key("zoo"));
    let order = history.order(&key, SECOND);
    ensure!(order == ["m3", "m1", "m2"], "clusters changed in the order {order:?}");
    let at: Vec<_> = order
        .iter()
        .filter_map(|cluster| {
            let has = |what: &What| matches!(what, What::Spec { spec_hash: Some(_), image, .. } if image == SECOND);
            history.of(&key).find(|e| e.cluster == *cluster && has(&e.what)).map(|e| e.at)
        })
        .collect();
    for pair in at.windows(2) {
        if let [earlier, later] = pair {
            let gap = *later - *earlier;
            ensure!(gap >= Duration::from_secs(2), "the next cluster began after {gap:?}, holdSeconds is 2");
        }
    }
    scene.one_after_the_other("zoo")
}

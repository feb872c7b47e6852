//! Divisions of the voters that users leave to Karmada's scheduler. It counts room, so the members get nodes here, without
//! kubelets.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{FutureExt, future::select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

const NODE: &str = "e2e-room";
/// Processors and memory of the members. Karmada counts at most 110 servers of 1Gi on the node of m1, and 32 on each other one.
const ROOM: [(&str, &str, &str); 3] = [("m1", "4000", "100Ti"), ("m2", "4", "63Gi"), ("m3", "4", "63Gi")];
/// Less than the time after which a node without a heartbeat is not Ready.
const HEARTBEAT: Duration = Duration::from_secs(5);

pub(super) async fn by_karmada(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "divided", Behaviour::default()).await?;
    let divided = |scheduling: Value| json!({ "placement": { "replicaScheduling": scheduling } });
    let dynamic = divided(json!({ "weightPreference": { "dynamicWeight": "AvailableReplicas" } }));
    let aggregated = divided(json!({ "replicaDivisionPreference": "Aggregated" }));
    let (room, few) = (ensemble("room", 5, &dynamic), ensemble("few", 3, &aggregated));
    for waits in [&room, &few, &ensemble("late", 1, &aggregated)] {
        scene.create(waits).await?;
    }
    scene.create(&ensemble("each", 1, &divided(json!({ "replicaSchedulingType": "Duplicated" })))).await?;
    for name in ["room", "few", "late"] {
        let message = scene.condition(name, "Scheduled", "False", "NotScheduled").await?;
        let parts = ["available replicas 0 are not enough", "To change: spec.replicas, spec.template.resources"];
        ensure!(parts.iter().all(|part| message.contains(part)), "the message of {name} is {message}");
    }
    for name in ["room", "few"] {
        scene.delete(name).await?;
    }
    scene.settled("each").await?;
    ensure!(counts(&scene, "each").await? == [1, 1, 1], "Duplicated gives {:?}", counts(&scene, "each").await?);
    quorum_safe(&scene, "each", "True", "Spread").await?;
    let nodes = nodes(federation)?;
    let beats = nodes.iter().map(|(node, amounts)| heartbeats(node, amounts).boxed());
    let result = tokio::select! {
        result = with_room(&scene, [&room, &few]) => result,
        (failed, _, _) = select_all(beats) => failed,
    };
    for (node, _) in &nodes {
        node.delete(NODE, &DeleteParams::default()).await?;
    }
    result?;
    for name in ["room", "few", "late", "each"] {
        scene.delete(name).await?;
    }
    Ok(())
}

async fn with_room(scene: &Scene<'_>, again: [&Value; 2]) -> Result<()> {
    // Karmada counts the room of new nodes first, and the operator asks it again: a wait for itself.
    scene.condition("late", "Scheduled", "True", "Placed").await?;
    scene.settled("late").await?;
    // Karmada counts the room of the clusters one after the other. Its scheduler does not wait for the last one.
    for (cluster, _, memory) in ROOM {
        counts_room(scene, cluster, "memory", memory).await?;
    }
    for object in again {
        scene.create(object).await?;
    }
    for name in ["room", "few"] {
        scene.condition(name, "Scheduled", "True", "Placed").await?;
        scene.settled(name).await?;
        scene.members_match(name).await?;
        // The user wants it so. The condition states what it costs.
        let message = quorum_safe(scene, name, "False", "ClusterHoldsMajority").await?;
        ensure!(message.contains("m1"), "the message of {name} is {message}");
    }
    ensure!(counts(scene, "few").await? == [3, 0, 0], "Aggregated gives {:?}", counts(scene, "few").await?);
    let before = counts(scene, "room").await?;
    ensure!(before == [3, 1, 1], "dynamic weights give {before:?}");
    let servers = servers(scene).await?;
    // Room that vanishes moves no voter, and new ones go where room is left.
    let first = ROOM[0].0;
    let none = json!({ "status": { "allocatable": { "pods": "1" } } });
    node(scene.federation, first)?.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&none)).await?;
    let generations = scene.generations("room").await?;
    counts_room(scene, first, "pods", "1").await?;
    ensure!(scene.generations("room").await? == generations, "vanished room changed the servers");
    scene.change("room", json!({ "replicas": 7 })).await?;
    scene.settled("room").await?;
    scene.members_match("room").await?;
    let after = counts(scene, "room").await?;
    ensure!(after[0] == before[0] && after.iter().sum::<i32>() == 7, "{before:?} became {after:?}");
    let now = self::servers(scene).await?;
    ensure!(servers.iter().all(|(id, place)| now.get(id) == Some(place)), "voters moved from {servers:?} to {now:?}");
    scene.one_after_the_other("room")
}

/// Waits until Karmada counts this much of a resource in a cluster.
async fn counts_room(scene: &Scene<'_>, cluster: &str, resource: &str, amount: &str) -> Result<()> {
    wait_for("Karmada counts the room", PATIENCE, || async {
        let clusters: Api<DynamicObject> = Api::all_with(
            scene.federation.karmada.clone(),
            &kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters"),
        );
        let found = clusters.get(cluster).await?;
        let counted = found.data.pointer(&format!("/status/resourceSummary/allocatable/{resource}")).cloned();
        ensure!(counted == Some(json!(amount)), "{cluster} has room for {counted:?}");
        Ok(())
    })
    .await
}

/// The voters in each cluster.
async fn counts(scene: &Scene<'_>, name: &str) -> Result<[i32; 3]> {
    let objects = scene.in_members(name).await?;
    Ok(ROOM.map(|(cluster, ..)| objects.get(cluster).map_or(0, |object| object.spec.replicas)))
}

/// Cluster and ordinal of each server of `room`.
async fn servers(scene: &Scene<'_>) -> Result<BTreeMap<i32, (String, i32)>> {
    let list = scene.member(ROOM[0].0, "room").await?.spec.ensemble.servers;
    Ok(list.into_iter().map(|server| (server.id, (server.cluster, server.ordinal))).collect())
}

async fn quorum_safe(scene: &Scene<'_>, name: &str, status: &str, reason: &str) -> Result<String> {
    scene.condition(name, "QuorumSafe", status, reason).await
}

/// The nodes of a member.
fn node(federation: &Federation, cluster: &str) -> Result<Api<Node>> {
    federation.members.get(cluster).cloned().map(Api::all).with_context(|| format!("there is no cluster {cluster}"))
}

/// The nodes of the members, and what they have.
fn nodes(federation: &Federation) -> Result<Vec<(Api<Node>, Value)>> {
    let of = |(name, cpu, memory): (&str, &str, &str)| {
        let amounts = json!({ "cpu": cpu, "memory": memory, "ephemeral-storage": "100Ti", "pods": "8000" });
        Ok((node(federation, name)?, amounts))
    };
    ROOM.into_iter().map(of).collect()
}

/// Makes a node and keeps it Ready. It never ends, except with an error.
async fn heartbeats(nodes: &Api<Node>, amounts: &Value) -> Result<()> {
    let node = json!({ "metadata": { "name": NODE } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let first = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&first)).await?;
    loop {
        let now = Timestamp::now().to_string();
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now }]);
        let beat = json!({ "status": { "conditions": ready } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&beat)).await?;
        tokio::time::sleep(HEARTBEAT).await;
    }
}

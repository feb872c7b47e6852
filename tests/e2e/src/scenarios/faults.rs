//! Faults of the control plane and of member clusters.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use mczk_api::{MultiClusterZooKeeper, ZooKeeper, contract::naming::policy_name, multiclusterzookeeper::RecordStatus};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;

use crate::{
    agent::Behaviour,
    federation::{Federation, OPERATOR_USER},
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

pub(super) const SECOND: &str = "zookeeper:3.9.6";

pub(super) async fn deployed<'a>(federation: &'a Federation, name: &str, restart: u64) -> Result<Scene<'a>> {
    voters(federation, name, 5, restart).await
}

async fn voters<'a>(federation: &'a Federation, name: &str, count: i32, restart: u64) -> Result<Scene<'a>> {
    let scene = Scene::new(federation, name, Behaviour::default()).await?;
    scene.create(&ensemble("zoo", count, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.behave(Behaviour { restart: Duration::from_millis(restart), ..Behaviour::default() })?;
    Ok(scene)
}

pub(super) async fn registration_lost(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "unregistered", 3000).await?;
    scene.image("zoo", SECOND).await?;
    let record = scene.first_deploying("zoo", 2).await?;
    let first = record.current_state.deploying.first().context("no cluster deploys")?;
    scene.has_image(first, "zoo", SECOND).await?;
    let before = scene.generations("zoo").await?;

    let webhooks: Api<DynamicObject> = Api::all_with(
        federation.karmada.clone(),
        &kind(
            "config.karmada.io/v1alpha1",
            "ResourceInterpreterWebhookConfiguration",
            "resourceinterpreterwebhookconfigurations",
        ),
    );
    // With the credential of the operator, as helm test has it.
    let operator = federation.rig.kubeconfig(OPERATOR_USER).display().to_string();
    let check = ["check-webhook", "--kubeconfig", &operator];
    federation.run(&check).await?;
    let registered = webhooks.list(&ListParams::default()).await?;
    ensure!(!registered.items.is_empty(), "no interpreter is registered");
    for object in registered {
        webhooks.delete(&object.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    }
    let error = federation.run(&check).await.err().context("check-webhook finds no fault without a registration")?;
    ensure!(format!("{error:#}").contains("there is no registration"), "the message is {error:#}");
    let touch = json!({ "metadata": { "annotations": { "example.org/touched": "by hand" } } });
    scene.api::<ZooKeeper>().patch("zoo", &PatchParams::default(), &Patch::Merge(&touch)).await?;
    federation.rig.restart("karmada-controller-manager").await?;
    scene.condition("zoo", "Scheduled", "False", "NotInterpreted").await?;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let now = scene.generations("zoo").await?;
    ensure!(now == before, "specs changed without a registration from {before:?} to {now:?}");
    for (cluster, object) in scene.in_members("zoo").await? {
        ensure!(object.spec.replicas > 0, "{cluster} was scaled to 0");
    }
    federation.register().await?;
    // Karmada asks again when the template is touched.
    let touch = json!({ "metadata": { "annotations": { "example.org/touched": "again" } } });
    scene.api::<ZooKeeper>().patch("zoo", &PatchParams::default(), &Patch::Merge(&touch)).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")
}

pub(super) async fn api_server_restarts(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "restart", 1500).await?;
    scene.image("zoo", SECOND).await?;
    scene.first_deploying("zoo", 2).await?;
    federation.rig.restart("karmada-apiserver").await?;
    federation.karmada_ready().await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    federation.operator_alive().await?;
    scene.one_after_the_other("zoo")
}

pub(super) async fn operator_killed(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "killed", 400).await?;
    let chosen: u64 = match std::env::var("E2E_SEED") {
        Ok(text) => text.parse().context("E2E_SEED is not a number")?,
        Err(_) => rand::random(),
    };
    println!("operator_killed: E2E_SEED={chosen}");
    let mut random = StdRng::seed_from_u64(chosen);
    let mut image = String::new();
    for kill in 0..10 {
        if kill % 3 == 0 {
            image = format!("zookeeper:3.9.{}", 10 + kill);
            scene.image("zoo", &image).await?;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        federation.kill_operator().await?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..800))).await;
        federation.start_operator().await?;
    }
    let object = scene.settled("zoo").await.with_context(|| format!("seed {chosen}"))?;
    scene.members_match("zoo").await.with_context(|| format!("seed {chosen}"))?;
    scene.one_after_the_other("zoo").with_context(|| format!("seed {chosen}"))?;
    for record in object.status.unwrap_or_default().records {
        ensure!(record.status == RecordStatus::Ready, "seed {chosen}: a record is not Ready: {record:?}");
        let mut completed = record.current_state.completed.clone();
        let mut order = record.order.clone();
        completed.sort();
        order.sort();
        ensure!(completed == order && order.len() == 3, "seed {chosen}: a cluster was skipped: {record:?}");
    }
    let order = scene.history()?.order(&scene.key("zoo"), &image);
    ensure!(order.len() == 3, "seed {chosen}: only {order:?} received the last image");
    Ok(())
}

pub(super) async fn two_operators(federation: &Federation) -> Result<()> {
    let other = federation.another_operator().await?;
    let scene = deployed(federation, "twice", 600).await?;
    scene.image("zoo", SECOND).await?;
    scene.first_deploying("zoo", 2).await?;
    scene.image("zoo", "zookeeper:3.9.8").await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    other.stop().await?;
    federation.operator_alive().await
}

pub(super) async fn everything_lost(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "lost", 200).await?;
    scene.image("zoo", SECOND).await?;
    scene.settled("zoo").await?;
    let servers = |held: &BTreeMap<String, ZooKeeper>| {
        held.values().next().map(|o| (o.spec.ensemble.incarnation.clone(), o.spec.ensemble.servers.clone()))
    };
    let before = servers(&scene.members_match("zoo").await?);
    federation.stop_operator().await?;
    // Karmada calls the webhook before it renders, so the webhook must run.
    let webhook = federation.webhook_alone().await?;
    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    scene.delete_by_force(&overrides, &policy_name("zoo")).await?;
    let wipe: Patch<()> = Patch::Json(serde_json::from_value(json!([{ "op": "remove", "path": "/status" }]))?);
    scene.api::<MultiClusterZooKeeper>().patch_status("zoo", &PatchParams::default(), &wipe).await?;
    // Karmada removes the overrides in member clusters.
    wait_for("the objects in member clusters are held", PATIENCE, || async {
        for (cluster, object) in scene.in_members("zoo").await? {
            ensure!(object.spec.spec_hash.is_none(), "{cluster} still has a cluster spec");
            ensure!(object.spec.replicas == 0, "{cluster} has {} replicas and no cluster spec", object.spec.replicas);
        }
        Ok(())
    })
    .await?;
    webhook.stop().await?;
    federation.start_operator().await?;
    scene.settled("zoo").await?;
    let after = servers(&scene.members_match("zoo").await?);
    ensure!(before == after, "servers changed from {before:?} to {after:?}");
    Ok(())
}

pub(super) async fn cluster_lost(federation: &Federation) -> Result<()> {
    // With nine voters, five of the remaining six are still a majority during a restart.
    let scene = voters(federation, "away", 9, 200).await?;
    scene.create(&ensemble("onward", 9, &json!({ "rollout": { "onFailure": "Continue" } }))).await?;
    scene.settled("onward").await?;
    let without_m2 = json!({ "placement": { "clusterAffinity": { "exclude": ["m2"] } } });
    scene.create(&ensemble("wider", 3, &without_m2)).await?;
    scene.settled("wider").await?;
    federation.rig.stop("m2/apiserver").await?;
    let result = while_m2_is_away(&scene).await;
    federation.rig.start("m2/apiserver").await?;
    federation.rig.ready("m2").await?;
    result?;
    scene.settled("wider").await?;
    let voters: Vec<i32> = scene.members_match("wider").await?.values().map(|object| object.spec.replicas).collect();
    ensure!(voters == [1, 1, 1], "the member clusters have {voters:?} voters");
    for name in ["zoo", "onward"] {
        scene.settled(name).await?;
        scene.members_match(name).await?;
        let order = scene.history()?.order(&scene.key(name), SECOND);
        ensure!(
            order.last().is_some_and(|last| last == "m2") && order.len() == 3,
            "clusters changed in the order {order:?}"
        );
        scene.one_after_the_other(name)?;
    }
    let records = scene.get("onward").await?.status.unwrap_or_default().records;
    let last = records.last().context("onward has no record")?;
    ensure!(last.order.contains(&"m2".to_owned()), "the cluster that returned has no record: {last:?}");
    Ok(())
}

async fn while_m2_is_away(scene: &Scene<'_>) -> Result<()> {
    let message = scene.condition("zoo", "Degraded", "True", "ClusterUnreachable").await?;
    ensure!(message.contains("m2"), "the message does not name m2: {message}");
    // Karmada would give all voters to the others, and leave them there.
    scene.change("wider", json!({ "placement": null })).await?;
    let message = scene.condition("wider", "Scheduled", "False", "OtherDivision").await?;
    ensure!(message.contains("cluster m2 is not Ready"), "the message does not name m2: {message}");
    scene.image("zoo", SECOND).await?;
    let message = scene.condition("zoo", "Progressing", "False", "ClusterUnreachable").await?;
    ensure!(message.contains("m2"), "the message does not name m2: {message}");
    for cluster in ["m1", "m3"] {
        scene.has_image(cluster, "zoo", SECOND).await?;
    }
    // The other rollout ends without m2, as its record shows.
    scene.image("onward", SECOND).await?;
    wait_for("onward is rolled out without m2", PATIENCE, || async {
        let record = scene.record("onward").await?;
        let order = &record.order;
        ensure!(record.status == RecordStatus::Ready && !order.contains(&"m2".to_owned()), "{record:?}");
        ensure!(record.current_state.completed.len() == 2, "{record:?}");
        Ok(())
    })
    .await
}

pub(super) async fn unsupported(federation: &Federation) -> Result<()> {
    // A newer CRD may allow values that this version does not support.
    let definitions: Api<CustomResourceDefinition> = Api::all(federation.karmada.clone());
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rollout/properties/order/enum";
    let looser: Patch<()> = Patch::Json(serde_json::from_value(json!([{ "op": "remove", "path": path }]))?);
    definitions.patch("multiclusterzookeepers.mczk.io", &PatchParams::default(), &looser).await?;
    let scene = Scene::new(federation, "unsupported", Behaviour::default()).await?;
    let unsupported = ensemble("unsupported", 3, &json!({ "rollout": { "order": "Random" } }));
    wait_for("the API server uses the looser definition", PATIENCE, || async {
        scene
            .untyped(API_VERSION, KIND, PLURAL)
            .create(&PostParams::default(), &serde_json::from_value(unsupported.clone())?)
            .await?;
        Ok(())
    })
    .await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    wait_for("a condition names the unsupported value", PATIENCE, || async {
        let object = scene.untyped(API_VERSION, KIND, PLURAL).get("unsupported").await?;
        let text = object.data.get("status").map(ToString::to_string).unwrap_or_default();
        ensure!(text.contains("UnsupportedSpec") && text.contains("Random"), "the status is {text}");
        Ok(())
    })
    .await?;
    ensure!(scene.in_members("unsupported").await?.is_empty(), "member clusters have the unsupported object");
    let output = federation.register().await?;
    let fixed = output.lines().any(|l| l.contains("multiclusterzookeepers.mczk.io") && !l.contains("unchanged"));
    ensure!(fixed, "mczk register did not restore the definition: {output}");
    scene.change("unsupported", json!({ "rollout": null })).await?;
    scene.settled("unsupported").await?;
    scene.members_match("unsupported").await?;
    Ok(())
}

const API_VERSION: &str = "mczk.io/v1alpha1";
const KIND: &str = "MultiClusterZooKeeper";
const PLURAL: &str = "multiclusterzookeepers";

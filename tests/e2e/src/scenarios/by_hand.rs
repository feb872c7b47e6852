//! What people do by hand.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mczk::{
    api::{MultiClusterZooKeeper, ZooKeeper},
    contract::naming::policy_name,
};
use serde_json::json;

use crate::{
    agent::{Behaviour, What},
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

fn pins(objects: &BTreeMap<String, ZooKeeper>) -> BTreeMap<String, (Option<String>, Option<i32>)> {
    let started = |o: &ZooKeeper| o.status.as_ref().and_then(|s| s.started_replicas);
    objects.iter().map(|(cluster, o)| (cluster.clone(), (o.spec.spec_hash.clone(), started(o)))).collect()
}

pub(super) async fn policies_and_work_deleted(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "hands", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    let records = scene.settled("zoo").await?.status.unwrap_or_default().records.len();
    let before = pins(&scene.members_hold("zoo").await?);
    let uids = |generations: BTreeMap<String, (String, i64)>| -> BTreeMap<String, String> {
        generations.into_iter().map(|(cluster, (uid, _))| (cluster, uid)).collect()
    };
    let same = uids(scene.generations("zoo").await?);

    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    let policies = scene.untyped("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies");
    let (namespace, work) = scene.works("zoo").await?.into_iter().next().context("there is no Work")?;
    let works = Api::namespaced_with(
        federation.karmada.clone(),
        &namespace,
        &kind("work.karmada.io/v1alpha1", "Work", "works"),
    );
    for (api, name) in [(&overrides, policy_name("zoo")), (&policies, policy_name("zoo")), (&works, work)] {
        let gone = api.get(&name).await?.metadata.uid;
        scene.delete_by_force(api, &name).await?;
        wait_for(&format!("{name} is back"), PATIENCE, || async {
            let now = api.get_opt(&name).await?.context("it is gone")?;
            ensure!(now.metadata.uid != gone && now.metadata.deletion_timestamp.is_none(), "it is going");
            Ok(())
        })
        .await?;
        scene.settled("zoo").await?;
        let now = pins(&scene.members_hold("zoo").await?);
        ensure!(now == before, "after the deletion of {name} the members hold {now:?} and not {before:?}");
    }
    ensure!(uids(scene.generations("zoo").await?) == same, "members' objects were made anew");
    let now = scene.get("zoo").await?.status.unwrap_or_default().records.len();
    ensure!(now == records, "{now} records, and {records} before: something was rolled");
    scene.image("zoo", "zookeeper:3.9.9").await?;
    scene.settled("zoo").await?;
    scene.members_hold("zoo").await?;
    scene.delete("zoo").await
}

pub(super) async fn pin_edited(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "edited", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    let before = pins(&scene.members_hold("zoo").await?);
    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    let whole = overrides.get(&policy_name("zoo")).await?.data;
    let mut edited = overrides.get(&policy_name("zoo")).await?;
    let rules = edited.data.pointer_mut("/spec/overrideRules").and_then(serde_json::Value::as_array_mut);
    for rule in rules.context("the OverridePolicy has no rules")? {
        for patch in
            rule.pointer_mut("/overriders/plaintext").and_then(serde_json::Value::as_array_mut).into_iter().flatten()
        {
            if patch.get("path") == Some(&json!("/spec")) {
                for (place, foreign) in
                    [("/value/replicas", json!(0)), ("/value/template/image", json!("zookeeper:foreign"))]
                {
                    *patch.pointer_mut(place).context("a pin lacks what is edited")? = foreign;
                }
            }
        }
    }
    overrides.replace(&policy_name("zoo"), &kube::api::PostParams::default(), &edited).await?;
    wait_for("the OverridePolicy says again what it said", PATIENCE, || async {
        let now = overrides.get(&policy_name("zoo")).await?;
        ensure!(now.data.get("spec") == whole.get("spec"), "it says something else");
        Ok(())
    })
    .await?;
    scene.settled("zoo").await?;
    let now = pins(&scene.members_hold("zoo").await?);
    ensure!(now == before, "the members hold {now:?} and not {before:?}");
    // The agents may have seen the edited pins, and must not have obeyed them.
    for entry in scene.history()?.of(&scene.key("zoo")) {
        if let What::Completed(pin) = &entry.what {
            let given = before.values().any(|(own, _)| own.as_ref() == Some(pin));
            ensure!(given, "{} completed a pin that nobody gave it", entry.cluster);
        }
    }
    scene.delete("zoo").await
}

pub(super) async fn status_wiped(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "wiped", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.image("zoo", "zookeeper:3.9.7").await?;
    let before = scene.settled("zoo").await?.status.unwrap_or_default();
    let generations = scene.generations("zoo").await?;
    let wipe: Patch<()> = Patch::Json(serde_json::from_value(json!([{ "op": "remove", "path": "/status" }]))?);
    scene.api::<MultiClusterZooKeeper>().patch_status("zoo", &PatchParams::default(), &wipe).await?;
    let after = scene.settled("zoo").await?.status.unwrap_or_default();
    ensure!(after.records == before.records, "records were {:?} and are {:?}", before.records, after.records);
    ensure!(after.ensemble == before.ensemble, "the ensemble was {:?} and is {:?}", before.ensemble, after.ensemble);
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(scene.generations("zoo").await? == generations, "members were touched");
    scene.law("zoo")
}

pub(super) async fn policy_deleted_while_rolling(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "torn", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.settled("zoo").await?;
    let ids = servers(&scene.members_hold("zoo").await?);
    scene.behave(Behaviour { restart: Duration::from_millis(1500), ..Behaviour::default() })?;
    scene.image("zoo", "zookeeper:3.9.5").await?;
    scene.first_deploying("zoo", 2).await?;
    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    scene.delete_by_force(&overrides, &policy_name("zoo")).await?;
    scene.settled("zoo").await?;
    let now = servers(&scene.members_hold("zoo").await?);
    ensure!(now == ids, "servers changed: {ids:?}, then {now:?}");
    Ok(())
}

/// Every server: id, cluster and ordinal.
fn servers(objects: &BTreeMap<String, ZooKeeper>) -> Vec<(i32, String, i32)> {
    let list = objects.values().next().map(|o| o.spec.ensemble.servers.clone()).unwrap_or_default();
    list.into_iter().map(|s| (s.id, s.cluster, s.ordinal)).collect()
}

//! Edits by hand.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::naming::policy_name,
    multiclusterzookeeper::{EnsembleStatus, MultiClusterZooKeeperStatus},
};
use serde_json::json;

use crate::{
    agent::{Behaviour, What},
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, conditions, ensemble, kind},
};

fn cluster_specs(objects: &BTreeMap<String, ZooKeeper>) -> BTreeMap<String, (Option<String>, Option<i32>)> {
    let started = |o: &ZooKeeper| o.status.as_ref().and_then(|s| s.started_replicas);
    objects.iter().map(|(cluster, o)| (cluster.clone(), (o.spec.spec_hash.clone(), started(o)))).collect()
}

pub(super) async fn policies_and_work_deleted(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "hands", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    let records = scene.settled("zoo").await?.status.unwrap_or_default().records.len();
    let before = cluster_specs(&scene.members_match("zoo").await?);
    let uids = |generations: BTreeMap<String, (String, i64)>| -> BTreeMap<String, String> {
        generations.into_iter().map(|(cluster, (uid, _))| (cluster, uid)).collect()
    };
    let same = uids(scene.generations("zoo").await?);

    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    let policies = scene.untyped("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies");
    let (namespace, work) = scene.works("zoo").await?.into_iter().next().context("no Work exists")?;
    let works = Api::namespaced_with(
        federation.karmada.clone(),
        &namespace,
        &kind("work.karmada.io/v1alpha1", "Work", "works"),
    );
    for (api, name) in [(&overrides, policy_name("zoo")), (&policies, policy_name("zoo")), (&works, work)] {
        let gone = api.get(&name).await?.metadata.uid;
        scene.delete_by_force(api, &name).await?;
        wait_for(&format!("{name} exists again"), PATIENCE, || async {
            let now = api.get_opt(&name).await?.context("it does not exist")?;
            ensure!(now.metadata.uid != gone && now.metadata.deletion_timestamp.is_none(), "it is being deleted");
            Ok(())
        })
        .await?;
        scene.settled("zoo").await?;
        let now = cluster_specs(&scene.members_match("zoo").await?);
        ensure!(now == before, "after the deletion of {name} the member clusters have {now:?}, not {before:?}");
    }
    ensure!(uids(scene.generations("zoo").await?) == same, "objects in member clusters were recreated");
    let now = scene.get("zoo").await?.status.unwrap_or_default().records.len();
    ensure!(now == records, "{now} records, and {records} before the deletions");
    scene.image("zoo", "zookeeper:3.9.9").await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.delete("zoo").await
}

pub(super) async fn cluster_spec_edited(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "edited", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    let before = cluster_specs(&scene.members_match("zoo").await?);
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
                    *patch.pointer_mut(place).context("a cluster spec lacks the edited field")? = foreign;
                }
            }
        }
    }
    overrides.replace(&policy_name("zoo"), &kube::api::PostParams::default(), &edited).await?;
    wait_for("the operator reverts the OverridePolicy", PATIENCE, || async {
        let now = overrides.get(&policy_name("zoo")).await?;
        ensure!(now.data.get("spec") == whole.get("spec"), "it still differs");
        Ok(())
    })
    .await?;
    scene.settled("zoo").await?;
    let now = cluster_specs(&scene.members_match("zoo").await?);
    ensure!(now == before, "the member clusters have {now:?}, not {before:?}");
    // Agents may have received the edited specs, and must not have accepted them.
    for entry in scene.history()?.of(&scene.key("zoo")) {
        if let What::Completed(hash) = &entry.what {
            let is_known = before.values().any(|(known, _)| known.as_ref() == Some(hash));
            ensure!(is_known, "{} completed an edited spec", entry.cluster);
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
    // The last restart may have been that of the leader: servers elect, and report, as long as they need.
    let ensemble =
        |status: MultiClusterZooKeeperStatus| status.ensemble.map(|now| EnsembleStatus { leader: None, ..now });
    let (before, after) = (ensemble(before), ensemble(after));
    ensure!(after == before, "the ensemble was {before:?} and is {after:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(scene.generations("zoo").await? == generations, "specs changed");
    scene.one_after_the_other("zoo")
}

pub(super) async fn policy_deleted_while_rolling(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "torn", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.settled("zoo").await?;
    let ids = servers(&scene.members_match("zoo").await?);
    scene.behave(Behaviour { restart: Duration::from_millis(1500), ..Behaviour::default() })?;
    scene.image("zoo", "zookeeper:3.9.6").await?;
    scene.first_deploying("zoo", 2).await?;
    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    scene.delete_by_force(&overrides, &policy_name("zoo")).await?;
    scene.settled("zoo").await?;
    let now = servers(&scene.members_match("zoo").await?);
    ensure!(now == ids, "servers changed from {ids:?} to {now:?}");
    Ok(())
}

/// Id, cluster and ordinal of every server.
fn servers(objects: &BTreeMap<String, ZooKeeper>) -> Vec<(i32, String, i32)> {
    let list = objects.values().next().map(|o| o.spec.ensemble.servers.clone()).unwrap_or_default();
    list.into_iter().map(|s| (s.id, s.cluster, s.ordinal)).collect()
}

/// Adds one field to an owned object, and waits until the operator has removed it.
async fn add_field(api: &Api<kube::api::DynamicObject>, name: &str, patch: serde_json::Value) -> Result<()> {
    let whole = api.get(name).await?;
    let meta = |o: &kube::api::DynamicObject| (o.metadata.labels.clone(), o.metadata.annotations.clone());
    let patched = api.patch(name, &PatchParams::apply("kubectl-edit"), &Patch::Merge(&patch)).await?;
    ensure!(
        patched.data.get("spec") != whole.data.get("spec") || meta(&patched) != meta(&whole),
        "{patch} changes nothing"
    );
    wait_for(&format!("the operator removes {patch} from {name}"), SECONDS, || async {
        let now = api.get(name).await?;
        ensure!(now.data.get("spec") == whole.data.get("spec") && meta(&now) == meta(&whole), "it is still there");
        Ok(())
    })
    .await
}

/// What a hand edit may last.
const SECONDS: Duration = Duration::from_secs(10);

pub(super) async fn fields_added(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "added", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.settled("zoo").await?;
    let before = scene.members_match("zoo").await?;
    let records = scene.get("zoo").await?.status.unwrap_or_default().records.len();
    let overrides = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    let policies = scene.untyped("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies");
    let templates = scene.untyped("mczk.io/v1alpha1", "ZooKeeper", "zookeepers");
    let exports = scene.untyped("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serviceexports");
    let policy = policy_name("zoo");
    let mut rules = overrides.get(&policy).await?.data.pointer("/spec/overrideRules").cloned().unwrap_or_default();
    let first = rules.pointer_mut("/0/overriders").and_then(serde_json::Value::as_object_mut);
    let image = json!([{ "component": "Registry", "operator": "replace", "value": "example.com" }]);
    first.context("the OverridePolicy has no rules")?.insert("imageOverrider".to_owned(), image);
    let label = json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "example.com/x": "y" } } });
    let placement = |more| json!({ "spec": { "placement": more } });
    let template = |more| json!({ "spec": { "template": more } });
    for (api, name, patch) in [
        (&policies, policy.as_str(), placement(json!({ "clusterAffinity": { "exclude": ["m1"] } }))),
        (
            &policies,
            &policy,
            placement(json!({ "spreadConstraints": [{ "spreadByField": "cluster", "maxGroups": 2 }] })),
        ),
        (&overrides, &policy, json!({ "spec": { "overrideRules": rules } })),
        (&templates, "zoo", template(json!({ "zooCfg": [{ "name": "maxClientCnxns", "value": "7" }] }))),
        (&templates, "zoo", template(json!({ "scheduling": { "priorityClassName": "high" } }))),
        (&policies, &policy, label.clone()),
        (&templates, "zoo", label.clone()),
        (&exports, "zoo", label),
    ] {
        add_field(api, name, patch).await?;
        scene.settled("zoo").await?;
        scene.members_match("zoo").await?;
    }
    let now = scene.get("zoo").await?.status.unwrap_or_default().records.len();
    ensure!(now == records, "a field that was added by hand started a record");
    let now = scene.members_match("zoo").await?;
    ensure!(servers(&now) == servers(&before), "voters moved: {now:?}, before {before:?}");
    ensure!(cluster_specs(&now) == cluster_specs(&before), "cluster specs changed: {now:?}, before {before:?}");
    scene.delete("zoo").await
}

/// A controller of a user that sets a label whenever it is not there.
pub(super) async fn contested(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "contested", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    let policies = scene.untyped("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies");
    let policy = policy_name("zoo");
    let label = json!({ "metadata": { "labels": { "cost": "a" } } });
    let writer = async {
        loop {
            // The operator may write at the same time.
            let _ = policies.patch(&policy, &PatchParams::apply("cost-labels"), &Patch::Merge(&label)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let named = wait_for("a condition names the other writer", PATIENCE, || async {
        let object = scene.get("zoo").await?;
        ensure!(conditions(&object).contains("the last other writer is cost-labels"), conditions(&object));
        Ok(())
    });
    tokio::select! {
        () = writer => {}
        named = named => named?,
    }
    wait_for("the label is gone", PATIENCE, || async {
        let labels = policies.get(&policy).await?.metadata.labels.unwrap_or_default();
        ensure!(!labels.contains_key("cost"), "{labels:?}");
        Ok(())
    })
    .await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.delete("zoo").await
}

pub(super) async fn template_deleted(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "template", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    let before = scene.members_match("zoo").await?;
    let templates = scene.untyped("mczk.io/v1alpha1", "ZooKeeper", "zookeepers");
    let gone = templates.get("zoo").await?.metadata.uid;
    scene.delete_by_force(&templates, "zoo").await?;
    wait_for("the template exists again", PATIENCE, || async {
        let now = templates.get_opt("zoo").await?.context("it does not exist")?;
        ensure!(now.metadata.uid != gone, "it is being deleted");
        Ok(())
    })
    .await?;
    scene.settled("zoo").await?;
    let now = scene.members_match("zoo").await?;
    ensure!(servers(&now) == servers(&before), "servers changed");
    ensure!(cluster_specs(&now) == cluster_specs(&before), "cluster specs changed");
    scene.image("zoo", "zookeeper:3.9.9").await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.delete("zoo").await
}

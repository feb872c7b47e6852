//! First deployments.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams},
};
use mczk_api::ZooKeeper;
use serde_json::{Value, json};

use crate::{
    agent::{Behaviour, What},
    audit,
    federation::{Federation, OPERATOR_USER},
    scene::{IMAGE, Scene, ensemble},
};

pub(super) async fn right_after_registration(federation: &Federation) -> Result<()> {
    federation.register().await?;
    let scene = Scene::new(federation, "early", Behaviour::default()).await?;
    scene.create(&ensemble("early", 3, &json!({}))).await?;
    // The operator lists what it reads of four ensembles in one namespace.
    let beside = ["a", "b", "c"];
    for name in beside {
        scene.create(&ensemble(name, 1, &json!({}))).await?;
    }
    let begin = audit::end(&federation.rig.audit_log())?;
    federation.start_operator().await?;
    scene.settled("early").await?;
    let requests = audit::read(&federation.rig.audit_log(), begin, OPERATOR_USER)?;
    for resource in ["multiclusterzookeepers", "resourcebindings"] {
        let mut lists = requests.iter().filter(|request| request.verb == "list" && request.resource == resource);
        let has_listed = lists.any(|request| request.is_accepted() && !request.namespace.is_empty());
        ensure!(has_listed, "the operator has not listed the {resource} of a namespace");
    }
    let held = scene.members_match("early").await?;
    ensure!(held.len() == federation.members.len(), "only {:?} hold servers", held.keys());
    scene.one_after_the_other("early")?;
    for name in beside {
        scene.settled(name).await?;
        scene.delete(name).await?;
    }
    scene.delete("early").await
}

pub(super) async fn in_order(federation: &Federation) -> Result<()> {
    let slow = Behaviour { start: Duration::from_millis(1500), ..Behaviour::default() };
    let scene = Scene::new(federation, "order", slow).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    let record = scene.first_deploying("zoo", 1).await?;
    for cluster in &record.current_state.pending {
        let object = scene.member(cluster, "zoo").await?;
        ensure!(object.spec.replicas == 0, "{cluster} has {} replicas before its position", object.spec.replicas);
        ensure!(object.spec.spec_hash.is_none(), "{cluster} has a cluster spec before its position");
    }
    let object = scene.settled("zoo").await?;
    let held = scene.members_match("zoo").await?;
    ensure!(held.len() == 3, "only {:?} hold servers", held.keys());
    let mut numbers: Vec<i32> = held.values().map(|o| o.spec.replicas).collect();
    numbers.sort_unstable();
    ensure!(numbers == [1, 2, 2], "5 voters are divided as {numbers:?}");
    scene.one_after_the_other("zoo")?;
    let history = scene.history()?;
    let order = history.order(&scene.key("zoo"), IMAGE);
    ensure!(order == record.order, "clusters received their spec in the order {order:?}, not {:?}", record.order);
    for cluster in &record.order {
        let key = scene.key("zoo");
        let first = history.of(&key).find(|entry| entry.cluster == *cluster).context("the cluster has no object")?;
        let is_held = matches!(&first.what, What::Spec { replicas: 0, spec_hash: None, .. });
        ensure!(is_held, "{cluster} did not begin with 0 replicas: {:?}", first.what);
    }
    let status = object.status.unwrap_or_default();
    ensure!(status.records.len() == 1, "{} records after one deployment", status.records.len());
    ensure!(status.ready_replicas == Some(5), "readyReplicas is {:?}", status.ready_replicas);
    let safe = status.conditions.iter().find(|c| c.type_ == "QuorumSafe").map(|c| c.status.as_str());
    ensure!(safe == Some("True"), "QuorumSafe is {safe:?}");
    Ok(())
}

pub(super) async fn two_at_once(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "two", Behaviour::default()).await?;
    scene.create(&ensemble("one", 3, &json!({}))).await?;
    scene.create(&ensemble("other", 5, &json!({ "template": { "image": "zookeeper:3.9.2" } }))).await?;
    let (one, other) = (scene.settled("one").await?, scene.settled("other").await?);
    let id = |o: &mczk_api::MultiClusterZooKeeper| {
        o.status.as_ref().and_then(|s| s.ensemble.as_ref()).map(|e| e.incarnation.clone())
    };
    ensure!(id(&one) != id(&other), "two ensembles have the same incarnation");
    for name in ["one", "other"] {
        scene.members_match(name).await?;
        scene.one_after_the_other(name)?;
    }
    scene.delete("one").await?;
    scene.members_match("other").await?;
    Ok(())
}

pub(super) async fn refused(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "refused", Behaviour::default()).await?;
    let long = "n".repeat(41);
    let setting = json!({ "template": { "zooCfg": [{ "name": "dataDir", "value": "/tmp" }] } });
    let cases: [(&str, i32, Value, &str); 6] = [
        ("zero", 0, json!({}), "spec.replicas"),
        (&long, 3, json!({}), "at most 40 characters"),
        ("setting", 3, setting, "the operator manages this setting"),
        ("affinities", 3, json!({ "placement": { "clusterAffinities": [{}] } }), "clusterAffinities is not supported"),
        (
            "observers",
            99,
            json!({ "observers": [{ "cluster": "m1", "count": 99 }, { "cluster": "m2", "count": 99 }] }),
            "254",
        ),
        ("listed", 3, json!({ "rollout": { "order": "Listed" } }), "clusters is required with order Listed"),
    ];
    for (name, replicas, more, expected) in cases {
        match scene.create(&ensemble(name, replicas, &more)).await {
            Ok(_) => bail!("{name} was accepted"),
            Err(error) => ensure!(format!("{error:#}").contains(expected), "{name}: the message is {error:#}"),
        }
    }
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    let smaller = json!({ "template": { "storage": { "size": "1Mi" } } });
    let error = scene.change("zoo", smaller).await.err().context("a smaller volume was accepted")?;
    ensure!(format!("{error:#}").contains("size can only grow"), "the message is {error:#}");
    scene.settled("zoo").await?;
    scene.delete("zoo").await
}

pub(super) async fn foreign_template(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "foreign", Behaviour::default()).await?;
    let spec = json!({
        "replicas": 1, "template": { "image": "somebody/elses:1", "storage": { "size": "1Gi" } },
        "renderVersion": 1, "serverImage": "none", "tls": { "quorum": true }, "revision": "foreign", "ensemble": {},
    });
    let foreign = json!({
        "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "metadata": { "name": "taken" }, "spec": spec
    });
    let templates = scene.untyped("mczk.io/v1alpha1", "ZooKeeper", "zookeepers");
    let made: DynamicObject = templates.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    scene.create(&ensemble("taken", 3, &json!({}))).await?;
    let message = scene.condition("taken", "Ready", "False", "NameConflict").await?;
    ensure!(message.contains("ZooKeeper taken"), "the message does not name the object: {message}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let now: ZooKeeper = scene.api::<ZooKeeper>().get("taken").await?;
    ensure!(
        now.uid() == made.metadata.uid && now.metadata.generation == made.metadata.generation,
        "its generation changed"
    );
    ensure!(now.owner_references().is_empty() && now.labels().is_empty(), "it was adopted");
    templates.delete("taken", &DeleteParams::default()).await?;
    scene.settled("taken").await?;
    scene.members_match("taken").await?;
    scene.one_after_the_other("taken")?;
    scene.delete("taken").await
}

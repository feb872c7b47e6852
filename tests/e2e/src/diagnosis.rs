//! Collects the state of a namespace after a scenario fails.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, Result};
use kube::{Api, Client, ResourceExt, api::ListParams};
use mczk_api::{MultiClusterZooKeeper, ZooKeeper};

use crate::{federation::Federation, scene::conditions};

/// The time limit of each request, because an API server may be down.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of objects of a kind.
const OBJECTS: u32 = 4;
/// The number of events of an object. A rollout over three clusters has about 20.
const EVENTS: usize = 80;
/// The number of lines of the operator's log.
const LOGGED: usize = 6;
/// The length of a line, in characters.
const WIDTH: usize = 600;

/// The state of a namespace in the control plane, the member clusters and the agents, in lines.
pub async fn of(federation: &Federation, namespace: &str) -> String {
    let mut text = format!("namespace {namespace}\n");
    let mut line = |line: String| {
        let _ = writeln!(text, "  {}", line.chars().take(WIDTH).collect::<String>());
    };
    match list::<MultiClusterZooKeeper>(&federation.karmada, namespace).await {
        Ok(objects) => {
            for object in objects {
                let deleted = object.metadata.deletion_timestamp.as_ref().map(|at| format!(", deleted {}", at.0));
                line(format!("{}{}: {}", object.name_any(), deleted.unwrap_or_default(), conditions(&object)));
            }
        }
        Err(error) => line(format!("the control plane does not answer: {error:#}")),
    }
    logged(&federation.operator_log(), namespace).into_iter().for_each(&mut line);
    for (cluster, client) in &federation.members {
        match list::<ZooKeeper>(client, namespace).await {
            Ok(objects) if objects.is_empty() => line(format!("{cluster}: no object")),
            Ok(objects) => objects.iter().for_each(|object| line(format!("{cluster}: {}", member(object)))),
            Err(error) => line(format!("{cluster} does not answer: {error:#}")),
        }
    }
    if let Some(agents) = &federation.agents {
        let history = agents.history();
        for key in history.keys(namespace) {
            let count = history.of(&key).count();
            line(format!("the last {} of {count} events of {}:", count.min(EVENTS), key.name));
            history.last_lines(&key, EVENTS).lines().for_each(|event| line(event.to_owned()));
        }
    }
    text
}

/// The last lines of the operator's log about a namespace, or about its lease and failures.
fn logged(log: &Path, namespace: &str) -> Vec<String> {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let tells = |line: &&str| [namespace, " WARN ", " ERROR ", "lease="].iter().any(|word| line.contains(word));
    let mut last: Vec<String> =
        text.lines().rev().filter(tells).take(LOGGED).map(|line| format!("operator: {line}")).collect();
    last.reverse();
    last
}

async fn list<K>(client: &Client, namespace: &str) -> Result<Vec<K>>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().limit(OBJECTS);
    Ok(tokio::time::timeout(PATIENCE, api.list(&params)).await.context("no answer")??.items)
}

/// The object of a member cluster in a line: its spec and its status.
fn member(object: &ZooKeeper) -> String {
    let short = |hash: &Option<String>| hash.as_ref().map_or("-".to_owned(), |hash| hash.chars().take(8).collect());
    let number = |n: Option<i32>| n.map_or("-".to_owned(), |n| n.to_string());
    let epoch = |n: Option<i64>| n.map_or("-".to_owned(), |n| n.to_string());
    let (meta, spec, status) = (&object.metadata, &object.spec, object.status.clone().unwrap_or_default());
    let mut text = format!(
        "{} {} generation {}, pin {}, replicas {}, {}, list {} of {}{}",
        object.name_any(),
        short(&meta.uid),
        meta.generation.unwrap_or(0),
        short(&spec.spec_hash),
        spec.replicas,
        spec.template.image,
        epoch(spec.ensemble.epoch),
        spec.ensemble.incarnation.as_deref().unwrap_or("-"),
        if spec.ensemble.phase.is_ending() { ", decommissioning" } else { "" },
    );
    if let Some(at) = &meta.deletion_timestamp {
        // Writing to a String cannot fail.
        let _ = write!(text, ", deleted {} but for {:?}", at.0, object.finalizers());
    }
    let _ = write!(
        text,
        "; reports generation {}, pin {} (completed {}), list {}, servers {}, started {}, serving {}, voting {:?}",
        epoch(status.observed_generation),
        short(&status.observed_spec_hash),
        short(&status.completed_spec_hash),
        epoch(status.epoch()),
        number(status.replicas),
        number(status.started_replicas),
        number(status.ready_replicas),
        status.voting_members,
    );
    for condition in &status.conditions {
        let _ = write!(text, ", {}={} {}", condition.type_, condition.status, condition.reason);
    }
    text
}

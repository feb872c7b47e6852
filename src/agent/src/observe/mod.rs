//! Reads everything that a decision depends on: live, from the API server and from the servers themselves. [`volumes`] also
//! requests larger volumes, since a refusal is an input of the decision.

pub(crate) mod certificates;
pub(crate) mod next_pod;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod pod_failure;
pub(crate) mod pods;
pub(crate) mod probes;
pub(crate) mod servers;
pub(crate) mod snapshot;
pub(crate) mod spare;
pub(crate) mod tombstones;
pub(crate) mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt, api::DynamicObject};
use serde_json::Value;

use crate::{
    context::{AgentContext, FIELD_MANAGER},
    observe::{
        nodes::{DrainedServers, PodNodes},
        snapshot::MemberSnapshot,
    },
};
use mczk_api::{
    ZooKeeper,
    contract::labels::INCARNATION_LABEL,
    zookeeper::{Ensemble, Role},
};
use mczk_rules::agent::decide::{
    accept::{self, Acceptance},
    observation::{Claim, Observation},
};
use mczk_runtime::failure::{During, Error, is_forbidden};

/// Result of an observation.
pub(super) enum Outcome {
    /// The object does not exist any more.
    Gone,
    /// This version of mczk cannot parse the object.
    Unreadable(Box<DynamicObject>, String),
    /// Everything was read.
    Observed(Box<MemberSnapshot>),
}

pub(super) async fn observe(key: &(String, String), context: &AgentContext) -> Result<Outcome, Error> {
    let (namespace, name) = key;
    let reading = || format!("reading ZooKeeper {namespace}/{name}");
    let Some(raw) = context.zookeepers(namespace).get_opt(name).await.during(reading)? else {
        return Ok(Outcome::Gone);
    };
    let stored = raw.data.get("spec").cloned().unwrap_or(Value::Null);
    let value = serde_json::to_value(&raw).during(|| "reading an object as JSON".to_owned())?;
    let object: ZooKeeper = match serde_path_to_error::deserialize(value) {
        Ok(object) => object,
        Err(error) => return Ok(Outcome::Unreadable(Box::new(raw), error.to_string())),
    };
    if let Some(why) = accept::not_understood(&object) {
        return Ok(Outcome::Unreadable(Box::new(raw), why.to_owned()));
    }
    let (memory, cluster) = (context.memory(key, &object.uid().unwrap_or_default()), cluster_name(&object, context));
    let mut live = objects::owned(context, key).await?;
    let configurations = objects::configurations(&object, &live);
    let acceptance = accept::acceptance(&object, &stored, cluster.as_deref(), &configurations);
    let list = accept::newest(accept::delivered_lists(&object, &stored, &acceptance), &[]).cloned();
    let (probes, pods): (Vec<Pod>, Vec<Pod>) = pods::read(context, key).await?.into_iter().partition(probes::is_probe);
    let probes = probes::read(&probes, object.spec.preflight.as_ref(), cluster.as_deref()).await;
    let live_claims = volumes::read(context, key).await?;
    let nodes = nodes(&object, list.as_ref(), (&pods, &live_claims), context).await;
    let failures = pod_failure::read((&pods, &live_claims), &memory.pod_failures, &context.client).await;
    context.remember(key, |memory| memory.pod_failures.clone_from(&failures));
    let claims: Vec<Claim> = live_claims.iter().filter_map(volumes::claim).collect();
    let local_server = |pod: &Pod| pods::local_server(pod, &nodes, (&claims, &failures), &memory);
    let servers: Vec<_> = pods.iter().filter_map(local_server).collect();
    if acceptance == Acceptance::Accepted {
        volumes::grow(&object, list.as_ref(), (&claims, &servers), context).await?;
    }
    certificates::copies(context, namespace, name, list.as_ref(), &mut live).await?;
    let quorum = certificates::quorum(context, namespace, name, list.as_ref(), &live).await?;
    let client_certificates = certificates::client(context, &object, list.as_ref(), &live).await?;
    let lifetimes = certificates::lifetimes(quorum.mounted.as_ref(), client_certificates.material.as_ref());
    let (client, unusable) = servers::client(&object, &quorum, context);
    Box::pin(next_pod::check_missing(key, &live, (&pods, &live_claims), &memory, context)).await?;
    let tombstones = tombstones::read(context, namespace, &object, list.as_ref(), &live).await?;
    let observation = Observation {
        configurations,
        sets: live.values().filter_map(objects::server_set).collect(),
        servers,
        probes,
        // With what was refused just now.
        refusals: context.memory(key, &memory.uid).writes.refusals(),
        claims,
        refused_deletions: memory.refused_deletions(),
        gone: nodes.gone,
        unread_nodes: nodes.unread,
        remaining: remaining(&live),
        tombstones,
        views: Vec::new(),
        quorum_certificates: quorum.newest,
        missing_secrets: quorum.missing,
        missing_for: memory.missing_since.map_or(Duration::ZERO, |since| since.elapsed()),
        tls: list.as_ref().and_then(|list| list.tls.clone()),
        mounted_certificates: quorum.mounted,
        lifetimes,
        client_certificates,
        foreign: memory.foreign.clone(),
        obstacles: unusable.into_iter().collect(),
        published: memory.published.clone(),
        due_for: memory.due.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed()),
        missing_voters: memory.missing_voters.clone(),
        locked_for: memory.locked_since.map_or(Duration::ZERO, |since| since.elapsed()),
        lock_failure: memory.lock_failure.clone(),
        spare: Box::pin(spare::read(key, &object, cluster.as_deref(), &memory, context)).await,
        holder: format!("{}/{FIELD_MANAGER}/{}", cluster.as_deref().unwrap_or_default(), context.options.instance),
        object,
        stored,
        cluster,
        cluster_id: cluster_id(context).await?,
    };
    let mut snapshot = MemberSnapshot { observation, live, hosts: BTreeMap::new(), client, memory };
    if let Some(list) = &list {
        servers::poll(&mut snapshot, list, &pods::addresses(&pods)).await;
        snapshot.observation.note_missing_voters(context.began.elapsed());
    }
    Ok(Outcome::Observed(Box::new(snapshot)))
}

pub(crate) fn cluster_name(object: &ZooKeeper, context: &AgentContext) -> Option<String> {
    let annotation = |annotation: &str| object.annotations().get(annotation).map(String::as_str);
    accept::cluster_name(annotation, context.options.cluster.as_deref()).map(str::to_owned)
}

/// The id that Karmada stores when the cluster joins. An agent without that right reports none.
async fn cluster_id(context: &AgentContext) -> Result<Option<String>, Error> {
    if let Some(known) = context.cluster_id.get() {
        return Ok(Some(known.clone()));
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let id = match namespaces.get_metadata_opt("kube-system").await {
        // A new API server creates it a moment later.
        Ok(namespace) => namespace.and_then(|namespace| namespace.uid()),
        // The right may come later.
        Err(error) if is_forbidden(&error) => None,
        Err(error) => return Err(error).during(|| "reading the namespace kube-system".to_owned()),
    };
    Ok(id.map(|id| context.cluster_id.get_or_init(|| id).clone()))
}

/// Incarnations that still have any object.
fn remaining(live: &objects::LiveObjects) -> BTreeSet<String> {
    live.values().filter_map(|object| object.labels().get(INCARNATION_LABEL).cloned()).collect()
}

/// The nodes of pods.
async fn nodes(
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    (pods, claims): (&[Pod], &[PersistentVolumeClaim]),
    context: &AgentContext,
) -> PodNodes {
    let voters = list.iter().flat_map(|list| &list.servers).filter(|server| server.role == Role::Voter).count();
    let labels = &object.spec.template.scheduling.as_ref().map(|s| s.node_selector.clone()).unwrap_or_default();
    nodes::read(&DrainedServers { pods, claims, labels, voters }, &context.client).await
}

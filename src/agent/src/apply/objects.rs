//! Writes rendered objects that differ from the live ones, and removes what the current revision no longer needs.

use std::{collections::BTreeSet, time::Instant};

use kube::{
    ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::{
    apply::removal::delete,
    context::{AgentContext, FIELD_MANAGER},
    observe::{objects::revision, snapshot::MemberSnapshot},
    write_history::ObjectVerb,
};
use mczk_api::contract::{
    canonical_json::short_hash,
    labels::{APPLIED_HASH, INCARNATION_LABEL, REVISION_LABEL},
    owned_fields::{differing_path, managers},
};
use mczk_rules::agent::{
    decide::Decision,
    render::{
        self,
        amount::is_same_amount,
        object::{Kind, Object},
        source::Source,
    },
};
use mczk_runtime::failure::{During, Error, is_conflict};

/// What became of one object.
enum WriteOutcome {
    Unchanged,
    Written,
    /// An object of this name exists and is not the agent's.
    NameConflict,
}

/// Writes what differs. Returns true if it wrote or deleted anything.
pub(crate) async fn apply(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<bool, Error> {
    let (Some(replicas), Some(list)) = (decision.replicas, &decision.list) else { return Ok(false) };
    let source = snapshot.observation.source(list, replicas);
    let wanted =
        render::render(&source).map_err(|error| Error::Other { category: "render", message: error.to_string() })?;
    let lacks_certificates = snapshot.observation.lacks_client_certificates(list);
    let stays = |object: &&Object| {
        let live = snapshot.live.get(&(object.kind, object.name.clone()));
        (decision.keeps_clients && source.is_for_clients(object))
            || lacks_certificates && waits_for_certificates(&source, object, is_of_servers(live))
    };
    let due: Vec<&Object> = wanted.iter().filter(|object| !stays(object)).collect();
    let (wrote, mut foreign) = write_all(snapshot, context, due).await?;
    // Only applications read this ConfigMap: the servers do not need it.
    foreign.remove(&(Kind::ConfigMap.name().to_owned(), source.clients()));
    // The probe has stored its own in this pass.
    let probes = decision.probes.incarnation.is_some();
    // A StatefulSet that lost its labels still creates pods, of a revision that the agent does not see.
    let sees_sets = foreign.iter().all(|(kind, _)| kind != Kind::StatefulSet.name());
    context.remember(key, |memory| {
        if !probes {
            memory.foreign.clear();
        }
        memory.foreign.extend(foreign);
    });
    let removed = sees_sets && remove_surplus(snapshot, &source, &wanted, context).await?;
    Ok(wrote || removed)
}

/// Writes those objects that differ. Returns true if it wrote any, and kinds and names of objects that are not the agent's.
pub(super) async fn write_all(
    snapshot: &MemberSnapshot,
    context: &AgentContext,
    objects: impl IntoIterator<Item = &Object>,
) -> Result<(bool, BTreeSet<(String, String)>), Error> {
    let (mut wrote, mut foreign) = (false, BTreeSet::new());
    for object in objects {
        let live = snapshot.live.get(&(object.kind, object.name.clone()));
        match write_if_different(snapshot, context, object, live).await? {
            WriteOutcome::Unchanged => {}
            WriteOutcome::Written => wrote = true,
            WriteOutcome::NameConflict => drop(foreign.insert((object.kind.name().to_owned(), object.name.clone()))),
        }
    }
    Ok((wrote, foreign))
}

async fn write_if_different(
    snapshot: &MemberSnapshot,
    context: &AgentContext,
    object: &Object,
    live: Option<&DynamicObject>,
) -> Result<WriteOutcome, Error> {
    let (value, hash) = with_applied_hash(object, live)?;
    let (key, name) = (&snapshot.key(), (object.kind.name(), object.name.clone(), ObjectVerb::Write));
    if let Some(live) = live {
        let difference = difference(live, &value);
        let who = difference.as_ref().map(|path| other_writer(live, path));
        context.remember(key, |memory| memory.writes.observed(&name, &hash, who, Instant::now()));
        if difference.is_none() {
            return Ok(WriteOutcome::Unchanged);
        }
    } else if exists(snapshot, context, object).await? {
        return Ok(WriteOutcome::NameConflict);
    }
    let write = async {
        match write(snapshot, context, object, value, live).await {
            // It appeared since the agent looked for it.
            Err(error) if live.is_none() && is_conflict(&error) => {
                debug!(%error, "an object of this name appeared");
                Ok(WriteOutcome::NameConflict)
            }
            other => other.during(|| format!("writing {} {}", name.0, name.1)).map(|()| WriteOutcome::Written),
        }
    };
    Ok(context.attempt(key, (name.0, &name.1, name.2), &hash, write).await?.unwrap_or(WriteOutcome::Unchanged))
}

/// Who has changed the field at this path. An admission policy or webhook changes what the agent sends, so that the API server
/// takes the agent for the writer.
fn other_writer(live: &DynamicObject, path: &[String]) -> String {
    let mut others = managers(live.managed_fields(), path);
    others.remove(FIELD_MANAGER);
    let others: Vec<String> = others.into_iter().collect();
    let who = if others.is_empty() { "an admission policy or webhook".to_owned() } else { others.join(", ") };
    format!("{who} changes {}", path.join("."))
}

/// Removes what no pod of this incarnation uses any more: the observers' StatefulSet, server configurations of former
/// revisions, and the agent's copy of the client certificates.
async fn remove_surplus(
    snapshot: &MemberSnapshot,
    source: &Source<'_>,
    wanted: &[Object],
    context: &AgentContext,
) -> Result<bool, Error> {
    let names: BTreeSet<(Kind, &str)> = wanted.iter().map(|object| (object.kind, object.name.as_str())).collect();
    // The StatefulSets may still create pods of their own revision.
    let created = snapshot.live.values().filter_map(revision);
    let revisions: BTreeSet<&str> =
        snapshot.observation.servers.iter().map(|(_, server)| server.revision.as_str()).chain(created).collect();
    let mut removed = false;
    for ((kind, name), live) in &snapshot.live {
        let surplus = match kind {
            Kind::StatefulSet => *name == format!("{}-o", source.base()),
            Kind::ConfigMap => live.labels().get(REVISION_LABEL).is_some_and(|r| !revisions.contains(r.as_str())),
            Kind::Secret => {
                *name == source.client_copy()
                    && source.spec.tls.client.is_none()
                    && revisions.iter().all(|r| *r == source.revision())
            }
            _ => false,
        };
        let of_incarnation = live.labels().get(INCARNATION_LABEL).map(String::as_str) == Some(source.incarnation());
        if surplus && of_incarnation && !names.contains(&(*kind, name.as_str())) {
            removed |= delete(snapshot, context, *kind, live).await?;
        }
    }
    Ok(removed)
}

/// True if an object exists, and no probe made it. One of a probe has an owner, which it must lose before any server
/// starts.
fn is_of_servers(live: Option<&DynamicObject>) -> bool {
    live.is_some_and(|live| live.owner_references().is_empty())
}

/// True if an object stays as it is while the client certificates are missing. `exists` is false for one of a probe. A
/// pod that Kubernetes recreates then starts as before, and clients reach it as before. A new StatefulSet waits unless
/// its certificates are written before it.
fn waits_for_certificates(source: &Source<'_>, object: &Object, exists: bool) -> bool {
    match object.kind {
        Kind::StatefulSet => exists || source.client.is_none(),
        Kind::Service => exists,
        Kind::ConfigMap => exists && object.name == source.clients(),
        _ => false,
    }
}

/// True if an object of this name exists, which then is not the agent's. The agent may list these kinds but not get them;
/// Secrets the other way round.
async fn exists(snapshot: &MemberSnapshot, context: &AgentContext, object: &Object) -> Result<bool, Error> {
    let api = context.api(&snapshot.namespace(), object.kind);
    let found = if object.kind == Kind::Secret {
        api.get_opt(&object.name).await.map(|found| found.is_some())
    } else {
        let name = ListParams::default().fields(&format!("metadata.name={}", object.name));
        api.list_metadata(&name).await.map(|list| !list.items.is_empty())
    };
    found.during(|| format!("looking for {} {}", object.kind.name(), object.name))
}

/// The object with its hash, which reveals fields that are no longer wanted, and the hash.
fn with_applied_hash(object: &Object, live: Option<&DynamicObject>) -> Result<(Value, String), Error> {
    let without_claims = |mut value: Value| {
        if let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.remove("volumeClaimTemplates");
        }
        value
    };
    // A StatefulSet's claim templates are immutable. The agent grows the claims themselves.
    let is_live_set = live.is_some() && object.kind == Kind::StatefulSet;
    let mut value = if is_live_set { without_claims(object.value.clone()) } else { object.value.clone() };
    let hash = short_hash(&without_claims(value.clone())).during(|| "writing an object as JSON".to_owned())?;
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("annotations".to_owned(), json!({ APPLIED_HASH: hash }));
    }
    Ok((value, hash))
}

/// The path of the first field of a live object that is not as wanted.
fn difference(live: &DynamicObject, wanted: &Value) -> Option<Vec<String>> {
    let live = serde_json::to_value(live).unwrap_or_default();
    differing_path(&live, wanted, is_same_amount)
}

async fn write(
    snapshot: &MemberSnapshot,
    context: &AgentContext,
    object: &Object,
    value: Value,
    live: Option<&DynamicObject>,
) -> kube::Result<()> {
    let value = as_observed(value, live);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    context.api(&snapshot.namespace(), object.kind).patch(&object.name, &params, &Patch::Apply(&value)).await?;
    info!(kind = object.kind.name(), name = object.name, namespace = snapshot.namespace(), "object written");
    context.metrics.wrote(object.kind.name(), "apply");
    Ok(())
}

/// The write of an object, only if the live one is still as observed. An agent that was paused must not bring back former
/// certificates, a former server list, fewer replicas, or a Service of former servers.
fn as_observed(mut value: Value, live: Option<&DynamicObject>) -> Value {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        // No object has version 1: an empty etcd begins with it. Version 0 would mean any version.
        let version = live.map_or_else(|| Some("1".to_owned()), ResourceExt::resource_version);
        meta.insert("resourceVersion".to_owned(), json!(version));
        meta.extend(live.map(|live| ("uid".to_owned(), json!(live.uid()))));
    }
    if let Some(claims) = live.and_then(|live| live.data.pointer("/spec/volumeClaimTemplates"))
        && let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        spec.insert("volumeClaimTemplates".to_owned(), claims.clone());
    }
    value
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn every_write_rests_on_what_the_agent_observed() {
        for kind in Kind::ALL {
            let value = json!({ "kind": kind.name(), "metadata": { "name": "zk" } });
            assert_eq!(as_observed(value.clone(), None)["metadata"], json!({ "name": "zk", "resourceVersion": "1" }));
            let live = json!({ "metadata": { "name": "zk", "uid": "u", "resourceVersion": "7" } });
            let live: DynamicObject = serde_json::from_value(live).unwrap();
            let expected = json!({ "name": "zk", "uid": "u", "resourceVersion": "7" });
            assert_eq!(as_observed(value, Some(&live))["metadata"], expected, "{}", kind.name());
        }
    }

    /// Kubernetes would remove the Service of running servers with the ZooKeeper object.
    #[test]
    fn an_object_of_a_probe_is_written_again_before_servers_start() {
        let service = |owners: Value| -> DynamicObject {
            let metadata = json!({ "name": "zk-abc", "ownerReferences": owners });
            serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata })).unwrap()
        };
        let owner = json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "name": "zk", "uid": "u" });
        let (probe, servers) = (service(json!([owner])), service(json!([])));
        assert!(!is_of_servers(None) && !is_of_servers(Some(&probe)) && is_of_servers(Some(&servers)));
        // It has another hash, so it differs from what servers need.
        let wanted = |more: Value| {
            let mut value = json!({ "metadata": { "name": "zk-abc" } });
            json_patch::merge(&mut value, &more);
            with_applied_hash(&Object { kind: Kind::Service, name: "zk-abc".to_owned(), value }, None).unwrap().0
        };
        let with_owner = wanted(json!({ "metadata": { "ownerReferences": [owner] } }));
        let live: DynamicObject = serde_json::from_value(with_owner.clone()).unwrap();
        assert!(difference(&live, &with_owner).is_none() && difference(&live, &wanted(json!({}))).is_some());
    }
}

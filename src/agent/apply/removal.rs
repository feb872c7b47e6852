//! Stops the servers of incarnations that are over, and removes their objects.

use std::collections::BTreeSet;

use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::{
    agent::{
        context::{Context, FIELD_MANAGER},
        observe::snapshot::Snapshot,
        render::object::Kind,
    },
    contract::labels::INCARNATION_LABEL,
    runtime::failure::{During, Error, is_not_found},
};

/// Removes everything of these incarnations except volumes: first the pods, then the StatefulSets, then the rest. Returns
/// true if it changed anything.
pub(in crate::agent) async fn remove(
    snapshot: &Snapshot,
    incarnations: &BTreeSet<String>,
    context: &Context,
) -> Result<bool, Error> {
    let mut changed = false;
    for incarnation in incarnations {
        let of_incarnation = |object: &&DynamicObject| object.labels().get(INCARNATION_LABEL) == Some(incarnation);
        let running: Vec<&DynamicObject> = snapshot
            .live
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::StatefulSet)
            .map(|(_, object)| object)
            .filter(of_incarnation)
            .filter(|set| set.data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0))
            .collect();
        for set in &running {
            stop(snapshot, set, context).await?;
            changed = true;
        }
        if !running.is_empty() || snapshot.observation.servers.iter().any(|(of, _)| of == incarnation) {
            continue;
        }
        for ((kind, _), object) in snapshot.live.iter().rev().filter(|(_, object)| of_incarnation(object)) {
            delete(snapshot, context, *kind, object).await?;
            changed = true;
        }
    }
    Ok(changed)
}

async fn stop(snapshot: &Snapshot, set: &DynamicObject, context: &Context) -> Result<(), Error> {
    warn!(name = set.name_any(), namespace = snapshot.namespace(), "stopping all servers of this StatefulSet");
    let patch = json!({
        "metadata": { "uid": set.uid(), "resourceVersion": set.resource_version() },
        "spec": { "replicas": 0 },
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    context
        .api(&snapshot.namespace(), Kind::StatefulSet)
        .patch(&set.name_any(), &params, &Patch::Merge(&patch))
        .await
        .during(|| format!("stopping the servers of {}", set.name_any()))?;
    context.metrics.wrote("StatefulSet", "patch");
    Ok(())
}

/// Deletes one object of ours, unless it is being deleted already.
pub(super) async fn delete(
    snapshot: &Snapshot,
    context: &Context,
    kind: Kind,
    live: &DynamicObject,
) -> Result<(), Error> {
    let name = live.name_any();
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: live.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match context.api(&snapshot.namespace(), kind).delete(&name, &params).await {
        Err(error) if is_not_found(&error) => return Ok(()),
        other => drop(other.during(|| format!("deleting {} {name}", kind.name()))?),
    }
    info!(kind = kind.name(), name, namespace = snapshot.namespace(), "object deleted");
    context.metrics.wrote(kind.name(), "delete");
    Ok(())
}

//! Stops the servers of incarnations that are over, and removes their objects.

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    context::{AgentContext, FIELD_MANAGER},
    observe::snapshot::MemberSnapshot,
    write_history::ObjectVerb,
};
use mczk_api::{
    contract::labels::{INCARNATION_LABEL, SERVERS_REMOVED},
    pod::Reclaim,
};
use mczk_rules::agent::{
    decide::{Decision, observation::Claim, unused_claims},
    render::object::Kind,
};
use mczk_runtime::failure::{During, Error, is_not_found};

/// How long an object may take to end before its finalizers are named.
const ENDS_IN: SignedDuration = SignedDuration::from_secs(30);

/// Removes everything of the incarnations that a decision removes: first the pods, then the StatefulSets, then the rest. Volumes
/// go only with their StatefulSet, and only if the user said `Delete` and the ensemble ends. Returns true if it changed anything.
pub(crate) async fn remove(
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<bool, Error> {
    let mut changed = false;
    let current = decision.list.as_ref().and_then(|list| list.incarnation.as_ref());
    if let Some(current) = current.filter(|current| !decision.remove.contains(*current)) {
        let used_again = unused_claims::used_again(&snapshot.observation, current);
        annotate(snapshot, used_again, &Value::Null, context).await?;
    }
    for incarnation in &decision.remove {
        let of_incarnation = |object: &&DynamicObject| object.labels().get(INCARNATION_LABEL) == Some(incarnation);
        let running: Vec<&DynamicObject> = snapshot
            .live
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::StatefulSet)
            .map(|(_, object)| object)
            .filter(of_incarnation)
            .filter(|set| set.data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0))
            .collect();
        // Before the servers stop: afterwards the object may be gone, and nothing would tell these volumes from those of an
        // ensemble that lives.
        let unmarked = snapshot.observation.claims.iter().filter(|claim| !claim.servers_removed);
        let unmarked = unmarked.filter(|claim| claim.incarnation == *incarnation);
        if !annotate(snapshot, unmarked, &json!("true"), context).await? {
            continue;
        }
        for set in &running {
            changed |= stop(snapshot, set, decision.reclaim_of(incarnation), context).await?;
        }
        if !running.is_empty() || snapshot.observation.servers.iter().any(|(of, _)| of == incarnation) {
            continue;
        }
        for ((kind, _), object) in snapshot.live.iter().rev().filter(|(_, object)| of_incarnation(object)) {
            changed |= delete(snapshot, context, *kind, object).await?;
        }
    }
    Ok(changed)
}

/// Marks claims whose servers the agent removes, or takes the mark off. False if the API server refuses it.
async fn annotate(
    snapshot: &MemberSnapshot,
    claims: impl Iterator<Item = &Claim>,
    mark: &Value,
    context: &AgentContext,
) -> Result<bool, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let mut all = true;
    for claim in claims {
        let annotations = json!({ SERVERS_REMOVED: mark });
        let patch = json!({
            "metadata": { "uid": claim.uid, "resourceVersion": claim.version, "annotations": &annotations },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let write = async {
            match api.patch(&claim.name, &params, &Patch::Merge(&patch)).await {
                Err(error) if is_not_found(&error) => {}
                other => drop(other.during(|| format!("marking PersistentVolumeClaim {}", claim.name))?),
            }
            context.metrics.wrote("PersistentVolumeClaim", "patch");
            Ok(())
        };
        let object = ("PersistentVolumeClaim", claim.name.as_str(), ObjectVerb::Write);
        all &= context.attempt(&snapshot.key(), object, &annotations.to_string(), write).await?.is_some();
    }
    Ok(all)
}

async fn stop(
    snapshot: &MemberSnapshot,
    set: &DynamicObject,
    reclaim: Reclaim,
    context: &AgentContext,
) -> Result<bool, Error> {
    let (name, patch) = (set.name_any(), stop_patch(set, reclaim));
    let stop = async {
        warn!(name, namespace = snapshot.namespace(), "stopping all servers of this StatefulSet");
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = context.api(&snapshot.namespace(), Kind::StatefulSet);
        api.patch(&name, &params, &Patch::Merge(&patch)).await.during(|| format!("stopping the servers of {name}"))?;
        context.metrics.wrote("StatefulSet", "patch");
        Ok(())
    };
    Ok(context.attempt(&snapshot.key(), ("StatefulSet", &name, ObjectVerb::Write), "stop", stop).await?.is_some())
}

/// Stops all servers of a set for good. Only now may volumes go with their set, if the user said so: the StatefulSet
/// controller makes the set own the volumes of the pods that it stops.
fn stop_patch(set: &DynamicObject, reclaim: Reclaim) -> Value {
    json!({
        "metadata": { "uid": set.uid(), "resourceVersion": set.resource_version() },
        "spec": {
            "replicas": 0,
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": reclaim, "whenScaled": "Retain" },
        },
    })
}

/// Deletes one object of ours, unless it is being deleted already. False if the API server refuses.
pub(super) async fn delete(
    snapshot: &MemberSnapshot,
    context: &AgentContext,
    kind: Kind,
    live: &DynamicObject,
) -> Result<bool, Error> {
    if let Some(Time(since)) = &live.metadata.deletion_timestamp {
        if Timestamp::now().duration_since(*since) < ENDS_IN {
            return Ok(true);
        }
        let (name, finalizers) = (live.name_any(), live.finalizers().join(", "));
        let kept = async {
            let why = format!("its finalizers keep it: {finalizers}. Let what has set them end, or remove them");
            Err::<(), _>(Error::Altered { action: format!("deleting {} {name}", kind.name()), why })
        };
        let verb = ObjectVerb::Delete;
        return Ok(context.attempt(&snapshot.key(), (kind.name(), &name, verb), "", kept).await?.is_some());
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: live.uid(), resource_version: live.resource_version() }),
        ..DeleteParams::background()
    };
    let api = context.api(&snapshot.namespace(), kind);
    context.delete(&snapshot.key(), &api, (kind.name(), &live.name_any()), &params).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Reclaim::Delete, "Delete")]
    #[case(Reclaim::Retain, "Retain")]
    fn volumes_go_with_the_last_servers_only_if_the_user_said_so(#[case] reclaim: Reclaim, #[case] expected: &str) {
        let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "zk", "uid": "u", "resourceVersion": "7" } });
        let patch = stop_patch(&serde_json::from_value(set).unwrap(), reclaim);
        assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
        assert_eq!(patch["spec"]["replicas"], 0);
        assert_eq!(patch["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], expected);
    }
}

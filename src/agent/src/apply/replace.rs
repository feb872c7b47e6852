//! Deletes the volume of a server and its pod, as a user wants. The StatefulSet makes both again.

use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use tracing::debug;

use crate::{
    apply::{
        events,
        pod::{delete, delete_pod},
        restart_lock::{acquire_lock, decide_again},
    },
    context::AgentContext,
    observe::snapshot::MemberSnapshot,
};
use mczk_api::{
    contract::control_api::{LOCK_CONFIRMED, LOCK_SESSION, RestartLock},
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::{
    Decision,
    events::AgentEventReason,
    replace::{ReplaceStep, VolumeDeletion, may_decide_again, may_delete},
};
use mczk_runtime::failure::Error;

/// Why a pod goes.
const FOR_EMPTY_VOLUME: &str = "so that its server gets an empty volume";

/// Deletes claim and pod, if this agent holds the restart lock and still decides so. Returns true if it did anything.
pub(super) async fn replace(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    list: &Ensemble,
    context: &AgentContext,
) -> Result<bool, Error> {
    let ReplaceStep::Delete(deletion) = &decision.replace else { return Ok(false) };
    let lock = RestartLock { holder: snapshot.observation.holder.clone(), server: deletion.server };
    let begun = Instant::now();
    let acquired = acquire_lock(key, snapshot, &lock, deletion.held, context).await;
    if !may_decide_again(deletion, acquired) {
        return Ok(!deletion.held);
    }
    // What the agent decided on before it held the lock does not count. Within the session no other agent can have held it
    // between the two confirmations, so nothing that this decision rests on has gone with a volume.
    let again = decide_again(key, snapshot, list, context).await?.replace;
    let requested = Instant::now();
    let acquired = acquire_lock(key, snapshot, &lock, true, context).await;
    let confirmed = acquired && requested.elapsed() < LOCK_CONFIRMED && begun.elapsed() < LOCK_SESSION;
    if !may_delete(deletion, &again, confirmed) {
        return Ok(acquired);
    }
    if delete_claim(key, snapshot, deletion, context).await? {
        if requested.elapsed() < LOCK_CONFIRMED {
            delete_pod(key, snapshot, (&deletion.pod, &deletion.uid), (deletion.force, FOR_EMPTY_VOLUME), context)
                .await?;
        } else {
            debug!(pod = deletion.pod, "the confirmation of the restart lock is too old to delete the pod");
        }
    }
    Ok(true)
}

/// Deletes this very claim. False if it is gone, has changed since the agent read it, or stays because the API server refuses:
/// its pod then stays too.
async fn delete_claim(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    deletion: &VolumeDeletion,
    context: &AgentContext,
) -> Result<bool, Error> {
    let claim = &deletion.claim;
    if claim.ending {
        return Ok(true);
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let preconditions = Preconditions { uid: Some(claim.uid.clone()), resource_version: claim.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    if !delete(key, &api, &claim.name, &params, context).await? {
        return Ok(false);
    }
    let message =
        format!("PersistentVolumeClaim {} is deleted: server {} gets an empty volume", claim.name, deletion.server);
    events::put(AgentEventReason::VolumeReplaced, &message, snapshot, context);
    Ok(true)
}

//! Deletes pods. Their StatefulSets create new ones.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};

use crate::{apply::events, context::AgentContext, observe::snapshot::MemberSnapshot};
use mczk_rules::agent::decide::events::AgentEventReason;
use mczk_runtime::failure::{During, Error, is_conflict, is_not_found};

/// Deletes this very pod, and reports that its server restarts. With `force` it goes at once, without a kubelet.
pub(super) async fn delete_pod(
    snapshot: &MemberSnapshot,
    (pod, uid): (&str, &str),
    force: bool,
    context: &AgentContext,
) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        grace_period_seconds: force.then_some(0),
        ..DeleteParams::default()
    };
    match api.delete(pod, &params).await {
        Err(error) if is_not_found(&error) || is_conflict(&error) => return Ok(()),
        other => drop(other.during(|| format!("deleting pod {pod}"))?),
    }
    let message = format!("Pod {pod} is deleted to restart its server");
    events::put(AgentEventReason::ServerRestarting, &message, snapshot, context);
    context.metrics.wrote("Pod", "delete");
    Ok(())
}

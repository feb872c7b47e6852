//! Deletes claims and pods. Their StatefulSets create new ones.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use serde::de::DeserializeOwned;

use crate::{apply::events, context::AgentContext, observe::snapshot::MemberSnapshot};
use mczk_rules::agent::decide::events::AgentEventReason;
use mczk_runtime::failure::{During, Error, is_not_found, is_precondition};

/// Deletes an object by its name and these preconditions. False if they do not hold any more, or if the API server answers with
/// another error: the agent remembers that.
pub(super) async fn delete<K>(
    key: &(String, String),
    api: &Api<K>,
    name: &str,
    params: &DeleteParams,
    context: &AgentContext,
) -> Result<bool, Error>
where
    K: k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
{
    let kind = K::KIND;
    match api.delete(name, params).await {
        Ok(_) => {
            context.metrics.wrote(kind, "delete");
            Ok(true)
        }
        Err(error) if is_not_found(&error) || is_precondition(&error) => Ok(false),
        // Whatever the code is: a webhook may answer with any, and one that does not answer makes 500.
        Err(kube::Error::Api(status)) => {
            let uid = params.preconditions.as_ref().and_then(|preconditions| preconditions.uid.as_deref());
            context.refused_deletion(key, uid.unwrap_or_default(), &format!("{kind} {name}: {}", status.message));
            Ok(false)
        }
        Err(error) => Err(error).during(|| format!("deleting {kind} {name}")),
    }
}

/// Deletes this very pod, and reports it with the purpose. With `force` it goes at once, without a kubelet.
pub(super) async fn delete_pod(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    (pod, uid): (&str, &str),
    (force, purpose): (bool, &str),
    context: &AgentContext,
) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        grace_period_seconds: force.then_some(0),
        ..DeleteParams::default()
    };
    if delete(key, &api, pod, &params, context).await? {
        let message = format!("Pod {pod} is deleted {purpose}");
        events::put(AgentEventReason::ServerRestarting, &message, snapshot, context);
    }
    Ok(())
}

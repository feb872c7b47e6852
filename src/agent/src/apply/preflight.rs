//! Starts and removes probes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use tracing::info;

use crate::{
    apply::objects,
    context::{AgentContext, FIELD_MANAGER},
    observe::snapshot::MemberSnapshot,
};
use mczk_rules::agent::decide::Decision;
use mczk_runtime::failure::{self, During, Error, is_conflict, is_not_found};

/// Removes probes that are no longer needed, and starts the one that is. Returns true if it wrote anything.
///
/// An error ends the reconcile, so no StatefulSet is written while a probe may have the name of its server.
pub(crate) async fn apply(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<bool, Error> {
    let plan = &decision.probes;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    for (name, uid) in &plan.remove {
        remove(&pods, name, uid, context).await?;
    }
    if plan.incarnation.is_none() {
        return Ok(!plan.remove.is_empty());
    }
    let (mut wrote, mut foreign, mut refused) = match objects::write_all(snapshot, context, &plan.objects).await {
        Ok((wrote, foreign)) => (wrote, foreign, None),
        Err(error) => (false, BTreeSet::new(), Some(refusal(&error).ok_or(error)?)),
    };
    if let Some(pod) = plan.create.as_ref().filter(|_| foreign.is_empty() && refused.is_none()) {
        let pod: Pod = serde_json::from_value(pod.clone()).during(|| "making the pod of a probe".to_owned())?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let why = |error: &kube::Error| failure::refusal(error).map(str::to_owned);
        match pods.create(&params, &pod).await.map_err(|error| (why(&error), error)) {
            Err((_, error)) if is_conflict(&error) => drop(foreign.insert(format!("Pod {}", pod.name_any()))),
            Err((Some(why), _)) => refused = Some(format!("Pod {} is refused: {why}", pod.name_any())),
            other => {
                other.map_err(|(_, error)| error).during(|| format!("creating pod {}", pod.name_any()))?;
                info!(pod = pod.name_any(), namespace = snapshot.namespace(), "probe started to check the network");
                context.metrics.wrote("Pod", "create");
                wrote = true;
            }
        }
    }
    context.remember(key, |memory| (memory.foreign, memory.refused_probe) = (foreign, refused));
    Ok(wrote || !plan.remove.is_empty())
}

/// Why the API server refuses an object that the probe needs. Any other error may pass, and ends the reconcile.
fn refusal(error: &Error) -> Option<String> {
    match error {
        Error::Api { action, source } => failure::refusal(source)
            .map(|why| format!("The API server refuses an object of the probe, {action}: {why}")),
        _ => None,
    }
}

/// Deletes a probe at once, even if its node does not answer: it holds nothing.
async fn remove(pods: &Api<Pod>, name: &str, uid: &str, context: &AgentContext) -> Result<(), Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    match pods.delete(name, &params).await {
        // A conflict is another pod of this name.
        Err(error) if is_not_found(&error) || is_conflict(&error) => {}
        other => drop(other.during(|| format!("deleting pod {name}"))?),
    }
    info!(pod = name, "probe removed");
    context.metrics.wrote("Pod", "delete");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Such an error ended the reconcile before the status was written, so the operator waited without a cause.
    #[rstest]
    #[case::quota(403, true)]
    #[case::admission(400, true)]
    #[case::invalid(422, true)]
    #[case::conflict(409, false)]
    #[case::unavailable(503, false)]
    fn an_object_that_the_api_server_refuses_is_reported(#[case] code: u16, #[case] expected: bool) {
        let status = kube::core::Status { code, message: "exceeded quota".to_owned(), ..kube::core::Status::default() };
        let source = kube::Error::Api(Box::new(status));
        let error = Error::Api { action: "writing Service zk-abc".to_owned(), source };
        let text = "The API server refuses an object of the probe, writing Service zk-abc: exceeded quota";
        assert_eq!(refusal(&error).as_deref(), expected.then_some(text));
    }
}

//! Starts and removes probes.

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
    write_history::ObjectVerb,
};
use mczk_api::contract::labels::APPLIED_HASH;
use mczk_rules::agent::decide::{Decision, refused::PROBE};
use mczk_runtime::failure::{During, Error};

/// Removes probes that are no longer needed, and starts the one that is. Returns true if it wrote anything. `None` if a probe
/// stays that has to go: no StatefulSet may be written then, since the probe may have the name of its server.
pub(crate) async fn apply(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<Option<bool>, Error> {
    let plan = &decision.probes;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let mut all_go = true;
    for (name, uid) in &plan.remove {
        // At once, even if its node does not answer: it holds nothing.
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
        all_go &= context.delete(key, &pods, ("Pod", name), &params).await?;
    }
    let changed = !plan.remove.is_empty();
    if plan.incarnation.is_none() {
        return Ok(all_go.then_some(changed));
    }
    let (mut wrote, mut foreign) = objects::write_all(snapshot, context, &plan.objects).await?;
    if let Some(pod) = plan.create.as_ref().filter(|_| foreign.is_empty()) {
        let pod: Pod = serde_json::from_value(pod.clone()).during(|| "making the pod of a probe".to_owned())?;
        let name = pod.name_any();
        let create = async {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            pods.create(&params, &pod).await.during(|| format!("creating pod {name}"))
        };
        let fingerprint = pod.annotations().get(APPLIED_HASH).map(String::as_str).unwrap_or_default();
        match context.attempt(key, (PROBE, &name, ObjectVerb::Write), fingerprint, create).await {
            Err(error) if error.is_conflict() => drop(foreign.insert(("Pod".to_owned(), name))),
            created => {
                if created?.is_some() {
                    info!(pod = name, namespace = snapshot.namespace(), "probe started to check the network");
                    context.metrics.wrote("Pod", "create");
                    wrote = true;
                }
            }
        }
    }
    context.remember(key, |memory| memory.foreign = foreign);
    Ok(all_go.then_some(wrote || changed))
}

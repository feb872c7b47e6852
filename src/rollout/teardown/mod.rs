//! The end of an ensemble: agents decommission the servers first, then the operator deletes the objects.
//!
//! When Karmada deletes a Work, it only releases the object in the member cluster while the policy preserves it. So the order
//! is: the server list decommissions, and every cluster reports it; preservation goes off, and every Work shows it; then the
//! template, the binding and at last the policies.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    contract::labels::OPERATOR_FINALIZER,
    rollout::{
        observed::Observed,
        outcome::{Finalizer, Plan},
    },
};

mod context;
mod decommission;
mod delete;
mod recall;
mod release;

use context::Teardown;

/// Kubernetes' finalizer of a deletion that keeps owned objects.
const ORPHAN: &str = "orphan";

/// The plan for an object that is being deleted.
///
/// # Errors
/// If a value has no JSON.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> serde_json::Result<Plan> {
    let object = &observed.object;
    let status = || object.status.clone().unwrap_or_default();
    if !object.finalizers().iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        return Ok(Plan::nothing(status()));
    }
    if object.finalizers().iter().any(|finalizer| finalizer == ORPHAN) {
        // `kubectl delete --cascade=orphan` keeps all objects as they are.
        return Ok(Plan { finalizer: Finalizer::Remove, ..Plan::nothing(status()) });
    }
    let teardown = Teardown { observed, now };
    if let Some(conflict) = teardown.name_conflict() {
        return Ok(teardown.waiting(conflict.reason, conflict.message));
    }
    let template = observed.template.as_ref().filter(|template| teardown.is_ours(&template.metadata));
    match template {
        Some(template) if template.metadata.deletion_timestamp.is_none() => {
            if let Some(plan) = decommission::decommission(&teardown, template)? {
                return Ok(plan);
            }
            if let Some(plan) = release::release(&teardown)? {
                return Ok(plan);
            }
            Ok(delete::template(&teardown))
        }
        Some(_) => Ok(delete::template(&teardown)),
        None => match decommission::restore_template(&teardown)? {
            Some(plan) => Ok(plan),
            None => Ok(delete::rest(&teardown)),
        },
    }
}

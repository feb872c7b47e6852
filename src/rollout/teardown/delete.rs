//! The last steps: template, binding and policies.

use super::context::Teardown;
use crate::{
    api::karmada::work::{NAMESPACE_PREFIX, Work},
    contract::conditions::Reason,
    rollout::{
        objects,
        outcome::{Finalizer, ObjectWrite, Plan},
        services,
    },
};

/// Deletes the template and its exports.
pub(super) fn template(teardown: &Teardown<'_>) -> Plan {
    let message = "The operator deletes the template and its exports".to_owned();
    let mut plan = teardown.waiting(Reason::DeletingTemplate, message);
    plan.template = ObjectWrite::Delete;
    plan.services = services::deleted(teardown.observed);
    plan.protect_binding = Some(false);
    plan
}

/// Waits until Karmada has removed everything, then deletes the policies and removes the finalizer.
pub(super) fn rest(teardown: &Teardown<'_>) -> Plan {
    let (policy, overrides) = (teardown.policy(), teardown.overrides());
    let services = services::deleted(teardown.observed);
    // Without a policy of ours, binding and Works belong to a foreign template.
    let is_ours = policy.is_some() || overrides.is_some();
    let binding = teardown.observed.binding.as_ref().filter(|_| is_ours);
    if binding.is_some() || (is_ours && has_works(teardown)) || !services.is_empty() {
        let message = "Waiting for Karmada to remove the objects in the member clusters".to_owned();
        let mut plan = teardown.waiting(Reason::DeletingBinding, message);
        plan.protect_binding = binding.map(|_| false);
        plan.services = services;
        return plan;
    }
    let service_policies = services::all_deleted(teardown.observed);
    if is_ours || !service_policies.is_empty() {
        let mut plan = teardown.waiting(Reason::DeletingPolicies, "The operator deletes the policies".to_owned());
        plan.policy = if policy.is_some() { ObjectWrite::Delete } else { ObjectWrite::Leave };
        plan.overrides = if overrides.is_some() { ObjectWrite::Delete } else { ObjectWrite::Leave };
        plan.services = service_policies;
        return plan;
    }
    let status = teardown.observed.object.status.clone().unwrap_or_default();
    Plan { finalizer: Finalizer::Remove, ..Plan::nothing(status) }
}

/// True if a Work is left that Karmada will remove. The Works of an abandoned cluster stay, marked for deletion: when the
/// cluster comes back, Karmada deletes their objects there.
fn has_works(teardown: &Teardown<'_>) -> bool {
    let abandoned = objects::abandoned(&teardown.observed.object);
    let is_abandoned = |work: &Work| {
        let cluster = work.metadata.namespace.as_deref().and_then(|name| name.strip_prefix(NAMESPACE_PREFIX));
        cluster.is_some_and(|cluster| abandoned.contains(cluster)) && work.metadata.deletion_timestamp.is_some()
    };
    teardown.observed.works.iter().any(|work| !is_abandoned(work))
}

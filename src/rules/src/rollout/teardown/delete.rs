//! The last steps: template, binding and policies.

use super::deletion::TeardownReport;
use crate::rollout::{
    known::Known,
    outcome::{ObjectWrite, Objects},
    services,
};
use mczk_api::{
    contract::conditions::Reason,
    karmada::work::{NAMESPACE_PREFIX, Work},
};

/// Deletes the template and its exports.
pub(super) fn template(known: &Known<'_>) -> TeardownReport {
    TeardownReport {
        objects: Objects {
            template: ObjectWrite::Delete,
            services: services::deleted(known),
            protect_binding: Some(false),
            ..Objects::default()
        },
        ..TeardownReport::waits(Reason::DeletingTemplate, "The operator deletes the template and its exports")
    }
}

/// Waits until Karmada has removed everything, then deletes the policies. `None` once nothing is left.
pub(super) fn rest(known: &Known<'_>) -> Option<TeardownReport> {
    let (policy, overrides) = (known.own_policy(), known.own_override_policy());
    let has_works = has_works(known);
    let services = services::deleted(known);
    // Without a policy of ours, binding and Works belong to a foreign template.
    let is_ours = policy.is_some() || overrides.is_some();
    let binding = known.binding.filter(|_| is_ours);
    if binding.is_some() || (is_ours && has_works) || !services.is_empty() {
        return Some(TeardownReport {
            objects: Objects { protect_binding: binding.map(|_| false), services, ..Objects::default() },
            ..TeardownReport::waits(
                Reason::DeletingBinding,
                "Waiting for Karmada to remove the objects in the member clusters",
            )
        });
    }
    let services = services::all_deleted(known);
    (is_ours || !services.is_empty()).then(|| TeardownReport {
        objects: Objects {
            policy: if policy.is_some() { ObjectWrite::Delete } else { ObjectWrite::Leave },
            overrides: if overrides.is_some() { ObjectWrite::Delete } else { ObjectWrite::Leave },
            services,
            ..Objects::default()
        },
        ..TeardownReport::waits(Reason::DeletingPolicies, "The operator deletes the policies")
    })
}

/// True if a Work is left that Karmada will remove. The Works of an abandoned cluster stay, marked for deletion: when the
/// cluster comes back, Karmada deletes their objects there.
fn has_works(known: &Known<'_>) -> bool {
    let is_abandoned = |work: &Work| {
        let cluster = work.metadata.namespace.as_deref().and_then(|name| name.strip_prefix(NAMESPACE_PREFIX));
        cluster.is_some_and(|cluster| known.abandoned.contains(cluster)) && work.metadata.deletion_timestamp.is_some()
    };
    known.works.iter().any(|work| !is_abandoned(work))
}

//! The schedule, once Karmada has settled it for the written objects.

use crate::rollout::{
    binding, cluster_selection::ClusterSelection, known::Known, plan::other_division, scheduled::Scheduled,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    mutation::broken,
};

/// The voters of each cluster. `is_written` is true if the live objects have the planned template and placement.
///
/// # Errors
/// Why the schedule cannot be used.
pub(super) fn settle_schedule(
    known: &Known<'_>,
    selection: &ClusterSelection,
    is_written: bool,
) -> Result<Vec<Scheduled>, Cause> {
    let binding = known.binding;
    let Some(live) = known.template.filter(|_| is_written) else {
        let message = "The operator writes the template and its policy".to_owned();
        return Err(Cause { reason: Reason::Rescheduling, message });
    };
    if broken!(BelieveUnsettled) {
        let clusters = binding.into_iter().flat_map(|binding| &binding.spec.clusters);
        return Ok(clusters.map(|c| Scheduled { cluster: c.name.clone(), replicas: c.replicas }).collect());
    }
    let schedule = binding::schedule(binding, live, &known.policy_name, &selection.placement)?;
    match other_division::other_division(known, selection, &schedule) {
        Some(cause) => Err(cause),
        None => Ok(schedule),
    }
}

//! The schedule, once Karmada has settled it for the written objects.

use crate::{
    contract::conditions::Reason,
    mutation::broken,
    rollout::{
        binding::{self, Scheduled},
        blocker::Blocker,
        cluster_selection::ClusterSelection,
        known::Known,
        plan::{other_division, plan_template::PlannedTemplate},
    },
};

/// The voters of each cluster, or why the schedule cannot be used.
pub(super) fn settle_schedule(
    known: &Known<'_>,
    selection: &ClusterSelection,
    planned: &PlannedTemplate,
    unscheduled: Option<&Blocker>,
) -> Result<Vec<Scheduled>, Blocker> {
    if let Some(blocker) = unscheduled {
        return Err(blocker.clone());
    }
    let binding = known.binding;
    let Some(live) = known.template.filter(|_| planned.is_written) else {
        let message = "The operator writes the template and its policy".to_owned();
        return Err(Blocker { reason: Reason::Rescheduling, message });
    };
    if broken!(BelieveUnsettled) {
        let clusters = binding.into_iter().flat_map(|binding| &binding.spec.clusters);
        return Ok(clusters.map(|c| Scheduled { cluster: c.name.clone(), replicas: c.replicas }).collect());
    }
    let schedule = binding::schedule(binding, live, &planned.policy)?;
    match other_division::other_division(known, selection, &schedule) {
        Some(blocker) => Err(blocker),
        None => Ok(schedule),
    }
}

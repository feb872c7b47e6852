//! The second step: Karmada may delete the objects in the member clusters, and tombstones name the clusters that are left.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::context::{Teardown, is_decommissioned};
use crate::{
    contract::{conditions::Reason, labels::RELEASED, tombstone::Tombstone},
    mutation::broken,
    rollout::{
        objects,
        outcome::{ObjectWrite, Plan},
        report,
    },
};

/// Turns preservation off, and waits until every Work shows it: only then Karmada deletes the objects in the member clusters.
/// `None` once all do.
pub(super) fn release(teardown: &Teardown<'_>) -> serde_json::Result<Option<Plan>> {
    if !teardown.is_released() {
        let mut policy = teardown.propagation_policy()?;
        policy.spec.preserve_resources_on_deletion = Some(false);
        policy.metadata.annotations.get_or_insert_default().insert(RELEASED.to_owned(), "true".to_owned());
        policy.metadata = objects::with_applied_hash(policy.metadata, &policy.spec)?;
        let message = "The operator releases the objects in the member clusters for deletion".to_owned();
        let mut plan = teardown.waiting(Reason::Releasing, message);
        plan.policy = ObjectWrite::Apply(policy);
        // The tombstone comes before the deletion of the objects that record its clusters.
        plan.tombstone = tombstone(teardown);
        return Ok(Some(plan));
    }
    let preserves = |preserve: Option<bool>| preserve == Some(true);
    let works = &teardown.observed.works;
    let left = works.iter().filter(|work| preserves(work.spec.preserve_resources_on_deletion)).count();
    if left > 0 && !broken!(DeleteBeforeReleased) {
        let message = format!("Waiting for Karmada to release {left} objects in member clusters for deletion");
        return Ok(Some(teardown.waiting(Reason::Releasing, message)));
    }
    Ok(None)
}

/// The tombstone for the clusters that may have servers and have not reported their end: those that the user has abandoned,
/// and those that left the ensemble while Karmada did not reach them.
fn tombstone(teardown: &Teardown<'_>) -> Option<Tombstone> {
    let observed = teardown.observed;
    let incarnation = teardown.recorded_incarnation()?;
    let list = teardown.current().ensemble;
    let concerned = teardown.concerned();
    let named: Vec<String> = concerned.iter().cloned().collect();
    let reports = report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &named);
    let abandoned = objects::abandoned(&observed.object);
    let clusters: BTreeSet<String> = reports
        .into_iter()
        .filter(|(name, report)| {
            let status = report.status.as_ref();
            let may_hold = concerned.contains(name) || status.is_some_and(|s| s.observed_spec_hash.is_some());
            let is_done = report.fresh() && status.is_some_and(|status| is_decommissioned(status, &list));
            may_hold && !is_done && (!report.reachable || abandoned.contains(name.as_str()))
        })
        .map(|(name, _)| name)
        .collect();
    let (name, namespace) = (observed.object.name_any(), observed.object.namespace().unwrap_or_default());
    (!clusters.is_empty()).then_some(Tombstone { namespace, name, incarnation, clusters })
}

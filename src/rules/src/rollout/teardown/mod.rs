//! The end of an ensemble: agents decommission the servers first, then the operator deletes the objects.
//!
//! When Karmada deletes a Work, it only releases the object in the member cluster while the policy preserves it. So the order
//! is: the server list decommissions, and every cluster reports it; preservation goes off, and every Work shows it; then the
//! template, the binding and at last the policies.

use kube_core::ResourceExt;

use crate::rollout::{
    known::{Ending, Known},
    name_conflict,
    outcome::{Decision, Finalizer, NextStatus},
    steps::{PlanStep, StepReport, Steps},
};
use mczk_api::contract::{cause::Cause, labels::OPERATOR_FINALIZER};

mod decommission;
mod delete;
mod deletion;
mod recall;
mod release;

use deletion::TeardownReport;

/// Kubernetes' finalizer of a deletion that keeps owned objects.
const ORPHAN: &str = "orphan";

/// The decision about an object that is being deleted.
///
/// # Errors
/// If a value has no JSON.
pub(super) fn tear_down(known: &Known<'_>, ending: &Ending, mut steps: Steps) -> serde_json::Result<Decision> {
    let finalizers = known.object.finalizers();
    if !finalizers.iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        return Ok(Decision::finalizer(Steps::default(), Finalizer::Keep));
    }
    if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
        // `kubectl delete --cascade=orphan` keeps all objects as they are.
        return Ok(Decision::finalizer(Steps::default(), Finalizer::Remove));
    }
    if let Some(conflict) = foreign_object(known, ending) {
        steps.add(PlanStep::Names, StepReport::Needs(conflict.clone()));
        return Ok(Decision::without_objects(steps, NextStatus::Deleting(conflict)));
    }
    for (step, deletion) in order(known, ending)? {
        let cause = deletion.as_ref().map(|deletion| deletion.cause.clone());
        steps.add(step, StepReport::waits(cause));
        if let Some(deletion) = deletion {
            let TeardownReport { cause, objects, tombstone, request } = deletion;
            let waiting = Decision::without_objects(steps, NextStatus::Deleting(cause));
            return Ok(Decision { objects, request, tombstone, ..waiting });
        }
    }
    Ok(Decision::finalizer(steps, Finalizer::Remove))
}

type TeardownStep = (PlanStep, Option<TeardownReport>);

/// The order of the deletion, up to the first step that waits.
fn order(known: &Known<'_>, ending: &Ending) -> serde_json::Result<Vec<TeardownStep>> {
    let Some(template) = known.template.filter(|template| known.is_ours(&template.metadata)) else {
        let restored = decommission::restore_template(known, ending)?;
        return Ok(vec![(PlanStep::Decommission, restored), (PlanStep::DeleteRest, delete::rest(known))]);
    };
    let deletes = (PlanStep::DeleteTemplate, Some(delete::template(known)));
    if template.metadata.deletion_timestamp.is_some() {
        return Ok(vec![deletes]);
    }
    // All clusters reported before the release. Their objects may be gone now.
    let decommissions = if ending.released { None } else { decommission::decommission(known, ending, template)? };
    let decommission = (PlanStep::Decommission, decommissions);
    if decommission.1.is_some() {
        return Ok(vec![decommission]);
    }
    Ok(vec![decommission, (PlanStep::Release, release::release(known, ending)), deletes])
}

/// An object of another owner with one of the names through which the operator ends servers that may run. Once those are
/// decommissioned and released, the operator leaves it alone.
fn foreign_object(known: &Known<'_>, ending: &Ending) -> Option<Cause> {
    if ending.released || ending.concerned.iter().all(|cluster| known.abandoned.contains(cluster.as_str())) {
        return None;
    }
    name_conflict::conflict_at_the_end(known)
}

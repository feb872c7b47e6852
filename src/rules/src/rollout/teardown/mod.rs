//! The end of an ensemble: agents decommission the servers first, then the operator deletes the objects.
//!
//! When Karmada deletes a Work, it only releases the object in the member cluster while the policy preserves it. So the order
//! is: the server list decommissions, and every cluster reports it; preservation goes off, and every Work shows it; then the
//! template, the binding and at last the policies.

use std::collections::BTreeSet;

use kube_core::ResourceExt;

use crate::rollout::{
    known::{Ending, Known},
    name_conflict,
    outcome::{Decision, Finalizer, NextStatus, ObjectWrite, Objects, Propagation},
    services,
    steps::{PlanStep, StepReport, Steps},
};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::Reason,
        labels::{ABANDON_CLUSTERS, OPERATOR_FINALIZER},
    },
    karmada::work::{Work, cluster_of},
    mutation::broken,
};

mod decommission;
mod deletion;
mod lost_clusters;

use deletion::TeardownReport;
use lost_clusters::{cluster_that_is_lost, tombstone};

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
    if let Some(adopted) = known.adopted_elsewhere() {
        steps.add(PlanStep::FormerIncarnations, StepReport::Needs(adopted.clone()));
        return Ok(Decision::without_objects(steps, NextStatus::Deleting(adopted)));
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
        return Ok(vec![(PlanStep::Decommission, restored), (PlanStep::DeleteRest, delete_rest(known))]);
    };
    let deletes = (PlanStep::DeleteTemplate, Some(delete_template(known)));
    if template.metadata.deletion_timestamp.is_some() {
        return Ok(vec![deletes]);
    }
    // All clusters reported before the release. Their objects may be gone now.
    let decommissions = if ending.released { None } else { decommission::decommission(known, ending, template)? };
    let decommission = (PlanStep::Decommission, decommissions);
    if decommission.1.is_some() {
        return Ok(vec![decommission]);
    }
    Ok(vec![decommission, (PlanStep::Release, release(known, ending)), deletes])
}

/// An object of another owner with one of the names through which the operator ends servers that may run. Once those are
/// decommissioned and released, the operator leaves it alone.
fn foreign_object(known: &Known<'_>, ending: &Ending) -> Option<Cause> {
    if ending.released || ending.concerned.iter().all(|cluster| known.abandoned.contains(cluster.as_str())) {
        return None;
    }
    name_conflict::conflict_at_the_end(known)
}

/// Turns preservation off, and waits until every Work shows it: only then Karmada deletes the objects in the member clusters.
/// `None` once all do.
fn release(known: &Known<'_>, ending: &Ending) -> Option<TeardownReport> {
    if !ending.released {
        let message = "The operator releases the objects in the member clusters for deletion";
        let policy = ObjectWrite::Apply(Propagation { selection: ending.selection.clone(), releases: true });
        return Some(TeardownReport {
            objects: Objects { policy, ..Objects::default() },
            // The tombstone comes before the deletion of the objects that record its clusters.
            tombstone: tombstone(known, ending),
            ..TeardownReport::waits(Reason::Releasing, message)
        });
    }
    // Karmada changes no Work that it deletes already.
    let awaited = known.works.iter().filter(|work| {
        work.spec.preserve_resources_on_deletion == Some(true) && cluster_that_is_lost(known, work).is_none()
    });
    let left: Vec<&Work> = awaited.collect();
    if !left.is_empty() && !broken!(DeleteBeforeReleased) {
        let clusters = clusters_of(&left);
        let message =
            format!("Waiting for Karmada to release {} objects for deletion in clusters {clusters}", left.len());
        return Some(TeardownReport::waits(Reason::Releasing, message));
    }
    None
}

fn clusters_of(works: &[&Work]) -> String {
    let clusters: BTreeSet<&str> = works.iter().filter_map(|work| cluster_of(&work.metadata)).collect();
    clusters.into_iter().collect::<Vec<_>>().join(", ")
}

/// Deletes the template and its exports.
fn delete_template(known: &Known<'_>) -> TeardownReport {
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
fn delete_rest(known: &Known<'_>) -> Option<TeardownReport> {
    let (policy, overrides) = (known.own_policy(), known.own_override_policy());
    let works = remaining_works(known);
    let services = services::deleted(known);
    // Without a policy of ours, binding and Works belong to a foreign template.
    let is_ours = policy.is_some() || overrides.is_some();
    let binding = known.binding.filter(|_| is_ours);
    if binding.is_some() || (is_ours && !works.is_empty()) || !services.is_empty() {
        return Some(TeardownReport {
            objects: Objects { protect_binding: binding.map(|_| false), services, ..Objects::default() },
            ..TeardownReport::waits(Reason::DeletingBinding, waiting_for_removal(&works))
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

fn waiting_for_removal(works: &[&Work]) -> String {
    let message = "Waiting for Karmada to remove the objects in the member clusters";
    match clusters_of(works).as_str() {
        "" => message.to_owned(),
        clusters => {
            format!("{message}: {clusters}. If one is lost for good, name it in the annotation {ABANDON_CLUSTERS}")
        }
    }
}

/// The Works that Karmada will remove. Those of an abandoned cluster stay, marked for deletion: when the cluster comes back,
/// Karmada deletes their objects there. So do those of a cluster that Karmada does not reach, once a tombstone waits for it.
fn remaining_works<'a>(known: &'a Known<'_>) -> Vec<&'a Work> {
    let has_tombstone = known.tombstones.contains(&known.incarnation.id);
    let stays = |work: &&Work| {
        let lost = cluster_that_is_lost(known, work);
        lost.is_some_and(|cluster| has_tombstone || known.abandoned.contains(cluster))
    };
    known.works.iter().filter(|work| !stays(work)).collect()
}

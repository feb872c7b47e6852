//! Step: which volume goes, because a user wants it replaced by an empty one.

mod inputs;
mod others;
mod rule;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use kube_core::ResourceExt;

pub use inputs::ReplaceInputs;
pub use rule::{ReplaceStep, VolumeDeletion, may_decide_again, may_delete, next_step};

use crate::agent::decide::{
    local_ensemble::LocalEnsemble,
    observation::{Observation, RefusedDeletion},
    replicas::Replicas,
    restart,
};
use mczk_api::contract::{cause::Cause, conditions::Reason, replace_request::ReplaceRequest};

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> ReplaceStep {
    let observation = ensemble.observation;
    if !acts || ensemble.list.phase.is_suspended() {
        return ReplaceStep::Nothing;
    }
    let request = ReplaceRequest::of(observation.object.annotations()).transpose();
    let kept = ensemble.kept_pods();
    let step = next_step(ReplaceInputs {
        request: request.as_ref().ok().and_then(Option::as_ref),
        claims: &observation.claims,
        incarnation: ensemble.incarnation,
        gone: &observation.gone,
        cluster: ensemble.cluster,
        listed: &ensemble.list.servers,
        views: &observation.views,
        restart: restart::inputs(ensemble, replicas, &kept),
    });
    match (step, request) {
        (ReplaceStep::Nothing, Err(no_request)) => ReplaceStep::Wait(format!("No volume is replaced: {no_request}")),
        (ReplaceStep::Delete(deletion), _) => unless_delayed(ensemble, deletion),
        (step, _) => step,
    }
}

/// The deletion that the servers allow, unless something else speaks against it.
fn unless_delayed(ensemble: &LocalEnsemble<'_>, deletion: VolumeDeletion) -> ReplaceStep {
    let mount = ensemble.missing_mount().map(|mount| format!("it waits for {mount}"));
    let why = match (refused(ensemble.observation, &deletion), &mount) {
        (Some(refused), _) if refused.is_recent() => refused.why.as_str(),
        // The new pod could not start.
        (_, Some(mount)) => mount.as_str(),
        _ if !ensemble.sets_are_current() => "the StatefulSet controller has not seen the newest spec",
        _ if deletion.held && ensemble.observation.locked_for >= restart::LOCK_LIMIT => {
            "it held the restart lock for too long. Other servers come first"
        }
        _ => return ReplaceStep::Delete(deletion),
    };
    ReplaceStep::Wait(deletion.waits(why))
}

fn refused<'a>(observation: &'a Observation, deletion: &VolumeDeletion) -> Option<&'a RefusedDeletion> {
    observation.refused_deletion(&[&deletion.claim.uid, &deletion.uid])
}

/// Reason and message of the condition `Replacing`. A deletion that is tried again keeps its cause until it succeeds.
pub(super) fn describe(observation: &Observation, step: &ReplaceStep) -> Option<Cause> {
    match step {
        ReplaceStep::Nothing => None,
        ReplaceStep::Wait(why) => Some(Cause::new(Reason::ReplacementWaits, why)),
        ReplaceStep::Delete(deletion) => Some(refused(observation, deletion).map_or_else(
            || {
                let message =
                    format!("The volume of {} is being replaced, for server {}", deletion.pod, deletion.server);
                Cause::new(Reason::ReplacingVolume, message)
            },
            |refused| Cause::new(Reason::ReplacementWaits, deletion.waits(&refused.why)),
        )),
    }
}

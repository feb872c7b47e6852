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

use crate::agent::decide::{local_ensemble::LocalEnsemble, replicas::Replicas, restart};
use mczk_api::contract::{cause::Cause, conditions::Reason, replace_request::ReplaceRequest};

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> ReplaceStep {
    let observation = ensemble.observation;
    if !acts || ensemble.list.phase.is_suspended() {
        return ReplaceStep::Nothing;
    }
    let request = match ReplaceRequest::of(observation.object.annotations()).transpose() {
        Ok(request) => request,
        Err(no_request) => return ReplaceStep::Wait(format!("No volume is replaced: {no_request}")),
    };
    let ending = ensemble.ending_volumes();
    let step = next_step(ReplaceInputs {
        request: request.as_ref(),
        claims: &observation.claims,
        incarnation: ensemble.incarnation,
        gone: &observation.gone,
        cluster: ensemble.cluster,
        listed: &ensemble.list.servers,
        views: &observation.views,
        restart: restart::inputs(ensemble, replicas, &ending),
    });
    let refused = |deletion: &VolumeDeletion| ensemble.refused_deletion().filter(|(pod, _)| *pod == deletion.pod);
    match step {
        ReplaceStep::Delete(deletion) if refused(&deletion).is_some() => {
            let why = refused(&deletion).map(|(_, why)| deletion.waits(why));
            why.map_or(ReplaceStep::Nothing, ReplaceStep::Wait)
        }
        // The new pod could not start.
        ReplaceStep::Delete(deletion) if ensemble.lacks_client_certificates() => {
            ReplaceStep::Wait(deletion.waits("certificates for clients have not reached this cluster"))
        }
        ReplaceStep::Delete(deletion) if !ensemble.sets_are_current() => {
            ReplaceStep::Wait(deletion.waits("the StatefulSet controller has not seen the newest spec"))
        }
        step => step,
    }
}

/// Reason and message of the condition `Replacing`.
pub(super) fn describe(step: &ReplaceStep) -> Option<Cause> {
    match step {
        ReplaceStep::Nothing => None,
        ReplaceStep::Wait(why) => Some(Cause::new(Reason::ReplacementWaits, why)),
        ReplaceStep::Delete(deletion) => {
            let message = format!("The volume of {} is being replaced, for server {}", deletion.pod, deletion.server);
            Some(Cause::new(Reason::ReplacingVolume, message))
        }
    }
}

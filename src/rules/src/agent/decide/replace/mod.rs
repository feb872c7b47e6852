//! Step: which volume goes, because a user wants it replaced by an empty one.

mod inputs;
mod others;
mod rule;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use kube_core::ResourceExt;

pub use inputs::ReplaceInputs;
pub use rule::{ReplaceStep, VolumeDeletion, may_delete, next_step};

use crate::agent::decide::{local_ensemble::LocalEnsemble, replicas::Replicas, restart};
use mczk_api::contract::{cause::Cause, conditions::Reason, replace_request::ReplaceRequest};

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> ReplaceStep {
    let observation = ensemble.observation;
    let request = ReplaceRequest::of(observation.object.annotations());
    let Some(request) = request.filter(|_| acts && !ensemble.list.phase.is_suspended()) else {
        return ReplaceStep::Nothing;
    };
    let ending = ensemble.ending_volumes();
    let step = next_step(ReplaceInputs {
        request: &request,
        claims: &observation.claims,
        incarnation: ensemble.incarnation,
        gone: &observation.gone,
        cluster: ensemble.cluster,
        listed: &ensemble.list.servers,
        views: &observation.views,
        restart: restart::inputs(ensemble, replicas, &ending),
    });
    match step {
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

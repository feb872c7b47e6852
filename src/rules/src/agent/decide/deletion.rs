//! Step: what the deletion of the object means for its servers.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt;

use crate::agent::decide::{
    first_start, local_ensemble::LocalEnsemble, observation::Observation, quorum::Quorum, removal::Removal,
};
use mczk_api::{ZooKeeper, contract::labels::AGENT_FINALIZER};

/// How long a tombstone may take to arrive after the object was deleted.
const TOMBSTONE_DELAY: SignedDuration = SignedDuration::from_secs(120);

/// What the deletion of the object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// The object is not being deleted.
    None,
    /// The object is deleted after everything that is over is removed.
    Proceeds,
    /// The servers run on, and Karmada creates the object again: the object is deleted at once. No object is owned by it.
    Recreated,
    /// The servers run on, and the object stays: nothing may create it again. The object may declare another incarnation.
    Unexpected { declares_other: bool },
}

pub(super) fn classify(ensemble: &LocalEnsemble<'_>, removal: &Removal, now: Timestamp) -> Deletion {
    let runs_on = ensemble.remains() && !removal.departed && !ensemble.over;
    if !ensemble.is_being_deleted() {
        Deletion::None
    } else if !runs_on {
        Deletion::Proceeds
    } else if ensemble.is_managed() && is_needed(ensemble, now) {
        Deletion::Recreated
    } else {
        Deletion::Unexpected { declares_other: !declares_own(ensemble) }
    }
}

fn declares_own(ensemble: &LocalEnsemble<'_>) -> bool {
    ensemble.observation.object.spec.ensemble.incarnation.as_deref() == Some(ensemble.incarnation)
}

/// True if the object declares the incarnation of the servers, and the agent sees a quorum whose server list names servers of this
/// cluster. If the object declares another incarnation, Karmada would create it again for that one. If only servers of this cluster
/// form the quorum, the ensemble may have ended in all other clusters while this one was unreachable. Its tombstone then arrives
/// soon after the deletion.
fn is_needed(ensemble: &LocalEnsemble<'_>, now: Timestamp) -> bool {
    let is_local = |id: &i32| ensemble.servers.iter().any(|server| server.id == Some(*id));
    let views = ensemble.observation.views.iter();
    let serves_elsewhere = views.filter(|view| view.serving).filter_map(|view| view.id).any(|id| !is_local(&id));
    let deleted = ensemble.observation.object.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
    declares_own(ensemble)
        && ensemble.quorum.as_ref().is_some_and(Quorum::holds)
        && ensemble.is_listed()
        && !first_start::is_needed(ensemble.list)
        && (serves_elsewhere || now.duration_since(deleted) >= TOMBSTONE_DELAY)
}

/// True if the object must carry the agent's finalizer.
pub(super) fn needs_finalizer(observation: &Observation, deletion: Deletion, has_servers: bool) -> bool {
    let has = has_finalizer(&observation.object);
    match deletion {
        Deletion::None => has || has_servers,
        Deletion::Recreated => false,
        Deletion::Proceeds | Deletion::Unexpected { .. } => has && !observation.incarnations().is_empty(),
    }
}

pub(super) fn has_finalizer(object: &ZooKeeper) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == AGENT_FINALIZER)
}

//! Step: the first obstacle that needs the user's attention.

use crate::agent::decide::{accept::Acceptance, deletion::Deletion, replicas::Replicas};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// What the obstacle depends on.
pub(super) struct ObstacleInputs<'a> {
    pub(super) acceptance: &'a Acceptance,
    /// True if the agent applies the spec.
    pub(super) acts: bool,
    pub(super) observed: &'a [Cause],
    pub(super) replicas: &'a Replicas,
    /// What users read of other incarnations that live here.
    pub(super) others: Option<&'a String>,
    pub(super) deletion: Deletion,
    /// What the API server refuses, or a tombstone.
    pub(super) refused: Option<Cause>,
    /// Why a change waits for certificates for clients.
    pub(super) certificates: Option<&'a String>,
}

/// The obstacle that the condition `Blocked` reports.
pub(super) fn first(inputs: &ObstacleInputs<'_>) -> Option<Cause> {
    let some = |reason, message: &String| Some(Cause::new(reason, message));
    let still_votes = || some(Reason::StillVotes, inputs.replicas.voters.blocked.as_ref()?);
    refused(inputs.acceptance)
        .or_else(|| still_votes().filter(|_| inputs.acts))
        .or_else(|| inputs.observed.first().filter(|_| inputs.acts).cloned())
        .or_else(|| inputs.refused.clone())
        .or_else(|| some(Reason::ClientCertificates, inputs.certificates?))
        .or_else(|| match inputs.deletion {
            Deletion::Unexpected { declares_other } => Some(unexpected_deletion(declares_other)),
            _ => None,
        })
        .or_else(|| {
            let message = inputs.others.filter(|_| inputs.deletion != Deletion::None)?;
            some(Reason::FormerIncarnation, message)
        })
}

/// The obstacle of a refused spec.
pub(super) fn refused(acceptance: &Acceptance) -> Option<Cause> {
    match acceptance {
        Acceptance::Refused(why) => Some(Cause { reason: Reason::SpecRefused, message: why.clone() }),
        Acceptance::Accepted | Acceptance::NotAssigned => None,
    }
}

fn unexpected_deletion(declares_other: bool) -> Cause {
    let remedy = if declares_other {
        "They are of a former incarnation: create the MultiClusterZooKeeper again, then run mczk adopt to continue them. \
         Only if their data has no use any more, run mczk declare-over, which deletes no volume"
    } else {
        "To keep them, let Karmada manage the object again. To remove them, change the placement of the \
         MultiClusterZooKeeper. Leave the finalizer of the object"
    };
    let message = format!("The object is being deleted, but its servers belong to the ensemble and run on. {remedy}");
    Cause { reason: Reason::Deleted, message }
}

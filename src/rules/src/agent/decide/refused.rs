//! Step: what the API server refuses, and what another writer undoes, in the words that a user needs.

use crate::agent::decide::observation::{Observation, RefusedChange};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Most objects that a message names.
const MAX_NAMED: usize = 3;

/// What the API server refuses: changes of objects, and the pod that would follow another one.
pub(super) fn refused(observation: &Observation) -> Option<Cause> {
    all(observation, false, Reason::ObjectRefused, "is refused")
}

/// Objects that another writer changes again and again.
pub(super) fn undone(observation: &Observation) -> Option<Cause> {
    all(observation, true, Reason::ChangedByOthers, "does not stay as the agent writes it")
}

fn all(observation: &Observation, undone: bool, reason: Reason, says: &str) -> Option<Cause> {
    let refusals = observation.refusals.iter().filter(|refusal| refusal.undone == undone);
    let mut messages: Vec<_> =
        refusals.map(|RefusedChange { kind, name, why, .. }| format!("{kind} {name} {says}: {why}")).collect();
    let more = messages.len().saturating_sub(MAX_NAMED);
    messages.truncate(MAX_NAMED);
    messages.extend((more > 0).then(|| format!("and {more} more")));
    (!messages.is_empty()).then(|| Cause::new(reason, messages.join("; ")))
}

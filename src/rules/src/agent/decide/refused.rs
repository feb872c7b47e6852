//! Step: what the API server refuses, and what another writer undoes, in the words that a user needs.

use crate::agent::decide::observation::{Observation, RefusedChange};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Most objects that a message names.
const MAX_NAMED: usize = 3;

/// The kind by which a user reads of the pod of the network check.
pub const PROBE: &str = "Probe pod";

/// What the API server refuses: changes of objects, and the pod that would follow another one.
pub(super) fn refused(observation: &Observation) -> Option<Cause> {
    all(observation, |refusal| !refusal.undone, Reason::ObjectRefused, "is refused")
}

/// As [`refused`], without the probe: servers do not need it.
pub(super) fn refused_of_servers(observation: &Observation) -> Option<Cause> {
    all(observation, |refusal| !refusal.undone && refusal.kind != PROBE, Reason::ObjectRefused, "is refused")
}

/// Objects that another writer changes again and again.
pub(super) fn undone(observation: &Observation) -> Option<Cause> {
    all(observation, |refusal| refusal.undone, Reason::ChangedByOthers, "does not stay as the agent writes it")
}

fn all(observation: &Observation, counts: fn(&RefusedChange) -> bool, reason: Reason, says: &str) -> Option<Cause> {
    let refusals = observation.refusals.iter().filter(|refusal| counts(refusal));
    let mut messages: Vec<_> =
        refusals.map(|RefusedChange { kind, name, why, .. }| format!("{kind} {name} {says}: {why}")).collect();
    let more = messages.len().saturating_sub(MAX_NAMED);
    messages.truncate(MAX_NAMED);
    messages.extend((more > 0).then(|| format!("and {more} more")));
    (!messages.is_empty()).then(|| Cause::new(reason, messages.join("; ")))
}

//! Step: what the API server refuses, what belongs to others, and what another writer undoes, in the words that a user needs.

use kube_core::ResourceExt;

use crate::agent::{
    decide::{
        growth,
        observation::{Observation, RefusedChange},
    },
    render::source::client_config,
};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Most objects that a message names.
const MAX_NAMED: usize = 3;

/// The kind by which a user reads of the pod of the network check.
pub const PROBE: &str = "Probe pod";

/// What the API server refuses of some objects: changes of them, and the pod that would follow another one. `counts` takes a
/// kind and a name. Sizes of volumes have words of their own.
pub(super) fn refused(observation: &Observation, counts: impl Fn(&str, &str) -> bool) -> Option<Cause> {
    let counts = |refusal: &RefusedChange| {
        !refusal.undone && refusal.kind != growth::SIZE && counts(&refusal.kind, &refusal.name)
    };
    all(observation, counts, Reason::ObjectRefused, "is refused")
}

/// What the API server refuses of servers, and of what they need: that is not the probe, nor what `needless` names while servers
/// are to run.
pub(super) fn of_servers(observation: &Observation, acts: bool) -> Option<Cause> {
    refused(observation, |kind, name| kind != PROBE && !(acts && is_needless(observation, kind, name)))
}

/// What the API server refuses, although every server is as declared without it.
pub(super) fn needless(observation: &Observation) -> Option<Cause> {
    refused(observation, |kind, name| is_needless(observation, kind, name))
}

/// True for the deletion of what a former revision left, and for the ConfigMap that only applications read.
fn is_needless(observation: &Observation, kind: &str, name: &str) -> bool {
    let leftovers = ["The deletion of ConfigMap", "The deletion of Secret"];
    leftovers.contains(&kind) || kind == "ConfigMap" && name == client_config(&observation.object.name_any())
}

/// Some objects that the agent wants to write, and that belong to others. `counts` takes a kind and a name.
pub(super) fn foreign(observation: &Observation, counts: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = Cause> {
    let names = observation.foreign.iter().filter(move |(kind, name)| counts(kind, name));
    names.map(|(kind, name)| {
        let remedy = "If it is one of mczk that has lost its labels, as on a StatefulSet whose pods have them, give them back. \
                      Delete it only if nothing else needs it. Declare the ensemble under another name only if no \
                      servers of this name run";
        Cause::new(Reason::NameConflict, format!("{kind} {name} exists and does not belong to the agent. {remedy}"))
    })
}

/// Objects that another writer changes again and again.
pub(super) fn undone(observation: &Observation) -> Option<Cause> {
    all(observation, |refusal| refusal.undone, Reason::ChangedByOthers, "does not stay as the agent writes it")
}

fn all(
    observation: &Observation,
    counts: impl Fn(&RefusedChange) -> bool,
    reason: Reason,
    says: &str,
) -> Option<Cause> {
    let refusals = observation.refusals.iter().filter(|refusal| counts(refusal));
    let mut messages: Vec<_> =
        refusals.map(|RefusedChange { kind, name, why, .. }| format!("{kind} {name} {says}: {why}")).collect();
    let more = messages.len().saturating_sub(MAX_NAMED);
    messages.truncate(MAX_NAMED);
    messages.extend((more > 0).then(|| format!("and {more} more")));
    (!messages.is_empty()).then(|| Cause::new(reason, messages.join("; ")))
}

//! The user wants the volume of the first server of the first cluster replaced: the request, its way to the agent, and what the
//! agent does about it.

use std::collections::BTreeMap;

use mczk_api::contract::{labels::REPLACE_VOLUME, naming::claim_of, replace_request::ReplaceRequest};
use mczk_rules::agent::decide::{Decision, observation::Claim, replace::ReplaceStep, volume_size::VolumeSize};

use crate::{
    World, member,
    properties::Rule,
    state::{Object, Server, State, name},
};

/// The cluster whose first server gets an empty volume.
const CLUSTER: usize = 0;
/// Id of that server after the first deployment.
const ID: i32 = 1;

/// The user's annotation, which comes with the second spec.
pub fn annotations(world: &World, object: &Object) -> Option<BTreeMap<String, String>> {
    let request = ReplaceRequest { server: ID, claim: uid(CLUSTER, 0, 0) };
    let is_made = world.setup.replaces && object.spec > 0;
    is_made.then(|| BTreeMap::from([(REPLACE_VOLUME.to_owned(), request.to_string())]))
}

/// Uid of a claim. Uids are of one cluster, place and creation.
fn uid(cluster: usize, ordinal: usize, creations: u8) -> String {
    format!("{}-{ordinal}-{creations}", name(cluster))
}

/// The claim of a server.
pub fn claim(cluster: usize, ordinal: usize, server: &Server, pod: &str, incarnation: String) -> Claim {
    let uid = uid(cluster, ordinal, server.replaced);
    let size = VolumeSize::default();
    Claim {
        name: claim_of(pod),
        incarnation,
        uid,
        version: None,
        bound: true,
        size,
        ending: false,
        servers_removed: false,
    }
}

/// The request on the template: Karmada brings it to every cluster.
pub fn propagated(state: &State) -> Option<String> {
    let template = state.template.as_ref()?;
    template.object.get().metadata.annotations.as_ref()?.get(REPLACE_VOLUME).cloned()
}

/// The agent deletes claim and pod. It takes the restart lock in the same step.
pub fn act(state: &mut State, cluster: usize, decision: &Decision) -> bool {
    let ReplaceStep::Delete(deletion) = &decision.replace else { return false };
    let ordinal = deletion.pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<usize>().ok());
    let ordinal = ordinal.expect("a pod has an ordinal");
    let server = &state.members[cluster].servers[ordinal];
    let is_requested =
        deletion.claim.uid == uid(CLUSTER, 0, 0) && deletion.claim.uid == uid(cluster, ordinal, server.replaced);
    let others = state.up().filter(|id| *id != deletion.server).count();
    if !is_requested || others <= state.truth.voters.len() / 2 {
        state.breaks(Rule::S13);
    }
    let server = &mut state.members[cluster].servers[ordinal];
    server.replaced += 1;
    (server.stores, server.joined_quorum, server.up) = (None, false, false);
    member::start_servers(state, cluster);
    true
}

/// True if the request is on the template, and the claim that it names is gone.
pub fn is_done(world: &World, state: &State) -> bool {
    let wanted = state.object.as_ref().and_then(|object| annotations(world, object));
    let wanted = wanted.as_ref().and_then(|annotations| annotations.get(REPLACE_VOLUME));
    let first = state.members[CLUSTER].servers.first();
    propagated(state).as_ref() == wanted && (wanted.is_none() || first.is_none_or(|server| server.replaced == 1))
}

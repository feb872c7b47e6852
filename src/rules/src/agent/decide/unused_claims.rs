//! Step: which volumes no server uses, and which one uses again.

use crate::agent::decide::observation::{Claim, Observation, ServerSet};
use mczk_api::contract::naming::claim_of;

/// Most volumes that the status may list.
const MOST: usize = 254;

/// Claims that servers of this incarnation use although the agent once removed their servers: the cluster has left and come
/// back. They live, so their mark has to go.
pub fn used_again<'a>(observation: &'a Observation, incarnation: &'a str) -> impl Iterator<Item = &'a Claim> {
    let servers = observation.servers.iter().filter(move |(of, _)| of == incarnation);
    let is_used = move |claim: &Claim| servers.clone().any(|(_, server)| claim_of(&server.pod) == claim.name);
    let of_incarnation = observation.claims.iter().filter(move |claim| claim.incarnation == incarnation);
    of_incarnation.filter(move |claim| claim.servers_removed && is_used(claim))
}

/// Names of claims that no server uses: those of other incarnations than the running one, and of ordinals that have left it.
pub(super) fn list(observation: &Observation, running: Option<&str>) -> Vec<String> {
    let is_mounted = |claim: &Claim| {
        let mounts = |set: &ServerSet| (0..set.replicas).any(|n| claim.name.ends_with(&format!("-{}-{n}", set.name)));
        let mut sets = observation.sets.iter().filter(|set| set.incarnation == claim.incarnation);
        let mut pods = observation.servers.iter().map(|(_, server)| &server.pod);
        sets.any(mounts) || pods.any(|pod| claim.name.ends_with(&format!("-{pod}")))
    };
    let unused = |claim: &&Claim| running != Some(claim.incarnation.as_str()) || !is_mounted(claim);
    let mut names: Vec<String> = observation.claims.iter().filter(unused).map(|claim| claim.name.clone()).collect();
    names.sort();
    names.truncate(MOST);
    names
}

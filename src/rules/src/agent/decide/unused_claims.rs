//! Step: which volumes no server uses.

use crate::agent::decide::observation::{Claim, Observation, ServerSet};

/// Most volumes that the status may list.
const MOST: usize = 254;

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

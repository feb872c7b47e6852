//! Step: which other incarnations of the ensemble's name live in this cluster.
//!
//! If the control plane was lost and its objects were created again, the new object has another incarnation. The operator
//! starts no server of it beside one that lives here, and until a user declares that one over, it keeps the name that
//! applications use: else clients would find an empty tree.

use std::collections::BTreeSet;

use crate::agent::decide::{
    observation::Observation,
    preflight::{self, ProbePlan},
};
use mczk_api::{mutation::broken, zookeeper::OtherIncarnation};

/// Most incarnations that the status may list.
const MOST: usize = 64;

/// The incarnations that live here, except the `current` one, those that are `over`, and those of a probe. Volumes whose
/// servers the agent removed are no sign of life.
pub(super) fn living(
    observation: &Observation,
    current: Option<&str>,
    over: &BTreeSet<String>,
    probes: &ProbePlan,
) -> Vec<OtherIncarnation> {
    let claims = || observation.claims.iter().filter(|claim| !claim.servers_removed);
    let awaited = preflight::awaited(observation).filter(|id| !observation.has_had_servers(id));
    let of_probe = |id: &str| {
        let is_expected = probes.incarnation.as_deref() == Some(id) || awaited == Some(id);
        is_expected && !observation.has_had_servers(id)
    };
    let ids: BTreeSet<&str> =
        observation.incarnations().into_iter().chain(claims().map(|claim| claim.incarnation.as_str())).collect();
    let others = ids.into_iter().filter(|id| current != Some(*id) && !over.contains(*id) && !of_probe(id));
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let other = |id: &str| OtherIncarnation {
        incarnation: id.to_owned(),
        servers: count(observation.servers.iter().filter(|(of, _)| of == id).count()),
        volumes: count(claims().filter(|claim| claim.incarnation == id).count()),
    };
    others.take(MOST).map(other).collect()
}

/// True if another incarnation keeps the Service and the ConfigMap for clients: it has servers here.
pub(super) fn keep_clients(observation: &Observation, others: &[OtherIncarnation]) -> bool {
    let has_servers = |other: &OtherIncarnation| {
        other.servers > 0 || observation.sets.iter().any(|set| set.incarnation == other.incarnation && set.replicas > 0)
    };
    others.iter().any(has_servers) && !broken!(EmptyTakesService)
}

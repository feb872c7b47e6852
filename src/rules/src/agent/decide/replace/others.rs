//! What every other voter must show before a volume goes: that it has one.
//!
//! Of two voters without a volume, each takes one vote away until it has copied the data. A voter of another cluster shows its
//! volume only by an answer: the agent sees no claims there.

use super::inputs::ReplaceInputs;
use mczk_api::{
    contract::naming::claim_of,
    zookeeper::{Role, Server},
};

/// Checks every voter of the server list but this one.
///
/// # Errors
/// The first one that lacks a volume, or whose volume the agent cannot confirm.
pub(super) fn check(inputs: ReplaceInputs<'_>, id: i32) -> Result<(), String> {
    let mut others = inputs.listed.iter().filter(|o| o.role == Role::Voter && o.id != id);
    let lacking = others.find_map(|other| Some((other, lack(inputs, other)?)));
    lacking.map_or(Ok(()), |(other, why)| Err(format!("server {} in cluster {} {why}", other.id, other.cluster)))
}

fn lack(inputs: ReplaceInputs<'_>, other: &Server) -> Option<&'static str> {
    let local = inputs.restart.servers.iter().find(|server| server.id == Some(other.id));
    let local = local.filter(|_| other.cluster == inputs.cluster);
    let claim = local.and_then(|server| inputs.claims.iter().find(|claim| claim.name == claim_of(&server.pod)));
    let view = inputs.views.iter().find(|view| view.id == Some(other.id));
    // A claim that is being deleted stays until its pod ends.
    let serves = view.is_some_and(|view| view.serving) && local.is_none_or(|server| !server.terminating);
    if !serves && claim.is_some_and(|claim| claim.ending) {
        return Some("loses its volume. Wait until it serves under a new id");
    }
    // A server accepts the epoch before it copies the data, and votes after that.
    let votes = inputs.restart.quorum.is_some_and(|quorum| quorum.voters().contains(&other.id));
    match view {
        Some(view) if view.lost => Some("has lost its volume. Wait until it serves under a new id"),
        Some(view) if !view.serving && (view.accepted_epoch == 0 || !votes) => Some("has not copied the data yet"),
        Some(_) => None,
        None if local.is_some() && claim.is_none_or(|claim| !claim.bound) => Some("has no volume"),
        None if local.is_some_and(|server| !server.terminating) => None,
        None if local.is_some() => Some("is being stopped"),
        None => Some(
            "does not answer, so its volume is unconfirmed. Restore it. If its cluster is lost for good, remove that \
             from spec.placement",
        ),
    }
}

//! Whether the agent may delete the volume that a request names.
//!
//! A deleted volume is a copy of the data less. So the rule asks what a restart asks of a server that serves, and more: the
//! other voters must be a majority that serves, and none of them may lack a volume. In most cases the server to replace does
//! not serve, and it may be the only one of its cluster. The agent then sees the ensemble through servers of other clusters:
//! each reports what it read through the quorum. Stale reports delete nothing, because the restart lock is confirmed by a write
//! that a majority commits, and the agent decides again while it holds the lock.

use std::collections::BTreeSet;

use super::{inputs::ReplaceInputs, others};
use crate::agent::decide::{
    local_server::LocalServer,
    observation::Claim,
    quorum::Quorum,
    restart::{SILENCE, check_restart},
};
use mczk_api::{
    contract::{naming::claim_of, server_list::majority},
    mutation::broken,
    zookeeper::Role,
};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaceStep {
    /// There is no request, or its claim is not in this cluster.
    Nothing,
    /// The agent deletes nothing yet, for this reason.
    Wait(String),
    /// Acquire the restart lock. If this agent holds it, confirm it, decide again, and delete claim and pod.
    Delete(VolumeDeletion),
}

/// The deletions that replace a volume. The StatefulSet makes both objects again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeDeletion {
    /// Id of the server.
    pub server: i32,
    /// The claim. It stays until its pod is gone.
    pub claim: Claim,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// True if no kubelet ends the pod, because its node exists no longer.
    pub force: bool,
    /// True if this agent holds the restart lock for the server.
    pub held: bool,
}

impl VolumeDeletion {
    /// Why a deletion that the servers allow has to wait.
    pub(super) fn waits(&self, why: &str) -> String {
        waits(&self.pod, why)
    }
}

fn waits(pod: &str, why: &str) -> String {
    format!("The volume of {pod} is not replaced: {why}")
}

/// What becomes of the request.
#[must_use]
pub fn next_step(inputs: ReplaceInputs<'_>) -> ReplaceStep {
    let claims = || inputs.claims.iter().filter(|claim| claim.incarnation == inputs.incarnation);
    let server = |claim: &Claim| inputs.restart.servers.iter().find(|server| claim_of(&server.pod) == claim.name);
    let of_server = |claim: &&Claim| server(claim).is_some_and(|server| server.id == Some(inputs.request.server));
    let wanted = |claim: &&Claim| claim.uid == inputs.request.claim;
    let claim = if broken!(ReplaceOtherClaim) { claims().find(of_server) } else { claims().find(wanted) };
    let Some(claim) = claim else { return ReplaceStep::Nothing };
    let Some(server) = server(claim) else {
        let more = if claim.ending { ". Kubernetes is deleting it: a finalizer may hold it" } else { "" };
        return ReplaceStep::Wait(format!("No pod uses {} at the moment{more}", claim.name));
    };
    match deletion(inputs, claim, server) {
        Ok(deletion) => ReplaceStep::Delete(deletion),
        Err(why) => ReplaceStep::Wait(waits(&server.pod, &why)),
    }
}

/// True if the agent may delete now what it decided on before. `again` is its decision since then, and `confirmed` is true if
/// a majority has just confirmed the restart lock.
#[must_use]
pub fn may_delete(before: &VolumeDeletion, again: &ReplaceStep, confirmed: bool) -> bool {
    let holds = before.held && confirmed || broken!(ReplaceWithoutLock);
    holds && matches!(again, ReplaceStep::Delete(deletion) if deletion == before)
}

fn deletion(inputs: ReplaceInputs<'_>, claim: &Claim, server: &LocalServer) -> Result<VolumeDeletion, String> {
    let id = inputs.request.server;
    match server.id {
        Some(own) if own == id => {}
        Some(other) => return Err(format!("it is server {other} now, and not server {id}. Run mczk replace again")),
        None => return Err("the id of its server is unknown".to_owned()),
    }
    let force = inputs.gone.contains(&server.uid);
    if server.terminating && !force {
        return Err("its pod is being stopped".to_owned());
    }
    if !broken!(ReplaceLastCopy) {
        check_others(inputs, server)?;
    }
    let held = holds_lock(inputs)?;
    let (pod, uid) = (server.pod.clone(), server.uid.clone());
    Ok(VolumeDeletion { server: id, claim: claim.clone(), pod, uid, force, held })
}

fn check_others(inputs: ReplaceInputs<'_>, server: &LocalServer) -> Result<(), String> {
    if server.may_serve() {
        check_restart(inputs.restart, server)?;
    }
    check_majority(inputs, server)?;
    others::check(inputs)
}

/// True if this agent holds the restart lock for the server; false if no agent holds it.
fn holds_lock(inputs: ReplaceInputs<'_>) -> Result<bool, String> {
    match inputs.restart.lock {
        Some(lock) if lock.holder == inputs.restart.holder && lock.server == inputs.request.server => Ok(true),
        Some(lock) if !broken!(ReplaceWithoutLock) => {
            Err(format!("{} holds the restart lock, for server {}", lock.holder, lock.server))
        }
        _ => Ok(false),
    }
}

/// A majority must serve without the server: of the voters of `ZooKeeper`'s configuration, and of the server list, to which
/// the configuration may be about to change.
fn check_majority(inputs: ReplaceInputs<'_>, server: &LocalServer) -> Result<(), String> {
    // It may be in an election, or serve although the agent cannot reach it.
    let may_run = server.started() || server.view.is_none() && server.failure.is_none();
    if !server.may_serve() && may_run && server.unready_for < SILENCE {
        return Err("it does not serve at the moment".to_owned());
    }
    let quorum = inputs.restart.quorum.ok_or("the agent sees no quorum")?;
    let listed = inputs.listed.iter().filter(|server| server.role == Role::Voter).map(|server| server.id);
    check_voters(inputs, quorum, &quorum.voters(), "ZooKeeper's configuration")?;
    check_voters(inputs, quorum, &listed.collect(), "the server list")?;
    let needed = majority(quorum.voters().len());
    let followers = inputs.restart.synced_voters.map(|followers| usize::try_from(followers).unwrap_or(0));
    match quorum.leader {
        None => Err("the agent sees no leader".to_owned()),
        Some(_) if followers.is_some_and(|followers| followers.saturating_add(1) < needed) => {
            Err("no majority follows the leader".to_owned())
        }
        Some(_) => Ok(()),
    }
}

fn check_voters(inputs: ReplaceInputs<'_>, quorum: &Quorum, voters: &BTreeSet<i32>, what: &str) -> Result<(), String> {
    let serve = voters.intersection(&quorum.following).filter(|id| **id != inputs.request.server).count();
    let (total, needed) = (voters.len(), majority(voters.len()));
    if serve >= needed {
        return Ok(());
    }
    let action = if total <= 2 { "Declare at least three voters first" } else { "Bring other voters back first" };
    let id = inputs.request.server;
    Err(format!("without server {id} only {serve} of {total} voters of {what} serve, and {needed} must. {action}"))
}

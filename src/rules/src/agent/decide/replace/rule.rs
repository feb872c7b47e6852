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
    restart::{NO_COUNT, SILENCE, may_stop},
};
use mczk_api::{
    contract::{naming::claim_of, server_list::majority},
    mutation::broken,
    zookeeper::Role,
};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub claim: Box<Claim>,
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

/// What becomes of the request, and of deletions that have begun. The first deletion that may go on does, so that none waits for
/// another one. Users read about their request first.
#[must_use]
pub fn next_step(inputs: ReplaceInputs<'_>) -> ReplaceStep {
    let requested = requested(inputs).map(|claim| step_of(inputs, &claim));
    let mut all: Vec<ReplaceStep> = begun(inputs).map(|claim| step_of(inputs, &claim)).chain(requested).collect();
    let first = all.iter().position(|step| matches!(step, ReplaceStep::Delete(_)));
    first.map(|first| all.swap_remove(first)).or_else(|| all.pop()).unwrap_or(ReplaceStep::Nothing)
}

fn step_of(inputs: ReplaceInputs<'_>, claim: &ClaimOfServer<'_>) -> ReplaceStep {
    let ClaimOfServer { claim, server, named } = *claim;
    let Some(server) = server else {
        let more = if claim.ending { ". Kubernetes is deleting it: a finalizer may hold it" } else { "" };
        return ReplaceStep::Wait(format!("No pod uses {} at the moment{more}", claim.name));
    };
    match deletion(inputs, claim, server, named) {
        Ok(deletion) => ReplaceStep::Delete(deletion),
        Err(why) => ReplaceStep::Wait(waits(&server.pod, &why)),
    }
}

/// A claim that may go, with its server.
struct ClaimOfServer<'a> {
    claim: &'a Claim,
    server: Option<&'a LocalServer>,
    /// The server that the request names. `None` if the deletion has begun.
    named: Option<i32>,
}

fn claims(inputs: ReplaceInputs<'_>) -> impl Iterator<Item = (&Claim, Option<&LocalServer>)> {
    let server = move |claim: &Claim| inputs.restart.servers.iter().find(|server| claim_of(&server.pod) == claim.name);
    let own = move |claim: &&Claim| claim.incarnation == inputs.incarnation;
    inputs.claims.iter().filter(own).map(move |claim| (claim, server(claim)))
}

/// Claims that Kubernetes is deleting while their pods run. Nothing brings them back, so no request is needed: the agent ends a
/// pod when the other servers allow it, before the pod ends at another moment.
fn begun(inputs: ReplaceInputs<'_>) -> impl Iterator<Item = ClaimOfServer<'_>> {
    let runs = move |server: &LocalServer| !server.terminating || inputs.gone.contains(&server.uid);
    let begun = claims(inputs).filter(move |(claim, server)| claim.ending && server.is_some_and(runs));
    begun.map(|(claim, server)| ClaimOfServer { claim, server, named: None })
}

/// The claim of the request. There is none if it is gone, or in another cluster.
fn requested(inputs: ReplaceInputs<'_>) -> Option<ClaimOfServer<'_>> {
    let request = inputs.request?;
    let id = |server: Option<&LocalServer>| server?.id;
    let (claim, server) = claims(inputs).find(|(claim, server)| {
        if broken!(ReplaceOtherClaim) { id(*server) == Some(request.server) } else { claim.uid == request.claim }
    })?;
    Some(ClaimOfServer { claim, server, named: Some(request.server) })
}

/// True if the agent goes on under the lock that it has just acquired or confirmed. If it did not hold it when it decided, it
/// decides first with all that holding it means.
#[must_use]
pub fn may_decide_again(before: &VolumeDeletion, acquired: bool) -> bool {
    before.held && acquired || broken!(ReplaceWithoutLock)
}

/// True if the agent may delete now what it decided on before. `again` is its decision since then, and `confirmed` is true if
/// a majority has just confirmed the restart lock.
#[must_use]
pub fn may_delete(before: &VolumeDeletion, again: &ReplaceStep, confirmed: bool) -> bool {
    let holds = before.held && confirmed || broken!(ReplaceWithoutLock);
    holds && matches!(again, ReplaceStep::Delete(deletion) if deletion == before)
}

fn deletion(
    inputs: ReplaceInputs<'_>,
    claim: &Claim,
    server: &LocalServer,
    named: Option<i32>,
) -> Result<VolumeDeletion, String> {
    let id = server.id.ok_or("the id of its server is unknown")?;
    if let Some(named) = named.filter(|named| *named != id) {
        return Err(format!("it is server {id} now, and not server {named}. Run mczk replace again"));
    }
    let force = inputs.gone.contains(&server.uid);
    if server.terminating && !force {
        return Err("its pod is being stopped".to_owned());
    }
    if !broken!(ReplaceLastCopy) {
        check_others(inputs, server, id)?;
    }
    let held = holds_lock(inputs, id)?;
    let (pod, uid) = (server.pod.clone(), server.uid.clone());
    Ok(VolumeDeletion { server: id, claim: Box::new(claim.clone()), pod, uid, force, held })
}

fn check_others(inputs: ReplaceInputs<'_>, server: &LocalServer, id: i32) -> Result<(), String> {
    if server.may_serve() {
        may_stop(inputs.restart, server)?;
    }
    check_majority(inputs, server, id)?;
    others::check(inputs, id)
}

/// True if this agent holds the restart lock for the server; false if no agent holds it.
fn holds_lock(inputs: ReplaceInputs<'_>, id: i32) -> Result<bool, String> {
    match inputs.restart.lock {
        Some(lock) if lock.holder == inputs.restart.holder && lock.server == id => Ok(true),
        Some(lock) if !broken!(ReplaceWithoutLock) => {
            Err(format!("{} holds the restart lock, for server {}", lock.holder, lock.server))
        }
        _ => Ok(false),
    }
}

/// A majority must serve without the server: of the voters of `ZooKeeper`'s configuration, and of the server list, to which
/// the configuration may be about to change.
fn check_majority(inputs: ReplaceInputs<'_>, server: &LocalServer, id: i32) -> Result<(), String> {
    // It may be in an election, or serve although the agent cannot reach it.
    let may_run = server.started() || server.view.is_none() && server.failure.is_none();
    if !server.may_serve() && may_run && server.unready_for < SILENCE {
        return Err("it does not serve at the moment".to_owned());
    }
    let quorum = inputs.restart.quorum.ok_or("the agent sees no quorum")?;
    let listed = inputs.listed.iter().filter(|server| server.role == Role::Voter).map(|server| server.id);
    check_voters(quorum, id, &quorum.voters(), "ZooKeeper's configuration")?;
    check_voters(quorum, id, &listed.collect(), "the server list")?;
    let needed = majority(quorum.voters().len());
    let followers = inputs.restart.synced_voters.map(|followers| usize::try_from(followers).unwrap_or(0));
    match (quorum.leader, followers) {
        (None, _) => Err("the agent sees no leader".to_owned()),
        (Some(_), None) if needed > 1 => Err(NO_COUNT.to_owned()),
        (Some(_), Some(followers)) if followers.saturating_add(1) < needed => {
            Err("no majority follows the leader".to_owned())
        }
        (Some(_), _) => Ok(()),
    }
}

fn check_voters(quorum: &Quorum, id: i32, voters: &BTreeSet<i32>, what: &str) -> Result<(), String> {
    let serve = voters.intersection(&quorum.following).filter(|other| **other != id).count();
    let (total, needed) = (voters.len(), majority(voters.len()));
    if serve >= needed {
        return Ok(());
    }
    let action = if total <= 2 { "Declare at least three voters first" } else { "Bring other voters back first" };
    Err(format!("without server {id} only {serve} of {total} voters of {what} serve, and {needed} must. {action}"))
}

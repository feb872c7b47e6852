//! Which server of this cluster may be taken out next, so that it comes back as declared, or on a node that is not cordoned:
//! pure.
//!
//! Servers that do not serve first, one at a time and without the ensemble's lock: that makes nothing worse, and is the only
//! way out when a majority was broken by a bad image. Servers that serve one at a time in the whole ensemble, under the turn,
//! and only while every other voter serves; the leader last, and not before every other voter has served for a while: one of
//! them is elected then, and must be where all others look for it.

use std::time::Duration;

use crate::{
    agent::decide::{local_server::LocalServer, membership::Quorum},
    api::zookeeper::Role,
    contract::{control_api, server_list::majority},
    mutation::broken,
};

/// For how long a server must not have served before it counts as one that does not: elections take a while, and nobody is to
/// be taken out in one. Not one whose `ZooKeeper` is known not to run.
pub const SILENCE: Duration = Duration::from_secs(20);

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct RestartInputs<'a> {
    /// Revision that all servers are to have.
    pub revision: &'a str,
    /// Servers of this cluster.
    pub own: &'a [LocalServer],
    /// How many there are to be.
    pub expected: usize,
    /// How many voters the list names.
    pub listed: usize,
    /// What is seen of the quorum.
    pub quorum: Option<&'a Quorum>,
    /// Whether a quorum ever formed.
    pub formed: bool,
    /// Voters that follow the leader and are synced, itself not counted, as it says.
    pub synced_voters: Option<i32>,
    /// Who has the turn.
    pub lock: Option<&'a control_api::RestartLock>,
    /// The name under which this agent asks for the turn.
    pub holder: &'a str,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: every server is as declared.
    Nothing,
    /// Nothing yet: a sentence for people.
    Wait(String),
    /// Take this pod out.
    Take {
        /// Its name.
        pod: String,
        /// Its uid: no other pod of that name.
        uid: String,
    },
    /// Get the turn for this server, or, if it is held already, confirm it, look again, and take the pod out.
    TakeServing {
        /// Its name.
        pod: String,
        /// Its uid: no other pod of that name.
        uid: String,
        /// Its id.
        server: i32,
        /// Whether the turn is held for it.
        held: bool,
    },
    /// Give the turn back.
    Release(control_api::RestartLock),
}

/// The next server to be taken out.
#[must_use]
pub fn next(sight: RestartInputs<'_>) -> Next {
    if let Some(turn) = sight.lock.filter(|turn| turn.holder == sight.holder) {
        return held(sight, turn);
    }
    let outdated = |own: &&LocalServer| own.outdated(sight.revision);
    if !broken!(TwoAtOnce) {
        if let Some(own) = sight.own.iter().find(|own| own.terminating) {
            return Next::Wait(format!("{} is being stopped", own.pod));
        }
        if let Some(own) = sight.own.iter().find(|own| !outdated(own) && !own.started()) {
            return Next::Wait(format!("{} is being started", own.pod));
        }
        if sight.own.len() < sight.expected {
            return Next::Wait("pods are being made".to_owned());
        }
    }
    let at_work = |own: &LocalServer| if broken!(BelieveSilence) { own.serving() } else { own.may_serve() };
    let mut candidates: Vec<&LocalServer> = sight.own.iter().filter(outdated).filter(|own| !own.terminating).collect();
    // Those that were not even started first.
    candidates.sort_by_key(|own| (own.started(), own.role == Role::Voter, own.ordinal));
    if let Some(own) = candidates.iter().find(|own| !at_work(own)) {
        // What is not known to have ended may be in an election, or serve while nobody gets an answer.
        let may_run = own.started() || own.view.is_none() && own.failure.is_none() && !broken!(AtOnce);
        if may_run && sight.formed && own.unready_for < SILENCE {
            return Next::Wait(format!("{} does not serve at the moment", own.pod));
        }
        return Next::Take { pod: own.pod.clone(), uid: own.uid.clone() };
    }
    if let Some(own) = candidates.iter().find(|own| own.role == Role::Observer) {
        return Next::Take { pod: own.pod.clone(), uid: own.uid.clone() };
    }
    candidates.sort_by_key(|own| (own.leads() != broken!(LeaderFirst), own.ordinal));
    match candidates.first() {
        None => Next::Nothing,
        Some(own) => match can_restart(sight, own) {
            Err(why) => Next::Wait(why),
            Ok(server) => match sight.lock {
                Some(other) => Next::Wait(format!("{} has the turn, for server {}", other.holder, other.server)),
                None if broken!(WithoutTurn) => Next::Take { pod: own.pod.clone(), uid: own.uid.clone() },
                None => Next::TakeServing { pod: own.pod.clone(), uid: own.uid.clone(), server, held: false },
            },
        },
    }
}

/// The next server to be taken out while all are to be parked: one that nobody can ask, so that its pod comes back as one that
/// can tell what its volume holds. Those that can be asked stay as they are.
#[must_use]
pub fn parked(revision: &str, own: &[LocalServer]) -> Next {
    let silent = |own: &&LocalServer| own.view.is_none() && !own.ready && !own.terminating && own.outdated(revision);
    match own.iter().filter(silent).max_by_key(|own| own.unready_for) {
        None => Next::Nothing,
        // It may only be late.
        Some(own) if own.unready_for < SILENCE => Next::Wait(format!("{} cannot be asked at the moment", own.pod)),
        Some(own) => Next::Take { pod: own.pod.clone(), uid: own.uid.clone() },
    }
}

/// The turn is ours: for which server, and how far is it?
fn held(sight: RestartInputs<'_>, turn: &control_api::RestartLock) -> Next {
    let Some(own) = sight.own.iter().find(|own| own.id == Some(turn.server)) else {
        // It left the ensemble while it was away: nobody has to wait for it.
        let left = sight.quorum.is_some_and(|quorum| !quorum.voters().contains(&turn.server));
        return if left {
            Next::Release(turn.clone())
        } else {
            Next::Wait(format!("server {} is being replaced", turn.server))
        };
    };
    if !own.outdated(sight.revision) {
        return if own.serving() && own.view.as_ref().is_some_and(|view| view.synced) {
            Next::Release(turn.clone())
        } else {
            Next::Wait(format!("{} is being started", own.pod))
        };
    }
    if own.terminating {
        return Next::Wait(format!("{} is being stopped", own.pod));
    }
    match can_restart(sight, own) {
        Ok(server) => Next::TakeServing { pod: own.pod.clone(), uid: own.uid.clone(), server, held: true },
        // What changed meanwhile may need somebody else's turn.
        Err(_) => Next::Release(turn.clone()),
    }
}

/// Whether a voter that serves may be taken out; its id.
fn can_restart(sight: RestartInputs<'_>, own: &LocalServer) -> Result<i32, String> {
    let unseen = || format!("{} stays: no quorum is seen", own.pod);
    let id = own.id.ok_or_else(unseen)?;
    if broken!(WhileAnotherIsDown) {
        return Ok(id);
    }
    let quorum = sight.quorum.ok_or_else(unseen)?;
    let voters = quorum.voters();
    if let Some(other) = voters.iter().find(|other| **other != id && !quorum.following.contains(other)) {
        return Err(format!("{} stays: server {other} does not serve", own.pod));
    }
    // Where one or two are declared there is no other way. But where somebody left and somebody is to join, those who are there
    // wait.
    let few = voters.len() <= majority(voters.len()) && sight.listed > voters.len();
    if few && !broken!(OfTooFew) {
        return Err(format!("{} stays: no majority would be left before more voters have joined", own.pod));
    }
    let current = sight.own.iter().filter(|other| !other.outdated(sight.revision));
    if let Some(other) = current.into_iter().find(|other| !other.serving()) {
        return Err(format!("{} stays: {} does not serve", own.pod, other.pod));
    }
    let followers = i32::try_from(voters.len()).unwrap_or(i32::MAX).saturating_sub(1);
    if sight.synced_voters.is_some_and(|synced| synced < followers) {
        return Err(format!("{} stays: not every voter follows the leader", own.pod));
    }
    let unsettled = |other: &&i32| **other != id && !quorum.settled.contains(other);
    if let Some(other) = voters.iter().find(unsettled).filter(|_| own.leads() && !broken!(LeaderSoon)) {
        return Err(format!("{} stays: it leads, and server {other} came back only just now", own.pod));
    }
    if quorum.leader.is_none() {
        return Err(format!("{} stays: no leader is seen", own.pod));
    }
    Ok(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

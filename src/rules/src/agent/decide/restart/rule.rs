//! Which server of this cluster restarts next, for another revision, on another node or for its file system.
//!
//! Servers that do not serve restart first, one at a time and without the restart lock. That makes nothing worse, and it is the
//! only way out after a bad image broke a majority. A server that runs and cannot be asked may serve, so it counts as one that
//! does. If it hangs, its parent process or the kubelet ends it, and then it is known to be down. Observers follow, one at a
//! time: they count in no majority. Serving voters restart one at a time in the whole ensemble, under the restart lock, and only
//! while every other voter serves. The leader restarts last, after every other voter has served for a while: one of them is
//! elected then, and all others must know its address.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::agent::decide::{
    local_server::LocalServer,
    quorum::{NO_SESSION, Quorum},
};
use mczk_api::{
    contract::{control_api::RestartLock, server_list::majority},
    mutation::broken,
    zookeeper::Role,
};

/// How long a server must not have served before it counts as not serving. Elections take a while, and the agent restarts no
/// server during one. A server whose `ZooKeeper` is known not to run counts at once.
pub const SILENCE: Duration = Duration::from_secs(20);

/// What the next restart depends on.
#[derive(Clone, Copy, Debug)]
pub struct RestartInputs<'a> {
    /// Revision that all servers must have.
    pub revision: &'a str,
    /// Servers of this cluster.
    pub servers: &'a [LocalServer],
    /// Number of servers that this cluster must have.
    pub expected_servers: usize,
    /// Ids of the voters that the server list names.
    pub listed: &'a BTreeSet<i32>,
    /// The quorum, if the agent sees one.
    pub quorum: Option<&'a Quorum>,
    /// True if a quorum has ever formed.
    pub formed: bool,
    /// Synced voters that follow the leader, by the leader's report.
    pub synced_voters: Option<i32>,
    /// Pods that must stay, and why: a volume would end with the pod, or the API server has just refused to delete it.
    pub pods_that_stay: &'a BTreeMap<&'a str, &'a str>,
    /// How long `ZooKeeper` itself lets the winner of an election take until it serves.
    pub election: Duration,
    /// The restart lock, if it is held.
    pub lock: Option<&'a RestartLock>,
    /// This agent's name as holder of the restart lock.
    pub holder: &'a str,
}

/// The next restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartStep {
    /// No server has to restart.
    Nothing,
    /// The agent waits, for this reason.
    Wait(String),
    /// Delete the pod of a server that does not serve, or has no vote.
    Restart {
        /// Name of the pod.
        pod: String,
        /// Uid of the pod.
        uid: String,
    },
    /// Acquire the restart lock for a serving voter. If this agent holds it, confirm it, poll again, and delete the pod.
    RestartServing {
        /// Name of the pod.
        pod: String,
        /// Uid of the pod.
        uid: String,
        /// Id of the server.
        server: i32,
        /// True if this agent holds the restart lock for the server.
        held: bool,
    },
    /// Release the restart lock.
    Release(RestartLock),
}

fn restart(server: &LocalServer) -> RestartStep {
    RestartStep::Restart { pod: server.pod.clone(), uid: server.uid.clone() }
}

fn restart_serving(server: &LocalServer, id: i32, held: bool) -> RestartStep {
    RestartStep::RestartServing { pod: server.pod.clone(), uid: server.uid.clone(), server: id, held }
}

/// The next restart.
#[must_use]
pub fn next_step(inputs: RestartInputs<'_>) -> RestartStep {
    if let Some(lock) = inputs.lock.filter(|lock| lock.holder == inputs.holder) {
        return with_lock(inputs, lock);
    }
    let outdated = |server: &&LocalServer| server.outdated(inputs.revision);
    if let Some(why) = pod_in_transit(inputs) {
        return RestartStep::Wait(why);
    }
    // A server that cannot leave a drained node would stay down, and one whose volume is being deleted would lose it.
    let stays = |server: &&LocalServer| {
        inputs.pods_that_stay.contains_key(server.pod.as_str())
            || may_serve(inputs, server) && cannot_leave(server).is_some()
    };
    // Drains and volumes do not wait for it.
    let turns_away =
        inputs.servers.iter().find(|server| server.revision == inputs.revision && server.turns_away().is_some());
    let may_change = |server: &&LocalServer| turns_away.is_none() || server.revision == inputs.revision;
    let candidates = inputs.servers.iter().filter(outdated).filter(|server| !server.terminating).filter(may_change);
    let (staying, mut candidates): (Vec<_>, Vec<_>) = candidates.partition(stays);
    // Servers that have not even started come first.
    candidates.sort_by_key(|server| (server.started(), server.role == Role::Voter, server.ordinal));
    if let Some(server) = candidates.iter().find(|server| !may_serve(inputs, server)) {
        if may_run(server) && inputs.formed && server.unready_for < patience(inputs, server) {
            return RestartStep::Wait(format!("{} does not serve at the moment", server.pod));
        }
        return restart(server);
    }
    if let Some(server) = candidates.iter().find(|server| server.role == Role::Observer) {
        return restart(server);
    }
    candidates.sort_by_key(|server| last_in_order(server));
    match candidates.first() {
        None => match staying.first() {
            Some(server) => {
                let kept = || inputs.pods_that_stay.get(server.pod.as_str()).map(|why| (*why).to_owned());
                RestartStep::Wait(stays_because(server, &cannot_leave(server).or_else(kept).unwrap_or_default()))
            }
            None => turns_away.map_or(RestartStep::Nothing, |server| {
                RestartStep::Wait(format!("{} turns away clients with TLS", server.pod))
            }),
        },
        Some(server) => match may_stop(inputs, server) {
            Err(why) => RestartStep::Wait(waits(server, &why)),
            Ok(id) => match inputs.lock {
                Some(lock) => {
                    RestartStep::Wait(format!("{} holds the restart lock, for server {}", lock.holder, lock.server))
                }
                None if broken!(WithoutLock) => restart(server),
                None => restart_serving(server, id, false),
            },
        },
    }
}

/// How long a server that runs may not serve before it restarts. Without a quorum an election may be going on: who wins it reads
/// its volume and writes a snapshot before anyone serves. That takes long with much data, and a restart would begin it again.
fn patience(inputs: RestartInputs<'_>, server: &LocalServer) -> Duration {
    let elects = (server.runs || server.started()) && !inputs.quorum.is_some_and(Quorum::holds);
    if elects { SILENCE + inputs.election } else { SILENCE }
}

/// Before the first quorum a server in doubt serves only if the kubelet finds it ready.
fn may_serve(inputs: RestartInputs<'_>, server: &LocalServer) -> bool {
    let in_doubt = server.doubt().is_some() && !server.ready && !inputs.formed;
    if broken!(BelieveUnanswered) { server.serving() } else { server.may_serve() && !in_doubt }
}

/// True if a server is not known to have ended: it may be in an election, or serve although the agent cannot reach it.
fn may_run(server: &LocalServer) -> bool {
    server.started() || server.view.is_none() && server.failure.is_none() && !broken!(AtOnce)
}

/// Why a server would stay down if its pod went.
fn cannot_leave(server: &LocalServer) -> Option<String> {
    server.cannot_leave().filter(|_| !broken!(StrandServer))
}

/// The leader comes last.
fn last_in_order(server: &LocalServer) -> (bool, i32) {
    (server.leads() != broken!(LeaderFirst), server.ordinal)
}

fn waits(server: &LocalServer, why: &str) -> String {
    let advice = server.doubt().map(|_| ". If you know that it does not serve, delete its pod");
    stays_because(server, why) + advice.unwrap_or_default()
}

/// Of a pod that must stay. Nothing here advises to delete it: its volume may end with it.
fn stays_because(server: &LocalServer, why: &str) -> String {
    let doubt = server.doubt().map(|doubt| format!(". It may serve: {doubt}"));
    format!("{} is not restarted: {why}{}", server.pod, doubt.unwrap_or_default())
}

/// What keeps every restart waiting: a server of this cluster that stops or starts.
fn pod_in_transit(inputs: RestartInputs<'_>) -> Option<String> {
    if broken!(TwoAtOnce) {
        return None;
    }
    if let Some(server) = inputs.servers.iter().find(|server| server.terminating) {
        return Some(format!("{} is being stopped", server.pod));
    }
    let starting = |server: &&LocalServer| {
        !server.outdated(inputs.revision) && (!server.started() || is_catching_up(inputs, server))
    };
    if let Some(server) = inputs.servers.iter().find(starting) {
        let starts = || format!("{} is being started", server.pod);
        return Some(server.doubt().map_or_else(starts, |doubt| format!("Waiting for {}: {doubt}", server.pod)));
    }
    (inputs.servers.len() < inputs.expected_servers).then(|| "Pods are being created".to_owned())
}

/// True if a voter has started and does not follow yet, although there is a quorum to follow. Without one it cannot: the next
/// server may have to start first.
fn is_catching_up(inputs: RestartInputs<'_>, server: &LocalServer) -> bool {
    !server.may_serve()
        && inputs.quorum.is_some_and(|quorum| {
            let voters = quorum.voters();
            quorum.following.len() >= majority(voters.len()) && server.id.is_some_and(|id| voters.contains(&id))
        })
}

/// The next restart while all servers are being suspended. Only a server that does not run restarts, so that its new pod can
/// report what its volume holds. All others stay as they are.
#[must_use]
pub(crate) fn next_suspended(revision: &str, servers: &[LocalServer], kept: &BTreeMap<&str, &str>) -> RestartStep {
    let unreachable = |server: &&LocalServer| server.view.is_none() && !server.terminating && server.outdated(revision);
    let stays = |server: &LocalServer| kept.contains_key(server.pod.as_str()) || server.doubt().is_some();
    let (staying, others): (Vec<_>, Vec<_>) = servers.iter().filter(unreachable).partition(|server| stays(server));
    match others.into_iter().max_by_key(|server| server.unready_for) {
        None => staying.first().map_or(RestartStep::Nothing, |server| {
            let kept = kept.get(server.pod.as_str()).map(|why| stays_because(server, why));
            RestartStep::Wait(kept.unwrap_or_else(|| waits(server, "no quorum allows it")))
        }),
        Some(server) if server.unready_for < SILENCE => {
            RestartStep::Wait(format!("{} does not answer at the moment", server.pod))
        }
        Some(server) => restart(server),
    }
}

/// The next restart while this agent holds the restart lock.
fn with_lock(inputs: RestartInputs<'_>, lock: &RestartLock) -> RestartStep {
    let Some(server) = inputs.servers.iter().find(|server| server.id == Some(lock.server)) else {
        // A server that left the ensemble while it was down is not awaited. One that only lost its vote comes back.
        let is_listed = inputs.listed.contains(&lock.server) && !broken!(ReleaseDemoted);
        let left = !is_listed && inputs.quorum.is_some_and(|quorum| !quorum.voters().contains(&lock.server));
        return if left {
            RestartStep::Release(lock.clone())
        } else {
            RestartStep::Wait(format!("The pod of server {} is being recreated", lock.server))
        };
    };
    if !server.outdated(inputs.revision) {
        return if server.serving() && server.view.as_ref().is_some_and(|view| view.synced) {
            RestartStep::Release(lock.clone())
        } else {
            RestartStep::Wait(format!("{} is being started", server.pod))
        };
    }
    if server.terminating {
        return RestartStep::Wait(format!("{} is being stopped", server.pod));
    }
    match may_stop(inputs, server) {
        // With its pod, its volume would end.
        Ok(id) if !inputs.pods_that_stay.contains_key(server.pod.as_str()) => restart_serving(server, id, true),
        // Another agent may have to restart a server before this one can.
        _ => RestartStep::Release(lock.clone()),
    }
}

/// Without the count, a leader without followers looks like one that all follow.
pub(in crate::agent::decide) const NO_COUNT: &str =
    "the admin server of the leader does not say how many voters follow it. If it lasts: docs/explanation/limits.md";

/// Id of a serving voter that may stop.
///
/// # Errors
/// Why it may not.
pub(in crate::agent::decide) fn may_stop(inputs: RestartInputs<'_>, server: &LocalServer) -> Result<i32, String> {
    let no_quorum = || match inputs.servers.iter().find(|server| server.takes_part()) {
        Some(server) => format!("the agent sees no quorum: {} {NO_SESSION}", server.pod),
        None => "the agent sees no quorum".to_owned(),
    };
    let id = server.id.ok_or_else(no_quorum)?;
    if let Some(why) = cannot_leave(server) {
        return Err(why);
    }
    if broken!(WhileAnotherIsDown) {
        return Ok(id);
    }
    let quorum = inputs.quorum.ok_or_else(no_quorum)?;
    let voters = quorum.voters();
    if let Some(other) = voters.iter().find(|other| **other != id && !quorum.following.contains(other)) {
        return Err(format!("server {other} {}", quorum.why_not_following(*other)));
    }
    if let Some(other) = without_vote(inputs, quorum, server) {
        return Err(format!("{} has no vote, and does not follow", other.pod));
    }
    if awaits_joiners(inputs, voters.len()) {
        return Err("no majority would be left before more voters have joined".to_owned());
    }
    let mut current = inputs.servers.iter().filter(|other| !other.outdated(inputs.revision));
    if let Some(other) = current.find(|other| other.pod != server.pod && !other.serving()) {
        return Err(format!("{} does not serve", other.pod));
    }
    let followers = i32::try_from(voters.len()).unwrap_or(i32::MAX).saturating_sub(1);
    if let Some(other) = unsettled_successor(quorum, server, id) {
        return Err(format!("it leads, and server {other} has just come back"));
    }
    if quorum.leader.is_none() {
        return Err("the agent sees no leader".to_owned());
    }
    match inputs.synced_voters {
        _ if followers == 0 => Ok(id),
        Some(synced) if synced >= followers => Ok(id),
        Some(_) => Err("not every voter follows the leader".to_owned()),
        None => Err(NO_COUNT.to_owned()),
    }
}

/// Another listed voter of this cluster that has lost its vote and does not follow: it counts as one that does not serve in the cluster that
/// is being changed. Otherwise a slow restart would cost the vote, and the next server would restart beside it.
fn without_vote<'a>(inputs: RestartInputs<'a>, quorum: &Quorum, stops: &LocalServer) -> Option<&'a LocalServer> {
    let voters = quorum.voters();
    let lacks = |id: &i32| inputs.listed.contains(id) && !voters.contains(id) && !quorum.following.contains(id);
    let mut others = inputs.servers.iter().filter(|server| server.pod != stops.pod && !broken!(ReleaseDemoted));
    others.find(|server| server.id.is_some_and(|id| lacks(&id)))
}

/// True if no majority of so many voters would be left, and more are about to join: they join first. An ensemble that is declared
/// with one or two voters restarts them anyway.
fn awaits_joiners(inputs: RestartInputs<'_>, voters: usize) -> bool {
    voters <= majority(voters) && inputs.listed.len() > voters && !broken!(OfTwoVoters)
}

/// A voter that has just come back, if the server leads: one of the others is elected next, and all must know its address.
fn unsettled_successor(quorum: &Quorum, server: &LocalServer, id: i32) -> Option<i32> {
    let unsettled = |other: &i32| *other != id && !quorum.settled.contains(other);
    quorum.voters().into_iter().find(unsettled).filter(|_| server.leads() && !broken!(LeaderSoon))
}

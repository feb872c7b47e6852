//! Which step brings `ZooKeeper`'s configuration closer to the server list.
//!
//! One step at a time, conditional on the list's epoch and the configuration's version. The agent takes no step unless it sees
//! a majority follow, both of the configuration before the step and of the one after it. A server with the restart lock does
//! not count after the step: it may be about to stop, or to lose its volume. The order is:
//!
//! 1. Dead voters that leave, if the majority is smaller without all of them (the gain rule). A voter is dead if the agent
//!    does not see it follow, and the leader counts no more voters than the agent sees. Otherwise their departure brings
//!    nothing yet, and one that returns can still vote. Listed voters that have been missing for
//!    [`Ensemble::demote_after_seconds`] lose their votes by the same rule: they are demoted. They join again once they follow.
//! 2. Servers that join and follow.
//! 3. Voters that leave, the dead ones first. Those of a cluster that leaves as a whole stay while the ensemble has no more
//!    voters than the list names (the floor).
//! 4. Observers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::agent::decide::quorum::Quorum;
use mczk_api::{
    contract::{
        control_api::{ConfiguredServer, Reconfiguration, ServerReport},
        server_list::{demotion_guard, majority},
    },
    mutation::broken,
    zookeeper::{Ensemble, Role, Server},
};

/// The next membership step.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipStep {
    /// The configuration is as listed.
    Done,
    /// The agent waits, for this reason.
    Wait(String),
    /// Publish the server list in the ensemble before any step that depends on it.
    Publish,
    /// Reconfigure the ensemble.
    Reconfigure(Reconfiguration),
}

/// The next step. `published` is the newest epoch that the ensemble accepted from this agent. `lapsed` are the voters that have
/// been missing for so long that they may lose their votes although they are listed.
#[must_use]
pub fn step(list: &Ensemble, views: &[ServerReport], published: Option<i64>, lapsed: &BTreeSet<i32>) -> MembershipStep {
    let wait = |why: &str| MembershipStep::Wait(why.to_owned());
    let Some(quorum) = Quorum::of(views) else {
        return wait("The agent sees no quorum: the membership does not change");
    };
    if !quorum.holds() && !broken!(WithoutQuorum) {
        return wait("The agent sees no majority of the voters follow: the membership does not change");
    }
    let Some(epoch) = list.epoch.filter(|_| !list.servers.is_empty()) else {
        return wait("The server list is empty");
    };
    if list.phase.is_ending() {
        return wait("The ensemble is being decommissioned");
    }
    if published < Some(epoch) {
        return MembershipStep::Publish;
    }
    let from_version = if broken!(Unconditional) { 0 } else { quorum.configuration.version };
    let conditional = |change: MembershipChange| {
        let (add, remove) = match change {
            MembershipChange::Add(server) => (Some(server), None),
            MembershipChange::Remove(id) => (None, Some(id)),
        };
        MembershipStep::Reconfigure(Reconfiguration { epoch, from_version, add, remove })
    };
    match Difference::new(list, &quorum, stopping(views), lapsed).next() {
        Ok(Some(change)) => conditional(change),
        Ok(None) => MembershipStep::Done,
        Err(why) => MembershipStep::Wait(why),
    }
}

/// What follows the first label of a host.
fn domain(host: &str) -> &str {
    host.split_once('.').map_or("", |(_, domain)| domain)
}

/// The servers with the restart lock.
fn stopping(views: &[ServerReport]) -> BTreeSet<i32> {
    let locks = views.iter().filter(|view| view.serving).filter_map(|view| view.restart_lock.as_ref());
    locks.map(|lock| lock.server).filter(|_| !broken!(StepBesideLock)).collect()
}

/// S16: no vote is taken without a gain.
fn may_demote(gains: bool) -> bool {
    gains || broken!(DemoteWithoutGain)
}

#[derive(Clone, Debug)]
enum MembershipChange {
    Add(ConfiguredServer),
    Remove(i32),
}

/// The server list beside the configuration.
struct Difference<'a> {
    list: &'a Ensemble,
    listed: BTreeMap<i32, &'a Server>,
    configured: BTreeMap<i32, &'a ConfiguredServer>,
    voters: BTreeSet<i32>,
    quorum: &'a Quorum,
    /// Servers with the restart lock.
    stopping: BTreeSet<i32>,
    /// Voters that may lose their votes although they are listed.
    lapsed: &'a BTreeSet<i32>,
}

impl<'a> Difference<'a> {
    fn new(list: &'a Ensemble, quorum: &'a Quorum, stopping: BTreeSet<i32>, lapsed: &'a BTreeSet<i32>) -> Self {
        Self {
            list,
            listed: list.servers.iter().map(|s| (s.id, s)).collect(),
            configured: quorum.configuration.servers.iter().map(|s| (s.id, s)).collect(),
            voters: quorum.voters(),
            quorum,
            stopping,
            lapsed,
        }
    }

    fn follows(&self, id: i32) -> bool {
        self.quorum.following.contains(&id)
    }

    /// True if a voter follows, or may do so although the agent cannot ask it.
    fn may_run(&self, id: i32) -> bool {
        self.follows(id) || self.quorum.may_take_part(id)
    }

    fn lists_as(&self, id: i32, role: Role) -> bool {
        self.listed.get(&id).is_some_and(|s| s.role == role)
    }

    /// The voters that are not listed as such, the leader last: without it the others hold an election first.
    fn leavers(&self) -> Vec<i32> {
        let mut leavers: Vec<i32> = self.voters.iter().copied().filter(|id| !self.lists_as(*id, Role::Voter)).collect();
        if broken!(RemoveListed) {
            leavers.extend(self.voters.iter().filter(|id| !self.follows(**id)));
        }
        leavers.sort_by_key(|id| (self.quorum.leader == Some(*id), *id));
        leavers
    }

    /// True if a listed server may get a vote: it has the data of the others.
    fn may_vote(&self, id: i32) -> bool {
        self.follows(id) || broken!(AddBeforeItFollows)
    }

    fn next(&self) -> Result<Option<MembershipChange>, String> {
        let wanted: Vec<i32> = self.listed.values().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        let joiners: Vec<i32> = wanted.iter().copied().filter(|id| !self.voters.contains(id)).collect();
        let (alive, dead): (Vec<i32>, Vec<i32>) = self.leavers().into_iter().partition(|id| self.may_run(*id));
        let (running, absent): (Vec<i32>, Vec<i32>) = joiners.into_iter().partition(|id| self.may_vote(*id));

        let demotable = self.demotable();
        let gains = self.gains_without(dead.len() + demotable.len());
        let demote = demotable.iter().filter(|_| may_demote(gains)).map(|id| self.demote(*id));
        let first = dead.iter().filter(|_| gains).map(|id| self.leave(*id)).chain(demote);
        let join = running.into_iter().map(|id| self.join(id));
        let later: &[i32] = if gains || broken!(KeepDead) { &[] } else { &dead };
        let leave = later.iter().chain(&alive).map(|id| self.leave_in_time(*id, later, wanted.len(), &absent));
        let in_order: Vec<Result<MembershipChange, String>> = if broken!(RemoveFirst) {
            first.chain(leave).chain(join).collect()
        } else {
            first.chain(join).chain(leave).collect()
        };
        let mut waits = Vec::new();
        for change in in_order {
            match change {
                Ok(change) => return Ok(Some(change)),
                Err(why) => waits.push(why),
            }
        }
        if let Some(change) = self.observers() {
            return Ok(Some(change));
        }
        waits.extend(absent.iter().map(|id| format!("Server {id} does not follow yet")));
        match waits.into_iter().next() {
            Some(why) => Err(why),
            None => Ok(None),
        }
    }

    /// True if the agent sees a majority of these voters follow, without those that may be about to stop.
    fn has_majority(&self, voters: &BTreeSet<i32>) -> bool {
        let follow = voters.intersection(&self.quorum.following).filter(|id| !self.stopping.contains(id)).count();
        !voters.is_empty() && (follow >= majority(voters.len()) || broken!(IgnoreTheNewMajority))
    }

    fn join(&self, id: i32) -> Result<MembershipChange, String> {
        let after = self.voters.iter().copied().chain([id]).collect();
        let server = self.listed.get(&id).ok_or_else(|| format!("Server {id} is not listed"))?;
        if !self.has_majority(&after) {
            return Err(format!("With server {id}, the agent would see no majority follow"));
        }
        Ok(MembershipChange::Add(ConfiguredServer { id, host: server.host.clone(), role: Role::Voter }))
    }

    fn leave(&self, id: i32) -> Result<MembershipChange, String> {
        let after = self.voters.iter().copied().filter(|other| *other != id).collect();
        if !self.has_majority(&after) {
            return Err(format!("Without server {id}, the agent would see no majority follow"));
        }
        Ok(match self.listed.get(&id) {
            // It stays, without a vote.
            Some(server) if server.role == Role::Observer => {
                MembershipChange::Add(ConfiguredServer { id, host: server.host.clone(), role: Role::Observer })
            }
            _ => MembershipChange::Remove(id),
        })
    }

    /// The listed voters that may lose their votes. One that may run is not missing, and one with the restart lock is down on purpose.
    fn demotable(&self) -> Vec<i32> {
        let is_missing = |id: &i32| !self.may_run(*id) && (!self.stopping.contains(id) || broken!(DemoteLocked));
        let lapsed = self.voters.intersection(self.lapsed).copied();
        lapsed.filter(|id| self.lists_as(*id, Role::Voter)).filter(is_missing).collect()
    }

    /// A listed voter loses its vote, once the leader itself has missed voters for long enough.
    fn demote(&self, id: i32) -> Result<MembershipChange, String> {
        let Some(short_for) = self.quorum.short_for else {
            return Err(format!("Server {id} keeps its vote: the server that leads is too old to take votes"));
        };
        let needed = demotion_guard(self.list).unwrap_or(Duration::MAX);
        if short_for < needed {
            let (short, needed) = (short_for.as_secs(), needed.as_secs());
            return Err(format!("Server {id} keeps its vote: the leader has missed voters for {short} of {needed} s"));
        }
        self.leave(id)
    }

    /// The gain rule: true if fewer voters make a majority when so many dead ones have left.
    fn gains_without(&self, dead: usize) -> bool {
        let voters = self.voters.len();
        majority(voters.saturating_sub(dead)) < majority(voters) || broken!(DeadFirstAlways)
    }

    /// A voter leaves, or a dead one before it. Such a voter does not wait for a joiner that does not run, since that one may wait for it:
    /// both may need the same place, or the record may have to reach this cluster first. The voters of a cluster that leaves as
    /// a whole block no joiner.
    fn leave_in_time(&self, id: i32, dead: &[i32], wanted: usize, absent: &[i32]) -> Result<MembershipChange, String> {
        if broken!(WaitForJoiners) && !absent.is_empty() {
            return Err(format!("Server {id} waits for servers that join"));
        }
        let few = self.voters.len() <= wanted;
        if few && !self.is_beside_a_listed_server(id) && !broken!(NoFloor) {
            return Err(format!("Server {id} leaves after a server that joins follows"));
        }
        self.leave(dead.first().copied().unwrap_or(id))
    }

    /// True if the list names a server of the same cluster.
    fn is_beside_a_listed_server(&self, id: i32) -> bool {
        let Some(leaver) = self.configured.get(&id) else { return true };
        let cluster = self.cluster_of(leaver);
        cluster.is_some_and(|cluster| self.listed.values().any(|server| server.cluster == *cluster))
    }

    /// The cluster of a configured server, if it shows. A list of an older version may not name the servers that leave: then the
    /// domain of a host shows it, unless hosts of several clusters have the same one. A user chooses the names.
    fn cluster_of(&self, server: &ConfiguredServer) -> Option<&String> {
        let named = self.list.all_servers().find(|named| named.id == server.id || named.host == server.host);
        if let Some(named) = named {
            return Some(&named.cluster);
        }
        let shares_domain = |other: &&Server| domain(&other.host) == domain(&server.host);
        let clusters: BTreeSet<&String> =
            self.list.all_servers().filter(shares_domain).map(|other| &other.cluster).collect();
        clusters.first().copied().filter(|_| clusters.len() == 1)
    }

    /// Observers count in no majority: unlisted ones leave, listed ones that follow join.
    fn observers(&self) -> Option<MembershipChange> {
        let unlisted = self.configured.values().find(|s| s.role == Role::Observer && !self.listed.contains_key(&s.id));
        if let Some(server) = unlisted {
            return Some(MembershipChange::Remove(server.id));
        }
        let missing =
            |s: &&&Server| s.role == Role::Observer && !self.configured.contains_key(&s.id) && self.follows(s.id);
        let server = self.listed.values().find(missing)?;
        Some(MembershipChange::Add(ConfiguredServer { id: server.id, host: server.host.clone(), role: Role::Observer }))
    }
}

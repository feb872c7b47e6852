//! Which step brings `ZooKeeper`'s own configuration nearer to the list, and who takes it: pure.
//!
//! One step at a time, each conditional on the list's epoch and the configuration's version. Nothing is done without a
//! quorum that is seen, and no step is taken unless a majority of the configuration before it and of the one after it is seen
//! to follow. In this order: voters that are dead and leave, since that lowers what a majority is; servers that follow and
//! join; voters that leave and still run; observers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    api::zookeeper::{Ensemble, Role, Server},
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Reconfiguration, ServerReport},
        server_list::majority,
    },
    mutation::broken,
};

/// How long the agent of the leader's cluster is waited for before another one takes the step.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Voters below which nobody is let go who runs, while those that replace them do not.
const FLOOR: usize = 3;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing: the configuration is as the list says.
    Done,
    /// Nothing yet: a sentence for people.
    Wait(String),
    /// The ensemble is to keep this list, before any step is taken that rests on it.
    Publish,
    /// One step.
    Reconfigure(Reconfiguration),
}

/// What is seen of the quorum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quorum {
    /// The newest configuration that was read through a quorum.
    pub configuration: Configuration,
    /// Ids of servers that follow, lead or observe, and serve.
    pub following: BTreeSet<i32>,
    /// Ids of those of them that have done so for a while.
    pub settled: BTreeSet<i32>,
    /// Id of the voter that leads.
    pub leader: Option<i32>,
}

impl Quorum {
    /// What the servers say, if one of them could read the configuration through a quorum.
    #[must_use]
    pub fn of(views: &[ServerReport]) -> Option<Self> {
        let read = views.iter().filter(|v| v.serving).filter_map(|v| v.configuration.as_ref());
        let configuration = read.max_by_key(|c| c.version)?.clone();
        let attached = |v: &&ServerReport| v.serving && v.synced && !matches!(v.mode, None | Some(Mode::Looking));
        let following = views.iter().filter(attached).filter_map(|v| v.id).collect();
        let settled = views.iter().filter(attached).filter(|v| v.settled).filter_map(|v| v.id).collect();
        let voters: BTreeSet<i32> = configuration.voters().collect();
        // Of two that say so, the one that has seen more: the other one has not noticed yet that it was replaced.
        let leads = views.iter().filter(|v| v.serving && v.mode == Some(Mode::Leader));
        let leader = leads.max_by_key(|v| v.zxid).and_then(|v| v.id).filter(|id| voters.contains(id));
        Some(Self { configuration, following, settled, leader })
    }

    /// Ids of the voters.
    #[must_use]
    pub fn voters(&self) -> BTreeSet<i32> {
        self.configuration.voters().collect()
    }

    /// Whether a majority of the voters follows.
    #[must_use]
    pub fn holds(&self) -> bool {
        let voters = self.voters();
        !voters.is_empty() && voters.intersection(&self.following).count() >= majority(voters.len())
    }
}

/// The next step. `published` is the newest epoch that this agent saw the ensemble take.
#[must_use]
pub fn step(list: &Ensemble, views: &[ServerReport], published: Option<i64>) -> Action {
    let Some(quorum) = Quorum::of(views) else {
        return Action::Wait("no quorum is seen: membership does not change".to_owned());
    };
    if !quorum.holds() && !broken!(WithoutQuorum) {
        return Action::Wait("a majority of the voters is not seen to follow: membership does not change".to_owned());
    }
    let Some(epoch) = list.epoch.filter(|_| !list.servers.is_empty()) else {
        return Action::Wait("there is no list of servers".to_owned());
    };
    if list.phase.is_ending() {
        return Action::Wait("the ensemble ends".to_owned());
    }
    if published < Some(epoch) {
        return Action::Publish;
    }
    let plan = Plan::new(list, &quorum);
    let version = if broken!(Unconditional) { 0 } else { quorum.configuration.version };
    let conditional = |change: Change| {
        let (add, remove) = match change {
            Change::Add(server) => (Some(server), None),
            Change::Remove(id) => (None, Some(id)),
        };
        Action::Reconfigure(Reconfiguration { epoch, from_version: version, add, remove })
    };
    match plan.next() {
        Ok(Some(change)) => conditional(change),
        Ok(None) => Action::Done,
        Err(wait) => Action::Wait(wait),
    }
}

/// Whether an agent takes a step that is due: that of the leader's cluster at once, others when nobody did for
/// [`PATIENCE`]. Two that take it do no harm: it is conditional.
#[must_use]
pub fn is_ours(cluster: &str, leader: Option<&str>, waited: Duration) -> bool {
    leader == Some(cluster) || waited >= PATIENCE
}

#[derive(Clone, Debug)]
enum Change {
    Add(ConfiguredServer),
    Remove(i32),
}

struct Plan<'a> {
    listed: BTreeMap<i32, &'a Server>,
    configured: BTreeMap<i32, &'a ConfiguredServer>,
    voters: BTreeSet<i32>,
    quorum: &'a Quorum,
}

impl<'a> Plan<'a> {
    fn new(list: &'a Ensemble, quorum: &'a Quorum) -> Self {
        Self {
            listed: list.servers.iter().map(|s| (s.id, s)).collect(),
            configured: quorum.configuration.servers.iter().map(|s| (s.id, s)).collect(),
            voters: quorum.voters(),
            quorum,
        }
    }

    fn follows(&self, id: i32) -> bool {
        self.quorum.following.contains(&id)
    }

    fn lists_as(&self, id: i32, role: Role) -> bool {
        self.listed.get(&id).is_some_and(|s| s.role == role)
    }

    fn next(&self) -> Result<Option<Change>, String> {
        let mut leavers: Vec<i32> = self.voters.iter().copied().filter(|id| !self.lists_as(*id, Role::Voter)).collect();
        if broken!(DropTheListed) {
            leavers.extend(self.voters.iter().filter(|id| !self.follows(**id)));
        }
        // The leader last: without it the others elect first.
        leavers.sort_by_key(|id| (self.quorum.leader == Some(*id), *id));
        let wanted: Vec<i32> = self.listed.values().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        let joiners: Vec<i32> = wanted.iter().copied().filter(|id| !self.voters.contains(id)).collect();
        let (alive, dead): (Vec<i32>, Vec<i32>) = leavers.into_iter().partition(|id| self.follows(*id));
        let (running, absent): (Vec<i32>, Vec<i32>) =
            joiners.into_iter().partition(|id| self.follows(*id) || broken!(AddBeforeItFollows));
        let mut waits = Vec::new();

        let dead = dead.into_iter().map(|id| self.leave(id));
        let join = running.into_iter().map(|id| self.join(id));
        let leave = alive.into_iter().map(|id| self.leave_alive(id, wanted.len(), !absent.is_empty()));
        let first: Vec<Result<Change, String>> = if broken!(LeaversFirst) {
            dead.chain(leave).chain(join).collect()
        } else {
            dead.chain(join).chain(leave).collect()
        };
        for change in first {
            match change {
                Ok(change) => return Ok(Some(change)),
                Err(why) => waits.push(why),
            }
        }
        if let Some(change) = self.observers() {
            return Ok(Some(change));
        }
        waits.extend(absent.iter().map(|id| format!("server {id} does not follow yet")));
        match waits.into_iter().next() {
            Some(why) => Err(why),
            None => Ok(None),
        }
    }

    /// Whether the voters after a step would have a majority that follows.
    fn majority_of(&self, voters: &BTreeSet<i32>) -> bool {
        let follow = voters.intersection(&self.quorum.following).count();
        !voters.is_empty() && (follow >= majority(voters.len()) || broken!(IgnoreTheNewMajority))
    }

    fn join(&self, id: i32) -> Result<Change, String> {
        let after = self.voters.iter().copied().chain([id]).collect();
        let server = self.listed.get(&id).ok_or_else(|| format!("server {id} is not listed"))?;
        if !self.majority_of(&after) {
            return Err(format!("with server {id} no majority would be seen to follow"));
        }
        Ok(Change::Add(ConfiguredServer { id, host: server.host.clone(), role: Role::Voter }))
    }

    fn leave(&self, id: i32) -> Result<Change, String> {
        let after = self.voters.iter().copied().filter(|other| *other != id).collect();
        if !self.majority_of(&after) {
            return Err(format!("without server {id} no majority would be seen to follow"));
        }
        Ok(match self.listed.get(&id) {
            // It stays, without a vote.
            Some(server) if server.role == Role::Observer => {
                Change::Add(ConfiguredServer { id, host: server.host.clone(), role: Role::Observer })
            }
            _ => Change::Remove(id),
        })
    }

    /// Of a server that runs. It waits for nobody who does not run yet, since that one may have to wait for it; but servers of
    /// a cluster that leaves as a whole are in nobody's way, and stay until few enough are left without them.
    fn leave_alive(&self, id: i32, wanted: usize, joiners_absent: bool) -> Result<Change, String> {
        if broken!(WaitForJoiners) && joiners_absent {
            return Err(format!("server {id} waits for those that join"));
        }
        let few = self.voters.len() <= wanted.min(FLOOR);
        if joiners_absent && few && !self.beside_a_listed_one(id) && !broken!(NoFloor) {
            return Err(format!("server {id} leaves when one that joins follows"));
        }
        self.leave(id)
    }

    /// Whether the list names a server of the same cluster: all names of a cluster differ in the pod's alone.
    fn beside_a_listed_one(&self, id: i32) -> bool {
        let domain = |host: &'a str| host.split_once('.').map_or("", |(_, domain)| domain);
        let Some(own) = self.configured.get(&id) else { return true };
        self.listed.values().any(|server| domain(&server.host) == domain(&own.host))
    }

    /// Observers count in no majority: what is no longer listed goes, what is listed and observes is named.
    fn observers(&self) -> Option<Change> {
        let gone = self.configured.values().find(|s| s.role == Role::Observer && !self.listed.contains_key(&s.id));
        if let Some(server) = gone {
            return Some(Change::Remove(server.id));
        }
        let unnamed =
            |s: &&&Server| s.role == Role::Observer && !self.configured.contains_key(&s.id) && self.follows(s.id);
        let server = self.listed.values().find(unnamed)?;
        Some(Change::Add(ConfiguredServer { id: server.id, host: server.host.clone(), role: Role::Observer }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

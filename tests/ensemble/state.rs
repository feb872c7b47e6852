//! The state of one ensemble: `ZooKeeper`'s own state, servers with their volumes, and agents. Each cluster has one server.

use std::collections::BTreeSet;

use mczk::{
    agent::decide::{local_server::LocalServer, restart::SILENCE},
    api::zookeeper::{self, Ensemble, Role},
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
        server_list::with_hash,
    },
    server::{
        start::{Peers, PodIdentity, StartInputs, StoredServer},
        volume_age::VolumeAge,
    },
};

/// The incarnation of the ensemble.
pub const INCARNATION: &str = "abc";

/// Content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    pub id: i32,
    /// True if it holds all acknowledged data.
    pub data: bool,
    /// The voters of the last configuration that it stored.
    pub voters: BTreeSet<i32>,
}

/// The place of a server: the pod of one cluster, and its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub pod: bool,
    /// Id of the `ZooKeeper` that runs in it.
    pub running: Option<i32>,
    /// True if the pod has the newer revision.
    pub new: bool,
    pub volume: Option<Volume>,
    /// True if the volume has data that was set aside.
    pub aside: bool,
    /// True if it voted from a volume that is lost.
    pub lost: bool,
    /// Id of a serving voter that an agent restarted here and that is not back.
    pub restarted: Option<i32>,
}

/// A decision that the agent has not carried out yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pending {
    Publish(usize),
    Step {
        epoch: i64,
        version: i64,
        add: Option<i32>,
        remove: Option<i32>,
    },
    /// Only in a broken variant: a pod is deleted some time after the last poll.
    Delete,
}

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Agent {
    /// The list that Karmada delivered last.
    pub delivered: usize,
    /// The newest list that the ensemble accepted from it.
    pub published: Option<usize>,
    pub pending: Option<Pending>,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A `ZooKeeper` is killed, or an agent forgets its decision, even between two writes.
    pub crashes: u8,
    /// A volume is lost.
    pub wipes: u8,
    /// The session of the restart lock ends although its holder is running.
    pub expiries: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `ZooKeeper`'s configuration.
    pub version: i64,
    pub voters: BTreeSet<i32>,
    /// The published list, and whether the configuration was raised after it.
    pub published: usize,
    pub fenced: bool,
    /// The holder of the restart lock, and the server that it is for.
    pub lock: Option<(usize, i32)>,
    pub places: Vec<Place>,
    pub agents: Vec<Agent>,
    pub faults: Faults,
    /// True if any server has been killed or lost.
    pub harmed: bool,
    /// The invariant that was violated on the way here.
    pub violation: Option<&'static str>,
}

/// The place of each id, list by list.
pub type Lists = [&'static [(i32, usize)]];

pub fn cluster(place: usize) -> String {
    format!("c{place}")
}

pub fn me(place: usize) -> PodIdentity {
    PodIdentity { cluster: cluster(place), role: Role::Voter, ordinal: 0 }
}

fn host(place: usize) -> String {
    format!("zk-0.c{place}")
}

/// Every list with its hash. Its epoch is its index plus one.
pub fn hashed(lists: &Lists) -> Vec<Ensemble> {
    (0..lists.len()).map(|index| list(lists, index)).collect()
}

fn list(lists: &Lists, index: usize) -> Ensemble {
    let servers = lists[index].iter().map(|(id, place)| zookeeper::Server {
        id: *id,
        cluster: cluster(*place),
        ordinal: 0,
        host: host(*place),
        role: Role::Voter,
    });
    let epoch = i64::try_from(index).unwrap() + 1;
    with_hash(Ensemble {
        incarnation: Some(INCARNATION.into()),
        epoch: Some(epoch),
        servers: servers.collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

/// The place of an id, which never changes.
pub fn home(lists: &Lists, id: i32) -> usize {
    lists.iter().flat_map(|list| list.iter()).find(|(other, _)| *other == id).unwrap().1
}

fn configured(lists: &Lists, id: i32, role: Role) -> ConfiguredServer {
    ConfiguredServer { id, host: host(home(lists, id)), role }
}

pub fn majority(voters: &BTreeSet<i32>, of: impl Fn(&i32) -> bool) -> bool {
    voters.iter().filter(|id| of(id)).count() > voters.len() / 2
}

impl State {
    pub fn runs(&self, id: i32) -> bool {
        self.places.iter().any(|place| place.running == Some(id))
    }

    /// True if a majority of the voters runs.
    pub fn quorum(&self) -> bool {
        majority(&self.voters, |id| self.runs(*id))
    }

    pub fn configuration(&self, lists: &Lists) -> Configuration {
        let servers = self.voters.iter().map(|id| configured(lists, *id, Role::Voter)).collect();
        Configuration { version: self.version, servers }
    }

    /// True if the server of a place is part of the quorum.
    pub fn serves(&self, place: usize) -> bool {
        let at = &self.places[place];
        at.running.is_some() && at.volume.as_ref().is_some_and(|volume| volume.data) && self.quorum()
    }

    /// True if the server of a place is a serving voter.
    pub fn votes(&self, place: usize) -> bool {
        self.serves(place) && self.places[place].running.is_some_and(|id| self.voters.contains(&id))
    }

    /// Report of the server of a place, if it has a pod.
    pub fn view(&self, lists: &Lists, place: usize) -> Option<ServerReport> {
        let at = &self.places[place];
        if !at.pod {
            return None;
        }
        let serving = self.serves(place);
        let leader = self.voters.iter().find(|id| self.runs(**id));
        let mode = match at.running {
            None => None,
            Some(_) if !serving => Some(Mode::Looking),
            Some(id) if Some(&id) == leader => Some(Mode::Leader),
            Some(id) if self.voters.contains(&id) => Some(Mode::Follower),
            Some(_) => Some(Mode::Observer),
        };
        Some(ServerReport {
            id: at.running.or(at.volume.as_ref().map(|volume| volume.id)),
            pod: "zk-0".into(),
            incarnation: INCARNATION.into(),
            phase: if at.running.is_some() { Phase::Running } else { Phase::Waiting { reason: String::new() } },
            revision: revision(at.new).into(),
            mode,
            serving,
            synced: serving,
            settled: serving,
            zxid: None,
            synced_voters: None,
            version: None,
            configuration: serving.then(|| self.configuration(lists)),
            accepted_epoch: 1,
            volume: String::new(),
            generations: std::collections::BTreeMap::new(),
            disk: None,
            corrupt: false,
            lost: at.lost,
            // `actions::accepted` compares the lists by their indices.
            server_list: None,
            restart_lock: self.restart_lock(place),
            loaded: None,
        })
    }

    fn restart_lock(&self, place: usize) -> Option<RestartLock> {
        let (holder, server) = self.lock.filter(|_| self.serves(place))?;
        Some(RestartLock { holder: holder.to_string(), server })
    }

    /// The servers of an agent's cluster, as it sees them.
    pub fn local_servers(&self, view: Option<ServerReport>, place: usize) -> Vec<LocalServer> {
        let at = &self.places[place];
        let server = view.map(|view| LocalServer {
            pod: "zk-0".into(),
            uid: "u".into(),
            role: Role::Voter,
            ordinal: 0,
            id: view.id,
            revision: revision(at.new).into(),
            ready: view.serving,
            terminating: false,
            drain: None,
            failure: None,
            view: Some(view),
            // Time passes between any two actions.
            unready_for: SILENCE,
        });
        server.into_iter().collect()
    }

    /// The observation by which the parent process of a place decides how to start.
    pub fn observed(&self, lists: &Lists, hashed: &[Ensemble], place: usize, polls: bool) -> StartInputs {
        let at = &self.places[place];
        let others = (0..self.places.len()).filter(|other| *other != place && polls).find(|other| self.serves(*other));
        let stored = at.volume.as_ref().map(|volume| {
            let mut servers: Vec<_> = volume.voters.iter().map(|id| configured(lists, *id, Role::Voter)).collect();
            if !volume.voters.contains(&volume.id) {
                servers.push(configured(lists, volume.id, Role::Observer));
            }
            StoredServer {
                incarnation: INCARNATION.into(),
                id: volume.id,
                myid: Some(volume.id),
                list: None,
                dynamic: Some(Configuration { version: 1, servers }),
                accepted_epoch: i64::from(volume.data),
                data: volume.data,
                formed: volume.data,
            }
        });
        StartInputs {
            pod: me(place),
            assigned: Some(hashed[self.agents[place].delivered].clone()),
            stored,
            age: VolumeAge { confirmed: true, ..VolumeAge::default() },
            suspended: None,
            has_set_aside: at.aside,
            peers: Peers {
                configuration: others.map(|_| self.configuration(lists)),
                list: others.map(|_| hashed[self.published].clone()),
                accepted_epoch: i64::from(polls),
                ..Peers::default()
            },
        }
    }
}

pub fn revision(new: bool) -> &'static str {
    if new { "new" } else { "old" }
}

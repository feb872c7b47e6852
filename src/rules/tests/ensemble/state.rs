//! The state of one ensemble: `ZooKeeper`'s own state, servers with their volumes, and agents.

use std::collections::BTreeSet;

use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
        server_list::with_hash,
    },
    zookeeper::{self, Ensemble, Role},
};
use mczk_rules::{
    agent::decide::{local_server::LocalServer, restart::SILENCE},
    server::{
        start::{Peers, PodIdentity, Recorded, StartInputs, StoredServer},
        volume_age::VolumeAge,
    },
};

use crate::{World, replace::Replacements};

/// The incarnation of the ensemble.
pub const INCARNATION: &str = "abc";

/// Content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    pub id: i32,
    /// The number of acknowledged writes that it holds: the first ones. 0 if it holds no data.
    pub log: u8,
    /// The voters of the last configuration that it stored, and the number of that configuration.
    pub voters: BTreeSet<i32>,
    pub step: u8,
}

/// The place of a server: the pod of one ordinal in one cluster, and its volume.
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

/// A membership step that the agent decided on and has not requested yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pending {
    Publish(usize),
    Step { epoch: i64, version: i64, add: Option<i32>, remove: Option<i32> },
}

/// How far an agent is with a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restarting {
    #[default]
    Nothing,
    /// It decided to delete the pod of this place, with the restart lock or without.
    Looked { place: usize, locked: bool },
    /// It decided the same again, and confirmed the lock. It deletes the pod next.
    Confirmed { place: usize },
}

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Agent {
    /// The list that Karmada delivered last.
    pub delivered: usize,
    /// The newest list that the ensemble accepted from it.
    pub published: Option<usize>,
    pub pending: Option<Pending>,
    pub restarting: Restarting,
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
    /// A client writes, and a voter may lag.
    pub writes: u8,
    /// The servers of a cluster are cut off from all others.
    pub cuts: u8,
    /// An agent cannot reach one server.
    pub hides: u8,
    /// The servers of a cluster stall: they serve, and answer no question.
    pub stalls: u8,
    /// A stranger with the quorum's identity asks a server for a membership step.
    pub strangers: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `ZooKeeper`'s configuration: its version, its number, and its voters.
    pub version: i64,
    pub step: u8,
    pub voters: BTreeSet<i32>,
    /// The number of acknowledged writes.
    pub acknowledged: u8,
    /// The published list, and whether the configuration was raised after it.
    pub published: usize,
    pub fenced: bool,
    /// The holder of the restart lock, and the server that it is for.
    pub lock: Option<(usize, i32)>,
    pub places: Vec<Place>,
    pub agents: Vec<Agent>,
    /// The cluster whose servers reach no server of another cluster.
    pub cut: Option<usize>,
    /// The place of a leader that was cut off and does not know it, and the version of its configuration.
    pub stale: Option<(usize, i64)>,
    /// An agent, and the place that it cannot reach.
    pub hidden: Option<(usize, usize)>,
    /// The cluster whose servers stall: clients use up their connections, for instance.
    pub stalled: Option<usize>,
    /// The cluster that has no power.
    pub away: Option<usize>,
    /// The voters that each agent has missed for long.
    pub lapsed: Vec<BTreeSet<i32>>,
    /// The place of the leader that has missed voters for long.
    pub short: Option<usize>,
    pub faults: Faults,
    /// Requests to replace volumes.
    pub replacements: Replacements,
    /// True if any server has been killed, cut off or lost, or is back from a loss of power.
    pub harmed: bool,
    /// The invariant that was violated on the way here.
    pub violation: Option<&'static str>,
}

/// The place of each id, list by list.
pub type Lists = [&'static [(i32, usize)]];

/// Cluster and ordinal of each place.
pub type Layout = [(usize, i32)];

/// One server in each cluster.
pub const SINGLE: &Layout = &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)];

pub fn majority(voters: &BTreeSet<i32>, of: impl Fn(&i32) -> bool) -> bool {
    voters.iter().filter(|id| of(id)).count() > voters.len() / 2
}

/// Where servers are, and what the lists say.
impl World {
    pub fn cluster(&self, place: usize) -> usize {
        self.layout[place].0
    }

    pub fn clusters(&self) -> usize {
        (0..self.places).map(|place| self.cluster(place) + 1).max().unwrap_or(0)
    }

    /// The places of a cluster, by their ordinals.
    pub fn places_of(&self, cluster: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.places).filter(move |place| self.cluster(*place) == cluster)
    }

    pub fn pod(&self, place: usize) -> String {
        format!("zk-{}", self.layout[place].1)
    }

    pub fn me(&self, place: usize) -> PodIdentity {
        let (cluster, ordinal) = self.layout[place];
        PodIdentity { cluster: format!("c{cluster}"), role: Role::Voter, ordinal }
    }

    fn host(&self, place: usize) -> String {
        format!("{}.c{}", self.pod(place), self.cluster(place))
    }

    /// Every list with its hash. Its epoch is its index plus one.
    #[must_use]
    pub fn hash_lists(mut self) -> Self {
        self.hashed = (0..self.lists.len()).map(|index| self.list(index)).collect();
        self
    }

    fn list(&self, index: usize) -> Ensemble {
        let servers = self.lists[index].iter().map(|(id, place)| zookeeper::Server {
            id: *id,
            cluster: self.me(*place).cluster,
            ordinal: self.layout[*place].1,
            host: self.host(*place),
            role: Role::Voter,
        });
        let epoch = i64::try_from(index).unwrap() + 1;
        with_hash(Ensemble {
            incarnation: Some(INCARNATION.into()),
            epoch: Some(epoch),
            servers: servers.collect(),
            demote_after_seconds: self.demotes.then_some(60),
            ..Ensemble::default()
        })
        .unwrap()
    }

    /// The place of an id, which never changes.
    ///
    /// # Panics
    /// If no list has the id.
    pub fn home(&self, id: i32) -> usize {
        self.lists.iter().flat_map(|list| list.iter()).find(|(other, _)| *other == id).unwrap().1
    }

    pub fn configured(&self, id: i32, role: Role) -> ConfiguredServer {
        ConfiguredServer { id, host: self.host(self.home(id)), role }
    }
}

impl State {
    /// True if two clusters reach each other.
    pub fn connects(&self, one: usize, other: usize) -> bool {
        one == other || self.cut.is_none_or(|cut| cut != one && cut != other)
    }

    /// True if a server runs and reaches a majority of the voters.
    pub fn attached(&self, world: &World, place: usize) -> bool {
        let near = |id: &i32| {
            let home = world.home(*id);
            self.places[home].running == Some(*id) && self.connects(world.cluster(home), world.cluster(place))
        };
        self.places[place].running.is_some() && majority(&self.voters, near)
    }

    /// True if the server with an id runs and reaches a majority of the voters.
    pub fn runs(&self, world: &World, id: i32) -> bool {
        let home = world.home(id);
        self.places[home].running == Some(id) && self.attached(world, home)
    }

    /// True if a majority of the voters runs, on one side of a cut.
    pub fn quorum(&self, world: &World) -> bool {
        (0..world.places).any(|place| self.attached(world, place))
    }

    pub fn log(&self, place: usize) -> u8 {
        self.places[place].volume.as_ref().map_or(0, |volume| volume.log)
    }

    pub fn configuration(&self, world: &World) -> Configuration {
        let servers = self.voters.iter().map(|id| world.configured(*id, Role::Voter)).collect();
        Configuration { version: self.version, servers }
    }

    /// True if one of these servers has no volume of its own.
    pub fn lack_volume(&self, world: &World, ids: &BTreeSet<i32>) -> bool {
        let lacks = |id: &i32| self.places[world.home(*id)].volume.as_ref().is_none_or(|volume| volume.id != *id);
        ids.iter().any(lacks)
    }

    /// True if the server of a place is part of the quorum.
    pub fn serves(&self, world: &World, place: usize) -> bool {
        self.log(place) > 0 && self.attached(world, place)
    }

    /// True if the server of a place is part of the quorum and opens sessions.
    pub fn opens_sessions(&self, world: &World, place: usize) -> bool {
        self.serves(world, place) && self.stalled != Some(world.cluster(place))
    }

    /// True if the server of a place is a serving voter.
    pub fn votes(&self, world: &World, place: usize) -> bool {
        self.serves(world, place) && self.places[place].running.is_some_and(|id| self.voters.contains(&id))
    }

    /// The place of the leader: the voter with the longest log.
    pub fn leader(&self, world: &World) -> Option<usize> {
        (0..world.places).rev().filter(|place| self.votes(world, *place)).max_by_key(|place| self.log(*place))
    }

    /// The number of voters that follow the leader.
    pub fn followers(&self, world: &World) -> usize {
        (0..world.places).filter(|place| self.votes(world, *place)).count() - 1
    }

    /// True if the leader misses a voter.
    pub fn is_short(&self, world: &World) -> bool {
        self.leader(world).is_some() && self.followers(world) + 1 < self.voters.len()
    }

    /// Report of the server of a place, if it has a pod.
    pub fn view(&self, world: &World, place: usize) -> Option<ServerReport> {
        let at = &self.places[place];
        if !at.pod {
            return None;
        }
        // A leader that was cut off answers as before, with the configuration that it had.
        let stale = self.stale.filter(|(leader, _)| *leader == place).map(|(_, version)| version);
        let serving = self.serves(world, place) || stale.is_some();
        let leads = stale.is_some() || self.leader(world) == Some(place);
        let mode = match at.running {
            None => None,
            Some(_) if !serving => Some(Mode::Looking),
            Some(_) if leads => Some(Mode::Leader),
            Some(id) if self.voters.contains(&id) => Some(Mode::Follower),
            Some(_) => Some(Mode::Observer),
        };
        let seen = match stale {
            Some(version) => {
                Configuration { version, servers: self.stored(world, place).unwrap().dynamic.unwrap().servers }
            }
            None => self.configuration(world),
        };
        let others = stale.and(at.volume.as_ref()).map(|volume| i32::try_from(volume.voters.len()).unwrap() - 1);
        let report = ServerReport {
            id: at.running.or(at.volume.as_ref().map(|volume| volume.id)),
            pod: world.pod(place),
            incarnation: INCARNATION.into(),
            phase: if at.running.is_some() { Phase::Running } else { Phase::Waiting { reason: String::new() } },
            revision: revision(at.new).into(),
            mode,
            serving,
            synced: serving,
            settled: serving,
            // A new leader begins a new epoch of transactions.
            zxid: serving.then(|| i64::from(stale.is_none()) << 32),
            synced_voters: leads.then(|| others.unwrap_or_else(|| i32::try_from(self.followers(world)).unwrap())),
            snapshot_bytes: None,
            short_seconds: leads.then(|| if stale.is_none() && self.short == Some(place) { 3600 } else { 0 }),
            version: None,
            configuration: serving.then_some(seen),
            accepted_epoch: 1,
            volume: String::new(),
            first_start: None,
            acknowledged_nothing: false,
            stored_configuration: None,
            generations: std::collections::BTreeMap::new(),
            unraised: None,
            turned_away: None,
            disk: None,
            corrupt: false,
            lost: at.lost,
            // `actions::accepted` compares the lists by their indices.
            server_list: None,
            restart_lock: self.restart_lock(world, place),
            loaded: None,
        };
        if self.stalled != Some(world.cluster(place)) {
            return Some(report);
        }
        let (mode, configuration, restart_lock) = (None, None, None);
        let (zxid, synced_voters) = (None, None);
        let silent = ServerReport { mode, configuration, restart_lock, zxid, synced_voters, ..report };
        Some(ServerReport { serving: false, synced: false, settled: false, ..silent })
    }

    fn restart_lock(&self, world: &World, place: usize) -> Option<RestartLock> {
        let (holder, server) = self.lock.filter(|_| self.serves(world, place))?;
        Some(RestartLock { holder: holder.to_string(), server })
    }

    /// The servers of an agent's cluster, as it sees them.
    pub fn local_servers(&self, world: &World, views: &[Option<ServerReport>], cluster: usize) -> Vec<LocalServer> {
        let with_pod = world.places_of(cluster).filter(|place| self.places[*place].pod);
        let server = |place: usize| {
            let (at, view) = (&self.places[place], views[place].clone());
            LocalServer {
                pod: world.pod(place),
                uid: "u".into(),
                role: Role::Voter,
                ordinal: world.layout[place].1,
                id: at.running.or(at.volume.as_ref().map(|volume| volume.id)),
                revision: revision(at.new).into(),
                // The kubelet asks the server too, and clients may have used up its connections.
                ready: false,
                runs: true,
                terminating: false,
                orphaned: false,
                overdue: false,
                drain: None,
                needs_mount: false,
                failure: None,
                view,
                // Time passes between any two actions.
                unready_for: SILENCE,
            }
        };
        with_pod.map(server).collect()
    }

    fn stored(&self, world: &World, place: usize) -> Option<StoredServer> {
        let volume = self.places[place].volume.as_ref()?;
        let mut servers: Vec<_> = volume.voters.iter().map(|id| world.configured(*id, Role::Voter)).collect();
        if !volume.voters.contains(&volume.id) {
            servers.push(world.configured(volume.id, Role::Observer));
        }
        Some(StoredServer {
            incarnation: INCARNATION.into(),
            id: volume.id,
            myid: Some(volume.id),
            list: None,
            dynamic: Some(Configuration { version: 1, servers }),
            accepted_epoch: i64::from(volume.log > 0),
            data: volume.log > 0,
            formed: volume.log > 0,
        })
    }

    /// The observation by which the parent process of a place decides how to start.
    pub fn observed(&self, world: &World, place: usize, polls: bool) -> StartInputs {
        let reached = |other: &usize| self.connects(world.cluster(*other), world.cluster(place));
        let mut others = (0..self.places.len()).filter(|other| *other != place && polls);
        let other = others.find(|other| self.opens_sessions(world, *other) && reached(other));
        StartInputs {
            pod: world.me(place),
            assigned: Some(world.hashed[self.agents[world.cluster(place)].delivered].clone()),
            stored: self.stored(world, place),
            age: VolumeAge { confirmed: true, ..VolumeAge::default() },
            suspended: None,
            set_aside: self.places[place].aside.then(|| "aside".to_owned()).into_iter().collect(),
            available: u64::MAX,
            recorded: Recorded::This,
            peers: Peers {
                configuration: other.map(|_| self.configuration(world)),
                list: other.map(|_| world.hashed[self.published].clone()),
                accepted_epoch: i64::from(polls),
                ..Peers::default()
            },
        }
    }
}

pub fn revision(new: bool) -> &'static str {
    if new { "new" } else { "old" }
}

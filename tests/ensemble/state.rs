//! The whole world of one ensemble: `ZooKeeper`'s own state, servers with their volumes, and agents; one server a cluster.

use std::collections::BTreeSet;

use mczk::{
    agent::decide::{local_server::LocalServer, restart::SILENCE},
    api::zookeeper::{self, Ensemble, Role},
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
        server_list::with_hash,
    },
    server::start::{Peers, PodIdentity, StartInputs, StoredServer},
};

/// The life that all of it is of.
pub const LIFE: &str = "life";

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    pub id: i32,
    /// Whether it holds everything that was ever acknowledged.
    pub data: bool,
    /// The voters of the configuration that it saw last.
    pub voters: BTreeSet<i32>,
}

/// The place of a server: a pod of one cluster, if there is one, and its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub pod: bool,
    /// Id of the `ZooKeeper` that runs in it.
    pub running: Option<i32>,
    /// Whether the pod is of the newer revision.
    pub new: bool,
    pub volume: Option<Volume>,
    /// Whether something set aside lies on the volume.
    pub aside: bool,
    /// Whether it voted from a volume that is gone.
    pub lost: bool,
    /// Id of a serving voter that an agent took out here, and that is not back.
    pub taken: Option<i32>,
}

/// What an agent decided and has not done yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pending {
    Publish(usize),
    Step {
        epoch: i64,
        version: i64,
        add: Option<i32>,
        remove: Option<i32>,
    },
    /// Only of a broken variant: a pod is deleted some time after everything was looked at.
    Delete,
}

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Agent {
    /// The list that Karmada brought last.
    pub told: usize,
    /// The newest list that it saw the ensemble take.
    pub published: Option<usize>,
    pub pending: Option<Pending>,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A `ZooKeeper` is killed, or an agent forgets what it was at, also between two writes.
    pub crashes: u8,
    /// A volume is lost.
    pub wipes: u8,
    /// The turn's session ends though its holder is at work.
    pub expiries: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// `ZooKeeper`'s configuration.
    pub version: i64,
    pub voters: BTreeSet<i32>,
    /// The list that the ensemble keeps, and whether the configuration was raised after it.
    pub kept: usize,
    pub fenced: bool,
    /// Who has the turn, and for which server.
    pub turn: Option<(usize, i32)>,
    pub places: Vec<Place>,
    pub agents: Vec<Agent>,
    pub faults: Faults,
    /// Whether any server was killed or lost so far.
    pub harmed: bool,
    /// A rule that was broken on the way here.
    pub wrong: Option<&'static str>,
}

/// Where each id lives, list by list.
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

/// Every list as an agent reads it. The epoch is one more than its place.
pub fn sealed(lists: &Lists) -> Vec<Ensemble> {
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
        incarnation: Some(LIFE.into()),
        epoch: Some(epoch),
        servers: servers.collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

/// Where an id lives: it never moves.
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

    /// Whether a majority of the voters runs.
    pub fn quorum(&self) -> bool {
        majority(&self.voters, |id| self.runs(*id))
    }

    pub fn configuration(&self, lists: &Lists) -> Configuration {
        let servers = self.voters.iter().map(|id| configured(lists, *id, Role::Voter)).collect();
        Configuration { version: self.version, servers }
    }

    /// Whether the server of a place has a part in the quorum.
    pub fn serves(&self, place: usize) -> bool {
        let at = &self.places[place];
        at.running.is_some() && at.volume.as_ref().is_some_and(|volume| volume.data) && self.quorum()
    }

    /// Whether the server of a place is a voter that serves.
    pub fn votes(&self, place: usize) -> bool {
        self.serves(place) && self.places[place].running.is_some_and(|id| self.voters.contains(&id))
    }

    /// What the server of a place says, if it has a pod.
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
            incarnation: LIFE.into(),
            phase: if at.running.is_some() { Phase::Running } else { Phase::Waiting { reason: String::new() } },
            revision: revision(at.new).into(),
            mode,
            serving,
            synced: serving,
            settled: serving,
            zxid: None,
            synced_voters: None,
            configuration: serving.then(|| self.configuration(lists)),
            accepted_epoch: 1,
            volume: String::new(),
            lost: at.lost,
            // Which list an agent accepts is decided by their numbers here.
            server_list: None,
            restart_lock: self.turn(place),
            loaded: None,
        })
    }

    fn turn(&self, place: usize) -> Option<RestartLock> {
        let (holder, server) = self.turn.filter(|_| self.serves(place))?;
        Some(RestartLock { holder: holder.to_string(), server })
    }

    /// The servers of an agent's cluster, as it sees them.
    pub fn own(&self, view: Option<ServerReport>, place: usize) -> Vec<LocalServer> {
        let at = &self.places[place];
        let own = view.map(|view| LocalServer {
            pod: "zk-0".into(),
            uid: "u".into(),
            role: Role::Voter,
            ordinal: 0,
            id: view.id,
            revision: revision(at.new).into(),
            ready: view.serving,
            terminating: false,
            drain_from: None,
            failure: None,
            view: Some(view),
            // Time passes.
            unready_for: SILENCE,
        });
        own.into_iter().collect()
    }

    /// What the parent process of a place observes when it decides how to start.
    pub fn observed(&self, lists: &Lists, sealed: &[Ensemble], place: usize, asks: bool) -> StartInputs {
        let at = &self.places[place];
        let others = (0..self.places.len()).filter(|other| *other != place && asks).find(|other| self.serves(*other));
        let life = at.volume.as_ref().map(|volume| {
            let mut servers: Vec<_> = volume.voters.iter().map(|id| configured(lists, *id, Role::Voter)).collect();
            if !volume.voters.contains(&volume.id) {
                servers.push(configured(lists, volume.id, Role::Observer));
            }
            StoredServer {
                incarnation: LIFE.into(),
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
            assigned: Some(sealed[self.agents[place].told].clone()),
            stored: life,
            suspended: None,
            has_set_aside: at.aside,
            peers: Peers {
                configuration: others.map(|_| self.configuration(lists)),
                list: others.map(|_| sealed[self.kept].clone()),
                accepted_epoch: i64::from(asks),
            },
        }
    }
}

pub fn revision(new: bool) -> &'static str {
    if new { "new" } else { "old" }
}

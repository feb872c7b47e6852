//! The state of the whole world, small enough to be kept a million times.
//!
//! Objects that the operator writes are the real typed ones, shared and compared by a hash of their JSON; times are taken
//! out of them, since a clock would make every state a new one.

use mczk::contract::naming;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mczk::api::{
    ZooKeeper,
    karmada::policy::{OverridePolicy, PropagationPolicy},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    placement::Placement,
    zookeeper::{Ensemble, Role, ZooKeeperSpec, ZooKeeperStatus},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    operator::{Outcome, UID},
    properties::Rule,
};

/// The one time of all states.
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A value that is shared, and compared by its content.
pub struct Shared<T> {
    value: Arc<T>,
    key: (u64, u64),
}

impl<T: Serialize> Shared<T> {
    pub fn new(value: T) -> Self {
        let text = serde_json::to_string(&value).expect("every object of the model has JSON");
        let mut first = DefaultHasher::new();
        text.hash(&mut first);
        let mut second = DefaultHasher::new();
        (text.len(), &text, 7).hash(&mut second);
        Self { value: Arc::new(value), key: (first.finish(), second.finish()) }
    }
}

impl<T> Shared<T> {
    pub fn get(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), key: self.key }
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// In what is shared itself, by its hash.
impl<T> Serialize for Shared<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.key.serialize(serializer)
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:04x}", self.key.0 & 0xffff)
    }
}

/// The MultiClusterZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Which of the configuration's specs it has.
    pub spec: usize,
    pub generation: i64,
    pub finalizer: bool,
    pub deleting: bool,
    pub status: Option<Shared<MultiClusterZooKeeperStatus>>,
}

/// The ZooKeeper template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    pub object: Shared<ZooKeeper>,
    pub generation: i64,
    pub foreign: bool,
}

/// Karmada's binding of the template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    pub replicas: i32,
    pub requirements: bool,
    pub placement: Shared<Placement>,
    pub claimed: bool,
    /// Index and replicas of every cluster of the schedule.
    pub clusters: Vec<(usize, i32)>,
    /// Whether the scheduler saw the newest spec.
    pub scheduled: bool,
    /// Whether the scheduler found a cluster.
    pub fits: bool,
    pub protected: bool,
}

/// One server, by ordinal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Which life of the ensemble it is of.
    pub life: usize,
    pub id: i32,
    pub revision: u64,
    /// Whether its image works.
    pub sound: bool,
    pub up: bool,
    /// Whether the volume that it voted from is gone.
    pub lost: bool,
    /// Whether its pod runs without ZooKeeper.
    pub parked: bool,
    /// Whether it ever took part in a quorum.
    pub accepted: bool,
}

/// One member cluster, and what of it the control plane was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterReport {
    /// Whether it serves our kinds.
    pub serves: bool,
    /// Whether Karmada reaches it.
    pub ready: bool,
    /// Whether its nodes run.
    pub alive: bool,
    /// Whether a Work of it exists, and if so whether it says that the member keeps its object.
    pub work: Option<bool>,
    /// The object in the member.
    pub spec: Option<Shared<ZooKeeperSpec>>,
    /// The last spec that the agent obeyed.
    pub obeyed: Option<Shared<ZooKeeperSpec>>,
    /// The newest list that the agent knows.
    pub list: Option<Shared<Ensemble>>,
    pub servers: Vec<Server>,
    pub dissolved: bool,
    /// Whether a Secret that its servers need has not arrived.
    pub lacks_secret: bool,
    /// What its Work's status says.
    pub reported: Option<Shared<ZooKeeperStatus>>,
}

/// What is true of the ensemble, whoever knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Which life of the ensemble this is of: the last one in which a server was started.
    pub life: usize,
    pub formed: bool,
    /// Voters of ZooKeeper's own configuration.
    pub voters: Vec<i32>,
    pub version: i64,
    /// The list that the servers of a bootstrap were started with.
    pub bootstrap: Option<Vec<(i32, String)>>,
    /// The newest list that the ensemble itself keeps.
    pub newest: Option<Shared<Ensemble>>,
}

/// A plan that is being carried out slowly: others act between its writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    pub outcome: Shared<Outcome>,
    pub next: usize,
    pub seen: Seen,
}

/// What a plan was made on: a write to an object that changed since is a conflict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    pub object: Option<Object>,
    pub overrides: Option<Shared<OverridePolicy>>,
    pub policy: Option<Shared<PropagationPolicy>>,
    pub services: BTreeMap<String, Shared<Value>>,
    pub template: Option<Template>,
    pub binding: Option<Binding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub object: Option<Object>,
    pub overrides: Option<Shared<OverridePolicy>>,
    pub policy: Option<Shared<PropagationPolicy>>,
    pub services: BTreeMap<String, Shared<Value>>,
    pub template: Option<Template>,
    pub binding: Option<Binding>,
    /// Whether Karmada knows the interpreter webhook.
    pub registered: bool,
    pub reports: Vec<ClusterReport>,
    pub truth: Truth,
    /// Lives that were noted as over.
    pub ended: BTreeSet<String>,
    pub operator: Option<InFlight>,
    /// Whether the record's deadline has passed.
    pub late: bool,
    /// Faults that may still happen.
    pub faults: u8,
    /// Whether a person will still delete the object.
    pub to_delete: bool,
    /// The first rule that was broken on the way here.
    pub broken: Option<Rule>,
}

impl State {
    pub fn seen(&self) -> Seen {
        Seen {
            object: self.object.clone(),
            overrides: self.overrides.clone(),
            policy: self.policy.clone(),
            services: self.services.clone(),
            template: self.template.clone(),
            binding: self.binding.clone(),
        }
    }

    pub fn breaks(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    /// Whether the voters that run are a majority.
    pub fn quorum(&self) -> bool {
        self.truth.formed && self.up().count() > self.truth.voters.len() / 2
    }

    /// Voters of the configuration that run.
    pub fn up(&self) -> impl Iterator<Item = i32> {
        self.reports.iter().filter(|m| m.alive).flat_map(|m| &m.servers).filter(|s| s.up && self.votes(s)).map(|s| s.id)
    }

    /// Whether ZooKeeper's configuration counts a server as a voter.
    pub fn votes(&self, server: &Server) -> bool {
        server.life == self.truth.life && self.truth.voters.contains(&server.id)
    }
}

/// Which life of the ensemble an id is of: the first, or the one after it.
pub fn life(id: Option<&String>) -> usize {
    static LIVES: LazyLock<[String; 3]> = LazyLock::new(|| [0, 1, 2].map(|number| naming::incarnation(UID, number)));
    id.map_or(0, |id| LIVES.iter().position(|life| life == id).expect("one of the first lives"))
}

/// Name of a cluster: a letter.
pub fn name(cluster: usize) -> String {
    char::from(b'a' + u8::try_from(cluster).expect("few clusters")).to_string()
}

/// Voters of a list in one cluster, by ordinal.
pub fn voters_of(list: &Ensemble, cluster: &str) -> Vec<i32> {
    let mut own: Vec<_> = list.servers.iter().filter(|s| s.cluster == cluster && s.role == Role::Voter).collect();
    own.sort_by_key(|s| s.ordinal);
    own.iter().map(|s| s.id).collect()
}

/// A status whose times are all one.
pub fn timeless(mut status: MultiClusterZooKeeperStatus) -> MultiClusterZooKeeperStatus {
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(NOW);
    }
    for record in &mut status.records {
        record.last_transition_time = Time(NOW);
    }
    for cluster in &mut status.clusters {
        if cluster.complete_since.is_some() {
            cluster.complete_since = Some(Time(NOW));
        }
    }
    status
}

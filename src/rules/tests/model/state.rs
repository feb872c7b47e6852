//! The state of a world. A search keeps a million of them in memory.
//!
//! The objects that the operator writes have their real types. States share them, and compare them by a hash of their JSON. They
//! have no times: with a clock, every state would be a new one.

use mczk_api::contract::naming;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mczk_api::{
    ZooKeeper,
    karmada::policy::{OverridePolicy, PropagationPolicy},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    placement::Placement,
    zookeeper::{Ensemble, ZooKeeperSpec, ZooKeeperStatus},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    operator::{Outcome, SECOND_UID, UID},
    properties::Rule,
};

/// The time of every state.
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A shared value. A hash of its content identifies it.
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

/// A value inside another shared value is represented by its hash.
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
    /// True if it is the one that the user created after the control plane was lost.
    pub is_second: bool,
    /// True if the user has said what becomes of the servers of the first one.
    pub has_said: bool,
    /// Index of its spec in the world's specs.
    pub spec: usize,
    pub generation: i64,
    pub finalizer: bool,
    pub deleting: bool,
    pub status: Option<Shared<MultiClusterZooKeeperStatus>>,
}

impl Default for Object {
    fn default() -> Self {
        Self {
            is_second: false,
            has_said: false,
            spec: 0,
            generation: 1,
            finalizer: false,
            deleting: false,
            status: None,
        }
    }
}

impl Object {
    pub fn uid(&self) -> &'static str {
        if self.is_second { SECOND_UID } else { UID }
    }

    /// The user declares a later spec.
    pub fn declare(&mut self, later: usize) {
        self.spec += later;
        self.generation += i64::try_from(later).expect("few specs");
    }
}

/// The ZooKeeper template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    pub object: Shared<ZooKeeper>,
    pub generation: i64,
    pub foreign: bool,
    /// Number of the templates that existed before. It stands for the uid.
    pub number: u8,
}

/// Karmada's binding of the template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Number of its template.
    pub template: u8,
    pub replicas: i32,
    pub requirements: bool,
    pub placement: Shared<Placement>,
    pub claimed: bool,
    /// Index and replicas of every cluster of the schedule.
    pub clusters: Vec<(usize, i32)>,
    /// True if the scheduler has processed the newest spec.
    pub scheduled: bool,
    /// True if the scheduler found a cluster.
    pub fits: bool,
    pub protected: bool,
}

/// One server, by ordinal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Number of its incarnation.
    pub incarnation: usize,
    pub id: i32,
    pub revision: String,
    /// True if its image works.
    pub image_works: bool,
    pub up: bool,
    /// Id on its volume, once it has started.
    pub stores: Option<i32>,
    /// True if it voted from a volume that is lost.
    pub lost: bool,
    /// The server list that suspended it.
    pub suspended: Option<Shared<Ensemble>>,
    /// True if it ever took part in a quorum.
    pub joined_quorum: bool,
    /// How often its volume was replaced.
    pub replaced: u8,
}

/// A member cluster, and its report in the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberCluster {
    /// True if it serves the kinds of the operator.
    pub serves: bool,
    /// True if it is a member of the federation.
    pub joined: bool,
    /// True if Karmada reaches it.
    pub ready: bool,
    /// True if its nodes run.
    pub alive: bool,
    /// Its Work, if one exists: true if the Work preserves the object.
    pub work: Option<bool>,
    /// True if Karmada deletes the Work, and does not reach the cluster.
    pub terminating: bool,
    /// The spec of the object in the member cluster.
    pub spec: Option<Shared<ZooKeeperSpec>>,
    /// The request to replace a volume, on the object in the member cluster.
    pub request: Option<String>,
    /// The spec that the agent read last.
    pub read: Option<Shared<ZooKeeperSpec>>,
    /// The status that the agent wrote.
    pub status: Option<Shared<ZooKeeperStatus>>,
    /// The last spec that the agent accepted.
    pub accepted: Option<Shared<ZooKeeperSpec>>,
    /// The server list that the agent wrote for its servers.
    pub assigned: Option<Shared<Ensemble>>,
    /// Tombstones that Karmada delivered.
    pub tombstones: BTreeSet<String>,
    pub servers: Vec<Server>,
    /// True if a Secret that its servers need has not arrived.
    pub lacks_secret: bool,
    /// The report in the control plane.
    pub reported: Option<Shared<ZooKeeperStatus>>,
}

impl MemberCluster {
    /// The server list that the agent accepted.
    pub fn list(&self) -> Option<&Ensemble> {
        self.status.as_ref()?.get().ensemble.as_ref()
    }

    /// The object is removed, with all that the agent knew by it.
    pub fn forget(&mut self) {
        (self.spec, self.read, self.accepted) = (None, None, None);
        (self.status, self.assigned, self.request) = (None, None, None);
    }
}

/// The true state of the ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Number of the newest incarnation that has started a server.
    pub incarnation: usize,
    pub formed: bool,
    /// Voters of ZooKeeper's own configuration.
    pub voters: Vec<i32>,
    pub version: i64,
    /// The server list that the servers of a bootstrap started with.
    pub bootstrap: Option<Vec<(i32, String)>>,
    /// The server list that the ensemble has stored.
    pub newest: Option<Shared<Ensemble>>,
}

/// A plan of a slow operator: other parts act between its writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    pub outcome: Shared<Outcome>,
    /// Number of the operator's term.
    pub term: i32,
    pub next: usize,
    pub seen: Seen,
}

/// The objects that a plan was made from. A write to an object that has changed since is a conflict.
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
    /// True if the interpreter webhook is registered.
    pub registered: bool,
    pub members: Vec<MemberCluster>,
    pub truth: Truth,
    /// Incarnations with a tombstone.
    pub tombstones: BTreeSet<String>,
    /// Number of the term of the operator that is not slow.
    pub term: i32,
    /// The highest term in which an operator has written.
    pub acted: i32,
    /// Plans of slow operators.
    pub operators: Vec<InFlight>,
    /// True if the operator misses every change until it reads all objects again.
    pub asleep: bool,
    /// Number of the templates that the operator has created.
    pub templates: u8,
    /// True if the deadline of the record has passed.
    pub late: bool,
    /// Faults that may still happen.
    pub faults: u8,
    /// True if the user is going to delete the object.
    pub to_delete: bool,
    /// The first rule that was broken.
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

    /// The user deletes the object.
    pub fn delete(&mut self) -> bool {
        self.to_delete = false;
        let Some(object) = &mut self.object else { return false };
        object.deleting = true;
        object.generation += 1;
        if !object.finalizer {
            self.object = None;
        }
        true
    }

    pub fn breaks(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    /// True if a majority of the voters runs.
    pub fn quorum(&self) -> bool {
        self.truth.formed && self.up().count() > self.truth.voters.len() / 2
    }

    /// Voters that run.
    pub fn up(&self) -> impl Iterator<Item = i32> {
        self.members.iter().filter(|m| m.alive).flat_map(|m| &m.servers).filter(|s| s.up && self.votes(s)).map(|s| s.id)
    }

    /// True if ZooKeeper's configuration names a server as a voter.
    pub fn votes(&self, server: &Server) -> bool {
        self.truth.has_vote(server)
    }
}

impl Truth {
    pub fn has_vote(&self, server: &Server) -> bool {
        server.incarnation == self.incarnation && self.voters.contains(&server.id)
    }
}

/// Those of the first object, and the one of the second.
static INCARNATIONS: LazyLock<[String; 4]> = LazyLock::new(|| {
    [(UID, 0), (UID, 1), (UID, 2), (SECOND_UID, 0)].map(|(uid, number)| naming::incarnation(uid, number))
});

/// The incarnation with a number.
pub fn incarnation_of(number: usize) -> String {
    INCARNATIONS[number].clone()
}

/// Number of an incarnation, in the order of bootstraps.
pub fn incarnation_number(id: Option<&String>) -> usize {
    id.map_or(0, |id| INCARNATIONS.iter().position(|known| known == id).expect("one of the first incarnations"))
}

/// Name of a cluster: a letter.
pub fn name(cluster: usize) -> String {
    char::from(b'a' + u8::try_from(cluster).expect("few clusters")).to_string()
}

/// A status in which all times are equal.
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

//! What agents and servers say to each other, over mutual TLS under the incarnation's authority: JSON over HTTP/1.1.
//!
//! `GET /v1/server` answers a [`ServerReport`]; `POST /v1/reconfigure` takes a [`Reconfiguration`] and answers a [`Configuration`];
//! `POST /v1/server-list` publishes a list ([`crate::api::zookeeper::Ensemble`]) in the ensemble and answers a [`Configuration`];
//! `POST /v1/restart-lock` and `DELETE /v1/restart-lock` take a [`RestartLock`] and give it back. What is refused is answered with a [`Problem`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        pod::ZooCfgEntry,
        zookeeper::{Ensemble, Role},
    },
    contract::loaded_certificates::Loaded,
};

/// What a server is told besides the list of servers: the same for all servers of one role of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerConfig {
    /// Name of the ZooKeeper object.
    pub name: String,
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// Role of these servers.
    pub role: Role,
    /// Revision of the pod part.
    pub revision: String,
    /// Settings of `zoo.cfg` that people chose.
    #[serde(default)]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// Further flags of the Java virtual machine.
    #[serde(default)]
    pub jvm_flags: Vec<String>,
    /// Memory limit of the container in bytes; the heap follows it.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// Whether servers speak TLS with each other.
    pub quorum_tls: bool,
    /// How clients may connect: absent: in plain text only.
    #[serde(default)]
    pub client_tls: Option<crate::api::tls::ClientTls>,
}

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
pub enum Phase {
    /// It has not decided how to start, and says what it waits for.
    Waiting {
        /// A sentence for people.
        reason: String,
    },
    /// `ZooKeeper` runs.
    Running,
    /// It only reports what its volume holds.
    Suspended,
    /// `ZooKeeper` ended and will be started again.
    Ended {
        /// Exit code, signal, and the last lines that it wrote.
        reason: String,
    },
}

/// What a server does in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It leads.
    Leader,
    /// It follows with or without a vote.
    Follower,
    /// It observes.
    Observer,
    /// It looks for a leader.
    Looking,
}

/// One server of `ZooKeeper`'s own configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfiguredServer {
    /// Its id.
    pub id: i32,
    /// Its name.
    pub host: String,
    /// Its role.
    pub role: Role,
}

/// `ZooKeeper`'s own configuration, read through a quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Its version, which is a transaction id.
    pub version: i64,
    /// Its servers, by id.
    pub servers: Vec<ConfiguredServer>,
}

impl Configuration {
    /// Ids of the voters, in order.
    pub fn voters(&self) -> impl Iterator<Item = i32> {
        self.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id)
    }
}

/// What a server says of itself.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// Its id; absent while no list names it.
    pub id: Option<i32>,
    /// Its pod.
    pub pod: String,
    /// The life of the ensemble that it belongs to.
    pub incarnation: String,
    /// What it is doing.
    pub phase: Phase,
    /// Revision that it was started with.
    pub revision: String,
    /// What it does in the quorum, if it answers.
    pub mode: Option<Mode>,
    /// Whether a session can be served.
    pub serving: bool,
    /// Whether its data is at most a bounded number of transactions behind the leader's, as far as it can tell.
    pub synced: bool,
    /// Whether it has served for [`SETTLED`] without a break. Who does not say counts as one that has.
    #[serde(default = "settled")]
    pub settled: bool,
    /// Last transaction that it has seen.
    pub zxid: Option<i64>,
    /// Of a leader: voters that follow it and are synced, itself not counted.
    pub synced_voters: Option<i32>,
    /// The configuration, if it could be read through a quorum.
    pub configuration: Option<Configuration>,
    /// Accepted epoch on the volume: above 0 once a quorum formed with it; [`UNKNOWN_EPOCH`] if nobody knows.
    pub accepted_epoch: i64,
    /// Identity of the volume.
    pub volume: String,
    /// Whether the volume that this id voted from is gone.
    pub lost: bool,
    /// The newest list of servers that the ensemble keeps, or, where none could be read, the one that the server was told.
    pub server_list: Option<Ensemble>,
    /// Who holds the turn, if somebody does.
    pub restart_lock: Option<RestartLock>,
    /// The quorum's certificates that both `ZooKeeper` and this port have loaded; absent while a change is on its way.
    #[serde(default)]
    pub loaded: Option<Loaded>,
}

/// One step of a reconfiguration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconfiguration {
    /// Epoch of the list that the step was decided on: refused if the ensemble keeps a newer one.
    pub epoch: i64,
    /// Version of the configuration that the step was decided on: refused if it is another one.
    pub from_version: i64,
    /// Server to be added, or to get another role.
    #[serde(default)]
    pub add: Option<ConfiguredServer>,
    /// Id of the server to be removed.
    #[serde(default)]
    pub remove: Option<i32>,
}

/// [`ServerReport::accepted_epoch`] where it may be any.
pub const UNKNOWN_EPOCH: i64 = -1;

/// For how long a server must have served until it may be elected without harm. A pod that was made anew has another address;
/// until all others know it, a new leader waits for them as long as for a snapshot (`initLimit`), and nothing is written. The
/// zone's own answer may be kept for 5 s, a forwarder's for 5 s more, Java's for another 5 s
/// (`networkaddress.cache.ttl`, which the server sets).
pub const SETTLED: Duration = Duration::from_secs(15);

const fn settled() -> bool {
    true
}

/// How long a turn lasts after it was asked for: whoever has it asks again before, with the same [`RestartLock`], which also
/// confirms that it still is the holder. A holder that is gone so loses it, and without the process through which it was
/// held it is lost sooner.
pub const LOCK_LEASE: Duration = Duration::from_secs(30);
/// How long `ZooKeeper` keeps the session of a turn whose process is gone: after that somebody else may have it.
pub const LOCK_SESSION: Duration = Duration::from_secs(10);
/// How long a confirmation of the turn may be acted upon, from when it was asked for: a third of [`LOCK_SESSION`], so that what
/// is done then is done while it is held, also by clocks that do not go alike.
pub const LOCK_CONFIRMED: Duration = Duration::from_millis(3300);

/// The right to take a serving voter out: one at a time in the whole ensemble. It is asked for through another server than
/// the one that is to be taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartLock {
    /// Who asks or has it: the cluster and the agent's own name.
    pub holder: String,
    /// Id of the server that is to be taken out.
    pub server: i32,
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// One word, for programs.
    pub reason: String,
    /// A sentence, for people.
    pub message: String,
}

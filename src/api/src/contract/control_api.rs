//! The control port of `mczk server`: JSON over HTTP/1.1 and mutual TLS under the incarnation's authority.
//!
//! Agents and other servers call it:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/server` | | [`ServerReport`] |
//! | `POST /v1/reconfigure` | [`Reconfiguration`] | [`Configuration`] |
//! | `POST /v1/server-list` | [`Ensemble`], which the server publishes in the ensemble | [`Configuration`] |
//! | `POST /v1/restart-lock` | [`RestartLock`] to acquire or renew | [`RestartLock`] |
//! | `DELETE /v1/restart-lock` | [`RestartLock`] to release | |
//! | `POST /v1/first-start` | [`crate::zookeeper::FirstStart`] that the agent of the server's cluster has recorded | |
//!
//! Every refusal has a [`Problem`] as its body.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::{
    contract::loaded_certificates::Loaded,
    pod::ZooCfgEntry,
    zookeeper::{Ensemble, Role},
};

/// Configuration that the agent gives to all servers of one role in its cluster. The server list is a file of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerConfig {
    /// Name of the ZooKeeper object.
    pub name: String,
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// Role of these servers.
    pub role: Role,
    /// Revision of the pod template.
    pub revision: String,
    /// Settings of `zoo.cfg` that users chose.
    #[serde(default)]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// Flags of the Java virtual machine that users chose.
    #[serde(default)]
    pub jvm_flags: Vec<String>,
    /// Memory limit of the container in bytes. The server derives the heap from it.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// True if servers speak TLS with each other.
    pub quorum_tls: bool,
    /// TLS for clients. If absent, clients connect in plain text only.
    #[serde(default)]
    pub client_tls: Option<crate::tls::ClientTls>,
}

/// State of a server's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
pub enum Phase {
    /// `ZooKeeper` is not running: it cannot start yet.
    Waiting {
        /// What the server waits for, in a sentence.
        reason: String,
    },
    /// `ZooKeeper` runs.
    Running,
    /// `ZooKeeper` is not running: the ensemble is suspended. The server only reports what its volume holds.
    Suspended,
    /// `ZooKeeper` exited or could not be started. The server starts it again.
    Exited {
        /// Exit code, signal, and the last lines of the output.
        reason: String,
    },
    /// A newer server reports a state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Role of a server in the quorum at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The leader.
    Leader,
    /// A follower, with or without a vote.
    Follower,
    /// An observer.
    Observer,
    /// No part in a quorum: the server searches for a leader.
    Looking,
}

/// A server in `ZooKeeper`'s own configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfiguredServer {
    /// Id of the server.
    pub id: i32,
    /// Host name of the server.
    pub host: String,
    /// Role of the server.
    pub role: Role,
}

/// `ZooKeeper`'s own configuration, read through a quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Version: the id of the transaction that wrote the configuration.
    pub version: i64,
    /// Servers, by id.
    pub servers: Vec<ConfiguredServer>,
}

impl Configuration {
    /// Ids of the voters, in order.
    pub fn voters(&self) -> impl Iterator<Item = i32> {
        self.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id)
    }
}

/// State of a server, as the server reports it.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// Id of the server. Absent while no server list names the server.
    pub id: Option<i32>,
    /// Name of the pod.
    pub pod: String,
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// State of the process.
    pub phase: Phase,
    /// Revision that the server started with.
    pub revision: String,
    /// Role in the quorum. Absent if `ZooKeeper` does not answer.
    #[serde(default, deserialize_with = "if_known")]
    pub mode: Option<Mode>,
    /// True if `ZooKeeper` serves a session.
    pub serving: bool,
    /// True if the server serves, the configuration has its current client address, and its port for clients with TLS has
    /// answered, if it has one.
    pub synced: bool,
    /// True if the server has served for [`SETTLED`] without a break. Defaults to true when absent.
    #[serde(default = "settled")]
    pub settled: bool,
    /// Id of the last transaction that the server received.
    pub zxid: Option<i64>,
    /// Number of synced voters that follow this leader, without the leader. Absent on other servers.
    pub synced_voters: Option<i32>,
    /// Bytes of a snapshot of all data, by an estimate of this leader. Absent on other servers, or if the server is older than
    /// this field.
    #[serde(default)]
    pub snapshot_bytes: Option<i64>,
    /// Seconds for which this leader has counted fewer synced voters than its configuration has, without a break. 0 if none is
    /// missing. Absent on other servers, or if the server is older than this field.
    #[serde(default)]
    pub short_seconds: Option<i64>,
    /// Version of `ZooKeeper`. Absent if `ZooKeeper` does not answer, or the server is older than this field.
    #[serde(default)]
    pub version: Option<String>,
    /// `ZooKeeper`'s configuration. Absent if it could not be read through a quorum.
    #[serde(default, deserialize_with = "if_known")]
    pub configuration: Option<Configuration>,
    /// Newest configuration on the volume. Its version is 0 if no quorum has committed it. Absent without one, or if the server
    /// is older than this field.
    #[serde(default, deserialize_with = "if_known")]
    pub stored_configuration: Option<Configuration>,
    /// Accepted epoch on the volume: above 0 once a quorum formed with this server, [`UNKNOWN_EPOCH`] if it is unknown.
    pub accepted_epoch: i64,
    /// Identity of the volume.
    pub volume: String,
    /// Identity that the volume gets by the first start, while the server waits until the agent has recorded it:
    /// [`crate::zookeeper::FirstStart`].
    #[serde(default)]
    pub first_start: Option<String>,
    /// True if the server certainly acknowledged nothing: it joined no quorum, and has no other volume than the one with which it
    /// began. Defaults to false when absent.
    #[serde(default)]
    pub acknowledged_nothing: bool,
    /// Highest generations of volumes that this server knows, by the id of their server.
    /// Empty if the server is older than this field.
    #[serde(default)]
    pub generations: BTreeMap<i32, i64>,
    /// Why the server has not raised the generation of its volume for a while, although it serves: a copy that is made
    /// meanwhile is not recognized as old. Absent if it raises it, or the server is older than this field.
    #[serde(default)]
    pub unraised: Option<String>,
    /// Why the server turns away every client with TLS, although it serves. Absent if it serves them, or the server is older
    /// than this field.
    #[serde(default)]
    pub turned_away: Option<String>,
    /// Use of the volume. Absent if it cannot be read, or the server is older than this field.
    #[serde(default)]
    pub disk: Option<Disk>,
    /// True if this id voted from a volume that is lost.
    pub lost: bool,
    /// True if `ZooKeeper` cannot read its files.
    #[serde(default)]
    pub corrupt: bool,
    /// Newest server list in the ensemble. If the server cannot read it, the newest one that the server knows.
    pub server_list: Option<Ensemble>,
    /// Restart lock, if an agent holds it.
    pub restart_lock: Option<RestartLock>,
    /// Quorum certificates that both `ZooKeeper` and the control port have loaded. Absent while they change.
    #[serde(default, deserialize_with = "if_known")]
    pub loaded: Option<Loaded>,
}

impl ServerReport {
    /// True if `ZooKeeper` leads or follows, whether it serves sessions or not.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.phase == Phase::Running && matches!(self.mode, Some(Mode::Leader | Mode::Follower))
    }
}

/// Used part of a volume, in percent, from which the volume fills up: a condition names it, and the server removes what it does
/// not need.
pub const DISK_PRESSURE: u64 = 80;

/// Use of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Size in bytes, without what is reserved for the system.
    pub size: u64,
    /// Bytes that `ZooKeeper` may still write.
    pub available: u64,
    /// Folders with data that was set aside, oldest first.
    pub set_aside: Vec<String>,
}

impl Disk {
    /// Used part of the volume, in percent.
    #[must_use]
    pub fn used_percent(&self) -> u64 {
        100 - self.available.min(self.size).saturating_mul(100).checked_div(self.size).unwrap_or(100)
    }
}

/// Change of `ZooKeeper`'s configuration by one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconfiguration {
    /// Epoch of the server list behind the change. The server refuses the change if the ensemble holds a newer list.
    pub epoch: i64,
    /// Version of the configuration behind the change. The server refuses the change if the version differs.
    pub from_version: i64,
    /// Server to add, or to give another role.
    #[serde(default)]
    pub add: Option<ConfiguredServer>,
    /// Id of the server to remove.
    #[serde(default)]
    pub remove: Option<i32>,
}

/// [`Problem::reason`] of a step that the ensemble's server list does not ask for.
pub const NOT_LISTED: &str = "list";
/// [`Problem::reason`] of a step that would take the vote of a listed voter, and may not.
pub const DEMOTION: &str = "demotion";
/// Reason of a problem with the restart lock itself: another agent holds it.
pub const LOCK: &str = "restartLock";
/// Reason of a problem that may be over when the agent asks again, or asks another server.
pub const UNAVAILABLE: &str = "unavailable";

/// Value of [`ServerReport::accepted_epoch`] if the epoch is unknown. It may be any epoch.
pub const UNKNOWN_EPOCH: i64 = -1;

/// Time that a server must have served before it may become leader without harm.
///
/// A recreated pod has a new address. Until all others resolve it, a new leader waits for them as long as for a snapshot
/// (`initLimit`), and nothing is written. Caches add up: 5 s for the answer of the cluster's zone, 5 s for a forwarder, 5 s
/// for Java (`networkaddress.cache.ttl`, which the server sets).
pub const SETTLED: Duration = Duration::from_secs(15);

/// Reads a value. One that this version does not know counts as absent: a newer server may report it.
fn if_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

const fn settled() -> bool {
    true
}

/// Validity of a restart lock after each request. The holder renews it by the same request, which also confirms the lock.
/// A holder that is gone loses the lock after this time, or sooner if the server that holds the session is gone too.
pub const LOCK_LEASE: Duration = Duration::from_secs(30);
/// Time for which `ZooKeeper` keeps the session of a restart lock whose server is gone. Then another agent may acquire it.
pub const LOCK_SESSION: Duration = Duration::from_secs(10);
/// Time for which the agent may act on a confirmed restart lock, counted from the request. A third of [`LOCK_SESSION`], so
/// that the agent still holds the lock when it acts, even if clocks run at different speeds.
pub const LOCK_CONFIRMED: Duration = Duration::from_millis(3300);

/// The right to restart a serving voter. The ensemble has one. An agent acquires it through a server other than the one to
/// restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartLock {
    /// The cluster and the name of the agent that requests or holds the lock.
    pub holder: String,
    /// Id of the server to restart.
    pub server: i32,
}

/// Cause of a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// One word, for programs.
    pub reason: String,
    /// A sentence, for users.
    pub message: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(more: Value) -> ServerReport {
        let report = json!({
            "id": 1, "pod": "zk-0", "incarnation": "abc", "phase": { "phase": "running" }, "revision": "r1", "serving": true,
            "synced": true, "acceptedEpoch": 3, "volume": "v", "lost": false, "mode": "leader",
        });
        serde_json::from_value(crate::fixtures::merged(report, more)).unwrap()
    }

    /// M4: a value that this version does not know counts as absent.
    #[test]
    fn the_report_of_a_newer_server_is_read() {
        let newer = report(json!({
            "phase": { "phase": "draining", "until": 5 }, "mode": "witness", "loaded": [1], "pressure": { "some": 0.5 },
            "configuration": { "version": 7, "servers": [{ "id": 1, "host": "h", "role": "witness" }] },
            "serverList": { "incarnation": "abc", "epoch": 9, "phase": "Moving", "servers": [] },
        }));
        assert_eq!((newer.mode, &newer.configuration, &newer.loaded), (None, &None, &None));
        assert_eq!((newer.serving, newer.accepted_epoch), (true, 3));
        assert_eq!(newer.server_list.unwrap().epoch, Some(9));
    }

    /// The fields that later versions added are absent.
    #[test]
    fn the_report_of_an_older_server_is_read() {
        let older = report(json!({}));
        assert_eq!((older.mode, older.settled, older.version), (Some(Mode::Leader), true, None));
        assert_eq!(older.unraised, None);
        assert_eq!(older.phase, Phase::Running);
    }
}

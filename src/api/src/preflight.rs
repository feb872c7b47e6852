//! The network check before the first server of an ensemble starts, and before a cluster joins one: what the operator requests,
//! and what agents report.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the network between the clusters is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PreflightMode {
    /// No server starts, and no cluster joins, before every cluster reaches every other one by name, on every port of a
    /// server.
    #[default]
    Required,
    /// Servers start, and clusters join, without a check.
    Skip,
}

/// Request to check the network before the first server starts, or before clusters join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// Hash of the other fields. The agent ignores a request whose hash differs, and reports its results with the hash.
    #[schemars(length(min = 16, max = 16))]
    pub round: String,
    /// Incarnation of the ensemble.
    #[schemars(length(min = 1, max = 10))]
    pub incarnation: String,
    /// A name in each cluster: that of its first server, or of the next one if servers run there.
    #[schemars(length(max = 254))]
    pub names: Vec<ServerName>,
    /// Bytes per second at which a cluster that joins must be able to copy a snapshot. Absent if no cluster joins, or no leader
    /// reports the size of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub bytes_per_second: Option<i64>,
}

/// Name in a cluster that no server has yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerName {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Name by which the servers of all clusters would reach it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Ordinal of the server in its cluster. Absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub ordinal: Option<i32>,
}

/// Result of the network check of one cluster. It has passed if there is neither a failure nor a problem, and the round trip is
/// within the time limits of ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightReport {
    /// Round of the request.
    #[schemars(length(min = 1, max = 16))]
    pub round: String,
    /// Cause for which the check does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub failure: Option<String>,
    /// Names and ports that the cluster does not reach; the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub problems: Vec<NetworkProblem>,
    /// Number of further problems. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub more: Option<i32>,
    /// Service mesh that has a proxy in the probe's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub mesh: Option<String>,
    /// Longest of the round trips to the clusters. Absent if no cluster answers, or the probe is too old to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
}

/// Time from a message to its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoundTrip {
    /// Cluster of the server that answered.
    #[schemars(length(min = 1, max = 48))]
    pub to: String,
    /// Shortest time that was measured, in milliseconds, rounded up.
    #[schemars(range(min = 1, max = 60000))]
    pub milliseconds: i32,
}

/// Name or port that a cluster does not reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProblem {
    /// Cluster of the server.
    #[schemars(length(min = 1, max = 48))]
    pub to: String,
    /// Name of the server.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port of the server. Absent if the name has no address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// What is wrong.
    pub problem: ProblemKind,
    /// Cluster that answered instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 48))]
    pub answered: Option<String>,
    /// Bytes per second that a path carries which is too slow, rounded down to a power of 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_per_second: Option<i64>,
}

/// What is wrong with a name or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ProblemKind {
    /// The name has no address.
    NoSuchName,
    /// The port is closed.
    Refused,
    /// Nothing answers in time.
    TimedOut,
    /// No route leads to the address.
    Unreachable,
    /// Another program or another cluster answers.
    WrongServer,
    /// Small packets pass, and large ones are lost: the path MTU.
    LargePacketsLost,
    /// A name that no server has gets an address too: a wildcard record.
    AnyNameResolves,
    /// A server that joins cannot copy a snapshot in time.
    TooSlow,
}

impl ProblemKind {
    /// The text in a status and in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSuchName => "NoSuchName",
            Self::Refused => "Refused",
            Self::TimedOut => "TimedOut",
            Self::Unreachable => "Unreachable",
            Self::WrongServer => "WrongServer",
            Self::LargePacketsLost => "LargePacketsLost",
            Self::AnyNameResolves => "AnyNameResolves",
            Self::TooSlow => "TooSlow",
        }
    }
}

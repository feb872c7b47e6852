//! `ZooKeeper`: the template in the control plane, and the object in each member cluster.
//!
//! No field has a default in the CRD. A member cluster with a newer CRD would otherwise change the object, and its spec
//! hash would not match.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    multiclusterzookeeper::{ClusterOverride, Observers},
    network::Names,
    pod::ServerTemplate,
    preflight::{Preflight, PreflightReport},
    quantity::Quantity,
    tls::{EnsembleTls, ServerTls},
};

/// Servers of one member cluster; in the control plane, the template for all member clusters.
///
/// Only the operator writes it. The operator reverts edits by hand, and agents refuse an object without `ensemble`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "mczk.io",
    version = "v1alpha1",
    kind = "ZooKeeper",
    plural = "zookeepers",
    shortname = "zk",
    category = "mczk-io",
    namespaced,
    status = "ZooKeeperStatus",
    derive = "PartialEq",
    doc = "Servers of one member cluster; in the control plane, the template for all member clusters. Only the operator writes it.",
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "STARTED", type_ = "integer", json_path = ".status.startedReplicas"),
    printcolumn(name = "SERVING", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "CLUSTER", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "REVISION", type_ = "string", json_path = ".spec.revision"),
    printcolumn(name = "EPOCH", type_ = "integer", json_path = ".spec.ensemble.epoch", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ZooKeeperSpec {
    /// Number of voters in this cluster; in the template, the number that Karmada divides. A change adds or removes
    /// servers, after ZooKeeper's own configuration has changed.
    #[schemars(range(min = 0, max = 254))]
    pub replicas: i32,
    /// Number of observers in this cluster. A change adds or removes servers without a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 254))]
    pub observers: Option<i32>,
    /// Karmada's name of the cluster that the object is meant for. An agent of another cluster changes nothing, and
    /// neither does any agent if the name is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 48))]
    pub cluster: Option<String>,
    /// Name of the ensemble for which this cluster is a spare. The agent reports whether the cluster would accept the
    /// ensemble's servers, and creates nothing. Absent in every other object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40))]
    pub spare_of: Option<String>,
    /// Pod and volume of a server. A change restarts servers.
    pub template: ServerTemplate,
    /// Version of the rendering of the pod part into objects. It rises when a release of mczk renders differently. A
    /// change restarts servers.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub render_version: i32,
    /// Image of mczk, which provides ZooKeeper's parent process in each pod. A change restarts servers.
    #[schemars(length(min = 1, max = 512))]
    pub server_image: String,
    /// Encryption. A change of `client` restarts servers.
    pub tls: ServerTls,
    /// Hash of the pod part: `template`, `renderVersion`, `serverImage` and `tls`.
    #[schemars(length(min = 1, max = 64))]
    pub revision: String,
    /// Address ranges of servers in other clusters. Any address if empty. A change restarts no server.
    #[serde(default, rename = "peerCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 49)))]
    pub peer_cidrs: Vec<String>,
    /// Generation of this cluster's spec, a hyphen, and the SHA-256 of the spec, in hexadecimal. The hash covers the
    /// canonical JSON of the generation and of this spec without `specHash`, `ensemble` and `dependencies`. The agent
    /// reports it as completed. Absent in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 66, max = 84))]
    pub spec_hash: Option<String>,
    /// Secrets and ConfigMaps that Karmada propagates with the object. A change restarts no server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub dependencies: Vec<Dependency>,
    /// Input from which the operator makes each cluster's spec, besides the template. Present only in the template. A
    /// change restarts no server by itself: the specs of the clusters carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Request to check the network, before the first server starts and before clusters join. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<Preflight>,
    /// Server list of the ensemble, and its phase. A change changes membership. If empty, the agent changes nothing.
    pub ensemble: Ensemble,
}

impl ZooKeeperSpec {
    /// True for the template of a survey.
    #[must_use]
    pub fn surveys(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.surveys)
    }
}

/// Input from which the operator makes each cluster's spec. It is part of the template so that a running rollout
/// continues with the input it began with, and so that a change raises the template's generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Observers by cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub observers: Vec<Observers>,
    /// Differences of single clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub overrides: Vec<ClusterOverride>,
    /// Names of servers across clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    /// True while Karmada brings the object to every selected cluster, without replicas: agents report which incarnations
    /// live there, or whether a spare would accept servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub surveys: bool,
}

/// Secret or ConfigMap in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Kind of the object.
    pub kind: DependencyKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Kind of an object that Karmada propagates with the ZooKeeper object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DependencyKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// Server list of the ensemble: one text for all clusters, since membership belongs to the ensemble and not to a
/// cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Ensemble {
    /// SHA-256, in hexadecimal, of the canonical JSON of this object without `hash`. Agents refuse an object whose hash
    /// differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64))]
    pub hash: Option<String>,
    /// Incarnation of the ensemble, part of the names of all its servers, Services and volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10))]
    pub incarnation: Option<String>,
    /// Number that rises with every change of this object. Of two server lists, agents accept the newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Phase of the ensemble, which decides what its servers may do. Defaults to `Running`.
    #[serde(default, skip_serializing_if = "EnsemblePhase::is_running")]
    pub phase: EnsemblePhase,
    /// Abandoned incarnations. Agents remove what is left of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 10)))]
    pub former_incarnations: Vec<String>,
    /// Certificates of the quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EnsembleTls>,
    /// Highest id that any server ever had. A new server gets a higher one while one is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub highest_id: Option<i32>,
    /// All servers of the ensemble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub servers: Vec<Server>,
    /// Voters of former server lists that may still be part of the ensemble. A joining server contacts them too: if all
    /// listed servers are joining, it knows no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub leaving: Vec<Server>,
    /// Seconds after which a listed voter that does not follow loses its vote, until it follows again. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub demote_after_seconds: Option<i32>,
    /// The list as it arrived, if this version would write it differently: a newer version of mczk wrote it. It is passed
    /// on like this. [`crate::contract::server_list::with_hash`] drops it: a list of this version has only known fields.
    #[serde(skip)]
    #[schemars(skip)]
    pub as_received: Option<Box<serde_json::Value>>,
}

/// Phase of an ensemble, which decides what its servers may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EnsemblePhase {
    /// No quorum has formed yet. Every server starts with exactly this server list, which is frozen.
    Bootstrapping,
    /// A quorum has formed, but some bootstrap clusters have not joined. New servers must sync before they vote.
    Formed,
    /// The ensemble runs. Servers join and leave by reconfiguration.
    #[default]
    Running,
    /// The bootstrap is suspended. Servers report what their volumes hold and do not run ZooKeeper.
    Suspended,
    /// The incarnation is over. No server of its bootstrap ever accepted an epoch.
    Abandoned,
    /// The ensemble is being decommissioned. Agents stop its servers and keep only volumes.
    Decommissioning,
    /// A newer version of mczk wrote the list, and this version cannot read it. It is never written.
    #[serde(skip)]
    #[schemars(skip)]
    Unreadable,
}

impl EnsemblePhase {
    /// True for `Running`, the default, which is not serialized.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_running(&self) -> bool {
        *self == Self::Running
    }

    /// True until every cluster of the bootstrap has joined. The list is frozen only until a quorum has formed.
    #[must_use]
    pub fn is_bootstrap(self) -> bool {
        matches!(self, Self::Bootstrapping | Self::Formed | Self::Suspended | Self::Abandoned)
    }

    /// True if a quorum has formed, so that clusters can join.
    #[must_use]
    pub fn admits_clusters(self) -> bool {
        matches!(self, Self::Formed | Self::Running)
    }

    /// True if the servers' pods run without ZooKeeper.
    #[must_use]
    pub fn is_suspended(self) -> bool {
        matches!(self, Self::Suspended | Self::Abandoned)
    }

    /// True if this version can read the list.
    #[must_use]
    pub fn is_understood(self) -> bool {
        self != Self::Unreadable
    }

    /// True if the servers stop for good.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self, Self::Abandoned | Self::Decommissioning)
    }

    /// The phase that ends this one. A suspended bootstrap stays suspended until its end.
    #[must_use]
    pub fn ended(self) -> Self {
        if self.is_suspended() { Self::Abandoned } else { Self::Decommissioning }
    }
}

impl Ensemble {
    /// All servers of the list, those that leave last.
    pub fn all_servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().chain(&self.leaving)
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Server {
    /// Id of the server, 1 to 254. It is unique in the ensemble and never given to another server.
    #[schemars(range(min = 1, max = 254))]
    pub id: i32,
    /// Cluster of the server.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Ordinal of the server in its StatefulSet. Voters and observers of a cluster are numbered separately.
    #[schemars(range(min = 0, max = 254))]
    pub ordinal: i32,
    /// Host name by which every other server reaches it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Role of the server: `voter` or `observer`.
    pub role: Role,
}

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// The server votes.
    #[serde(rename = "voter")]
    Voter,
    /// The server follows the leader without a vote.
    #[serde(rename = "observer")]
    Observer,
}

/// State of one cluster, as its agent reports it. It holds only values that stay the same while nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooKeeperStatus {
    /// Generation of the object that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Hash of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_spec_hash: Option<String>,
    /// Hash of the spec that is complete: every server of this cluster runs it and has started, and serves if the
    /// ensemble has ever served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_spec_hash: Option<String>,
    /// Server list that the agent follows, as it arrived. The operator recovers the ensemble from it if the control
    /// plane has lost both its own objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<Ensemble>,
    /// Newest epoch that the ensemble itself has stored. Its server list is stored there, and a reconfiguration
    /// followed it, so that no step of an older list can succeed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub published_epoch: Option<i64>,
    /// Quorum certificates that all servers of this cluster have loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble_tls: Option<EnsembleTls>,
    /// Secrets with certificates of the quorum that the server list names and that have been missing in this cluster
    /// for 30 seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)))]
    pub missing_secrets: Vec<String>,
    /// Result of the network check that `spec.preflight` requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightReport>,
    /// Number of servers that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of voters that have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_replicas: Option<i32>,
    /// Number of voters that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// State of every server of this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub servers: Vec<ServerStatus>,
    /// Ids of the voters in ZooKeeper's own configuration, read through a quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voting_members: Vec<i32>,
    /// Ids of voters that have not followed for 20 seconds, by this agent and by the leader's own count. Empty at rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub missing_voters: Vec<i32>,
    /// The volume with which each voter of a bootstrap may vote while it holds nothing. The agent records it before it
    /// lets the server start, so that a server that lost its volume never votes as a new one. Absent after the bootstrap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub first_starts: Vec<FirstStart>,
    /// Version of ZooKeeper's own configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<i64>,
    /// Id of the leader. Present if servers of this cluster follow or lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<i32>,
    /// Bytes of a snapshot of all data, rounded up to a power of 2. Present in the cluster of the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub snapshot_bytes: Option<i64>,
    /// True if a write was committed through this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<bool>,
    /// Volumes that no server uses: of former incarnations, or of servers that have left the ensemble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254), inner(length(max = 253)))]
    pub volumes: Vec<String>,
    /// Size of the smallest volume of this cluster's servers, as their claims show it. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_volume: Option<Quantity>,
    /// Other incarnations of this name that have servers, objects or volumes here, and that neither a server list nor a
    /// tombstone declares over. No first server of the ensemble starts beside them. Absent if the agent is too old to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub other_incarnations: Option<Vec<OtherIncarnation>>,
    /// Uid of the namespace `kube-system` of this cluster, as in `spec.id` of Karmada's Cluster. Another cluster of the same
    /// name has another one. Absent if the agent may not read it, or is too old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub cluster_id: Option<String>,
    /// Conditions such as `Progressing`, `Blocked` and `Decommissioned`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

impl ZooKeeperStatus {
    /// Epoch of the server list that the agent follows.
    #[must_use]
    pub fn epoch(&self) -> Option<i64> {
        self.ensemble.as_ref().and_then(|e| e.epoch)
    }

    /// True unless the status describes another incarnation. A cluster may still report a former incarnation under the
    /// same name.
    #[must_use]
    pub fn may_be_of(&self, incarnation: &str) -> bool {
        self.ensemble.as_ref().and_then(|e| e.incarnation.as_deref()).is_none_or(|reported| reported == incarnation)
    }
}

/// What is left of another incarnation in a member cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherIncarnation {
    /// The incarnation.
    #[schemars(length(max = 63))]
    pub incarnation: String,
    /// Number of its servers' pods.
    #[serde(default)]
    pub servers: i32,
    /// Number of its volumes.
    #[serde(default)]
    pub volumes: i32,
}

/// The first start of a voter in a bootstrap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstStart {
    /// Id of the server.
    pub id: i32,
    /// Identity that the volume gets by this start; `unused-INCARNATION` if the server has certainly not begun.
    #[schemars(length(max = 64))]
    pub volume: String,
}

impl FirstStart {
    /// What the agent records of a server that has not begun: the agent has seen the ensemble before its first quorum.
    #[must_use]
    pub fn unused(id: i32, list: &Ensemble) -> Self {
        Self { id, volume: format!("unused-{}", list.incarnation.as_deref().unwrap_or_default()) }
    }

    /// True if the server has certainly not begun.
    #[must_use]
    pub fn is_unused(&self, list: &Ensemble) -> bool {
        *self == Self::unused(self.id, list)
    }
}

/// [`ServerStatus::mode`] of a server whose pod runs without ZooKeeper, as the server list demands.
pub const SUSPENDED: &str = "suspended";

/// [`ServerStatus::mode`] of a server that its agent cannot ask. It may serve.
pub const UNKNOWN_MODE: &str = "unknown";

/// State of one server, as its agent observes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Id of the server.
    pub id: i32,
    /// Pod of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Mode of the server: `leader`, `follower`, `observer`, `looking`, `unknown` if it runs and does not answer, or
    /// `suspended` if its pod runs without ZooKeeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Version of ZooKeeper that the server runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// True if the server serves sessions.
    #[serde(default)]
    pub serving: bool,
    /// True if the server's data is at most a bounded number of transactions behind.
    #[serde(default)]
    pub synced: bool,
    /// Accepted epoch on the volume: above 0 once a quorum has formed with this server. For a suspended server it is
    /// the current value. For another server that cannot be reached it is the last known value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_epoch: Option<i64>,
    /// Identity of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// True if the volume from which this id voted is gone or an old copy. The server then needs a new id.
    #[serde(default)]
    pub lost: bool,
    /// Folders of the volume with former data, oldest first. The server keeps the last three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)))]
    pub set_aside: Vec<String>,
}

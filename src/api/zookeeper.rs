//! `ZooKeeper`: the template in the control plane, and the object in each member cluster.
//!
//! No field has a default in the CRD: a member with a newer CRD would change the object, and its pin would not hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    multiclusterzookeeper::{ClusterOverride, Observers},
    network::Names,
    pod::ServerTemplate,
    tls::{EnsembleTls, ServerTls},
};

/// The servers of one member cluster; in the control plane, the template of all of them.
///
/// Written by the operator alone: a change by hand is taken back, and a member's object without `ensemble` is refused.
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
    doc = "The servers of one member cluster; in the control plane, the template of all of them. Written by the operator of MultiClusterZooKeeper alone.",
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
    /// Voters of this cluster; in the template, the number that Karmada divides. A change adds or removes servers, after
    /// the ensemble's own configuration has.
    #[schemars(range(min = 0, max = 254))]
    pub replicas: i32,
    /// Observers of this cluster. A change adds or removes servers without a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 254))]
    pub observers: Option<i32>,
    /// Karmada's name of the cluster that this is meant for. An agent that finds another name than its own, or none,
    /// changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 48))]
    pub cluster: Option<String>,
    /// How a server's pod looks. A change rolls servers.
    pub template: ServerTemplate,
    /// How the pod part is turned into objects: rises when a version of mczk renders it differently. A change rolls
    /// servers.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub render_version: i32,
    /// Image of mczk itself, from which the servers' parent process comes. A change rolls servers.
    #[schemars(length(min = 1, max = 512))]
    pub server_image: String,
    /// Encryption. A change of `client` rolls servers.
    pub tls: ServerTls,
    /// Hash of the pod part: template, renderVersion, serverImage and tls.
    #[schemars(length(min = 1, max = 64))]
    pub revision: String,
    /// Addresses from which servers of other clusters come; any if empty. A change is only metadata.
    #[serde(default, rename = "peerCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 49)))]
    pub peer_cidrs: Vec<String>,
    /// How often this cluster was given another spec, a hyphen, and the SHA-256, in hexadecimal, of the canonical JSON of
    /// that number and of this spec without `pin`, `ensemble` and `dependencies`; absent in the template. What a member
    /// reports as done is told by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 66, max = 84))]
    pub spec_hash: Option<String>,
    /// Secrets and ConfigMaps that travel with the object. A change is only metadata.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub dependencies: Vec<Dependency>,
    /// In the template only, what the spec of each cluster is made from besides the template; absent in members. A change
    /// is only metadata by itself: the clusters' own specs carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The ensemble that the servers belong to. A change changes membership. Empty: the agent changes nothing at all.
    pub ensemble: Ensemble,
}

/// What the spec of each cluster is made from. It stands in the template, so that a rollout which began goes on with what it
/// began with, and so that a change of it raises the template's generation like any other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Observers by cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub observers: Vec<Observers>,
    /// What differs in single clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub overrides: Vec<ClusterOverride>,
    /// How servers are named over clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
}

/// A Secret or ConfigMap in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Which kind of object.
    pub kind: DependencyKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The kinds that may travel with the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DependencyKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// The ensemble: one text for all clusters at once, since membership belongs to the ensemble and not to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ensemble {
    /// SHA-256, in hexadecimal, of the canonical JSON of this object without `hash`. An agent that computes another one
    /// accepts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64))]
    pub hash: Option<String>,
    /// Which life of the ensemble this is; part of the names of all its servers, services and volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10))]
    pub incarnation: Option<String>,
    /// Rises with every change of this object. Of two, agents obey the newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Phase of the ensemble. `Running` if absent.
    #[serde(default, skip_serializing_if = "EnsemblePhase::is_running")]
    pub phase: EnsemblePhase,
    /// Former lives that were given up: what is left of them is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 10)))]
    pub former_incarnations: Vec<String>,
    /// Certificates of the quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EnsembleTls>,
    /// The highest id that was ever given to a server: a new one gets a higher one as long as there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub highest_id: Option<i32>,
    /// Every server of the ensemble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub servers: Vec<Server>,
    /// Voters of former lists that may still be of the ensemble: whoever joins asks them too, and knows nobody else where all
    /// servers of the list are to join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub leaving: Vec<Server>,
}

/// Phase of an ensemble: what its servers may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EnsemblePhase {
    /// No quorum has formed yet: every server starts with this very server list, which is frozen.
    Bootstrapping,
    /// A quorum has formed, but some bootstrap clusters have not joined. The server list stays frozen. New servers must sync
    /// before they vote.
    Formed,
    /// The ensemble runs. Servers join and leave by reconfiguration.
    #[default]
    Running,
    /// The bootstrap is suspended: servers only report what their volumes hold, and do not run ZooKeeper.
    Suspended,
    /// This incarnation is over: no server of its bootstrap ever accepted an epoch.
    Abandoned,
    /// The ensemble is being decommissioned: agents stop its servers and keep only volumes.
    Decommissioning,
}

impl EnsemblePhase {
    /// True for `Running`, the default, which is not serialized.
    #[must_use]
    pub fn is_running(&self) -> bool {
        *self == Self::Running
    }

    /// True if the server list is the frozen list of a bootstrap.
    #[must_use]
    pub fn is_bootstrap(self) -> bool {
        matches!(self, Self::Bootstrapping | Self::Formed | Self::Suspended | Self::Abandoned)
    }

    /// True if the servers' pods run without ZooKeeper.
    #[must_use]
    pub fn is_suspended(self) -> bool {
        matches!(self, Self::Suspended | Self::Abandoned)
    }

    /// True if the servers stop for good.
    #[must_use]
    pub fn is_ending(self) -> bool {
        matches!(self, Self::Abandoned | Self::Decommissioning)
    }

    /// The phase in which this one ends. A suspended bootstrap stays suspended until its end.
    #[must_use]
    pub fn ended(self) -> Self {
        if self.is_suspended() { Self::Abandoned } else { Self::Decommissioning }
    }
}

impl Ensemble {
    /// Every server that a list knows of, those that leave last.
    pub fn all_servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().chain(&self.leaving)
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Its id, 1 to 254, unique in the ensemble, never another server's.
    #[schemars(range(min = 1, max = 254))]
    pub id: i32,
    /// Its cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Its number in its StatefulSet: voters and observers of a cluster are counted apart.
    #[schemars(range(min = 0, max = 254))]
    pub ordinal: i32,
    /// The name under which every other server reaches it.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Whether it votes.
    pub role: Role,
}

/// Whether a server votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// It votes.
    #[serde(rename = "voter")]
    Voter,
    /// It follows without a vote.
    #[serde(rename = "observer")]
    Observer,
}

/// What an agent reports of its cluster. It holds only what is stable while nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooKeeperStatus {
    /// Generation of the object that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pin of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_spec_hash: Option<String>,
    /// Pin that is done: every server of this cluster runs it and was started, and serves if the ensemble ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_spec_hash: Option<String>,
    /// The list of servers that is obeyed, as it arrived: by it the control plane finds the ensemble again, should it ever
    /// have lost both its own objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<Ensemble>,
    /// Newest epoch that the ensemble itself is known to have taken: its list is kept there, and a reconfiguration came after
    /// it, so that no step of an older list can succeed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub published_epoch: Option<i64>,
    /// Certificates that all servers of this cluster have loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble_tls: Option<EnsembleTls>,
    /// Servers that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Voters that were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_replicas: Option<i32>,
    /// Voters that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Every server of this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub servers: Vec<ServerStatus>,
    /// Ids of the voters in ZooKeeper's own configuration, read through a quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voting_members: Vec<i32>,
    /// Version of that configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<i64>,
    /// Id of the leader, if this cluster's servers follow or lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<i32>,
    /// Whether a write was committed through this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<bool>,
    /// Volumes of former lives of the ensemble, or of servers that left it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254), inner(length(max = 253)))]
    pub volumes: Vec<String>,
    /// `Progressing`, `Blocked`, `Dissolved` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

impl ZooKeeperStatus {
    /// Epoch of the list of servers that is obeyed.
    #[must_use]
    pub fn epoch(&self) -> Option<i64> {
        self.ensemble.as_ref().and_then(|e| e.epoch)
    }

    /// Whether it may speak of this life. What a cluster still tells of a former one, under the same name, says nothing of it.
    #[must_use]
    pub fn may_be_of(&self, life: &str) -> bool {
        self.ensemble.as_ref().and_then(|e| e.incarnation.as_deref()).is_none_or(|told| told == life)
    }
}

/// [`ServerStatus::mode`] of a server whose pod runs without `ZooKeeper`, as the list says.
pub const SUSPENDED: &str = "suspended";

/// One server, as its agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Its id.
    pub id: i32,
    /// Its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// `leader`, `follower`, `observer`, `looking`, or `parked` if its pod runs without ZooKeeper, as the list says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether it serves sessions.
    #[serde(default)]
    pub serving: bool,
    /// Whether its data is at most a bounded number of transactions behind.
    #[serde(default)]
    pub synced: bool,
    /// Accepted epoch on its volume: above 0 once a quorum formed with it. Of one that is parked it is what the volume holds
    /// now; of another that cannot be asked, what was known last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_epoch: Option<i64>,
    /// Identity of its volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Whether the volume that this id voted from is gone: it needs a new id.
    #[serde(default)]
    pub lost: bool,
}

//! `MultiClusterZooKeeper`: one ensemble over many clusters, as a person declares it and as its status tells it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    network::Network,
    placement::Placement,
    pod::{Resources, ServerTemplate, Toleration, ZooCfgEntry},
    tls::{EnsembleTls, Tls},
};

/// One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "mczk.io",
    version = "v1alpha1",
    kind = "MultiClusterZooKeeper",
    plural = "multiclusterzookeepers",
    shortname = "mczk",
    category = "mczk-io",
    namespaced,
    status = "MultiClusterZooKeeperStatus",
    derive = "PartialEq",
    doc = "One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation.",
    validation = Rule::new("size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label of at most 40 characters that starts with a letter: servers are named after it"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".spec.replicas", description = "Voters that are wanted"),
    printcolumn(name = "SERVING", type_ = "integer", json_path = ".status.readyReplicas", description = "Voters that serve"),
    printcolumn(name = "ROLLOUT", type_ = "string", json_path = ".status.rollout", description = "Where the last record stands"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether the ensemble is as declared and serves"),
    printcolumn(name = "QUORUMSAFE", type_ = "string", json_path = ".status.conditions[?(@.type==\"QuorumSafe\")].status", description = "Whether it survives the loss of any one cluster", priority = 1),
    printcolumn(name = "LEADER", type_ = "string", json_path = ".status.ensemble.leader.cluster", description = "Cluster of the leader", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.replicas + (has(self.observers) ? self.observers.map(o, o.count).sum() : 0) <= 254")
        .message("replicas and observers together can be at most 254: ZooKeeper's server ids are 1 to 254"),
    validation = Rule::new("has(self.network) == has(oldSelf.network)")
        .message("network cannot be added or removed: servers are known by the names that it gives them")
)]
pub struct MultiClusterZooKeeperSpec {
    /// Voters. With a Divided placement the total, with a Duplicated one the number of each selected cluster. A change
    /// changes membership; no server restarts. Prefer an odd number: an even one is accepted and reported.
    #[schemars(range(min = 1, max = 99))]
    pub replicas: i32,
    /// Observers by cluster: servers without a vote, for reading nearby. A change changes membership without changing the
    /// quorum. A cluster with observers must also have a voter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub observers: Vec<Observers>,
    /// Which clusters hold voters, and how many each; every cluster with equal weights if absent. A change may change
    /// membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// How a server's pod looks. A change rolls servers, unless its field says otherwise.
    pub template: ServerTemplate,
    /// How servers find each other over clusters. Present from creation or never: adding or removing it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Encryption. A change of `quorum` is refused, one of `client` rolls servers.
    #[serde(default)]
    pub tls: Tls,
    /// How changes travel over the clusters. A change of any field is only metadata: it rolls nothing by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What differs in single clusters. A change rolls the servers of those clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub overrides: Vec<ClusterOverride>,
    /// How many records of rollouts the status keeps, the current one included; 10 if absent. Only metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub record_history_limit: Option<i32>,
}

/// Observers of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observers {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// How many observers. A change changes membership without changing the quorum.
    #[schemars(range(min = 1, max = 99))]
    pub count: i32,
}

/// How changes travel over the clusters. A change of any field is only metadata: it rolls nothing by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.order) && self.order == 'Listed') == (has(self.clusters) && size(self.clusters) > 0)")
    .message("clusters is for order Listed, and needed there"))]
pub struct Rollout {
    /// `Scheduled` (the default): as Karmada's scheduler lists the clusters, later unhealthy ones first and the leader's
    /// last. `Listed`: as `clusters` lists them, others after them. It takes effect with the next record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<RolloutOrder>,
    /// The order in case of `Listed`. It takes effect with the next record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub clusters: Vec<String>,
    /// Seconds for which a cluster must have been complete before the next one begins; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub hold_seconds: Option<i32>,
    /// Seconds after which a cluster that is not complete counts as stuck; 600 if absent. A stuck cluster is reported, and
    /// a newer generation may then supersede the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: Option<i32>,
    /// What happens when a cluster that is due cannot be reached: `Pause` (the default) waits for it, `Continue` leaves it
    /// out; it gets a record of its own when it is back. A cluster that can be reached and fails always pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Whether the rollout rests: no further cluster begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// In which order clusters are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutOrder {
    /// As scheduled.
    Scheduled,
    /// As listed.
    Listed,
}

/// What happens when a cluster cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The rollout waits.
    Pause,
    /// The rollout leaves the cluster out.
    Continue,
}

/// What differs in one cluster. A change of any field rolls the servers of that cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOverride {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Instead of `template.image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Instead of `template.resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Instead of `template.storage.storageClassName`. It counts from when the cluster gets its first server: servers that
    /// are there, and those that join them, keep the class of their volumes until the cluster has none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Instead of `template.scheduling.nodeSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Instead of `template.scheduling.tolerations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Besides `template.zooCfg`; an entry of the same name replaces the one there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// After `template.jvmFlags`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub jvm_flags: Vec<String>,
}

/// What the controller knows of the ensemble. It holds only what is stable while nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiClusterZooKeeperStatus {
    /// Generation of the object that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Progressing`, `Degraded`, `QuorumSafe`, `Scheduled`, `Paused`; all from the first visit on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// Records of rollouts, oldest first. The last one is the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub records: Vec<Record>,
    /// The last record in a few words: `Deploying m2 (1/3)` or `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// What is wanted and seen in each cluster, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub clusters: Vec<ClusterStatus>,
    /// What is known of the ensemble as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleStatus>,
    /// Voters that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Voters that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Label selector of the servers' pods, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// One rollout over the clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The generations that are rolled out.
    pub observed_generations: ObservedGenerations,
    /// The clusters, in the order in which they are changed.
    #[schemars(length(max = 256))]
    pub order: Vec<String>,
    /// Whether all clusters are done.
    pub status: RecordStatus,
    /// Where each cluster stands.
    pub current_state: CurrentState,
    /// When the record last changed.
    pub last_transition_time: Time,
}

/// The generations that a record rolls out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ObservedGenerations {
    /// Of the MultiClusterZooKeeper.
    pub multiclusterzookeeper: i64,
    /// Of the ZooKeeper template in the control plane.
    pub zookeeper: i64,
}

/// Whether a record is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordStatus {
    /// Some cluster is not done.
    Deploying,
    /// All clusters are done.
    Ready,
}

/// Where each cluster of a record stands. Every cluster of `order` is in exactly one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
pub struct CurrentState {
    /// Not begun, in the order to come.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub pending: Vec<String>,
    /// Being changed: at most one.
    #[serde(default)]
    #[schemars(length(max = 1))]
    pub deploying: Vec<String>,
    /// Done.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub completed: Vec<String>,
}

/// What is wanted and seen in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Karmada's name of the cluster.
    pub name: String,
    /// Voters that are wanted there.
    #[serde(default)]
    pub desired: i32,
    /// Servers that were started there.
    #[serde(default)]
    pub started: i32,
    /// Servers that serve there.
    #[serde(default)]
    pub serving: i32,
    /// Revision of the pod part that the cluster was told to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Pin that the cluster was told to run; complete when its agent reports it as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 84))]
    pub spec_hash: Option<String>,
    /// Ids of the voters that are wanted there, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voters: Vec<i32>,
    /// Ids of the observers that are wanted there, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub observers: Vec<i32>,
    /// Whether it is complete.
    #[serde(default)]
    pub ready: bool,
    /// Since when it is complete without interruption, while `rollout.holdSeconds` is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_since: Option<Time>,
    /// Whether the cluster has ever reported our own object: from then on Karmada may overwrite it.
    #[serde(default)]
    pub reported: bool,
    /// What it waits for, if it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// What is known of the ensemble as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// Which life of the ensemble this is; part of all its servers' names.
    pub incarnation: String,
    /// Rises with every change of the list of servers.
    pub epoch: i64,
    /// Hash of the list of servers, by which it is known again when the OverridePolicy that holds it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub hash: Option<String>,
    /// The highest id that was ever given to a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_id: Option<i32>,
    /// The Secrets with the certificates of the quorum that the list names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EnsembleTls>,
    /// Whether a quorum has ever formed. Until then the list of servers is frozen.
    #[serde(default)]
    pub formed: bool,
    /// Ids of the voters in ZooKeeper's own configuration, as a quorum reported it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voters: Vec<i32>,
    /// The server that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderStatus>,
    /// Where clients find the servers, as HOST:PORT, by the names that servers have for each other. Joined by commas they are
    /// a connection string over all clusters. While client TLS is an option, the port is the plain one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub endpoints: Vec<String>,
}

/// The server that leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// Its id.
    pub id: i32,
    /// Its cluster.
    pub cluster: String,
}

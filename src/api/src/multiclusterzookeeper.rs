//! `MultiClusterZooKeeper`: one ensemble over many clusters, as the user declares it and as its status reports it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    network::Network,
    placement::Placement,
    pod::{KEYS, KEYS_MESSAGE, Resources, ServerTemplate, Toleration, ZooCfgEntry},
    quantity::Quantity,
    setting_rules,
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
    // Here and not at the field, because only the object has a status.
    validation = Rule::new("quantity(string(self.spec.template.storage.size)).compareTo(quantity(string(oldSelf.spec.template.storage.size))) >= 0 || (has(self.status) && has(self.status.smallestVolume) && quantity(string(self.spec.template.storage.size)).compareTo(quantity(string(self.status.smallestVolume))) >= 0)")
        .message("spec.template.storage.size can only grow, or go back to status.smallestVolume: Kubernetes cannot shrink a volume"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".spec.replicas", description = "Desired number of voters"),
    printcolumn(name = "SERVING", type_ = "integer", json_path = ".status.readyReplicas", description = "Number of voters that serve"),
    printcolumn(name = "ROLLOUT", type_ = "string", json_path = ".status.rollout", description = "Progress of the current record"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "True if the ensemble is as declared and serves"),
    printcolumn(name = "QUORUMSAFE", type_ = "string", json_path = ".status.conditions[?(@.type==\"QuorumSafe\")].status", description = "True if the ensemble survives the loss of any one cluster", priority = 1),
    printcolumn(name = "LEADER", type_ = "string", json_path = ".status.ensemble.leader.cluster", description = "Cluster of the leader", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.replicas + (has(self.observers) ? self.observers.map(o, o.count).sum() : 0) <= 254")
        .message("replicas and observers together can be at most 254: ZooKeeper's server ids are 1 to 254"),
    validation = Rule::new("has(self.network) == has(oldSelf.network) || (has(self.network) && self.network.mode == 'MCS' && !has(self.network.clusterIds) && !has(self.network.clusterDomain))")
        .message("network cannot be added or removed: it determines the names of servers. Later you can add it in mode MCS, without clusterIds and clusterDomain"),
    validation = Rule::new("!has(self.failover) || !has(self.failover.spares) || !has(self.placement) || !has(self.placement.clusterAffinity) || !has(self.placement.clusterAffinity.clusterNames) || !self.failover.spares.exists(spare, spare in self.placement.clusterAffinity.clusterNames)")
        .message("failover.spares names a cluster of placement.clusterAffinity.clusterNames: a spare holds no voters of its own. Remove it from one of the two"),
    validation = Rule::new("!has(self.failover) || !has(self.failover.spares) || !has(self.network) || !has(self.network.importClusters) || !self.failover.spares.exists(spare, spare in self.network.importClusters)")
        .message("failover.spares names a cluster of network.importClusters, which holds no servers: remove it from one of the two")
)]
pub struct MultiClusterZooKeeperSpec {
    /// Number of voters: in total with a Divided placement, in each selected cluster with a Duplicated one. Prefer an
    /// odd number; an even number is accepted and reported. A change changes membership and restarts no server.
    #[schemars(range(min = 1, max = 99))]
    pub replicas: i32,
    /// Observers by cluster: servers without a vote, which serve reads nearby. A cluster with observers must also have
    /// a voter. Defaults to none. A change changes membership but not the quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub observers: Vec<Observers>,
    /// Clusters that hold voters, and the number of voters in each. Defaults to every cluster, with equal weights. A
    /// change may change membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Pod and volume of a server. A change restarts servers, cluster by cluster, unless the field says otherwise.
    #[schemars(transform = setting_rules::of_changes)]
    pub template: ServerTemplate,
    /// Names by which servers reach each other across clusters. Defaults to mode MCS. Set it at creation:
    /// later it can be added only in mode MCS without `clusterIds` and `clusterDomain`, and removing it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Encryption between servers and towards clients. Defaults to an encrypted quorum and plain clients. `quorum` is
    /// immutable; a change of `client` restarts servers.
    #[serde(default)]
    pub tls: Tls,
    /// Order and pace of rollouts over the clusters. A change of any field restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What happens when servers are lost, and where voters may move. Defaults to nothing. A change of any field restarts no
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// Differences of single clusters. Defaults to none. A change restarts the servers of those clusters, but one of
    /// `storageClassName` alone restarts none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub overrides: Vec<ClusterOverride>,
    /// Number of rollout records that the status keeps, the current one included. Defaults to 10. A change restarts no
    /// server.
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
    /// Number of observers. A change changes membership but not the quorum.
    #[schemars(range(min = 1, max = 99))]
    pub count: i32,
}

/// What happens when servers are lost, and where voters may move. A change of any field restarts no server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(!has(self.moveAfterSeconds) && !has(self.moveBackAfterSeconds)) || (has(self.spares) && size(self.spares) > 0)")
    .message("moveAfterSeconds and moveBackAfterSeconds need spares: name the clusters that may hold the voters"))]
pub struct Failover {
    /// Seconds after which voters that do not follow lose their votes, if fewer make a majority without all of them. Each
    /// gets its vote back, with its id and its volume, once it follows. Defaults to never. A change restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub demote_after_seconds: Option<i32>,
    /// Clusters that may hold the voters of another one, in order of preference. `placement` selects none of them. Defaults to
    /// none. A change moves no voter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub spares: Vec<String>,
    /// Seconds after which the voters of a lost cluster move to a spare. A cluster is lost while Karmada does not reach it, or sees no
    /// Ready node there, and none of its voters follows. Defaults to never: then only the annotation `mczk.io/failover` moves voters. A change restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub move_after_seconds: Option<i32>,
    /// Seconds for which a cluster whose voters are at a spare must be Ready before they move back. Defaults to never: then only
    /// the annotation `mczk.io/failover` moves them back. A change restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86400))]
    pub move_back_after_seconds: Option<i32>,
}

/// Order and pace of rollouts over the clusters. A change of any field restarts no server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.order) && self.order == 'Listed') == (has(self.clusters) && size(self.clusters) > 0)")
    .message("clusters is required with order Listed, and refused with any other order"))]
pub struct Rollout {
    /// Order in which clusters are changed. `Scheduled` follows the order of Karmada's scheduler, and in later records
    /// puts unhealthy clusters first and the leader's cluster last. `Listed` follows `clusters`, then all other
    /// clusters. Defaults to `Scheduled`. A change takes effect with the next record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<RolloutOrder>,
    /// Clusters in the order in which they are changed. Required with order `Listed`, refused otherwise. A change takes
    /// effect with the next record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub clusters: Vec<String>,
    /// Seconds for which a cluster must stay complete before the next cluster starts. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub hold_seconds: Option<i32>,
    /// Seconds after which `Progressing` reports an incomplete cluster as `ProgressDeadlineExceeded`. A newer generation
    /// may then supersede the record. Defaults to 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: Option<i32>,
    /// Reaction to an unreachable cluster whose position in the rollout has come. `Pause` changes the reachable
    /// clusters first, then waits. `Continue` leaves the cluster out if another one is complete, and gives it a record of
    /// its own once it is reachable again. A reachable cluster that fails always pauses the rollout. Defaults to `Pause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// True if the rollout is paused: no further cluster starts. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Order in which clusters are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutOrder {
    /// The order of Karmada's scheduler.
    Scheduled,
    /// The order of the field `clusters`.
    Listed,
}

/// Reaction to an unreachable cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The rollout waits for the cluster.
    Pause,
    /// The rollout leaves the cluster out.
    Continue,
}

/// Differences of one cluster. A change of any field but `storageClassName` restarts the servers of that cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOverride {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Image in place of `template.image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// Resources in place of `template.resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Storage class in place of `template.storage.storageClassName`. It takes effect when the cluster receives its
    /// first server. Existing servers, and servers that join them, keep the class of their volumes until the cluster
    /// has no server left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = super::schema::SUBDOMAIN))]
    pub storage_class_name: Option<String>,
    /// Node selector in place of `template.scheduling.nodeSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("additionalProperties" = super::schema::label_value()))]
    #[x_kube(validation = Rule::new(KEYS).message(KEYS_MESSAGE))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations in place of `template.scheduling.tolerations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Settings in addition to `template.zooCfg`. An entry replaces the entry of the same name there. Settings that must
    /// be equal in all clusters are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = setting_rules::of_one_cluster()))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// Flags appended to `template.jvmFlags`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)), transform = setting_rules::of_flags)]
    pub jvm_flags: Vec<String>,
}

/// Last observed state of the ensemble. It holds only values that stay the same while nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiClusterZooKeeperStatus {
    /// Generation of the object that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions `Ready`, `Progressing`, `Degraded`, `QuorumSafe`, `FailedOver`, `Scheduled`, `UnsafeVersion`, `UntestedVersion`, `Paused` and
    /// `CertificatesExpire`. All are present from the first reconcile on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// Records of rollouts, oldest first. The last record is the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub records: Vec<Record>,
    /// Summary of the current record, such as `Deploying m2 (1/3)` or `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// Desired and observed state of each cluster, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub clusters: Vec<ClusterStatus>,
    /// Observed state of the ensemble as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleStatus>,
    /// Number of servers that exist, with observers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of voters that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Size of the smallest volume of all servers. Absent while a cluster with servers does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_volume: Option<Quantity>,
    /// Label selector of the servers' pods, as text. Autoscalers read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// One rollout over the clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Generations that the record rolls out.
    pub observed_generations: ObservedGenerations,
    /// Clusters in the order in which they are changed.
    #[schemars(length(max = 256))]
    pub order: Vec<String>,
    /// Progress of the record: `Ready` once all clusters are complete, `Deploying` before, and `Superseded` if a newer record
    /// took over before that.
    pub status: RecordStatus,
    /// Progress of each cluster.
    pub current_state: CurrentState,
    /// Time of the last change of the record.
    pub last_transition_time: Time,
}

/// Generations that a record rolls out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ObservedGenerations {
    /// Generation of the MultiClusterZooKeeper.
    pub multiclusterzookeeper: i64,
    /// Generation of the ZooKeeper template in the control plane.
    pub zookeeper: i64,
}

/// Progress of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordStatus {
    /// Some cluster is not complete.
    Deploying,
    /// All clusters are complete.
    Ready,
    /// A newer record took over before all clusters were complete. `currentState` shows how far it came.
    Superseded,
}

/// Progress of each cluster of a record. Every cluster of `order` is in exactly one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
pub struct CurrentState {
    /// Clusters that have not started, in the order in which they will.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub pending: Vec<String>,
    /// The cluster that is being changed: at most one.
    #[serde(default)]
    #[schemars(length(max = 1))]
    pub deploying: Vec<String>,
    /// Clusters that are complete.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub completed: Vec<String>,
}

/// Desired and observed state of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Karmada's name of the cluster.
    pub name: String,
    /// Number of voters in the spec that the operator sent to the cluster.
    #[serde(default)]
    pub desired: i32,
    /// Number of voters that have started.
    #[serde(default)]
    pub started: i32,
    /// Number of voters that serve.
    #[serde(default)]
    pub serving: i32,
    /// Revision of the pod part of the spec that the operator sent to the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Hash of the spec that the operator sent to the cluster. The cluster is complete once its agent reports this hash
    /// as completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 84))]
    pub spec_hash: Option<String>,
    /// Ids of the desired voters, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voters: Vec<i32>,
    /// Ids of the desired observers, by ordinal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub observers: Vec<i32>,
    /// True if the cluster is complete and has its newest spec.
    #[serde(default)]
    pub ready: bool,
    /// Time since which `ready` has been true without interruption. `rollout.holdSeconds` starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_since: Option<Time>,
    /// True once the cluster has reported the operator's own object. From then on Karmada may overwrite that object.
    #[serde(default)]
    pub reported: bool,
    /// The spare that holds the voters of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 48))]
    pub moved_to: Option<String>,
    /// Time at which the operator decided the place of the voters, while they are at a spare or on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_since: Option<Time>,
    /// Time since which Karmada has not reached the cluster, and none of its voters has followed. `failover.moveAfterSeconds`
    /// starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<Time>,
    /// Time since which the cluster has been Ready, while its voters are at a spare. `failover.moveBackAfterSeconds` starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Time>,
    /// What the cluster waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// Observed state of the ensemble as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleStatus {
    /// Incarnation of the ensemble, part of the names of all its servers.
    pub incarnation: String,
    /// Number that rises with every change of the server list.
    pub epoch: i64,
    /// Hash of the server list. The operator recognizes the list by it after a loss of the OverridePolicy that holds
    /// the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub hash: Option<String>,
    /// Highest id that any server ever had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_id: Option<i32>,
    /// Secrets with the certificates of the quorum, as in the server list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EnsembleTls>,
    /// True once a quorum has formed. Until then the server list is frozen.
    #[serde(default)]
    pub formed: bool,
    /// Ids of the voters in ZooKeeper's own configuration, as a quorum reported it last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub voters: Vec<i32>,
    /// Ids of listed voters that have lost their vote because they do not follow. Each gets it again once it follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 254))]
    pub demoted: Vec<i32>,
    /// Leader of the ensemble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderStatus>,
    /// Addresses of the servers for clients, as HOST:PORT, with the names that servers use for each other. Joined by
    /// commas, they are a connection string over all clusters. If client TLS is optional, the port is the plain one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub endpoints: Vec<String>,
}

/// Leader of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// Id of the server.
    pub id: i32,
    /// Cluster of the server.
    pub cluster: String,
}

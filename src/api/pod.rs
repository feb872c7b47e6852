//! The pod part: what a server's pod looks like. It is the same in both kinds, and its hash is the revision.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::quantity::Quantity;

/// How a server's pod looks. A change of any field rolls the servers, cluster after cluster, unless the field says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerTemplate {
    /// Image of ZooKeeper 3.9 or later, laid out like the official one. A change rolls servers.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// When the kubelet pulls the image. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Names of Secrets in the same namespace that hold registry credentials; they travel to the member clusters with
    /// the object. A change rolls servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub image_pull_secrets: Vec<String>,
    /// Processor time and memory of a server. The Java heap follows the memory limit. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// The data volume of a server. Its size can grow; a change of what the volumes are made of is refused.
    pub storage: Storage,
    /// Settings of `zoo.cfg`. A change rolls servers. Settings that the operator owns are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// Further flags of the Java virtual machine, in this order. A change rolls servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub jvm_flags: Vec<String>,
    /// Where pods may run. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Labels and annotations of the pods. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PodMetadata>,
}

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never: it must be on the node.
    Never,
}

/// Requests and limits of a container, by resource name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside. A change rolls servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container cannot exceed. A change rolls servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// The data volume of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
        .message("storageClassName cannot change while volumes of the old class exist: make a new MultiClusterZooKeeper, or set storageClassName in overrides for clusters that have no servers yet"),
    validation = Rule::new("quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0")
        .message("size can only grow: Kubernetes cannot shrink a volume")
)]
pub struct Storage {
    /// Size of the volume. It may grow: volumes are then expanded in turn, where the storage class allows it; a smaller
    /// size is refused.
    pub size: Quantity,
    /// Storage class of the volume; the cluster's default class if absent. A change is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// What happens to volumes when the MultiClusterZooKeeper is deleted: kept (the default) or deleted. A change is
    /// only metadata: no server restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
}

/// What happens to a volume that is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reclaim {
    /// It is kept, labelled and listed in the status.
    Retain,
    /// It is deleted.
    Delete,
}

/// One setting of `zoo.cfg`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooCfgEntry {
    /// Its name, as in ZooKeeper's administrator's guide.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z][A-Za-z0-9._-]*$"))]
    #[x_kube(validation = Rule::new("!(self in ['ssl.clientAuth','dataDir','dataLogDir','clientPort','clientPortAddress','secureClientPort','secureClientPortAddress','dynamicConfigFile','reconfigEnabled','standaloneEnabled','skipACL','sslQuorum','sslQuorumReloadCertFiles','portUnification','client.portUnification','client.certReload','serverCnxnFactory','quorumListenOnAllIPs','4lw.commands.whitelist','admin.enableServer','admin.serverPort','peerType','version','db.autocreate','DigestAuthenticationProvider.superDigest','metricsProvider.httpPort','electionAlg','forceSync','leaderServes','oraclePath','localSessionsEnabled','localSessionsUpgradingEnabled','snapshot.trust.empty','enforce.auth.enabled','enforce.auth.schemes','sessionRequireClientSASLAuth','DigestAuthenticationProvider.enabled','DigestAuthenticationProvider.digestAlg']) && !self.startsWith('zookeeper.') && !self.startsWith('server.') && !self.startsWith('group.') && !self.startsWith('weight.') && !self.startsWith('ssl.quorum.') && !self.startsWith('ssl.keyStore.') && !self.startsWith('ssl.trustStore.')")
        .message("this setting is the operator's own, or has the prefix of a Java property; remove it from zooCfg, or its prefix"))]
    pub name: String,
    /// Its value, without line breaks.
    #[schemars(length(max = 1024), regex(pattern = r"^[^\n\r]*$"))]
    pub value: String,
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have. A change rolls servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods accept. A change rolls servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Kubernetes' affinity, as in a pod. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::free_object")]
    pub affinity: Option<Map<String, Value>>,
    /// Priority class of the pods. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// A toleration, as in a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint; all taints if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316))]
    pub key: Option<String>,
    /// `Equal` (the default) or `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint; all effects if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// For how many seconds a `NoExecute` taint is tolerated; without end if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Of every taint with this effect, without end.
    #[must_use]
    pub fn of_all(effect: TaintEffect) -> Self {
        Self { operator: Some(TolerationOperator::Exists), effect: Some(effect), ..Self::default() }
    }
}

/// How a toleration compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    Equal,
    /// The key exists.
    Exists,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is scheduled.
    NoSchedule,
    /// New things are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// What runs is evicted.
    NoExecute,
}

/// Labels and annotations of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Labels. Those below `mczk.io/` are the operator's. A change rolls servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('mczk.io/'))").message("labels below mczk.io/ are the operator's own; remove them"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations. A change rolls servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('mczk.io/'))").message("annotations below mczk.io/ are the operator's own; remove them"))]
    pub annotations: BTreeMap<String, String>,
}

//! The pod part: what the pod of a server is made from. Both kinds share it, and its hash is the revision.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{quantity::Quantity, setting_rules};

/// Rule for the keys of labels, annotations and node selectors.
pub(super) const KEYS: &str = r"self.all(k, size(k) <= 316 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))";
pub(super) const KEYS_MESSAGE: &str =
    "a key is a name of at most 63 letters, digits, '-', '_' and '.', with a prefix such as example.org/ if need be";

/// Pod and volume of a server. A change of any field restarts servers, cluster by cluster, unless the field says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerTemplate {
    /// Image of ZooKeeper 3.9, with the layout of the official image. Use a tested version. A change restarts servers.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: String,
    /// Time at which the kubelet pulls the image. Defaults to `Always` for the tag `latest`, and to `IfNotPresent` for
    /// others. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Names of Secrets in the same namespace with registry credentials. Karmada propagates them to the member clusters
    /// with the object. A change restarts servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        inner(length(min = 1, max = 253), regex(pattern = super::schema::SUBDOMAIN))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub image_pull_secrets: Vec<String>,
    /// CPU and memory of a server. The Java heap follows the memory limit. Defaults to a memory request and limit of
    /// `1Gi`; `{}` sets none. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Data volume of a server. `size` and `reclaim` can change; another class is refused.
    pub storage: Storage,
    /// Settings of `zoo.cfg`. The reference lists which ones are refused, and why. A change restarts servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = setting_rules::of_values)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// Additional flags of the Java virtual machine, in this order. A change restarts servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)), transform = setting_rules::of_flags)]
    pub jvm_flags: Vec<String>,
    /// Scheduling of the pods: nodes and priority. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Labels and annotations of the pods. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PodMetadata>,
}

/// Time at which the kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At every start.
    Always,
    /// If the node does not have the image.
    IfNotPresent,
    /// Never. The image must be on the node.
    Never,
}

/// Requests and limits of a container, by resource name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)")
        .message("a request cannot be larger than its limit"),
    validation = Rule::new("(!has(self.requests) || self.requests.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || k.startsWith('hugepages-') || k.contains('/'))) && (!has(self.limits) || self.limits.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || k.startsWith('hugepages-') || k.contains('/')))")
        .message("a resource is cpu, memory, ephemeral-storage, hugepages-SIZE, or has a domain such as example.org/device")
)]
pub struct Resources {
    /// Resources that the scheduler reserves. A change restarts servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Resources that the container cannot exceed. A change restarts servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Data volume of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
        .message("storageClassName cannot change while volumes of the old class exist. Create a new MultiClusterZooKeeper, or set storageClassName in overrides for clusters without servers"),
    validation = Rule::new("quantity(string(self.size)).isGreaterThan(quantity('0'))").message("size must be larger than 0")
)]
pub struct Storage {
    /// Size of the volume. The agent expands volumes one after another if the storage class allows it. A cluster is
    /// complete once its volumes have the size. A size that storage cannot give can be lowered again, down to
    /// `status.smallestVolume`. Less is refused: no volume shrinks.
    pub size: Quantity,
    /// Storage class of the volume. Defaults to the cluster's default class. Immutable: `overrides` can name another class for
    /// clusters without servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = super::schema::SUBDOMAIN))]
    pub storage_class_name: Option<String>,
    /// Fate of the volumes when the MultiClusterZooKeeper is deleted: `Retain` or `Delete`. `Delete` concerns the volumes
    /// of servers that run then. Defaults to `Retain`. A change restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
}

/// Fate of a volume that is no longer used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reclaim {
    /// The volume is kept, labelled and listed in the status.
    #[default]
    Retain,
    /// The volume is deleted.
    Delete,
}

/// One setting of `zoo.cfg`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooCfgEntry {
    /// Name of the setting, as in ZooKeeper's administrator's guide.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z][A-Za-z0-9._-]*$"))]
    #[schemars(extend("x-kubernetes-validations" = setting_rules::of_names()))]
    pub name: String,
    /// Value of the setting, without line breaks. It does not end with a backslash, which would join the next line to it.
    #[schemars(length(max = 1024), regex(pattern = r"^([^\n\r]*[^\n\r\\])?$"))]
    pub value: String,
}

/// Scheduling of the pods: nodes and priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have. A change restarts servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = super::schema::label_value()))]
    #[x_kube(validation = Rule::new(KEYS).message(KEYS_MESSAGE))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate. A change restarts servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Affinity of the pods, as in the spec of a pod. A change of any field restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::affinity")]
    pub affinity: Option<Map<String, Value>>,
    /// Priority class of the pods. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = super::schema::SUBDOMAIN))]
    pub priority_class_name: Option<String>,
}

/// A toleration, as in the spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.operator) && self.operator == 'Exists' ? !has(self.value) || self.value == '' : has(self.key) && self.key != ''")
        .message("operator Exists has no value, and a toleration without a key needs it"),
    validation = Rule::new("!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'")
        .message("tolerationSeconds needs effect NoExecute")
)]
pub struct Toleration {
    /// Key of the taint. Defaults to all taints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316), regex(pattern = super::schema::QUALIFIED_NAME))]
    pub key: Option<String>,
    /// Comparison: `Equal` or `Exists`. Defaults to `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = super::schema::LABEL_VALUE))]
    pub value: Option<String>,
    /// Effect of the taint. Defaults to all effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// Seconds for which a `NoExecute` taint is tolerated. Defaults to forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Tolerates every taint with this effect, forever.
    #[must_use]
    pub fn of_all(effect: TaintEffect) -> Self {
        Self { operator: Some(TolerationOperator::Exists), effect: Some(effect), ..Self::default() }
    }

    /// True if it tolerates a taint, now: `ToleratesTaint` of Kubernetes' `pkg/apis/core/v1`.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_none_or(|effect| effect.as_str() == taint.effect);
        let key = self.key.as_ref().is_none_or(|key| key.is_empty() || *key == taint.key);
        let value = self.operator == Some(TolerationOperator::Exists)
            || self.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        effect && key && value
    }
}

/// Comparison of a toleration with a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    Equal,
    /// The key exists.
    Exists,
}

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is scheduled.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Running pods are evicted.
    NoExecute,
}

impl TaintEffect {
    /// As Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Labels and annotations of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Labels. `app.kubernetes.io/managed-by` and those below `mczk.io/` are reserved for mczk. A change restarts servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("additionalProperties" = super::schema::label_value()))]
    #[x_kube(validation = Rule::new(KEYS).message(KEYS_MESSAGE))]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('mczk.io/'))").message("labels below mczk.io/ are reserved for the operator: remove them"))]
    #[x_kube(validation = Rule::new("!('app.kubernetes.io/managed-by' in self)").message("the label app.kubernetes.io/managed-by of pods is that of mczk: remove it"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations. Those below `mczk.io/` are reserved for the operator. A change restarts servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new(KEYS).message(KEYS_MESSAGE))]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('mczk.io/'))").message("annotations below mczk.io/ are reserved for the operator: remove them"))]
    pub annotations: BTreeMap<String, String>,
}

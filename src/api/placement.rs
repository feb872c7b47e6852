//! Which clusters may hold servers, and how many: Karmada's Placement, as far as a quorum can follow it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod::Toleration;

/// Karmada's Placement. Which clusters match is decided at each change of this object and then kept: a cluster that joins
/// the federation later takes part only after the next change. A change may change membership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.clusterAffinities)")
        .message("clusterAffinities is not supported: an ensemble cannot move as a whole to another group of clusters; use clusterAffinity"),
    validation = Rule::new("!has(self.spreadConstraints)")
        .message("spreadConstraints is not supported: name the clusters in clusterAffinity and their voters in replicaScheduling.weightPreference")
)]
pub struct Placement {
    /// Which clusters may hold servers; all if absent. A change of any field may change membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::free_list")]
    pub cluster_affinities: Option<Vec<Value>>,
    /// Taints of clusters that are accepted, besides `NoExecute`, which is always tolerated without end: moving voters is
    /// never a cluster failover's decision. A change may change membership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub cluster_tolerations: Vec<Toleration>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::free_list")]
    pub spread_constraints: Option<Vec<Value>>,
    /// How the voters are divided; equal static weights if absent. A change of any field may change membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
}

/// Which clusters match. All parts that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that a cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Provider, region or zone that a cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// Names of clusters; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    pub cluster_names: Vec<String>,
    /// Names of clusters that never match. `exclude` in Karmada.
    #[serde(default, rename = "exclude", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    pub exclude_clusters: Vec<String>,
}

/// Kubernetes' label selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels and their exact values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions, all of which must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<Requirement>,
}

/// Karmada's field selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Expressions over `provider`, `region` and `zone`, all of which must hold; operators `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(e, e.key in ['provider','region','zone'] && e.operator in ['In','NotIn'])")
        .message("fieldSelector compares provider, region or zone with the operators In or NotIn"))]
    pub match_expressions: Vec<Requirement>,
}

/// One expression of a selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key or field name.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// How it compares.
    pub operator: SelectorOperator,
    /// Values to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// Operator of a selector's expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The value is one of the values.
    In,
    /// The value is none of the values, or absent.
    NotIn,
    /// The key exists.
    Exists,
    /// The key does not exist.
    DoesNotExist,
}

/// How voters are divided over clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    /// `Divided` (the default here): `replicas` is the number of voters of the ensemble. `Duplicated`: `replicas` is the
    /// number of voters in each cluster, still of one ensemble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,
    /// How replicas are divided: `Weighted` (the default here) or `Aggregated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// Weights of the clusters; equal ones if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<WeightPreference>,
}

/// Whether replicas are divided or repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Each cluster gets the whole number.
    Duplicated,
    /// The clusters share the number.
    Divided,
}

/// How replicas are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// Over as few clusters as possible.
    Aggregated,
    /// By weight.
    Weighted,
}

/// Weights of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightPreference {
    /// Fixed weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// Weights by what is free, `AvailableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^AvailableReplicas$"))]
    pub dynamic_weight: Option<String>,
}

/// The weight of some clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// Which clusters.
    pub target_cluster: ClusterAffinity,
    /// Their weight.
    #[schemars(range(min = 1, max = 1000))]
    pub weight: i64,
}

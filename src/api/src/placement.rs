//! Clusters that may hold servers, and numbers of servers: Karmada's Placement, as far as a quorum can follow it.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod::Toleration;

/// Karmada's Placement. The operator selects clusters at each change of this object and keeps the selection: a cluster
/// that joins the federation later takes part only after the next change. A change may change membership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.clusterAffinities)")
        .message("clusterAffinities is not supported: an ensemble cannot move as a whole to another group of clusters; use clusterAffinity"),
    validation = Rule::new("!has(self.spreadConstraints)")
        .message("spreadConstraints is not supported: name the clusters in clusterAffinity and their voters in replicaScheduling.weightPreference")
)]
pub struct Placement {
    /// Clusters that may hold servers. Defaults to all. A change of any field may change membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Not supported: refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::free_list")]
    pub cluster_affinities: Option<Vec<Value>>,
    /// Taints of clusters that are tolerated. `NoExecute` is always tolerated, forever: a cluster failover never moves
    /// voters. A change may change membership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub cluster_tolerations: Vec<Toleration>,
    /// Not supported: refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::free_list")]
    pub spread_constraints: Option<Vec<Value>>,
    /// Division of the voters over clusters. Defaults to equal static weights. A change of any field may change
    /// membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
}

/// Conditions on clusters. A cluster must match all that are given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that a cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Provider, region or zone that a cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// Names of clusters. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    pub cluster_names: Vec<String>,
    /// Names of clusters that never match.
    #[serde(default, rename = "exclude", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    pub exclude_clusters: Vec<String>,
}

/// Label selector of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels and their exact values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions. A cluster matches if all of them hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<Requirement>,
}

/// Field selector of Karmada.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Expressions over `provider`, `region` and `zone` with the operators `In` and `NotIn`. All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(e, e.key in ['provider','region','zone'] && e.operator in ['In','NotIn'])")
        .message("fieldSelector supports the keys provider, region and zone, with the operators In and NotIn"))]
    pub match_expressions: Vec<Requirement>,
}

/// One expression of a selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key or field name.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Comparison with the values.
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

/// Division of voters over clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    /// Meaning of `replicas`: the number of voters of the ensemble (`Divided`), or of each cluster in the one ensemble
    /// (`Duplicated`). Defaults to `Divided`, unlike in Karmada.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,
    /// Rule of the division: `Weighted` or `Aggregated`. Defaults to `Weighted`, unlike in Karmada.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// Weights of the clusters. Defaults to equal weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<WeightPreference>,
}

/// Meaning of `replicas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Each cluster gets the whole number.
    Duplicated,
    /// The clusters share the number.
    Divided,
}

/// Rule of the division of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// As few clusters as possible.
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
    /// Weights by free capacity: `AvailableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^AvailableReplicas$"))]
    pub dynamic_weight: Option<String>,
}

/// Weight of some clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters.
    pub target_cluster: ClusterAffinity,
    /// Weight of each of the clusters.
    #[schemars(range(min = 1, max = 1000))]
    pub weight: i64,
}

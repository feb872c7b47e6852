//! A view of ResourceBinding (`work.karmada.io/v1alpha2`): where the scheduler placed a template, and what came of it.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `apiVersion` of ResourceBinding.
pub const API_VERSION: &str = "work.karmada.io/v1alpha2";
/// Name of the annotation on binding and template that names the policy which claimed it.
pub const POLICY_NAME_ANNOTATION: &str = "propagationpolicy.karmada.io/name";

/// A binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBinding {
    /// Name, generation, labels.
    pub metadata: ObjectMeta,
    /// What is placed and where.
    pub spec: ResourceBindingSpec,
    /// What came of it.
    pub status: ResourceBindingStatus,
}

/// What is placed and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingSpec {
    /// The template.
    pub resource: ObjectReference,
    /// What the interpreter said of its replicas.
    pub replicas: Option<i32>,
    /// What the interpreter said a replica needs. Absent when no interpreter answered.
    pub replica_requirements: Option<Value>,
    /// The result of the scheduler, in no stable order.
    pub clusters: Vec<TargetCluster>,
    /// The placement that the result was made for, as Karmada wrote it.
    pub placement: Option<Value>,
    /// Clusters that are being left.
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
}

/// Reference to a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid: of two templates of one name only one is meant.
    pub uid: Option<String>,
}

/// A cluster of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetCluster {
    /// Its name.
    pub name: String,
    /// Its replicas.
    pub replicas: i32,
}

/// A cluster that is being left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GracefulEvictionTask {
    /// Its name.
    pub from_cluster: String,
}

/// What came of a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingStatus {
    /// Generation that the scheduler last saw.
    pub scheduler_observed_generation: Option<i64>,
    /// When the scheduler last placed it.
    pub last_scheduled_time: Option<Timestamp>,
    /// Conditions such as `Scheduled` and `FullyApplied`.
    pub conditions: Vec<BindingCondition>,
    /// One item for each live Work.
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// What one cluster reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedStatusItem {
    /// Its name.
    pub cluster_name: String,
    /// The member's status, as it is; it may be of a newer version.
    pub status: Option<Value>,
    /// Whether the Work was applied; it may be old.
    pub applied: bool,
    /// Why it was not.
    pub applied_message: Option<String>,
    /// `Healthy`, `Unhealthy` or `Unknown`.
    pub health: Option<String>,
}

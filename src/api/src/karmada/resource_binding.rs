//! A view of ResourceBinding (`work.karmada.io/v1alpha2`): the result of the scheduler for a template, and what member
//! clusters report.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `apiVersion` of ResourceBinding.
pub const API_VERSION: &str = "work.karmada.io/v1alpha2";
/// Annotation on binding and template: name of the policy that claimed the template.
pub const POLICY_NAME_ANNOTATION: &str = "propagationpolicy.karmada.io/name";

/// A binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBinding {
    /// Name, generation, labels.
    pub metadata: ObjectMeta,
    /// Template and schedule.
    pub spec: ResourceBindingSpec,
    /// Reports of the member clusters.
    pub status: ResourceBindingStatus,
}

/// Template and schedule of a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingSpec {
    /// The template.
    pub resource: ObjectReference,
    /// Number of replicas, as the interpreter answered.
    pub replicas: Option<i32>,
    /// Requirements of a replica, as the interpreter answered. Absent if no interpreter answered.
    pub replica_requirements: Option<Value>,
    /// Result of the scheduler, in no stable order.
    pub clusters: Vec<TargetCluster>,
    /// Placement for which the result was made, as Karmada wrote it.
    pub placement: Option<Value>,
    /// What a client or a policy holds back. The parts are those of Karmada's `Suspension`.
    pub suspension: Option<Suspension>,
    /// When a client last asked for a new schedule.
    pub reschedule_triggered_at: Option<Time>,
    /// Clusters that Karmada is evicting.
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
}

/// What is held back of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    /// True if the scheduler does not look at the binding.
    pub scheduling: Option<bool>,
    /// True if no cluster gets what changes.
    pub dispatching: Option<bool>,
    /// The clusters that get nothing of what changes.
    pub dispatching_on_clusters: Option<SuspendedClusters>,
}

/// Clusters that get nothing of what changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendedClusters {
    /// Names of clusters.
    pub cluster_names: Vec<String>,
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
    /// Uid. It tells apart two templates of one name.
    pub uid: Option<String>,
}

/// A cluster of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetCluster {
    /// Name of the cluster.
    pub name: String,
    /// Replicas of the cluster.
    pub replicas: i32,
}

/// A cluster that Karmada is evicting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GracefulEvictionTask {
    /// Name of the cluster.
    pub from_cluster: String,
}

/// Reports on a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingStatus {
    /// Generation that the scheduler last observed.
    pub scheduler_observed_generation: Option<i64>,
    /// Time of the last schedule.
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
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, one word.
    pub reason: String,
    /// Message, a sentence.
    pub message: String,
}

/// Report of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedStatusItem {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Status of the object in the member cluster, unchanged. It may be of a newer version.
    pub status: Option<Value>,
    /// True if Karmada applied the Work. The value may be old.
    pub applied: bool,
    /// Reason for which Karmada did not apply it.
    pub applied_message: Option<String>,
    /// `Healthy`, `Unhealthy` or `Unknown`.
    pub health: Option<String>,
}

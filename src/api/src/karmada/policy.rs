//! PropagationPolicy, ClusterPropagationPolicy and OverridePolicy (`policy.karmada.io/v1alpha1`).

use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResourceSelector;
use crate::placement::Placement;

/// `apiVersion` of the policies.
pub const API_VERSION: &str = "policy.karmada.io/v1alpha1";

/// Selected objects, and the clusters that receive them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicySpec {
    /// Selected objects.
    pub resource_selectors: Vec<ResourceSelector>,
    /// Clusters that receive them.
    pub placement: Placement,
    /// True if Karmada also propagates the objects that a template refers to.
    #[serde(default)]
    pub propagate_deps: bool,
    /// `Overwrite` or `Abort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<String>,
    /// True if member clusters keep their objects after the template is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Behaviour when a cluster fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Value>,
}

/// Selected objects, with or without a namespace, and the clusters that receive them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterPropagationPolicy",
    plural = "clusterpropagationpolicies",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPropagationPolicySpec {
    /// Selected objects.
    pub resource_selectors: Vec<ResourceSelector>,
    /// Clusters that receive them.
    pub placement: Placement,
    /// `Overwrite` or `Abort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<String>,
    /// True if member clusters keep their objects after the template is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// Differences by cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "OverridePolicy",
    plural = "overridepolicies",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicySpec {
    /// Selected objects. All of the namespace if empty.
    #[serde(default)]
    pub resource_selectors: Vec<ResourceSelector>,
    /// The rules, in the order in which Karmada applies them. The last write wins.
    #[serde(default)]
    pub override_rules: Vec<OverrideRule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverrideRule {
    /// Clusters of the rule. All if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<OverrideTarget>,
    /// Changes of the object.
    pub overriders: Overriders,
}

/// Clusters by name. An empty list would match all clusters, so this project never writes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverrideTarget {
    /// The names.
    #[serde(default)]
    pub cluster_names: Vec<String>,
}

/// Changes of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// JSON patches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
}

/// One JSON patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaintextOverrider {
    /// JSON pointer.
    pub path: String,
    /// `add`, `remove` or `replace`. A `replace` of a path that does not exist fails the whole cluster.
    pub operator: String,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

//! A view of Cluster (`cluster.karmada.io/v1alpha1`).

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};

/// `apiVersion` of Cluster.
pub const API_VERSION: &str = "cluster.karmada.io/v1alpha1";

/// A member cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cluster {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Location of the cluster.
    pub spec: ClusterSpec,
    /// State of the cluster.
    pub status: ClusterStatus,
}

/// Location of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Uid of the namespace `kube-system` of the cluster when it joined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How Karmada reaches the cluster: `Push`, or `Pull` by an agent of its own there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sync_mode: String,
    /// Provider.
    pub provider: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Zones.
    pub zones: Vec<String>,
    /// Taints, by which Karmada's scheduler leaves the cluster out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// State of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Version of Kubernetes. Empty until Karmada has read it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// Conditions such as `Ready`.
    pub conditions: Vec<ClusterCondition>,
    /// Kinds that the cluster's API server serves.
    pub api_enablements: Vec<ApiEnablement>,
    /// Numbers of its nodes. Karmada omits them if it may not count nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
}

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSummary {
    /// All nodes.
    pub total_num: i32,
    /// Nodes that are Ready.
    pub ready_num: i32,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Time of the last change of `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Kinds of one group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiEnablement {
    /// Group and version.
    pub group_version: String,
    /// The kinds.
    pub resources: Vec<ApiResource>,
}

/// One kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiResource {
    /// Plural name.
    pub name: String,
    /// Kind.
    pub kind: String,
}

impl Cluster {
    /// Name of the cluster. Empty only for an object that no API server made.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Labels of the cluster.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.metadata.labels.clone().unwrap_or_default()
    }

    /// True if Karmada reaches the cluster, and an agent can run there. Without one, the cluster's last report stays as it
    /// was, whatever happens to its servers.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True") && !self.has_no_ready_node()
    }

    /// Time of the last change of the condition `Ready`.
    #[must_use]
    pub fn ready_changed(&self) -> Option<&Time> {
        self.status.conditions.iter().find(|c| c.type_ == "Ready")?.last_transition_time.as_ref()
    }

    /// True if the cluster has nodes, and none of them is Ready.
    #[must_use]
    pub fn has_no_ready_node(&self) -> bool {
        self.status.node_summary.is_some_and(|nodes| nodes.total_num > 0 && nodes.ready_num == 0)
    }

    /// True if Karmada's own agent in the cluster does the work there.
    #[must_use]
    pub fn is_pull(&self) -> bool {
        self.spec.sync_mode == "Pull"
    }

    /// True if the cluster's API server serves a kind.
    #[must_use]
    pub fn serves(&self, group_version: &str, kind: &str) -> bool {
        self.status
            .api_enablements
            .iter()
            .any(|e| e.group_version == group_version && e.resources.iter().any(|r| r.kind == kind))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Karmada reaches the API server of a cluster whose nodes have no power. It omits a number that is 0.
    #[rstest]
    #[case::not_counted("True", Value::Null, true)]
    #[case::no_nodes("True", json!({}), true)]
    #[case::one_of_two("True", json!({ "totalNum": 2, "readyNum": 1 }), true)]
    #[case::none_of_two("True", json!({ "totalNum": 2 }), false)]
    #[case::unreachable("False", json!({ "totalNum": 2, "readyNum": 2 }), false)]
    fn a_cluster_needs_a_ready_node(#[case] ready: &str, #[case] nodes: Value, #[case] expected: bool) {
        let conditions = [json!({ "type": "Ready", "status": ready })];
        let cluster: Cluster =
            serde_json::from_value(json!({ "status": { "conditions": conditions, "nodeSummary": nodes } })).unwrap();
        assert_eq!(cluster.ready(), expected);
    }
}

//! What an ensemble waits for, and what the user can do.

use kube_core::DynamicObject;
use serde::{Deserialize, Serialize};

use super::findings::{self, ENSEMBLE, Finding};
use mczk_api::{
    contract::conditions::{ConditionType, Reason},
    karmada::resource_binding::{AggregatedStatusItem, ResourceBinding},
    multiclusterzookeeper::{ClusterStatus, MultiClusterZooKeeperStatus},
    zookeeper::ZooKeeperStatus,
};

/// What an ensemble waits for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyView {
    /// Namespace of the ensemble.
    pub namespace: String,
    /// Name of the ensemble.
    pub name: String,
    /// True if something waits or needs the user.
    pub waits: bool,
    /// Summary of the current record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// What waits or needs the user.
    pub findings: Vec<Finding>,
}

/// What an ensemble waits for: the conditions of the object, then those that agents report.
pub fn view(object: &DynamicObject, binding: Option<&ResourceBinding>) -> WhyView {
    let parsed = object.data.get("status").map(MultiClusterZooKeeperStatus::deserialize).transpose();
    let mut findings = Vec::new();
    let unreadable =
        parsed.as_ref().err().map(|error| format!("This version of mczk cannot parse the status: {error}"));
    let status = parsed.ok().flatten().unwrap_or_default();
    if let Some(message) = unreadable {
        findings.push(Finding::new(ENSEMBLE, message, Some("Use the version of the operator")));
    } else if !status.conditions.iter().any(|condition| condition.type_ == ConditionType::Ready.as_str()) {
        let action = "Check that the operator runs and reaches karmada-apiserver: /readyz says what is missing";
        findings.push(Finding::new(ENSEMBLE, "The operator has not written a status", Some(action)));
    } else if status.observed_generation != object.metadata.generation {
        let message = format!(
            "The status is of generation {}: the operator has not reconciled generation {} yet",
            status.observed_generation.unwrap_or(0),
            object.metadata.generation.unwrap_or(0)
        );
        let action = "Wait a moment. If it lasts, check that the operator runs and reaches karmada-apiserver";
        findings.push(Finding::new(ENSEMBLE, message, Some(action)));
    }
    findings.extend(findings::of_ensemble(&status.conditions));
    let items = binding.map(|binding| binding.status.aggregated_status.as_slice()).unwrap_or_default();
    let mut names: Vec<&str> = status.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    names.extend(items.iter().map(|item| item.cluster_name.as_str()));
    names.sort_unstable();
    names.dedup();
    for name in names {
        let cluster = status.clusters.iter().find(|cluster| cluster.name == name);
        findings.extend(of_cluster(name, cluster, items.iter().find(|item| item.cluster_name == name)));
    }
    WhyView {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        waits: findings.iter().any(|finding| !finding.advice),
        rollout: status.rollout,
        findings,
    }
}

/// What one cluster waits for.
fn of_cluster(name: &str, cluster: Option<&ClusterStatus>, item: Option<&AggregatedStatusItem>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has_servers = |cluster: &&ClusterStatus| !(cluster.voters.is_empty() && cluster.observers.is_empty());
    let waiting = cluster.filter(|cluster| !cluster.ready).filter(has_servers);
    if let Some(message) = waiting.and_then(|cluster| cluster.message.as_ref()) {
        findings.push(Finding::new(name, message, None));
    }
    let Some(item) = item else { return findings };
    if let Some(refusal) = item.applied_message.as_ref().filter(|_| !item.applied) {
        findings.push(Finding::of_reason(name, Reason::NotApplied, refusal));
    }
    match item.status.as_ref().map(ZooKeeperStatus::deserialize) {
        Some(Ok(status)) => findings.extend(findings::of_cluster(name, &status.conditions)),
        Some(Err(_)) => {
            let message = "An agent of another version wrote the status, and this version cannot read it";
            findings.push(Finding::of_reason(name, Reason::OtherVersion, message));
        }
        None => {}
    }
    findings
}

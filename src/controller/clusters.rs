//! The member clusters of the federation, kept from a watch.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde::Deserialize;
use tokio::sync::watch;

use crate::{
    api::{
        API_VERSION,
        karmada::cluster::{ApiEnablement, Cluster, NodeSummary},
    },
    rollout::services::MCS_API_VERSION,
};

/// A change of a member cluster, in a field that decisions use. It is absent before it joins, and after it leaves.
#[derive(Debug)]
pub(super) struct ClusterChange {
    pub(super) before: Option<Cluster>,
    pub(super) after: Option<Cluster>,
}

/// All member clusters, reduced to the fields that decisions use: Karmada's list of the kinds that a cluster serves is
/// long.
#[derive(Debug)]
pub(super) struct Clusters {
    all: RwLock<BTreeMap<String, Cluster>>,
    listed: watch::Sender<bool>,
}

impl Default for Clusters {
    fn default() -> Self {
        Self { all: RwLock::default(), listed: watch::Sender::new(false) }
    }
}

impl Clusters {
    /// Resolves once all clusters are listed. No decision may rest on a part of a federation.
    pub(super) async fn listed(&self) {
        // The sender lives as long as `self`, so there is no error.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// All clusters, by name.
    pub(super) fn all(&self) -> Vec<Cluster> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Stores a cluster. `None` if no field changed that decisions use.
    pub(super) fn put(&self, cluster: Cluster) -> Option<ClusterChange> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.get(cluster.name()) == Some(&cluster) {
            return None;
        }
        let before = all.insert(cluster.name().to_owned(), cluster.clone());
        Some(ClusterChange { before, after: Some(cluster) })
    }

    /// Removes a cluster. `None` if it was not stored.
    pub(super) fn remove(&self, name: &str) -> Option<ClusterChange> {
        let before = self.all.write().unwrap_or_else(PoisonError::into_inner).remove(name)?;
        Some(ClusterChange { before: Some(before), after: None })
    }

    /// Ends a list: removes the clusters that it does not name.
    pub(super) fn end_list(&self, names: &[String]) -> Vec<ClusterChange> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<String> = all.keys().filter(|name| !names.contains(name)).cloned().collect();
        let gone = gone.iter().filter_map(|name| all.remove(name));
        let gone = gone.map(|before| ClusterChange { before: Some(before), after: None }).collect();
        self.listed.send_replace(true);
        gone
    }
}

/// The cluster with only the fields that decisions use. `None` if it does not parse.
pub(super) fn reduced(object: &DynamicObject) -> Option<Cluster> {
    let part = |field: &str| object.data.get(field);
    let mut cluster = Cluster {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            labels: object.metadata.labels.clone(),
            deletion_timestamp: object.metadata.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: part("spec").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
        status: part("status").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
    };
    cluster.status.conditions.retain(|c| c.type_ == "Ready");
    // Other numbers change often, and decide nothing.
    cluster.status.node_summary = cluster.has_no_ready_node().then_some(NodeSummary { total_num: 1, ready_num: 0 });
    cluster.status.api_enablements = cluster
        .status
        .api_enablements
        .into_iter()
        .filter(|e| e.group_version == API_VERSION || e.group_version == MCS_API_VERSION)
        .map(|mut e: ApiEnablement| {
            e.resources.sort_by(|a, b| a.kind.cmp(&b.kind));
            e
        })
        .collect();
    Some(cluster)
}

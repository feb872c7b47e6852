//! What a member cluster reported.

use std::collections::BTreeMap;

use crate::{
    api::{
        karmada::{cluster::Cluster, resource_binding::ResourceBinding},
        zookeeper::ZooKeeperStatus,
    },
    mutation::broken,
};

/// One member cluster, as the control plane sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// Karmada's name.
    pub cluster: String,
    /// Whether Karmada reaches it. What it reported before may be old if not.
    pub reachable: bool,
    /// Whether the Work was applied.
    pub applied: bool,
    /// Why it was not.
    pub refusal: Option<String>,
    /// What its agent reported.
    pub status: Option<ZooKeeperStatus>,
    /// Whether it reported what this version cannot read.
    pub unreadable: bool,
}

impl ClusterReport {
    /// Whether its report may be decided on (S8).
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.reachable && self.applied && self.status.is_some()
    }
}

/// Every cluster of the federation that has a Work of the template, or is named.
#[must_use]
pub fn cluster_reports(
    binding: Option<&ResourceBinding>,
    clusters: &[Cluster],
    named: &[String],
) -> BTreeMap<String, ClusterReport> {
    let mut all: BTreeMap<String, ClusterReport> = named
        .iter()
        .map(|name| (name.clone(), ClusterReport { cluster: name.clone(), ..ClusterReport::default() }))
        .collect();
    for item in binding.map(|b| b.status.aggregated_status.as_slice()).unwrap_or_default() {
        let member = all.entry(item.cluster_name.clone()).or_default();
        member.cluster.clone_from(&item.cluster_name);
        member.applied = item.applied;
        member.refusal.clone_from(&item.applied_message);
        // A status of a newer version that this one cannot read counts as none: it is waited for, and said.
        member.status = item.status.clone().and_then(|status| serde_json::from_value(status).ok());
        member.unreadable = item.status.is_some() && member.status.is_none();
    }
    for member in all.values_mut() {
        member.reachable =
            broken!(BelieveUnreachable) || clusters.iter().any(|c| c.name() == member.cluster && c.ready());
    }
    all
}

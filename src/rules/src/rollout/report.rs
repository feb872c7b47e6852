//! The reports of the member clusters.

use std::collections::BTreeMap;

use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, find},
    karmada::{cluster::Cluster, resource_binding::ResourceBinding},
    mutation::broken,
    zookeeper::{Ensemble, ZooKeeperStatus},
};

/// One member cluster, as the control plane observes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// True if Karmada reaches the cluster. Otherwise its report may be stale.
    pub reachable: bool,
    /// True if Karmada has applied the Work.
    pub applied: bool,
    /// Why Karmada has not applied the Work.
    pub(crate) apply_error: Option<String>,
    /// The report of the agent.
    pub status: Option<ZooKeeperStatus>,
    /// True if this version cannot read the report.
    pub unreadable: bool,
}

impl ClusterReport {
    /// True if the operator may rely on the report (S8).
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.reachable && self.applied && self.status.is_some()
    }

    /// True if the agent reports that it has decommissioned its servers as the server list says. Epochs of another incarnation
    /// do not compare.
    #[must_use]
    pub(super) fn has_decommissioned(&self, list: &Ensemble) -> bool {
        let Some(status) = self.status.as_ref().filter(|_| self.fresh()) else { return false };
        let reported = status.ensemble.as_ref();
        reported.is_some_and(|reported| reported.incarnation == list.incarnation)
            && status.epoch() >= list.epoch
            && find(&status.conditions, ConditionType::Decommissioned, ConditionStatus::True).is_some()
    }
}

/// The reports of all named clusters, and of all that have a Work of the template.
#[must_use]
pub(crate) fn cluster_reports(
    binding: Option<&ResourceBinding>,
    clusters: &[Cluster],
    named: &[String],
) -> BTreeMap<String, ClusterReport> {
    let empty = |name: &String| ClusterReport { cluster: name.clone(), ..ClusterReport::default() };
    let mut reports: BTreeMap<String, ClusterReport> = named.iter().map(|name| (name.clone(), empty(name))).collect();
    for item in binding.map(|b| b.status.aggregated_status.as_slice()).unwrap_or_default() {
        let report = reports.entry(item.cluster_name.clone()).or_insert_with(|| empty(&item.cluster_name));
        report.applied = item.applied;
        report.apply_error.clone_from(&item.applied_message);
        // The operator waits for a report of another version that it cannot read, as for none.
        let status: Option<ZooKeeperStatus> =
            item.status.clone().and_then(|status| serde_json::from_value(status).ok());
        let is_understood = |status: &ZooKeeperStatus| status.ensemble.iter().all(|list| list.phase.is_understood());
        report.status = status.filter(is_understood);
        report.unreadable = item.status.is_some() && report.status.is_none();
    }
    for report in reports.values_mut() {
        let is_ready = || clusters.iter().any(|cluster| cluster.name() == report.cluster && cluster.ready());
        report.reachable = broken!(BelieveUnreachable) || is_ready();
    }
    reports
}

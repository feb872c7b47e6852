//! The reports of the member clusters.

use std::collections::BTreeMap;

use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
    },
    karmada::{cluster::Cluster, resource_binding::ResourceBinding},
    mutation::broken,
    zookeeper::{Ensemble, ZooKeeperStatus},
};

/// One member cluster, as the control plane observes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// True if Karmada reaches the cluster that reported. Otherwise its report may be stale.
    pub reachable: bool,
    /// The ids of the cluster that reported and of the one that has its name now, if they differ. Karmada may still read its
    /// cache of the former one.
    pub(crate) other_cluster: Option<[String; 2]>,
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

    /// The report of the agent, if the operator may rely on it (S8).
    #[must_use]
    pub(crate) fn fresh_status(&self) -> Option<&ZooKeeperStatus> {
        self.status.as_ref().filter(|_| self.fresh())
    }

    /// Why Karmada has not applied the object, if it says so.
    #[must_use]
    pub(crate) fn refusal(&self) -> Option<Cause> {
        let why = self.apply_error.as_ref().filter(|_| !self.applied)?;
        let message = format!("Karmada could not apply the object in cluster {}: {why}", self.cluster);
        Some(Cause::new(Reason::NotApplied, message))
    }

    /// Why the cluster is not reachable. The message continues "the cluster is".
    #[must_use]
    pub(crate) fn absence(report: Option<&Self>) -> Cause {
        match report.and_then(|report| report.other_cluster.as_ref()) {
            Some([reported, now]) => Cause::new(
                Reason::OtherClusterReported,
                format!("not the cluster that reported, with id {reported} in its report and {now} in Karmada"),
            ),
            None => Cause::new(Reason::ClusterUnreachable, "not Ready in Karmada, or without a Ready node"),
        }
    }

    /// True if the agent reports that it has decommissioned its servers as the server list says. Epochs of another incarnation
    /// do not compare.
    #[must_use]
    pub(super) fn has_decommissioned(&self, list: &Ensemble) -> bool {
        let Some(status) = self.fresh_status() else { return false };
        let reported = status.ensemble.as_ref();
        reported.is_some_and(|reported| reported.incarnation == list.incarnation)
            && status.epoch() >= list.epoch
            && find(&status.conditions, ConditionType::Decommissioned, ConditionStatus::True).is_some()
    }
}

/// The reports on which the operator may rely, and the last one of each other cluster with servers. Stale reports serve for what
/// happens whether Karmada reaches a cluster or not.
pub(super) fn last_reports(
    reports: &BTreeMap<String, ClusterReport>,
    has_servers: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &ClusterReport> {
    let is_own = |report: &ClusterReport| report.status.is_some() && report.other_cluster.is_none();
    reports.values().filter(move |report| report.fresh() || is_own(report) && has_servers(&report.cluster))
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
        let cluster = clusters.iter().find(|cluster| cluster.name() == report.cluster);
        report.other_cluster = cluster.and_then(|cluster| other_ids(report.status.as_ref()?, &cluster.spec.id));
        let is_ready = || cluster.is_some_and(Cluster::ready) && report.other_cluster.is_none();
        report.reachable = broken!(BelieveUnreachable) || is_ready();
    }
    reports
}

/// The id in a report and that in Karmada, if both are known and differ. Agents of older versions report none.
fn other_ids(status: &ZooKeeperStatus, now: &str) -> Option<[String; 2]> {
    let reported = status.cluster_id.as_ref().filter(|reported| !now.is_empty() && *reported != now)?;
    Some([reported.clone(), now.to_owned()])
}

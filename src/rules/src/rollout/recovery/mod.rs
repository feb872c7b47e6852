//! Recovery of a lost status or OverridePolicy: records, server list and cluster specs.

use std::collections::BTreeMap;

use crate::rollout::report::ClusterReport;
use mczk_api::{
    contract::{labels::RECORDS, naming::Naming},
    karmada::policy::OverridePolicy,
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
    tls::EnsembleTls,
};

mod cluster_specs;
mod from_reports;
mod from_status;

pub(super) use cluster_specs::{add_missing_specs, is_in_force, last_generation, recover_cluster_specs};
pub(super) use from_reports::Recovered;

/// The records of the status. If the status is lost, the records that the OverridePolicy mirrors.
pub(super) fn recover_records(policy: Option<&OverridePolicy>, status: &MultiClusterZooKeeperStatus) -> Vec<Record> {
    if !status.records.is_empty() {
        return status.records.clone();
    }
    policy
        .and_then(|policy| policy.metadata.annotations.as_ref())
        .and_then(|annotations| annotations.get(RECORDS))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The server list of a lost OverridePolicy: from the status, or from reports. `tls` names its newest known certificates.
pub(super) fn recover_ensemble(
    naming: Naming<'_>,
    status: &MultiClusterZooKeeperStatus,
    clusters: &[String],
    reports: &BTreeMap<String, ClusterReport>,
    tls: Option<&EnsembleTls>,
) -> Recovered {
    match from_status::ensemble(naming, status, reports, tls) {
        Some(ensemble) => Recovered::Ensemble(Box::new(ensemble)),
        None => from_reports::ensemble(naming, clusters, reports),
    }
}

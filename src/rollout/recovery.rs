//! What is found again when a status or a policy was lost: records, ids, the list of servers and the cluster_specs.

use std::collections::BTreeMap;

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
        tls::EnsembleTls,
        zookeeper::ZooKeeperSpec,
    },
    contract::{labels::RECORDS, naming::Naming, spec_hash},
    mutation::broken,
    rollout::{
        cluster_spec,
        ensemble::{self, Found},
        observed::Observed,
        override_rules::Overrides,
        report::ClusterReport,
    },
};

/// The records: those of the status, or, when it was lost, those that the OverridePolicy mirrors.
pub(super) fn remembered(observed: &Observed, old: &MultiClusterZooKeeperStatus) -> Vec<Record> {
    if !old.records.is_empty() {
        return old.records.clone();
    }
    observed
        .overrides
        .as_ref()
        .and_then(|o| o.metadata.annotations.as_ref())
        .and_then(|a| a.get(RECORDS))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The ensemble, when the policy that held it is gone. `tls` are the newest certificates that there are for it.
pub(super) fn recover(
    naming: Naming<'_>,
    old: &MultiClusterZooKeeperStatus,
    clusters: &[String],
    reports: &BTreeMap<String, ClusterReport>,
    tls: Option<&EnsembleTls>,
) -> Found {
    match ensemble::from_status(naming, old, reports, tls) {
        Some(found) => Found::Ensemble(Box::new(found)),
        None => ensemble::from_members(naming, clusters, reports),
    }
}

/// The cluster_specs that a lost or damaged policy held: known again where the status names one and the template as it is, given to
/// that cluster, has this very name. Others stay without: their agents change nothing until their turn comes.
pub(super) fn recover_pins(
    current: &mut Overrides,
    template: &ZooKeeperSpec,
    old: &MultiClusterZooKeeperStatus,
) -> serde_json::Result<()> {
    let all = current.cluster_specs.is_empty();
    for told in old.clusters.iter().filter(|c| all || current.damaged.contains(&c.name)) {
        let Some(name) = told.spec_hash.as_deref() else { continue };
        let found = cluster_spec::pin(template, &told.name, told.desired, Some(name), 0)?;
        if found.spec_hash.as_deref() == Some(name) || broken!(RecoverTheWanted) {
            current.cluster_specs.insert(told.name.clone(), found);
        }
    }
    Ok(())
}

/// The newest turn in which a cluster was given a pin, as status and reports tell of it, when the policy that holds the pin
/// is lost: what is given next must have a name that was never given before.
pub(super) fn turn(cluster: &str, old: &MultiClusterZooKeeperStatus, reports: &BTreeMap<String, ClusterReport>) -> i64 {
    let told = old.clusters.iter().find(|c| c.name == cluster).and_then(|c| c.spec_hash.as_deref());
    let report = reports.get(cluster).and_then(|m| m.status.as_ref());
    let reported =
        report.into_iter().flat_map(|s| [s.observed_spec_hash.as_deref(), s.completed_spec_hash.as_deref()]).flatten();
    reported.chain(told).map(spec_hash::generation_of).max().unwrap_or(0)
}

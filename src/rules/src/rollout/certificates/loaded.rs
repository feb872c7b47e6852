//! The certificates that clusters use, have loaded and receive.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::report::ClusterReport;
use mczk_api::{
    multiclusterzookeeper::EnsembleStatus,
    tls::EnsembleTls,
    zookeeper::{Dependency, DependencyKind, Ensemble, ZooKeeperSpec},
};

/// The certificates that the newest of all server lists names.
#[must_use]
pub(crate) fn newest<'a>(
    current: &'a Ensemble,
    reported: Option<&'a Ensemble>,
    recorded: Option<&'a EnsembleStatus>,
) -> Option<&'a EnsembleTls> {
    let recorded = recorded.and_then(|status| Some((status.epoch, status.tls.as_ref()?)));
    let lists = reported.into_iter().chain([current]);
    let named = lists.filter_map(|list| Some((list.epoch.unwrap_or(0), list.tls.as_ref()?)));
    recorded.into_iter().chain(named).max_by_key(|(epoch, _)| *epoch).map(|(_, tls)| tls)
}

/// Every cluster that may have servers, with the certificates that all of them have loaded. `None` if the cluster has no
/// fresh report of them (S8).
#[must_use]
pub(crate) fn loaded(
    lists: &[&Ensemble],
    cluster_specs: &BTreeMap<String, ZooKeeperSpec>,
    reports: &BTreeMap<String, ClusterReport>,
) -> BTreeMap<String, Option<EnsembleTls>> {
    let listed = lists.iter().flat_map(|list| &list.servers).map(|server| &server.cluster);
    // Karmada drops the report of a cluster that is no longer scheduled, while its servers may still be voters.
    let fresh = reports.values().filter_map(ClusterReport::fresh_status);
    let voters: BTreeSet<i32> = fresh.flat_map(|status| status.voting_members.iter().copied()).collect();
    let leaving = lists.iter().flat_map(|list| &list.leaving).filter(|server| voters.contains(&server.id));
    let has_servers = |report: &&ClusterReport| {
        let status = report.status.as_ref();
        status.is_some_and(|status| status.replicas.unwrap_or(0) > 0 || !status.servers.is_empty())
    };
    let running = reports.values().filter(has_servers).map(|report| &report.cluster);
    let loaded = |cluster: &String| reports.get(cluster)?.fresh_status()?.ensemble_tls.clone();
    listed
        .chain(leaving.map(|server| &server.cluster))
        .chain(running)
        .chain(cluster_specs.keys())
        .map(|cluster| (cluster.clone(), loaded(cluster)))
        .collect()
}

/// The certificates that the server list names, and those that servers of a cluster have loaded, with these clusters.
pub(crate) fn in_use<'a>(
    listed: Option<&'a EnsembleTls>,
    reports: impl Iterator<Item = &'a ClusterReport>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let loaded = reports
        .filter_map(|report| Some((Some(report.cluster.as_str()), report.status.as_ref()?.ensemble_tls.as_ref()?)));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (cluster, tls) in listed.map(|tls| (None, tls)).into_iter().chain(loaded) {
        for name in EnsembleTls::secrets(tls) {
            names.entry(name).or_default().extend(cluster);
        }
    }
    names
}

/// The Secrets that every cluster needs: the ones in use, and the next ones.
#[must_use]
pub fn dependencies(used: Option<&EnsembleTls>, wanted: Option<&EnsembleTls>) -> Vec<Dependency> {
    let names = used.into_iter().chain(wanted).flat_map(EnsembleTls::secrets);
    names.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() }).collect()
}

/// True if Karmada propagates every Secret of the certificates with the object.
#[must_use]
pub fn travels(tls: &EnsembleTls, dependencies: &[Dependency]) -> bool {
    tls.secrets().all(|name| dependencies.iter().any(|d| d.kind == DependencyKind::Secret && d.name == *name))
}

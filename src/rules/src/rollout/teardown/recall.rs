//! The server list and the cluster specs of an object that is being deleted, also after they were lost.

use std::collections::BTreeMap;

use crate::rollout::{
    certificates, cluster_spec,
    known::Known,
    override_rules::Overrides,
    recovery::{Recovered, last_generation, recover_ensemble},
    report::ClusterReport,
};
use mczk_api::{ZooKeeper, mutation::broken, zookeeper::Role};

/// The state of a lost server list.
pub(super) enum Recalled {
    /// The server list is known, or no server exists.
    Known(Box<Overrides>),
    /// These clusters have to report their server list first.
    Unreported(Vec<String>),
}

/// The content of the OverridePolicy. If that is lost: the server list of the status or of the reports, because no object may
/// be deleted before its servers are decommissioned.
pub(super) fn recall(known: &Known<'_>, template: &ZooKeeper) -> serde_json::Result<Recalled> {
    let mut current = known.overrides.clone();
    if !current.ensemble.servers.is_empty() || broken!(DecommissionOnlyKnown) {
        return Ok(Recalled::Known(Box::new(current)));
    }
    let clusters = clusters_that_may_know(known);
    let old = &known.status;
    let tls = certificates::newest(&current.ensemble, known.reported_list.as_ref(), old.ensemble.as_ref());
    match recover_ensemble(known.naming(&template.spec), old, &clusters, &known.reports, tls) {
        Recovered::Nothing => return Ok(Recalled::Known(Box::new(current))),
        Recovered::Unreported(unreported) => return Ok(Recalled::Unreported(unreported)),
        // The user has abandoned every cluster.
        Recovered::ServerListUnknown if clusters.is_empty() => return Ok(Recalled::Known(Box::new(current))),
        // The clusters report servers, but no server list.
        Recovered::ServerListUnknown => return Ok(Recalled::Unreported(clusters)),
        Recovered::Ensemble(found) => current.ensemble = *found,
    }
    let mut voters: BTreeMap<&String, i32> = BTreeMap::new();
    for server in current.ensemble.servers.iter().filter(|server| server.role == Role::Voter) {
        *voters.entry(&server.cluster).or_default() += 1;
    }
    // Without a cluster spec an agent accepts no server list. This one arrives with the last phase, so it restarts nothing.
    for (cluster, count) in voters {
        if !current.cluster_specs.contains_key(cluster) {
            let generation = last_generation(cluster, old, &known.reports);
            let spec = cluster_spec::for_cluster(&template.spec, cluster, count, None, generation)?;
            current.cluster_specs.insert(cluster.clone(), spec);
        }
    }
    Ok(Recalled::Known(Box::new(current)))
}

/// The clusters with a Work whose agents may know the server list, without abandoned ones.
fn clusters_that_may_know(known: &Known<'_>) -> Vec<String> {
    // If Karmada has applied the object and no status was ever written, no agent ever acted on it.
    let is_untouched = |r: &ClusterReport| r.reachable && r.applied && r.status.is_none() && !r.unreadable;
    let may_know =
        |name: &str, report| !known.abandoned.contains(name) && known.has_work(name) && !is_untouched(report);
    known.reports.iter().filter(|(name, report)| may_know(name, report)).map(|(name, _)| name.clone()).collect()
}

//! The server list and the cluster specs of an object that is being deleted, also after they were lost.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::context::Teardown;
use crate::{
    api::{ZooKeeper, zookeeper::Role},
    contract::naming::Naming,
    mutation::broken,
    rollout::{
        certificates, cluster_spec, objects,
        override_rules::Overrides,
        recovery::{Recovered, last_generation, recover_ensemble},
        report::{self, ClusterReport},
        reported_list::newest_reported,
    },
};

/// The state of a lost server list.
pub(super) enum Recalled {
    /// The server list is known, or no server exists.
    Known(Box<Overrides>),
    /// These clusters have to report their server list first.
    Unreported(Vec<String>),
}

/// The content of the OverridePolicy. If that is lost: the server list of the status or of the reports, because no object may
/// be deleted before its servers are decommissioned.
pub(super) fn recall(teardown: &Teardown<'_>, template: &ZooKeeper) -> serde_json::Result<Recalled> {
    let mut current = teardown.current();
    if !current.ensemble.servers.is_empty() || broken!(DecommissionOnlyKnown) {
        return Ok(Recalled::Known(Box::new(current)));
    }
    let observed = teardown.observed;
    let object = &observed.object;
    let old = object.status.clone().unwrap_or_default();
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let incarnation = teardown.incarnation();
    let names = template.spec.source.as_ref().and_then(|source| source.names.as_ref());
    let naming = Naming { name: &name, namespace: &namespace, incarnation: &incarnation, names };
    let reports = report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &[]);
    let abandoned = objects::abandoned(object);
    // If Karmada has applied the object and no status was ever written, no agent ever acted on it.
    let is_untouched = |r: &ClusterReport| r.reachable && r.applied && r.status.is_none() && !r.unreadable;
    let clusters: Vec<String> = reports
        .iter()
        .filter(|(name, report)| !abandoned.contains(name.as_str()) && !is_untouched(report))
        .map(|(name, _)| name.clone())
        .collect();
    let newest = newest_reported(&incarnation, &reports);
    let tls = certificates::newest(&current.ensemble, newest, old.ensemble.as_ref());
    match recover_ensemble(naming, &old, &clusters, &reports, tls) {
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
            let generation = last_generation(cluster, &old, &reports);
            let spec = cluster_spec::for_cluster(&template.spec, cluster, count, None, generation)?;
            current.cluster_specs.insert(cluster.clone(), spec);
        }
    }
    Ok(Recalled::Known(Box::new(current)))
}

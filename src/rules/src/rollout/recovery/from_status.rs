//! Recovery of the server list from the status of the MultiClusterZooKeeper.

use std::collections::BTreeMap;

use crate::rollout::{
    report::ClusterReport,
    reported_list::{is_outdated, newest_reported},
};
use mczk_api::{
    contract::{naming::Naming, server_list::with_hash},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    mutation::broken,
    tls::EnsembleTls,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server},
};

/// The ensemble that the status describes, unless a report knows a newer list.
///
/// It keeps its epoch if its hash is the one that the status knows. Else it gets a new epoch: two lists must not share one.
pub(super) fn ensemble(
    naming: Naming<'_>,
    status: &MultiClusterZooKeeperStatus,
    reports: &BTreeMap<String, ClusterReport>,
    tls: Option<&EnsembleTls>,
) -> Option<Ensemble> {
    let before = status.ensemble.as_ref().filter(|ensemble| ensemble.incarnation == naming.incarnation)?;
    let servers = servers(naming, status);
    if servers.is_empty() || is_outdated((Some(before.epoch), before.hash.as_ref()), &before.incarnation, reports) {
        return None;
    }
    let newest = newest_reported(&before.incarnation, reports);
    let highest_id = servers.iter().map(|server| server.id).max().max(before.highest_id);
    let recovered = Ensemble {
        incarnation: Some(before.incarnation.clone()),
        epoch: Some(before.epoch),
        // Suspended and abandoned servers must not start, not even for a moment.
        phase: match newest.map(|list| list.phase) {
            _ if before.formed => EnsemblePhase::Running,
            Some(phase) if phase.is_suspended() => phase,
            _ => EnsemblePhase::Bootstrapping,
        },
        highest_id,
        servers,
        former_incarnations: newest.map(|list| list.former_incarnations.clone()).unwrap_or_default(),
        leaving: newest.map(|list| list.leaving.clone()).unwrap_or_default(),
        tls: tls.or_else(|| newest?.tls.as_ref()).cloned(),
        demote_after_seconds: newest.and_then(|list| list.demote_after_seconds),
        ..Ensemble::default()
    };
    let same_list = with_hash(recovered.clone()).is_ok_and(|hashed| hashed.hash == before.hash);
    let epoch = before.epoch.saturating_add(i64::from(!same_list && !broken!(SameEpoch)));
    Some(Ensemble { epoch: Some(epoch), ..recovered })
}

/// The servers of the status, in the order of a server list.
fn servers(naming: Naming<'_>, status: &MultiClusterZooKeeperStatus) -> Vec<Server> {
    let mut servers = Vec::new();
    for cluster in &status.clusters {
        for (ids, role) in [(&cluster.voters, Role::Voter), (&cluster.observers, Role::Observer)] {
            for (ordinal, id) in (0_i32..).zip(ids) {
                let host = naming.host(&cluster.name, role, ordinal);
                servers.push(Server { id: *id, cluster: cluster.name.clone(), ordinal, host, role });
            }
        }
    }
    servers.sort_by(|a, b| (&a.cluster, a.role, a.ordinal).cmp(&(&b.cluster, b.role, b.ordinal)));
    servers
}

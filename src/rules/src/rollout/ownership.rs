//! The clusters in which Karmada may overwrite an object: it is known to be the operator's own.
//!
//! Karmada needs that permission to complete the deletion of a Work too. It removes its labels from the preserved object, and if
//! it has to try again, it treats the object without labels as a foreign one (`cleanupPolicyClaimMetadata` in Karmada's
//! `pkg/controllers/execution`). So no cluster loses the permission because another one joins.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{override_rules::Overrides, quorum::ReportedQuorum, report::ClusterReport};
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, Reason, find},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    zookeeper::ZooKeeperStatus,
};

/// The clusters whose ZooKeeper object is the operator's own. Karmada has applied it there: without the permission it applies
/// only what it manages.
///
/// Karmada may have released the object of a cluster that left the placement while it had no power. If the cluster comes back,
/// Karmada cannot apply the object, and so never reports it. Its servers follow the list in the ensemble meanwhile: a vote
/// of one shows that the object is the operator's own.
pub(super) fn owned(
    status: &MultiClusterZooKeeperStatus,
    overrides: &Overrides,
    reports: &BTreeMap<String, ClusterReport>,
    quorum: &ReportedQuorum,
) -> BTreeSet<String> {
    let recorded = status.clusters.iter().filter(|cluster| cluster.reported).map(|cluster| &cluster.name);
    let applied = reports.values().filter(|report| report.applied).map(|report| &report.cluster);
    let servers = overrides.ensemble.servers.iter();
    let votes = servers.filter(|server| quorum.voters.contains(&server.id)).map(|server| &server.cluster);
    // Only the policy knows once the status is lost.
    let stored = overrides.owned.iter().filter(|_| status.ensemble.is_none());
    recorded.chain(applied).chain(votes).chain(stored).cloned().collect()
}

/// The clusters whose ServiceExports are the operator's own: those among `owned` whose agent found no foreign Service of the
/// same name. An export there is one of the operator's Service.
pub(super) fn owned_exports(owned: &BTreeSet<String>, reports: &BTreeMap<String, ClusterReport>) -> BTreeSet<String> {
    let has_foreign_service = |status: &ZooKeeperStatus| {
        let blocked = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True);
        blocked.is_some_and(|condition| condition.reason == Reason::NameConflict.as_str())
    };
    let status = |name: &String| reports.get(name).and_then(|report| report.status.as_ref());
    owned.iter().filter(|name| status(name).is_some_and(|status| !has_foreign_service(status))).cloned().collect()
}

//! The server lists that clusters report, and the epoch of the next one.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::report::ClusterReport;
use mczk_api::{
    contract::server_list::{MAX_ID, is_intact, with_hash},
    mutation::broken,
    zookeeper::{Ensemble, EnsemblePhase, Server},
};

/// A report of this epoch or a later one is damaged: no ensemble counts so far, and not every JSON reader can.
pub(super) const MAX_EPOCH: i64 = 1 << 53;

/// True if a server list is possible: every server has an id of its own, in range, and a place of its own (S4).
fn is_sound(servers: &[Server]) -> bool {
    let ids: BTreeSet<i32> = servers.iter().map(|s| s.id).filter(|id| (1..=MAX_ID).contains(id)).collect();
    let places: BTreeSet<_> = servers.iter().map(|s| (&s.cluster, s.role, s.ordinal)).collect();
    ids.len() == servers.len() && places.len() == servers.len()
}

/// The server lists of this incarnation that reports hold, without damaged ones.
pub(super) fn reported_lists<'a>(
    incarnation: &'a str,
    reports: &'a BTreeMap<String, ClusterReport>,
) -> impl Iterator<Item = &'a Ensemble> {
    let lists = reports.values().filter_map(|report| report.status.as_ref()).filter_map(|s| s.ensemble.as_ref());
    lists
        .filter(move |list| list.incarnation.as_deref() == Some(incarnation))
        .filter(|list| !list.servers.is_empty() && is_sound(&list.servers))
        .filter(|list| (0..MAX_EPOCH).contains(&list.epoch.unwrap_or(0)))
        .filter(|list| is_intact(list))
}

/// The newest server list of this incarnation that an agent reports as the one that it accepts.
#[must_use]
pub(super) fn newest_reported<'a>(
    incarnation: &'a str,
    reports: &'a BTreeMap<String, ClusterReport>,
) -> Option<&'a Ensemble> {
    reported_lists(incarnation, reports).max_by_key(|list| list.epoch)
}

/// The clusters in which these lists of an incarnation name servers. A leaving voter counts while ZooKeeper's configuration has it.
pub(super) fn clusters_of<'a>(
    lists: impl IntoIterator<Item = &'a Ensemble>,
    incarnation: &str,
    reports: &BTreeMap<String, ClusterReport>,
) -> BTreeSet<String> {
    let voting: BTreeSet<i32> = reported_voters(incarnation, reports).collect();
    let votes = |server: &&Server| voting.is_empty() || voting.contains(&server.id);
    let servers = |list: &'a Ensemble| list.servers.iter().chain(list.leaving.iter().filter(votes));
    lists.into_iter().flat_map(servers).map(|server| server.cluster.clone()).collect()
}

/// Ids of the voters in the configurations of an incarnation.
pub(super) fn reported_voters(
    incarnation: &str,
    reports: &BTreeMap<String, ClusterReport>,
) -> impl Iterator<Item = i32> {
    let statuses = reports.values().filter_map(|report| report.status.as_ref());
    statuses
        .filter(move |status| status.may_be_of(incarnation))
        .flat_map(|status| status.voting_members.iter().copied())
}

/// True if a cluster reports a newer server list than the one of this epoch and hash, or another list of its epoch: an older
/// copy of the control plane was restored.
#[must_use]
pub(super) fn is_outdated(
    (epoch, hash): (Option<i64>, Option<&String>),
    incarnation: &str,
    reports: &BTreeMap<String, ClusterReport>,
) -> bool {
    let is_newer =
        |reported: &Ensemble| reported.epoch > epoch || (reported.epoch == epoch && reported.hash.as_ref() != hash);
    reported_lists(incarnation, reports).any(is_newer) && !broken!(ForgetNewerList)
}

/// The clusters whose agents follow another incarnation by whose list this one is over, and that other one.
pub(super) fn lists_ending<'a>(
    own: &'a str,
    reports: &'a BTreeMap<String, ClusterReport>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let lists =
        reports.iter().filter_map(|(name, report)| Some((name.as_str(), report.status.as_ref()?.ensemble.as_ref()?)));
    lists
        .filter(move |(_, list)| list.former_incarnations.iter().any(|former| former == own))
        .filter_map(|(cluster, list)| Some((cluster, list.incarnation.as_deref()?)))
        .filter(move |(_, living)| *living != own)
}

/// An epoch that no known server list of this incarnation has. Two lists must not share an epoch.
#[must_use]
pub(super) fn next_epoch(list: &Ensemble, incarnation: &str, reports: &BTreeMap<String, ClusterReport>) -> i64 {
    list.epoch.unwrap_or(0).max(reported_epoch(incarnation, reports)).saturating_add(1)
}

/// The newest epoch of this incarnation that a cluster reports.
#[must_use]
fn reported_epoch(incarnation: &str, reports: &BTreeMap<String, ClusterReport>) -> i64 {
    newest_reported(incarnation, reports).and_then(|list| list.epoch).unwrap_or(0)
}

/// The server list in another phase, under a new epoch.
///
/// # Errors
/// As [`with_hash`].
pub(super) fn in_phase(
    list: &Ensemble,
    phase: EnsemblePhase,
    incarnation: &str,
    reports: &BTreeMap<String, ClusterReport>,
) -> serde_json::Result<Ensemble> {
    let epoch = Some(next_epoch(list, incarnation, reports));
    with_hash(Ensemble { epoch, phase, ..list.clone() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::newer_list::of_newer_version;

    /// M4: an operator that was taken back to the former version recovers the newest list.
    #[test]
    fn the_report_of_a_list_of_a_newer_version_counts() {
        let server = json!({ "id": 1, "cluster": "m1", "ordinal": 0, "host": "h", "role": "voter" });
        let list = json!({ "incarnation": "abc123", "epoch": 4, "servers": [server] });
        let newer = of_newer_version(&serde_json::from_value(list).unwrap());
        let status = serde_json::from_value(json!({ "ensemble": newer })).unwrap();
        let report = ClusterReport { status: Some(status), ..ClusterReport::default() };
        let reports = BTreeMap::from([("m1".to_owned(), report)]);
        let reported = newest_reported("abc123", &reports).unwrap();
        assert_eq!(serde_json::to_value(reported).unwrap(), newer);
        // A list that this version writes has only fields that this version knows.
        let next =
            serde_json::to_value(in_phase(reported, EnsemblePhase::Formed, "abc123", &reports).unwrap()).unwrap();
        assert_eq!((next.get("epoch"), next.get("witness")), (Some(&json!(5)), None));
        assert!(mczk_api::contract::server_list::hash_matches(&next));
    }
}

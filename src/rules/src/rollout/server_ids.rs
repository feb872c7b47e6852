//! Allocation of server ids: the servers of a schedule, and the id of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{report::ClusterReport, scheduled::Scheduled};
use mczk_api::{
    contract::{naming::Naming, server_list::MAX_ID},
    multiclusterzookeeper::Observers,
    mutation::broken,
    zookeeper::{Ensemble, Role, Server},
};

/// Longest DNS name, in bytes.
const MAX_HOST: usize = 253;

/// Why the operator cannot make a server list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// A configuration, server list or server knows every id. Volumes without a server take none.
    #[error("All {MAX_ID} server ids are in use: declare fewer servers")]
    NoFreeId,
    /// No API server accepts the name of a server.
    #[error(
        "The server name {0} is longer than 253 characters: shorten network.clusterIds, clusterDomain or fqdnTemplate"
    )]
    HostTooLong(String),
    /// An id would be used again, but a cluster that may know it has not reported.
    #[error("No unused server id is left, and cluster {0} does not report which ids it knows: bring its agent back")]
    Unreported(String),
}

/// The clusters that may know ids.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// What they report.
    pub(super) reports: &'a BTreeMap<String, ClusterReport>,
    /// One that left without power, and that no report names until Karmada reaches it.
    pub(super) left_behind: Option<&'a str>,
}

/// The servers of a schedule.
///
/// Existing servers keep their ids. So does a server that `leaves` and still votes: another id at its place would make it leave
/// first. A new server gets an id that no configuration, server list or server knows; ids that were never used come first.
///
/// # Errors
/// See [`AllocationError`].
pub(super) fn allocate(
    naming: Naming<'_>,
    list: &Ensemble,
    voting: &BTreeSet<i32>,
    schedule: &[Scheduled],
    observers: &[Observers],
    asked: Asked<'_>,
) -> Result<Vec<Server>, AllocationError> {
    let reports = asked.reports;
    let current = &list.servers;
    let leaves = |server: &&Server| voting.contains(&server.id) && !broken!(ForgetLeaving);
    let known: Vec<&Server> = current.iter().chain(list.leaving.iter().filter(leaves)).collect();
    let without_volume = ids_without_volume(&known, reports);
    let mut ids = Ids::new(naming, current, list.highest_id.unwrap_or(0), asked);
    let mut servers = Vec::new();
    for (cluster, role, ordinal) in places(schedule, observers) {
        let is_intact = |s: &&&Server| {
            s.cluster == cluster && s.role == role && s.ordinal == ordinal && !without_volume.contains(&s.id)
        };
        let existing = known.iter().find(is_intact).copied().filter(|_| !broken!(ReuseIds));
        let id = match existing {
            Some(server) => server.id,
            None => ids.next()?,
        };
        // A server that runs keeps its name, whatever the declaration says now: nothing gives it another one.
        let with_host = existing.filter(|server| !server.host.is_empty());
        let host = with_host.map_or_else(|| naming.host(cluster, role, ordinal), |server| server.host.clone());
        if host.len() > MAX_HOST {
            return Err(AllocationError::HostTooLong(host));
        }
        servers.push(Server { id, cluster: cluster.to_owned(), ordinal, host, role });
    }
    Ok(servers)
}

/// The places of servers, in the order of a server list: cluster, role, ordinal.
fn places<'a>(schedule: &'a [Scheduled], observers: &'a [Observers]) -> Vec<(&'a str, Role, i32)> {
    let mut places = Vec::new();
    for Scheduled { cluster, replicas } in schedule {
        places.extend((0..*replicas).map(|ordinal| (cluster.as_str(), Role::Voter, ordinal)));
        if let Some(own) = observers.iter().find(|observers| observers.cluster == *cluster) {
            places.extend((0..own.count).map(|ordinal| (cluster.as_str(), Role::Observer, ordinal)));
        }
    }
    places.sort();
    places
}

/// Ids of these servers that lost their volume. Only the agent of a server's own cluster can report that.
fn ids_without_volume(known: &[&Server], reports: &BTreeMap<String, ClusterReport>) -> BTreeSet<i32> {
    let lost = |server: &&&Server| {
        let status = reports.get(&server.cluster).and_then(ClusterReport::fresh_status);
        status.is_some_and(|s| s.servers.iter().any(|reported| reported.id == server.id && reported.lost))
    };
    known.iter().filter(lost).map(|server| server.id).collect()
}

/// The ids that are left.
struct Ids<'a> {
    taken: BTreeSet<i32>,
    highest: i32,
    asked: Asked<'a>,
}

impl<'a> Ids<'a> {
    fn new(naming: Naming<'_>, current: &[Server], highest_used: i32, asked: Asked<'a>) -> Self {
        if broken!(ReuseIds) {
            return Self { taken: BTreeSet::new(), highest: 0, asked };
        }
        let statuses = asked.reports.values().filter_map(|report| report.status.as_ref());
        let reported = statuses
            .filter(|status| status.may_be_of(naming.incarnation))
            .flat_map(|s| s.voting_members.iter().copied().chain(s.servers.iter().map(|server| server.id)));
        let taken: BTreeSet<i32> = current.iter().map(|server| server.id).chain(reported).collect();
        let highest = highest_used.max(taken.last().copied().unwrap_or(0));
        Self { taken, highest, asked }
    }

    fn next(&mut self) -> Result<i32, AllocationError> {
        if self.highest < MAX_ID {
            self.highest += 1;
            self.taken.insert(self.highest);
            return Ok(self.highest);
        }
        let unreported =
            self.asked.reports.values().find(|report| !report.fresh()).map(|report| report.cluster.as_str());
        if let Some(unreported) = unreported.or(self.asked.left_behind) {
            return Err(AllocationError::Unreported(unreported.to_owned()));
        }
        let id = (1..=MAX_ID).find(|id| !self.taken.contains(id)).ok_or(AllocationError::NoFreeId)?;
        self.taken.insert(id);
        Ok(id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NAMING: Naming<'static> = Naming { name: "zk", namespace: "ns", incarnation: "abc123", names: None };

    fn report(cluster: &str, reachable: bool, status: Value) -> (String, ClusterReport) {
        let status = serde_json::from_value(status).unwrap();
        let report =
            ClusterReport { cluster: cluster.to_owned(), reachable, applied: true, status, ..ClusterReport::default() };
        (cluster.to_owned(), report)
    }

    fn servers(
        current: &[Server],
        highest: i32,
        schedule: &[(&str, i32)],
        reports: &BTreeMap<String, ClusterReport>,
    ) -> Result<Vec<Server>, AllocationError> {
        let list = Ensemble { servers: current.to_vec(), highest_id: Some(highest), ..Ensemble::default() };
        allocate(NAMING, &list, &BTreeSet::new(), &scheduled(schedule), &[], Asked { reports, left_behind: None })
    }

    fn scheduled(schedule: &[(&str, i32)]) -> Vec<Scheduled> {
        schedule.iter().map(|(c, n)| Scheduled { cluster: (*c).to_owned(), replicas: *n }).collect()
    }

    fn ids(servers: &[Server]) -> Vec<i32> {
        servers.iter().map(|s| s.id).collect()
    }

    #[test]
    fn ids_are_stable_and_never_used_again() {
        let none = BTreeMap::new();
        let first = servers(&[], 0, &[("b", 2), ("a", 1)], &none).unwrap();
        assert_eq!(ids(&first), [1, 2, 3]);
        assert_eq!(servers(&first, 3, &[("a", 1), ("b", 2)], &none).unwrap(), first);
        let fewer = servers(&first, 3, &[("a", 1), ("b", 1)], &none).unwrap();
        assert_eq!(ids(&fewer), [1, 2]);
        let more = servers(&fewer, 3, &[("a", 1), ("b", 2)], &none).unwrap();
        assert_eq!(ids(&more), [1, 2, 4], "3 was allocated once");
    }

    #[rstest]
    #[case::reported_server(json!({ "servers": [{ "id": 9 }] }), 10)]
    #[case::reported_voter(json!({ "votingMembers": [11] }), 12)]
    fn a_reported_id_is_not_allocated(#[case] status: Value, #[case] expected: i32) {
        let reports = BTreeMap::from([report("a", true, status)]);
        assert_eq!(ids(&servers(&[], 0, &[("a", 1)], &reports).unwrap()), [expected]);
    }

    #[rstest]
    #[case::reachable(true, &[3, 2])]
    #[case::old_report(false, &[1, 2])]
    fn a_server_that_lost_its_volume_gets_a_new_id(#[case] reachable: bool, #[case] expected: &[i32]) {
        let first = servers(&[], 0, &[("a", 1), ("b", 1)], &BTreeMap::new()).unwrap();
        let reports = BTreeMap::from([report("a", reachable, json!({ "servers": [{ "id": 1, "lost": true }] }))]);
        assert_eq!(ids(&servers(&first, 2, &[("a", 1), ("b", 1)], &reports).unwrap()), expected);
    }

    #[test]
    fn a_used_id_is_free_again_only_if_every_cluster_reports() {
        let known: Vec<i32> = (1..=MAX_ID).filter(|id| *id != 7).collect();
        let reported = BTreeMap::from([report("a", true, json!({ "votingMembers": known }))]);
        assert_eq!(ids(&servers(&[], MAX_ID, &[("a", 1)], &reported).unwrap()), [7]);
        assert_eq!(servers(&[], MAX_ID, &[("a", 2)], &reported), Err(AllocationError::NoFreeId));
        let unreported = BTreeMap::from([report("a", false, json!({}))]);
        let error = AllocationError::Unreported("a".to_owned());
        assert_eq!(servers(&[], MAX_ID, &[("a", 1)], &unreported), Err(error));
        let asked = Asked { reports: &reported, left_behind: Some("b") };
        let list = Ensemble { highest_id: Some(MAX_ID), ..Ensemble::default() };
        let without_power = allocate(NAMING, &list, &BTreeSet::new(), &scheduled(&[("a", 1)]), &[], asked);
        assert_eq!(without_power, Err(AllocationError::Unreported("b".to_owned())));
    }

    /// Server 3 in cluster c leaves for server 4 in cluster d, and the placement changes back.
    #[rstest]
    #[case::still_votes(&[1, 2, 3], false, 3)]
    #[case::has_left(&[1, 2, 4], false, 5)]
    #[case::no_report_shows_who_votes(&[], false, 5)]
    #[case::has_lost_its_volume(&[1, 2, 3], true, 5)]
    fn a_server_that_leaves_keeps_its_id_while_it_votes(
        #[case] voting: &[i32],
        #[case] lost: bool,
        #[case] expected: i32,
    ) {
        let none = BTreeMap::new();
        let all = servers(&[], 0, &[("a", 1), ("b", 1), ("c", 1)], &none).unwrap();
        let moved = servers(&all, 3, &[("a", 1), ("b", 1), ("d", 1)], &none).unwrap();
        let list =
            Ensemble { servers: moved, leaving: vec![all[2].clone()], highest_id: Some(4), ..Ensemble::default() };
        let reports = BTreeMap::from([report("c", true, json!({ "servers": [{ "id": 3, "lost": lost }] }))]);
        let back = scheduled(&[("a", 1), ("b", 1), ("c", 1)]);
        let asked = Asked { reports: &reports, left_behind: None };
        let back = allocate(NAMING, &list, &voting.iter().copied().collect(), &back, &[], asked).unwrap();
        assert_eq!(ids(&back), [1, 2, expected]);
        assert_eq!(back[2].host, all[2].host);
    }
}

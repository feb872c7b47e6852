//! The quorum, as fresh reports show it.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{report::ClusterReport, reported_list::MAX_EPOCH};
use mczk_api::{
    contract::server_list::majority,
    zookeeper::{Role, Server, ServerStatus, ZooKeeperStatus},
};

/// The quorum, as fresh reports show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedQuorum {
    /// True if a quorum ever formed.
    pub formed: bool,
    /// Ids of the voters in ZooKeeper's own configuration; empty if no fresh report shows one that was read through a quorum. If one
    /// does, a quorum serves, even if not all of its voters are visible.
    pub voters: BTreeSet<i32>,
    /// Ids of the voters that serve.
    pub serving: BTreeSet<i32>,
    /// Newest epoch that the ensemble published before an agent read this configuration.
    pub epoch: Option<i64>,
    /// Id of the leader.
    pub leader: Option<i32>,
}

impl ReportedQuorum {
    /// Reads the quorum of an incarnation from reports.
    ///
    /// Of several configurations read through a quorum the newest counts. Of equal ones, that of the newest leader does. For a
    /// listed server only the report of its own cluster counts.
    #[must_use]
    pub fn of(
        incarnation: &str,
        reports: &BTreeMap<String, ClusterReport>,
        servers: &[Server],
        formed_before: bool,
    ) -> Self {
        let reported = |report: &&ClusterReport| report.status.as_ref().is_some_and(|s| s.may_be_of(incarnation));
        let fresh = || reports.values().filter(|report| report.fresh()).filter(reported);
        let configurations = || {
            let statuses = fresh().filter_map(|report| report.status.as_ref());
            statuses.filter(|status| status.writable == Some(true) && !status.voting_members.is_empty())
        };
        // An election changes no configuration. A cluster that was without power names the former leader until it reports again.
        let newest = configurations().max_by_key(|status| (status.config_version.unwrap_or(0), leaders_epoch(status)));
        let voters: BTreeSet<i32> = newest.map(|s| s.voting_members.iter().copied().collect()).unwrap_or_default();
        let serving = fresh().flat_map(|report| own_servers(report, servers));
        let serving = serving.filter(|server| server.serving && voters.contains(&server.id)).map(|server| server.id);
        // An accepted epoch is final, so a stale report proves it too.
        let mut ever = reports.values().filter(reported).flat_map(|report| own_servers(report, servers));
        let accepted = ever.any(|server| server.accepted_epoch.unwrap_or(0) > 0);
        Self {
            formed: formed_before || newest.is_some() || accepted,
            leader: newest.and_then(|status| status.leader),
            // Each agent reads the configuration after the epoch is published, and the newest configuration is the last.
            epoch: configurations().filter_map(|s| s.published_epoch).filter(|epoch| *epoch < MAX_EPOCH).max(),
            serving: serving.collect(),
            voters,
        }
    }

    /// Ids of the voters of a list that have no vote; none if no fresh report shows who has one.
    pub(crate) fn without_vote<'a>(&'a self, listed: &'a [Server]) -> impl Iterator<Item = i32> + 'a {
        let voters = listed.iter().filter(|server| server.role == Role::Voter).map(|server| server.id);
        voters.filter(|id| !self.voters.is_empty() && !self.voters.contains(id))
    }

    /// True if a majority of the voters serves, as far as fresh reports show.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.voters.is_empty() && self.serving.len() >= majority(self.voters.len())
    }
}

/// The epoch of the leader that the servers of a report follow: each election begins a new one. A server that does not serve may
/// have accepted one whose election failed.
fn leaders_epoch(status: &ZooKeeperStatus) -> Option<i64> {
    status.servers.iter().filter(|server| server.serving).filter_map(|server| server.accepted_epoch).max()
}

/// The servers of a report, without those that the server list places in another cluster.
fn own_servers<'a>(report: &'a ClusterReport, servers: &'a [Server]) -> impl Iterator<Item = &'a ServerStatus> {
    let own = |id: i32| servers.iter().find(|server| server.id == id).is_none_or(|s| s.cluster == report.cluster);
    report.status.iter().flat_map(|status| &status.servers).filter(move |server| own(server.id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Configuration version and accepted epoch in a report.
    type Age = (i64, Option<i64>);

    /// m3, whose server led, returns. Karmada still has its last report, and the others have elected server 1.
    #[rstest]
    #[case::of_the_former_leader((7, Some(4)), true, (7, Some(5)), 1)]
    #[case::of_an_unknown_epoch((7, None), true, (7, Some(5)), 1)]
    #[case::whose_server_does_not_follow((7, Some(6)), false, (7, Some(5)), 1)]
    #[case::of_a_newer_configuration((8, Some(4)), true, (7, Some(5)), 3)]
    #[case::of_a_newer_leader((7, Some(6)), true, (7, Some(5)), 3)]
    fn the_report_of_the_newest_leader_counts(
        #[case] returned: Age,
        #[case] serving: bool,
        #[case] others: Age,
        #[case] leader: i32,
    ) {
        let report = |id: i32, serving: bool, leader: i32, (version, epoch): Age| {
            let status = json!({
                "writable": true, "votingMembers": [1, 2, 3], "configVersion": version, "leader": leader,
                "servers": [{ "id": id, "serving": serving, "acceptedEpoch": epoch }],
            });
            let status = Some(serde_json::from_value(status).unwrap());
            let cluster = format!("m{id}");
            let report = ClusterReport { cluster, reachable: true, applied: true, status, ..ClusterReport::default() };
            (report.cluster.clone(), report)
        };
        let reports = [report(1, true, 1, others), report(2, true, 1, others), report(3, serving, 3, returned)];
        let quorum = ReportedQuorum::of("abc123", &BTreeMap::from(reports), &[], true);
        assert_eq!((quorum.leader, quorum.voters.len()), (Some(leader), 3));
    }
}

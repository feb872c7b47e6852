//! What an ensemble may lose, by `ZooKeeper`'s own configuration.
//!
//! The server list says what is declared. More servers vote while one joins in the place of another, and fewer while one of
//! the list has no vote.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{known::Known, quorum::ReportedQuorum, report::ClusterReport};
use mczk_api::{
    contract::{
        conditions::{ConditionStatus, ConditionType, find},
        server_list::majority,
    },
    zookeeper::{Role, Server, ZooKeeperStatus},
};

/// Seconds after the schedule has settled in which voters without a report still count; until it settles they count too. Later, that
/// no agent misses them proves little: an agent whose count differs from the leader's names no missing voter.
const UNREPORTED_FOR: i64 = 180;

/// Where a voter is. A voter that no list and no report places may be lost alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VoterPlace {
    /// In this cluster.
    Cluster(String),
    /// In an unknown one.
    Server(i32),
}

impl std::fmt::Display for VoterPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(formatter, "cluster {cluster}"),
            Self::Server(id) => write!(formatter, "server {id}"),
        }
    }
}

/// The voters, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tolerance {
    voters: BTreeMap<VoterPlace, BTreeSet<i32>>,
    following: BTreeSet<i32>,
}

impl Tolerance {
    /// The voters of the configuration; those of the list if no fresh report shows one.
    pub(crate) fn of(listed: &[Server], quorum: &ReportedQuorum, known: &Known<'_>) -> Option<Self> {
        let of_list = || listed.iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect();
        let ids: BTreeSet<i32> = if quorum.voters.is_empty() { of_list() } else { quorum.voters.clone() };
        let mut voters: BTreeMap<VoterPlace, BTreeSet<i32>> = BTreeMap::new();
        for id in ids {
            let place =
                place(id, listed, known).map_or(VoterPlace::Server(id), |cluster| VoterPlace::Cluster(cluster.clone()));
            voters.entry(place).or_default().insert(id);
        }
        let following = following(&voters, quorum, known);
        (!voters.is_empty()).then_some(Self { voters, following })
    }

    /// The voters that serve, and those that follow without a report.
    pub(crate) fn following(&self) -> &BTreeSet<i32> {
        &self.following
    }

    /// Number of voters.
    pub(crate) fn voters(&self) -> usize {
        self.voters.values().map(BTreeSet::len).sum()
    }

    /// Voters that a quorum needs.
    pub(crate) fn needed(&self) -> usize {
        majority(self.voters())
    }

    /// How many more voters may stop serving before no majority is left.
    pub(crate) fn voter_losses(&self) -> usize {
        self.following_in().iter().sum::<usize>().saturating_sub(self.needed())
    }

    /// How many clusters may be lost, whichever they are, before no majority is left.
    pub(crate) fn cluster_losses(&self) -> usize {
        cluster_losses(self.following_in(), self.needed())
    }

    /// A place without which no majority is left even if all others serve, with the number of its voters.
    pub(crate) fn holder_of_the_majority(&self) -> Option<(&VoterPlace, usize)> {
        let holds = |voters: &BTreeSet<i32>| self.voters() - voters.len() < self.needed();
        self.voters.iter().find(|(_, voters)| holds(voters)).map(|(place, voters)| (place, voters.len()))
    }

    /// A place whose loss would lose the quorum now.
    pub(crate) fn exposed(&self) -> Option<&VoterPlace> {
        let follow = |voters: &BTreeSet<i32>| voters.intersection(&self.following).count();
        let all: usize = self.voters.values().map(follow).sum();
        self.voters.iter().find(|(_, voters)| all - follow(voters) < self.needed()).map(|(place, _)| place)
    }

    fn following_in(&self) -> Vec<usize> {
        self.voters.values().map(|voters| voters.intersection(&self.following).count()).collect()
    }
}

/// The voters that serve, and those that follow without a report. Karmada drops the report of a cluster that leaves the schedule,
/// while its servers still vote. They count while Karmada reaches the cluster, and no agent that sees the leader misses them.
///
/// An agent misses a voter after 20 seconds. So this is for users alone: every decision counts [`ReportedQuorum::serving`].
fn following(
    voters: &BTreeMap<VoterPlace, BTreeSet<i32>>,
    quorum: &ReportedQuorum,
    known: &Known<'_>,
) -> BTreeSet<i32> {
    let settled = find(&known.status.conditions, ConditionType::Scheduled, ConditionStatus::True);
    let since = settled.map(|settled| known.now.as_second() - settled.last_transition_time.0.as_second());
    if quorum.leader.is_none() || since.is_some_and(|since| since > UNREPORTED_FOR) {
        return quorum.serving.clone();
    }
    let sees_leader = |status: &&ZooKeeperStatus| {
        status.may_be_of(&known.incarnation.id) && status.writable == Some(true) && status.leader == quorum.leader
    };
    let fresh = known.reports.values().filter_map(ClusterReport::fresh_status);
    let missing: BTreeSet<i32> = fresh.filter(sees_leader).flat_map(|s| s.missing_voters.iter().copied()).collect();
    let has_left = |place: &VoterPlace| match place {
        VoterPlace::Cluster(name) => known.is_ready(name) && !known.has_work(name),
        VoterPlace::Server(_) => false,
    };
    let unreported = voters.iter().filter(|(place, _)| has_left(place)).flat_map(|(_, ids)| ids);
    quorum.serving.iter().chain(unreported.filter(|id| !missing.contains(*id))).copied().collect()
}

/// The cluster of a server: by the next list or the last one, which names those that leave, else the one that reports it.
fn place<'a>(id: i32, listed: &'a [Server], known: &'a Known<'_>) -> Option<&'a String> {
    let mut of_lists = listed.iter().chain(known.list_or_reported().all_servers());
    let names = |report: &&ClusterReport| {
        report.status.as_ref().is_some_and(|status| status.servers.iter().any(|server| server.id == id))
    };
    let of_list = of_lists.find(|server| server.id == id).map(|server| &server.cluster);
    of_list.or_else(|| known.reports.values().find(names).map(|report| &report.cluster))
}

/// How many clusters may be lost, from the number of serving voters in each. The clusters with the most voters go first.
fn cluster_losses(mut serving: Vec<usize>, needed: usize) -> usize {
    serving.sort_unstable_by(|first, second| second.cmp(first));
    let mut left: usize = serving.iter().sum();
    let survives = |lost: &&usize| {
        left -= **lost;
        left >= needed
    };
    serving.iter().take_while(survives).count()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::three_clusters(&[2, 2, 1], 3, 1)]
    #[case::five_clusters(&[1, 1, 1, 1, 1], 3, 2)]
    #[case::one_holds_the_majority(&[3, 1, 1], 3, 0)]
    #[case::one_serves_no_voter(&[2, 2, 0], 3, 0)]
    #[case::no_majority_serves(&[1, 1], 3, 0)]
    #[case::one_voter(&[1], 1, 0)]
    #[case::no_voter(&[], 1, 0)]
    fn clusters_that_may_be_lost(#[case] serving: &[usize], #[case] needed: usize, #[case] tolerated: usize) {
        assert_eq!(cluster_losses(serving.to_vec(), needed), tolerated);
    }
}

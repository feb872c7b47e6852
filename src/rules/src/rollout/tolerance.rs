//! What an ensemble may lose, by `ZooKeeper`'s own configuration.
//!
//! The server list says what is declared. More servers vote while one joins in the place of another, and fewer while one of
//! the list has no vote.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{quorum::ReportedQuorum, report::ClusterReport};
use mczk_api::{
    contract::server_list::majority,
    zookeeper::{Role, Server},
};

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
    serving: BTreeSet<i32>,
}

impl Tolerance {
    /// The voters of the configuration; those of the list if no fresh report shows one.
    pub(crate) fn of(
        listed: &[Server],
        quorum: &ReportedQuorum,
        reports: &BTreeMap<String, ClusterReport>,
    ) -> Option<Self> {
        let of_list = || listed.iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect();
        let ids: BTreeSet<i32> = if quorum.voters.is_empty() { of_list() } else { quorum.voters.clone() };
        let mut voters: BTreeMap<VoterPlace, BTreeSet<i32>> = BTreeMap::new();
        for id in ids {
            let place = place(id, listed, reports)
                .map_or(VoterPlace::Server(id), |cluster| VoterPlace::Cluster(cluster.clone()));
            voters.entry(place).or_default().insert(id);
        }
        (!voters.is_empty()).then(|| Self { voters, serving: quorum.serving.clone() })
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
        self.serving_in().iter().sum::<usize>().saturating_sub(self.needed())
    }

    /// How many clusters may be lost, whichever they are, before no majority is left.
    pub(crate) fn cluster_losses(&self) -> usize {
        cluster_losses(self.serving_in(), self.needed())
    }

    /// A place without which no majority is left even if all others serve, with the number of its voters.
    pub(crate) fn holder_of_the_majority(&self) -> Option<(&VoterPlace, usize)> {
        let holds = |voters: &BTreeSet<i32>| self.voters() - voters.len() < self.needed();
        self.voters.iter().find(|(_, voters)| holds(voters)).map(|(place, voters)| (place, voters.len()))
    }

    /// A place whose loss would lose the quorum now.
    pub(crate) fn exposed(&self) -> Option<&VoterPlace> {
        let serves = |voters: &BTreeSet<i32>| voters.intersection(&self.serving).count();
        let all: usize = self.voters.values().map(serves).sum();
        self.voters.iter().find(|(_, voters)| all - serves(voters) < self.needed()).map(|(place, _)| place)
    }

    fn serving_in(&self) -> Vec<usize> {
        self.voters.values().map(|voters| voters.intersection(&self.serving).count()).collect()
    }
}

/// The cluster of a server: by the list, else the one that reports it.
fn place<'a>(id: i32, listed: &'a [Server], reports: &'a BTreeMap<String, ClusterReport>) -> Option<&'a String> {
    let of_list = listed.iter().find(|server| server.id == id).map(|server| &server.cluster);
    let names = |report: &&ClusterReport| {
        report.status.as_ref().is_some_and(|status| status.servers.iter().any(|server| server.id == id))
    };
    of_list.or_else(|| reports.values().find(names).map(|report| &report.cluster))
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

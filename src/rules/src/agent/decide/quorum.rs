//! The quorum, as this agent sees it.

use std::collections::BTreeSet;

use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, ServerReport},
        server_list::majority,
    },
    mutation::broken,
};

/// The quorum, as this agent sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quorum {
    /// The newest configuration that a server read through a quorum.
    pub configuration: Configuration,
    /// Ids of servers that serve and that follow, lead or observe.
    pub(crate) following: BTreeSet<i32>,
    /// Those of them that have served long enough to be elected ([`mczk_api::contract::control_api::SETTLED`]).
    pub settled: BTreeSet<i32>,
    /// Id of the voter that leads.
    pub leader: Option<i32>,
}

impl Quorum {
    /// The quorum, if one of the servers could read the configuration through it.
    #[must_use]
    pub fn of(views: &[ServerReport]) -> Option<Self> {
        let read = views.iter().filter(|v| v.serving).filter_map(|v| v.configuration.as_ref());
        let configuration = read.max_by_key(|c| c.version)?.clone();
        let attached = |v: &&ServerReport| v.serving && v.synced && !matches!(v.mode, None | Some(Mode::Looking));
        let following = views.iter().filter(attached).filter_map(|v| v.id).collect();
        let settled = views.iter().filter(attached).filter(|v| v.settled).filter_map(|v| v.id).collect();
        let voters: BTreeSet<i32> = configuration.voters().collect();
        // Of two servers that report to lead, the one with fewer transactions has not noticed its replacement yet. Nor has one
        // whose epoch is older than that of a server that follows: the agent does not see the leader of that one.
        let leaders = views.iter().filter(|v| v.serving && v.mode == Some(Mode::Leader));
        let newest = views.iter().filter(attached).map(epoch).max();
        let leads = |v: &&ServerReport| Some(epoch(v)) >= newest || broken!(BelieveOldLeader);
        let leader = leaders.max_by_key(|v| v.zxid).filter(leads).and_then(|v| v.id).filter(|id| voters.contains(id));
        Some(Self { configuration, following, settled, leader })
    }

    /// Ids of the voters.
    #[must_use]
    pub fn voters(&self) -> BTreeSet<i32> {
        self.configuration.voters().collect()
    }

    /// True if a majority of the voters follows.
    #[must_use]
    pub fn holds(&self) -> bool {
        let voters = self.voters();
        !voters.is_empty() && voters.intersection(&self.following).count() >= majority(voters.len())
    }
}

/// The epoch of a server's last transaction: every leader begins a new one.
fn epoch(view: &ServerReport) -> Option<i64> {
    view.zxid.map(|zxid| zxid >> 32)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::decide::fixtures::report;
    use mczk_api::{contract::control_api::ConfiguredServer, zookeeper::Role};

    /// Server 1 reports to lead, and server 2 to follow. A follower of a newer epoch follows another leader.
    #[rstest]
    #[case::of_the_same_epoch(Some((4 << 32) + 7), Some((4 << 32) + 9), Some(1))]
    #[case::of_an_older_epoch(Some((4 << 32) + 7), Some(5 << 32), None)]
    #[case::of_an_unknown_epoch(None, Some(5 << 32), None)]
    #[case::a_follower_of_an_unknown_epoch(Some(4 << 32), None, Some(1))]
    fn a_leader_that_was_replaced_does_not_count(
        #[case] leads: Option<i64>,
        #[case] follows: Option<i64>,
        #[case] expected: Option<i32>,
    ) {
        let server = |id| ConfiguredServer { id, host: format!("s{id}"), role: Role::Voter };
        let configuration = Configuration { version: 1, servers: vec![server(1), server(2), server(3)] };
        let views = [(1, Mode::Leader, leads), (2, Mode::Follower, follows)].map(|(id, mode, zxid)| ServerReport {
            zxid,
            configuration: Some(configuration.clone()),
            ..report(id, mode, true)
        });
        assert_eq!(Quorum::of(&views).and_then(|quorum| quorum.leader), expected);
    }
}

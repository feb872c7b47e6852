//! The quorum, as this agent sees it.

use std::{collections::BTreeSet, time::Duration};

use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, ServerReport},
        server_list::majority,
    },
    mutation::broken,
};

/// What a user reads of a server that may follow, and that the agent does not reach.
const UNSEEN: &str = "does not answer the agent, and the leader counts more voters than those that do: let the agent reach \
                      port 8443 of its pod";

/// What a user reads of a server that leads or follows, and serves no session.
pub(crate) const NO_SESSION: &str = "takes part in the quorum and opens no session: clients may use up its connections \
                                     (maxCnxns), or its disk is slow";

/// The quorum, as this agent sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quorum {
    /// The newest configuration that a server read through a quorum.
    pub configuration: Configuration,
    /// Ids of servers that serve and that follow, lead or observe.
    pub(crate) following: BTreeSet<i32>,
    /// Those of them that have served long enough to be elected ([`mczk_api::contract::control_api::SETTLED`]).
    pub settled: BTreeSet<i32>,
    /// Ids of servers that lead or follow, and serve no session.
    pub(crate) without_session: BTreeSet<i32>,
    /// Id of the voter that leads.
    pub leader: Option<i32>,
    /// Voters that follow the leader, by its own count.
    pub(crate) counted: Option<i32>,
    /// For how long the leader has counted fewer voters than its configuration has. Absent if its server is too old to measure it.
    pub(crate) short_for: Option<Duration>,
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
        let view_of_leader = views.iter().find(|v| v.id.is_some() && v.id == leader);
        let counted = view_of_leader.and_then(|v| v.synced_voters);
        let seconds = view_of_leader.and_then(|v| v.short_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let short_for = seconds.map(Duration::from_secs);
        let without_session = views.iter().filter(|v| !v.serving && v.takes_part()).filter_map(|v| v.id).collect();
        Some(Self { configuration, following, settled, without_session, leader, counted, short_for })
    }

    /// Ids of the voters.
    #[must_use]
    pub fn voters(&self) -> BTreeSet<i32> {
        self.configuration.voters().collect()
    }

    /// True if the agent sees that a server leads or follows, with sessions or without.
    #[must_use]
    pub(crate) fn takes_part(&self, id: i32) -> bool {
        self.following.contains(&id) || self.without_session.contains(&id)
    }

    /// True if a voter takes part although it serves no session, or may take part: the leader counts more voters than the agent
    /// sees. A leader counts a lost voter for `syncLimit`.
    #[must_use]
    pub(crate) fn may_take_part(&self, id: i32) -> bool {
        if broken!(BuryUnseen) {
            return false;
        }
        let seen = self.voters().iter().filter(|id| self.takes_part(**id)).count();
        let seen_voters = i32::try_from(seen).unwrap_or(i32::MAX);
        self.takes_part(id) || self.counted.is_some_and(|counted| counted.saturating_add(1) > seen_voters)
    }

    /// Why a server does not count as one that follows.
    #[must_use]
    pub(crate) fn why_not_following(&self, id: i32) -> &'static str {
        match id {
            id if self.without_session.contains(&id) => NO_SESSION,
            id if !self.following.contains(&id) && self.may_take_part(id) => UNSEEN,
            _ => "does not serve, or is not synced",
        }
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

    /// The agent sees that servers 1 and 2 of five follow. The leader counts more voters than that, or not, or does not say.
    #[rstest]
    #[case::all_follow(Some(4), true)]
    #[case::one_more(Some(2), true)]
    #[case::these_alone(Some(1), false)]
    #[case::unknown(None, false)]
    fn a_silent_voter_is_dead_only_if_the_leader_does_not_count_it(
        #[case] counted: Option<i32>,
        #[case] expected: bool,
    ) {
        let server = |id| ConfiguredServer { id, host: format!("s{id}"), role: Role::Voter };
        let configuration = Configuration { version: 1, servers: (1..=5).map(server).collect() };
        let views = [(1, Mode::Leader, counted), (2, Mode::Follower, None)].map(|(id, mode, synced_voters)| {
            ServerReport { synced_voters, configuration: Some(configuration.clone()), ..report(id, mode, true) }
        });
        let said = Quorum::of(&views).map(|quorum| (quorum.may_take_part(5), quorum.why_not_following(5) == UNSEEN));
        assert_eq!(said, Some((expected, expected)));
    }
}

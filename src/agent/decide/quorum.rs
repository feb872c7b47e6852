//! The quorum, as this agent sees it.

use std::collections::BTreeSet;

use crate::contract::{
    control_api::{Configuration, Mode, ServerReport},
    server_list::majority,
};

/// The quorum, as this agent sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quorum {
    /// The newest configuration that a server read through a quorum.
    pub(crate) configuration: Configuration,
    /// Ids of servers that serve and that follow, lead or observe.
    pub(crate) following: BTreeSet<i32>,
    /// Those of them that have served long enough to be elected ([`crate::contract::control_api::SETTLED`]).
    pub(crate) settled: BTreeSet<i32>,
    /// Id of the voter that leads.
    pub(crate) leader: Option<i32>,
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
        // Of two servers that report to lead, the one with fewer transactions has not noticed its replacement yet.
        let leaders = views.iter().filter(|v| v.serving && v.mode == Some(Mode::Leader));
        let leader = leaders.max_by_key(|v| v.zxid).and_then(|v| v.id).filter(|id| voters.contains(id));
        Some(Self { configuration, following, settled, leader })
    }

    /// Ids of the voters.
    #[must_use]
    pub(crate) fn voters(&self) -> BTreeSet<i32> {
        self.configuration.voters().collect()
    }

    /// True if a majority of the voters follows.
    #[must_use]
    pub(crate) fn holds(&self) -> bool {
        let voters = self.voters();
        !voters.is_empty() && voters.intersection(&self.following).count() >= majority(voters.len())
    }
}

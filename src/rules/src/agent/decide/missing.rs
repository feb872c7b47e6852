//! The voters that are missing: for how long the agent has not seen each of them take part, while the leader's own count agrees.
//!
//! An agent may reach fewer servers than the leader. So a voter's time counts only while both miss the same number of voters. A disagreement, or a leader
//! that does not answer, may last for [`DISAGREEMENT`]: a leader counts a lost voter for `syncLimit`, and an election takes a while. After
//! that every time begins again. No step rests on a time in a moment of disagreement.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::agent::decide::quorum::Quorum;
use mczk_api::{contract::control_api::ServerReport, mutation::broken};

/// How long agent and leader may disagree.
const DISAGREEMENT: Duration = Duration::from_secs(20);
/// How long a voter is missing before a report names it.
pub(crate) const REPORTED_AFTER: Duration = Duration::from_secs(20);
/// A time without a poll after which every time begins again. The leader measures meanwhile.
const UNPOLLED: Duration = Duration::from_secs(40);

/// Since when voters have been missing. Times are counted from the start of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MissingVoters {
    since: BTreeMap<i32, Duration>,
    /// Since when the leader's count has not been that of the agent.
    disagree: Option<Duration>,
    /// The time of the last poll. What happened between two polls is unknown.
    polled: Option<Duration>,
}

impl MissingVoters {
    /// What is missing after another poll of the servers, at the time `now`.
    #[must_use]
    pub fn after(mut self, views: &[ServerReport], now: Duration) -> Self {
        let unpolled = now.saturating_sub(self.polled.replace(now).unwrap_or(now));
        if unpolled >= UNPOLLED {
            self.since.clear();
        }
        let Some(quorum) = Quorum::of(views) else {
            return self.disagreeing(now);
        };
        let voters = quorum.voters();
        let missing = missing(&quorum, views);
        self.since.retain(|id, _| missing.contains(id) || broken!(DemoteWhatFollows) && voters.contains(id));
        for id in missing {
            self.since.entry(id).or_insert(now);
        }
        if agree(&quorum) {
            self.disagree = None;
            return self;
        }
        self.disagreeing(now)
    }

    fn disagreeing(mut self, now: Duration) -> Self {
        let since = *self.disagree.get_or_insert(now);
        if now.saturating_sub(since) >= DISAGREEMENT && !broken!(KeepTimer) {
            self.since.clear();
        }
        self
    }

    /// The voters that have been missing for `least` at the last poll, by agent and leader. None while they disagree.
    #[must_use]
    pub fn lasting(&self, least: Duration) -> BTreeSet<i32> {
        if self.disagree.is_some() { BTreeSet::new() } else { self.reported(least) }
    }

    /// The same whether they agree at this moment or not: a report must rest.
    #[must_use]
    pub fn reported(&self, least: Duration) -> BTreeSet<i32> {
        let now = self.polled.unwrap_or_default();
        let lasts = |since: &Duration| now.saturating_sub(*since) >= least;
        self.since.iter().filter(|(_, since)| lasts(since)).map(|(id, _)| *id).collect()
    }

    /// True if no voter is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }
}

/// The voters that the agent does not see take part. The one with the restart lock is down on purpose.
fn missing(quorum: &Quorum, views: &[ServerReport]) -> BTreeSet<i32> {
    let locked: BTreeSet<i32> = views.iter().filter_map(|view| Some(view.restart_lock.as_ref()?.server)).collect();
    let counts = |id: &i32| !quorum.takes_part(*id) && (!locked.contains(id) || broken!(DemoteLocked));
    quorum.voters().into_iter().filter(counts).collect()
}

/// True if the leader counts as many followers as the agent sees.
fn agree(quorum: &Quorum) -> bool {
    let seen = quorum.voters().iter().filter(|id| quorum.takes_part(**id)).count();
    let followers = i32::try_from(seen).unwrap_or(i32::MAX).saturating_sub(1);
    quorum.counted == Some(followers) || broken!(IgnoreLeadersCount)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::decide::fixtures::report;
    use mczk_api::{
        contract::control_api::{Configuration, ConfiguredServer, Mode, RestartLock},
        mutation::Mutation,
        zookeeper::Role,
    };

    /// One poll: the second, the servers that follow leader 1 of five, its count, and the server with the restart lock.
    type Poll<'a> = (u64, &'a [i32], Option<i32>, Option<i32>);

    fn poll(missing: MissingVoters, (second, following, counted, locked): Poll<'_>) -> MissingVoters {
        let server = |id| ConfiguredServer { id, host: format!("s{id}"), role: Role::Voter };
        let configuration = Configuration { version: 1, servers: (1..=5).map(server).collect() };
        let view = |id: i32, mode: Mode| ServerReport {
            configuration: Some(configuration.clone()),
            synced_voters: counted.filter(|_| mode == Mode::Leader),
            restart_lock: locked.map(|server| RestartLock { holder: "m1".into(), server }),
            ..report(id, mode, true)
        };
        let followers = following.iter().map(|id| view(*id, Mode::Follower));
        let views: Vec<ServerReport> = counted.map(|_| view(1, Mode::Leader)).into_iter().chain(followers).collect();
        missing.after(&views, Duration::from_secs(second))
    }

    const TWO_LOST: Poll<'static> = (0, &[2, 3], Some(2), None);
    const ALL_FOLLOW: Poll<'static> = (0, &[2, 3, 4, 5], Some(4), None);
    const MORE_COUNTED: Poll<'static> = (0, &[2, 3], Some(4), None);

    /// A poll each ten seconds repeats the one before it.
    fn lasting(polls: &[Poll<'_>], seconds: u64) -> BTreeSet<i32> {
        let at = |second: u64| polls.iter().rev().find(|poll| poll.0 <= second);
        let times = (0..=60).filter(|second| second % 10 == 0 || polls.iter().any(|poll| poll.0 == *second));
        let missing = times
            .filter_map(|second| Some((second, at(second)?)))
            .fold(MissingVoters::default(), |missing, (second, (_, following, counted, locked))| {
                poll(missing, (second, following, *counted, *locked))
            });
        missing.lasting(Duration::from_secs(seconds))
    }

    #[rstest]
    #[case::for_a_minute(&[TWO_LOST], &[4, 5])]
    #[case::for_less(&[ALL_FOLLOW, (1, &[2, 3], Some(2), None)], &[])]
    #[case::one_is_seen_once(&[TWO_LOST, (30, &[2, 3, 4], Some(3), None), (31, &[2, 3], Some(2), None)], &[5])]
    #[case::the_leader_counts_more_for_a_moment(&[MORE_COUNTED, (10, &[2, 3], Some(2), None)], &[4, 5])]
    #[case::the_leader_counts_more(&[MORE_COUNTED], &[])]
    #[case::the_leader_counts_more_for_long(&[MORE_COUNTED, (21, &[2, 3], Some(2), None)], &[])]
    #[case::no_leader_for_long(&[TWO_LOST, (10, &[2, 3], None, None), (31, &[2, 3], Some(2), None)], &[])]
    #[case::no_leader_for_a_moment(&[TWO_LOST, (10, &[2, 3], None, None), (29, &[2, 3], Some(2), None)], &[4, 5])]
    #[case::the_restart_lock(&[TWO_LOST, (50, &[2, 3], Some(2), Some(4))], &[5])]
    fn voters_are_missing(#[case] polls: &[Poll<'_>], #[case] expected: &[i32]) {
        assert_eq!(lasting(polls, 60), expected.iter().copied().collect());
    }

    /// A voter may have followed between two polls.
    #[test]
    fn a_time_without_a_poll_does_not_count() {
        let missing = poll(poll(MissingVoters::default(), TWO_LOST), (40, &[2, 3], Some(2), None));
        let lasting = |least| missing.lasting(Duration::from_secs(least)).len();
        assert_eq!((lasting(0), lasting(1)), (2, 0));
    }

    #[rstest]
    #[case(Mutation::DemoteWhatFollows, &[TWO_LOST, (30, &[2, 3, 4], Some(3), None), (31, &[2, 3], Some(2), None)])]
    #[case(Mutation::IgnoreLeadersCount, &[MORE_COUNTED])]
    #[case(Mutation::KeepTimer, &[TWO_LOST, (10, &[2, 3], None, None), (31, &[2, 3], Some(2), None)])]
    #[case(Mutation::DemoteLocked, &[TWO_LOST, (50, &[2, 3], Some(2), Some(4))])]
    fn a_broken_rule_takes_more_votes(#[case] mutation: Mutation, #[case] polls: &[Poll<'_>]) {
        assert!(Mutation::with(Some(mutation), || lasting(polls, 60).len()) > lasting(polls, 60).len());
    }
}

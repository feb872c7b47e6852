//! For how long the own server, while it leads, has counted fewer synced voters than its configuration has.
//!
//! The leader measures this itself. So a request with the quorum's identity alone takes no vote.

use std::time::Duration;

/// A leader that does not answer for this long counts as one that has stopped to lead.
const UNHEARD: Duration = Duration::from_secs(20);

/// What the own server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerCount {
    /// It leads, and misses a voter.
    Fewer,
    /// It leads all voters.
    All,
    /// It does not lead.
    NotLeading,
    /// It does not answer.
    Unknown,
}

impl FollowerCount {
    /// What a leader counts that has `synced` followers with a vote, of `voters` in all.
    #[must_use]
    pub fn of(synced: i32, voters: usize) -> Self {
        let followers = i32::try_from(voters).unwrap_or(i32::MAX).saturating_sub(1);
        if synced < followers { Self::Fewer } else { Self::All }
    }
}

/// Since when the count has been short. Times are counted from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortCount {
    /// Since when, and when it was last heard.
    since: Option<(Duration, Duration)>,
}

impl ShortCount {
    /// The measure after another count, at the time `now`. A configuration with fewer voters does not end it: the next voter
    /// may have been missing as long.
    #[must_use]
    pub fn after(self, counted: FollowerCount, now: Duration) -> Self {
        let since = match (counted, self.since) {
            (FollowerCount::Fewer, Some((since, heard))) if now.saturating_sub(heard) < UNHEARD => Some((since, now)),
            (FollowerCount::Fewer, _) => Some((now, now)),
            (FollowerCount::Unknown, since) => since,
            (FollowerCount::All | FollowerCount::NotLeading, _) => None,
        };
        Self { since }
    }

    /// How long the count has been short.
    #[must_use]
    pub fn lasts(self, now: Duration) -> Duration {
        let heard = self.since.filter(|(_, heard)| now.saturating_sub(*heard) < UNHEARD);
        heard.map_or(Duration::ZERO, |(since, _)| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use FollowerCount::{All, Fewer, NotLeading, Unknown};

    #[rstest]
    #[case::short(&[(0, Fewer), (19, Fewer), (38, Fewer), (50, Fewer)], 60)]
    #[case::unheard_for_a_moment(&[(41, Fewer), (42, Unknown), (58, Fewer)], 19)]
    #[case::unheard_for_long(&[(0, Fewer), (2, Unknown), (50, Fewer)], 10)]
    #[case::unheard_now(&[(0, Fewer), (2, Unknown)], 0)]
    #[case::whole(&[(45, Fewer), (50, All)], 0)]
    #[case::whole_once(&[(45, Fewer), (50, All), (52, Fewer)], 8)]
    #[case::another_leads(&[(45, Fewer), (50, NotLeading), (52, Fewer)], 8)]
    #[case::never(&[(0, Unknown)], 0)]
    fn a_leader_measures_its_own_count(#[case] counts: &[(u64, FollowerCount)], #[case] expected: u64) {
        let after = |short: ShortCount, (second, counted): &(u64, FollowerCount)| {
            short.after(*counted, Duration::from_secs(*second))
        };
        let lasts = counts.iter().fold(ShortCount::default(), after).lasts(Duration::from_secs(60));
        assert_eq!(lasts, Duration::from_secs(expected));
    }

    #[rstest]
    #[case(4, 5, All)]
    #[case(3, 5, Fewer)]
    #[case(5, 5, All)]
    #[case(0, 1, All)]
    fn a_count_is_compared_with_the_configuration(
        #[case] synced: i32,
        #[case] voters: usize,
        #[case] expected: FollowerCount,
    ) {
        assert_eq!(FollowerCount::of(synced, voters), expected);
    }
}

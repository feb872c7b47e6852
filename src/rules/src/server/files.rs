//! What the files of a server prove. Pure: a listing of its snapshots and logs is the only input.
//!
//! `ZooKeeper` loads its newest complete snapshot, and after it every transaction in its logs. It checks neither that a log is
//! missing nor that the logs skip transactions. So the server remembers what its files held ([`Held`]), and compares.

use serde::{Deserialize, Serialize};

use mczk_api::mutation::broken;

/// The first transaction of the first epoch.
const FIRST_ZXID: i64 = 0x1_0000_0001;
/// A zxid is the number of an epoch, and below this bit a counter. It begins with 1 in each epoch, and with 0 if the first
/// request of an epoch cannot be read.
const EPOCH: u32 = 32;
const COUNTER: i64 = 0xffff_ffff;

/// A snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot {
    /// The zxid in its name: its last transaction.
    pub zxid: i64,
    /// True if `ZooKeeper` can load it. A full disk or a power loss leaves a part of one under its final name.
    pub complete: bool,
}

/// A transaction log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log {
    /// The zxid in its name: its first transaction.
    pub begin: i64,
    /// Its complete transactions in their order, as runs without gaps: the first and the last zxid of each.
    pub runs: Vec<(i64, i64)>,
}

impl Log {
    fn last(&self) -> Option<i64> {
        self.runs.iter().map(|(_, last)| *last).max()
    }

    /// Its last transaction up to `zxid`.
    fn last_until(&self, zxid: i64) -> Option<i64> {
        self.runs.iter().filter(|(first, _)| *first <= zxid).map(|(_, last)| *last.min(&zxid)).max()
    }

    fn holds(&self, zxid: i64) -> bool {
        self.runs.iter().any(|(first, last)| (*first..=*last).contains(&zxid))
    }
}

/// Snapshots and logs of a server, each in the order of the zxids in their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Files {
    /// Its snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Its logs.
    pub logs: Vec<Log>,
}

/// Transactions that the files certainly held, and that a quorum had committed, at an earlier moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Held {
    /// The newest complete snapshot. 0 without one.
    pub snapshot: i64,
    /// Logs: the zxid in the name, and the last transaction.
    pub logs: Vec<(i64, i64)>,
    /// The newest transaction that must be in the files, because it was applied long ago. `ZooKeeper` also applies what its
    /// own log cannot take, and goes on writing to a log without a name, which a user has deleted.
    pub applied: i64,
}

impl Files {
    /// The newest snapshot that `ZooKeeper` can load.
    #[must_use]
    fn newest_snapshot(&self) -> Option<i64> {
        let counts = |snapshot: &&Snapshot| snapshot.complete || broken!(BelievePartialSnapshot);
        self.snapshots.iter().filter(counts).map(|snapshot| snapshot.zxid).max()
    }

    /// The last transaction that the server has after it has loaded its files. `None` without any.
    #[must_use]
    pub fn end(&self) -> Option<i64> {
        self.newest_snapshot().max(self.logs.iter().filter_map(Log::last).max())
    }

    /// True if the logs hold every transaction of the ensemble, from the first one on.
    #[must_use]
    pub fn is_whole_history(&self) -> bool {
        self.logs.first().is_some_and(|log| log.begin == FIRST_ZXID && !log.runs.is_empty())
            && self.gap_after(0).is_none()
    }

    /// True if `ZooKeeper` must begin with the first log, because no snapshot is complete.
    #[must_use]
    pub fn lacks_snapshot(&self) -> bool {
        self.newest_snapshot().is_none() && self.is_whole_history() && !broken!(NeedSnapshot)
    }

    /// The epoch to write into `currentEpoch`, if the files are ahead of it. `ZooKeeper` writes what it copies from a leader
    /// before that epoch, and never starts again if it dies in between. Files that end in an epoch hold all that its leader
    /// began with, so the server follows that epoch as if it had written the number itself. It accepted the epoch before.
    #[must_use]
    pub fn entered_epoch(&self, current: i64, accepted: i64) -> Option<i64> {
        let epoch = self.end()? >> EPOCH;
        (current < epoch && epoch <= accepted && !broken!(KeepOldEpoch)).then_some(epoch)
    }

    /// Transactions that the logs skip after the newest complete snapshot: the last one before, and the first one after. A
    /// quorum numbers the transactions of an epoch without gaps.
    #[must_use]
    pub fn gap(&self) -> Option<(i64, i64)> {
        self.gap_after(self.newest_snapshot().unwrap_or_default())
    }

    fn gap_after(&self, snapshot: i64) -> Option<(i64, i64)> {
        // A log may hold transactions up to the begin of the next log.
        let first = self.logs.iter().rposition(|log| log.begin <= snapshot).unwrap_or_default();
        let mut before = snapshot;
        for (begin, end) in self.logs.iter().skip(first).flat_map(|log| &log.runs) {
            let begins_epoch = begin >> EPOCH > before >> EPOCH && begin & COUNTER <= 1;
            if *begin > before + 1 && !begins_epoch {
                return Some((before, *begin));
            }
            before = before.max(*end);
        }
        None
    }

    /// The first transaction that the files held and that they hold no longer, although a start needs it.
    #[must_use]
    pub fn lost(&self, held: &Held) -> Option<i64> {
        let snapshot = self.newest_snapshot().unwrap_or_default();
        for (begin, last) in held.logs.iter().filter(|(_, last)| *last > snapshot) {
            let log = self.logs.iter().find(|log| log.begin == *begin);
            match log.and_then(Log::last) {
                None => return Some((*begin).max(snapshot + 1)),
                Some(end) if end < *last => return Some(end.max(snapshot) + 1),
                Some(_) => {}
            }
        }
        let in_log = self.logs.iter().any(|log| log.holds(held.snapshot));
        if held.snapshot > snapshot && !in_log {
            return Some(held.snapshot);
        }
        let end = self.end().unwrap_or_default();
        (end < held.applied).then_some(end + 1)
    }

    /// What the files hold of the transactions up to `committed`. A quorum has committed these, so no later leader takes them
    /// back. Later ones it may. What the files have lost since `before` stays in the result until a snapshot has it, and
    /// everything stays while it is unknown what is committed.
    #[must_use]
    pub fn held(&self, before: &Held, committed: Option<i64>, applied: i64) -> Held {
        let applied = before.applied.max(applied);
        let Some(committed) = committed.filter(|_| self.lost(before).is_none()) else {
            return Held { applied, ..before.clone() };
        };
        let snapshots = self.snapshots.iter().filter(|snapshot| snapshot.complete && snapshot.zxid <= committed);
        let logs = self.logs.iter().filter(|log| log.begin <= committed);
        Held {
            snapshot: snapshots.map(|snapshot| snapshot.zxid).max().unwrap_or_default(),
            logs: logs.filter_map(|log| Some((log.begin, log.last_until(committed)?))).collect(),
            applied,
        }
    }

    /// Snapshots that `ZooKeeper` cannot load and that no start misses, because another snapshot or the whole history is there.
    #[must_use]
    pub fn useless_snapshots(&self) -> Vec<i64> {
        if self.newest_snapshot().is_none() && !self.is_whole_history() {
            return Vec::new();
        }
        self.snapshots.iter().filter(|snapshot| !snapshot.complete).map(|snapshot| snapshot.zxid).collect()
    }

    /// Snapshots and logs that no start needs: snapshots before the last `kept` complete ones, and logs that end before the
    /// oldest of these. At least one snapshot stays.
    #[must_use]
    pub fn unneeded(&self, kept: usize) -> (Vec<i64>, Vec<i64>) {
        let complete: Vec<i64> = self.snapshots.iter().filter(|s| s.complete).map(|s| s.zxid).collect();
        let Some(first_kept) = complete.len().checked_sub(kept.max(1)) else { return Default::default() };
        let Some(oldest) = complete.get(first_kept) else { return Default::default() };
        // A log may hold transactions up to the begin of the next log.
        let before = self.logs.iter().filter(|log| log.begin <= *oldest).count().saturating_sub(1);
        let logs = self.logs.iter().take(before).map(|log| log.begin).collect();
        (complete.into_iter().take(first_kept).collect(), logs)
    }
}

/// Adds the next transaction of a log to its runs.
pub fn add_to(runs: &mut Vec<(i64, i64)>, zxid: i64) {
    match runs.last_mut() {
        Some((_, last)) if *last + 1 == zxid => *last = zxid,
        Some((_, last)) if *last == zxid => {}
        _ => runs.push((zxid, zxid)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A zxid from its epoch and its counter: `2.1`.
    fn zxid(text: &str) -> i64 {
        let (epoch, counter) = text.split_once('.').unwrap();
        epoch.parse::<i64>().unwrap() << EPOCH | counter.parse::<i64>().unwrap()
    }

    /// Logs from their transactions: `1.1 1.2 | 1.3`.
    fn logs(text: &str) -> Vec<Log> {
        let texts = text.split(" | ").filter(|log| !log.is_empty());
        let log = |log: &str| {
            let zxids: Vec<i64> = log.split(' ').map(zxid).collect();
            Log { begin: *zxids.first().unwrap(), runs: runs(&zxids) }
        };
        texts.map(log).collect()
    }

    fn runs(zxids: &[i64]) -> Vec<(i64, i64)> {
        let mut runs = Vec::new();
        for zxid in zxids {
            add_to(&mut runs, *zxid);
        }
        runs
    }

    /// Files with complete snapshots, and with partial ones, which have a `?`.
    fn files(snapshots: &str, text: &str) -> Files {
        let snapshot = |text: &str| Snapshot { zxid: zxid(text.trim_end_matches('?')), complete: !text.ends_with('?') };
        Files { snapshots: snapshots.split_whitespace().map(snapshot).collect(), logs: logs(text) }
    }

    #[rstest]
    #[case::whole("1.0", "1.1 1.2 | 1.3", None)]
    #[case::another_epoch("1.0", "1.1 | 3.1", None)]
    #[case::an_unreadable_first_request("1.0", "1.1 | 3.0 3.1", None)]
    #[case::nothing_after_the_snapshot("1.9", "1.1 1.4", None)]
    #[case::before_the_snapshot("1.4", "1.1 1.4 | 1.5", None)]
    #[case::written_twice("1.0", "1.1 1.2 1.2 | 1.3", None)]
    #[case::in_a_log("1.0", "1.1 1.4", Some(["1.1", "1.4"]))]
    #[case::between_logs("1.0", "1.1 | 1.3", Some(["1.1", "1.3"]))]
    #[case::after_the_snapshot("1.2", "1.4", Some(["1.2", "1.4"]))]
    #[case::after_a_snapshot_that_is_not_complete("1.2 1.3?", "1.1 1.2 | 1.4", Some(["1.2", "1.4"]))]
    #[case::at_the_begin_of_an_epoch("1.0", "1.1 2.2", Some(["1.1", "2.2"]))]
    fn transactions_that_logs_skip_are_found(
        #[case] snapshots: &str,
        #[case] logs: &str,
        #[case] expected: Option<[&str; 2]>,
    ) {
        assert_eq!(files(snapshots, logs).gap(), expected.map(|[before, after]| (zxid(before), zxid(after))));
    }

    #[rstest]
    #[case::unchanged("1.4", "1.1 1.4 | 1.5 1.6", "1.4", "1.1 1.4 | 1.5 1.6", None)]
    #[case::grown("1.4", "1.1 1.4 | 1.5", "1.4", "1.1 1.4 | 1.5 1.6", None)]
    #[case::purged("1.4", "1.1 1.4 | 1.5 1.6", "1.6", "1.5 1.6", None)]
    #[case::all_logs_deleted("1.4", "1.1 1.4 | 1.5 1.6", "1.4", "", Some("1.5"))]
    #[case::all_logs_deleted_beside_a_partial_snapshot("1.4", "1.1 1.4 | 1.5 1.6", "1.4 1.6?", "", Some("1.5"))]
    #[case::all_logs_deleted_after_a_snapshot("1.4", "1.1 1.4 | 1.5 1.6", "1.6", "", None)]
    #[case::the_newest_log_deleted("1.4", "1.1 1.4 | 1.5 1.6", "1.4", "1.1 1.4", Some("1.5"))]
    #[case::a_log_before_an_epoch_deleted("1.0", "1.1 1.2 | 1.3 | 2.1", "1.0", "1.1 1.2 | 2.1", Some("1.3"))]
    #[case::the_end_of_a_log_cut("1.4", "1.5 1.6 1.7", "1.4", "1.5 1.6", Some("1.7"))]
    #[case::the_end_of_a_log_before_an_epoch_cut("1.0", "1.1 1.2 1.3 | 2.1", "1.0", "1.1 1.2 | 2.1", Some("1.3"))]
    #[case::a_log_emptied_below_the_snapshot("1.4", "1.1 1.4", "1.4", "", None)]
    #[case::a_snapshot_deleted_whose_log_is_there("1.2 1.4", "1.1 1.2 1.3 1.4", "1.2", "1.1 1.2 1.3 1.4", None)]
    #[case::a_copied_snapshot_damaged("1.2 1.9", "1.1 1.2 | 2.1", "1.2 1.9?", "1.1 1.2 | 2.1", Some("1.9"))]
    fn transactions_that_files_hold_no_longer_are_found(
        #[case] snapshots: &str,
        #[case] logs: &str,
        #[case] later_snapshots: &str,
        #[case] later_logs: &str,
        #[case] expected: Option<&str>,
    ) {
        let held = files(snapshots, logs).held(&Held::default(), Some(i64::MAX), 0);
        let later = files(later_snapshots, later_logs);
        assert_eq!(later.lost(&held), expected.map(zxid));
        // What a server has lost stays lost while it runs.
        assert_eq!(later.lost(&later.held(&held, Some(i64::MAX), 0)), expected.map(zxid));
        assert_eq!(later.lost(&later.held(&held, None, 0)), expected.map(zxid), "what is committed is unknown");
    }

    /// `ZooKeeper` goes on writing to a log that a user has deleted.
    #[test]
    fn transactions_that_were_applied_long_ago_must_be_in_the_files() {
        let (now, applied) = (files("1.2", "1.1 1.2 1.3"), zxid("1.5"));
        let held = now.held(&Held::default(), Some(applied), applied);
        assert_eq!(now.lost(&held), Some(zxid("1.4")));
        let after_a_snapshot = files("1.2 1.5", "1.1 1.2 1.3");
        assert_eq!(after_a_snapshot.lost(&held), None);
    }

    /// Another leader may take back what no quorum has committed.
    #[test]
    fn what_a_quorum_has_not_committed_does_not_count() {
        let held = files("1.2 1.5", "1.1 1.2 | 1.3 1.4 1.5 | 1.6").held(&Held::default(), Some(zxid("1.4")), 0);
        let logs = vec![(zxid("1.1"), zxid("1.2")), (zxid("1.3"), zxid("1.4"))];
        assert_eq!(held, Held { snapshot: zxid("1.2"), logs, applied: 0 });
    }

    #[rstest]
    #[case::nothing("", "", None, false, "")]
    #[case::an_empty_snapshot_alone("1.0?", "", None, false, "")]
    #[case::the_whole_history("1.0? 1.2?", "1.1 1.2", Some("1.2"), true, "1.0 1.2")]
    #[case::a_history_with_a_gap("1.2?", "1.1 1.3", Some("1.3"), false, "")]
    #[case::a_later_log("1.2?", "1.2 1.3", Some("1.3"), false, "")]
    #[case::a_complete_snapshot("1.2 1.4?", "", Some("1.2"), false, "1.4")]
    fn partial_snapshots_count_for_nothing_and_go_when_no_start_misses_them(
        #[case] snapshots: &str,
        #[case] logs: &str,
        #[case] end: Option<&str>,
        #[case] lacks_snapshot: bool,
        #[case] useless: &str,
    ) {
        let files = files(snapshots, logs);
        let expected: Vec<i64> = useless.split_whitespace().map(zxid).collect();
        assert_eq!(
            (files.end(), files.lacks_snapshot(), files.useless_snapshots()),
            (end.map(zxid), lacks_snapshot, expected)
        );
    }

    #[rstest]
    #[case::a_copy("1.9", "", -1, 1, Some(1))]
    #[case::logs_of_the_next_epoch("1.0", "1.1 1.2 2.1", 1, 2, Some(2))]
    #[case::the_leader_has_not_written_yet("1.9", "", -1, 2, Some(1))]
    #[case::entered("1.9", "", 1, 1, None)]
    #[case::a_later_epoch("1.9", "", 2, 2, None)]
    #[case::an_epoch_that_was_not_accepted("2.9", "", 1, 1, None)]
    #[case::a_partial_copy("1.2 2.9?", "", 1, 2, None)]
    #[case::no_files("", "", -1, 1, None)]
    fn files_ahead_of_the_epoch_have_entered_theirs(
        #[case] snapshots: &str,
        #[case] logs: &str,
        #[case] current: i64,
        #[case] accepted: i64,
        #[case] expected: Option<i64>,
    ) {
        assert_eq!(files(snapshots, logs).entered_epoch(current, accepted), expected);
    }

    #[rstest]
    #[case::nothing("", "", 3, "", "")]
    #[case::too_few("1.1 1.2", "0.1 | 1.2", 3, "", "")]
    #[case::the_oldest_snapshot_and_its_logs("1.1 1.2 1.3 1.4", "0.1 | 1.2 | 1.3 | 1.4 | 1.5", 3, "1.1", "0.1")]
    #[case::a_log_that_begins_with_the_snapshot("1.1 1.2", "0.1 | 1.1 | 1.2", 1, "1.1", "0.1 1.1")]
    #[case::a_log_that_spans_the_snapshot("1.1 1.3", "0.1 | 1.2", 1, "1.1", "0.1")]
    #[case::no_log_ends_before("1.1 1.3", "1.2", 1, "1.1", "")]
    #[case::at_least_one_stays("1.1", "0.1 | 1.2", 0, "", "")]
    #[case::a_partial_one_replaces_none("1.1 1.2?", "0.1 | 1.2", 1, "", "")]
    fn what_a_start_needs_stays(
        #[case] snapshots: &str,
        #[case] logs: &str,
        #[case] kept: usize,
        #[case] old_snapshots: &str,
        #[case] old_logs: &str,
    ) {
        let named = |text: &str| text.split_whitespace().map(zxid).collect::<Vec<_>>();
        assert_eq!(files(snapshots, logs).unneeded(kept), (named(old_snapshots), named(old_logs)));
    }
}

//! The space on the volume: how much is used, and what `ZooKeeper` does not need any more.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use tracing::{info, warn};

use crate::{
    contract::control_api::{DISK_PRESSURE, Disk},
    mutation::broken,
    server::{atomic_file::sync_folder, transaction_log, volume::Volume},
};

/// Snapshots that stay, as in `ZooKeeper`'s own purge.
const KEPT: usize = 3;
/// Used part of the volume, in percent, from which only the newest snapshot stays.
const ALMOST_FULL: u64 = 95;

impl Volume {
    /// Use of the volume.
    ///
    /// # Errors
    /// If the volume cannot be read.
    pub(super) fn disk(&self) -> io::Result<Disk> {
        let space = rustix::fs::statvfs(self.root())?;
        // As `df`: blocks that are reserved for the system are neither used nor available.
        let usable = space.f_blocks.saturating_sub(space.f_bfree).saturating_add(space.f_bavail);
        Ok(Disk {
            size: usable.saturating_mul(space.f_frsize),
            available: space.f_bavail.saturating_mul(space.f_frsize),
            set_aside: self.set_aside_folders()?,
        })
    }

    /// Removes old snapshots and logs if the volume fills up. `ZooKeeper` purges at its start and every hour, but it cannot
    /// start on a full volume.
    ///
    /// # Errors
    /// If the volume cannot be read.
    pub(super) fn make_room(&self) -> io::Result<()> {
        let used = self.disk()?.used_percent();
        if used < DISK_PRESSURE {
            return Ok(());
        }
        let kept = if used < ALMOST_FULL { KEPT } else { 1 };
        let folder = self.transactions_folder();
        let snapshots = transaction_log::complete_snapshots(&folder)?;
        // `ZooKeeper` does not sync its snapshots. A power loss must leave one.
        for (_, kept) in snapshots.iter().rev().take(kept) {
            File::open(kept)?.sync_all()?;
        }
        for file in unneeded(snapshots, transaction_log::files(&folder, "log.")?, kept) {
            match fs::remove_file(&file) {
                Ok(()) => info!(file = %file.display(), used, "removed a file that ZooKeeper no longer needs"),
                Err(error) => warn!(%error, file = %file.display(), "cannot remove a file"),
            }
        }
        Ok(())
    }
}

impl Volume {
    /// Removes the newest log if the power went off before it held anything.
    ///
    /// # Errors
    /// If the log cannot be read or removed.
    pub(super) fn remove_empty_log(&self) -> io::Result<()> {
        let folder = self.transactions_folder();
        let Some(log) = transaction_log::empty(&folder)?.filter(|_| !broken!(KeepEmptyLog)) else { return Ok(()) };
        warn!(file = %log.display(), "removing a log that holds nothing: the power went off before its first transaction");
        fs::remove_file(&log)?;
        sync_folder(&folder)
    }

    /// True if `ZooKeeper` must begin with the first log, because no snapshot is complete. `ZooKeeper` does not sync the empty
    /// snapshot of a first start, so a power loss within the next half minute may leave an empty file.
    ///
    /// # Errors
    /// If the folder or a log cannot be read.
    pub(super) fn lacks_snapshot(&self) -> io::Result<bool> {
        let folder = self.transactions_folder();
        Ok(transaction_log::complete_snapshots(&folder)?.is_empty()
            && transaction_log::is_whole_history(&folder)?
            && !broken!(NeedSnapshot))
    }
}

/// The files that no start needs: snapshots before the last `kept` ones, and logs that end before the oldest of these. Both
/// are ordered by zxid. A log may hold transactions up to the begin of the next log.
fn unneeded(snapshots: Vec<(i64, PathBuf)>, logs: Vec<(i64, PathBuf)>, kept: usize) -> Vec<PathBuf> {
    let Some(first_kept) = snapshots.len().checked_sub(kept.max(1)) else { return Vec::new() };
    let Some(oldest) = snapshots.get(first_kept).map(|(zxid, _)| *zxid) else { return Vec::new() };
    let logs_before = logs.iter().filter(|(begin, _)| *begin <= oldest).count().saturating_sub(1);
    let snapshots = snapshots.into_iter().take(first_kept);
    snapshots.chain(logs.into_iter().take(logs_before)).map(|(_, path)| path).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(&[], &[], 3, &[])]
    #[case::too_few(&[10, 20], &[1, 11, 21], 3, &[])]
    #[case::the_oldest_snapshot_and_its_logs(&[10, 20, 30, 40], &[1, 11, 21, 31, 41], 3, &["s10", "l1"])]
    #[case::a_log_that_begins_with_the_snapshot(&[10, 20], &[1, 10, 20], 1, &["s10", "l1", "l10"])]
    #[case::a_log_that_spans_the_snapshot(&[10, 20], &[1, 15], 1, &["s10", "l1"])]
    #[case::no_log_ends_before(&[10, 20], &[15], 1, &["s10"])]
    #[case::at_least_one_stays(&[10], &[1, 11], 0, &[])]
    fn what_a_start_needs_stays(
        #[case] snapshots: &[i64],
        #[case] logs: &[i64],
        #[case] kept: usize,
        #[case] expected: &[&str],
    ) {
        let named = |prefix: &str, zxids: &[i64]| {
            zxids.iter().map(|zxid| (*zxid, PathBuf::from(format!("{prefix}{zxid}")))).collect::<Vec<_>>()
        };
        let removed = unneeded(named("s", snapshots), named("l", logs), kept);
        assert_eq!(removed, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }
}

//! The space on the volume: how much is used, and what `ZooKeeper` does not need any more.

use std::fs::{self, File};
use std::io;

use tracing::{info, warn};

use crate::{transaction_log, volume::Volume};
use mczk_api::{
    contract::control_api::{Configuration, DISK_PRESSURE, Disk},
    mutation::broken,
};
use mczk_rules::server::{files::Files, start::needless_copies};
use mczk_runtime::atomic_file::{if_found, sync_folder};

/// Snapshots that stay, as in `ZooKeeper`'s own purge.
const KEPT: usize = 3;
/// Used part of the volume, in percent, from which only the newest snapshot stays.
const ALMOST_FULL: u64 = 95;

impl Volume {
    /// Use of the volume.
    ///
    /// # Errors
    /// If the volume cannot be read.
    pub fn disk(&self) -> io::Result<Disk> {
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
    /// start on a full volume. While the server takes part in a quorum of the `incarnation` with the configuration `living`, former
    /// data goes first.
    ///
    /// # Errors
    /// If the volume cannot be read.
    pub fn make_room(&self, incarnation: &str, living: Option<&Configuration>) -> io::Result<()> {
        self.make_room_at(self.disk()?.used_percent(), incarnation, living)
    }

    fn make_room_at(&self, used: u64, incarnation: &str, living: Option<&Configuration>) -> io::Result<()> {
        if used < DISK_PRESSURE {
            return Ok(());
        }
        let (kept, kept_copies) = if used < ALMOST_FULL { (KEPT, 1) } else { (1, 0) };
        let set_aside = self.set_aside_folders()?;
        let copies = living.map_or_else(Vec::new, |living| needless_copies(&set_aside, incarnation, living));
        for oldest in copies.iter().take(copies.len().saturating_sub(kept_copies)) {
            // Snapshots may still make room.
            if let Err(error) = self.remove_set_aside(oldest) {
                warn!(%error, folder = oldest.as_str(), "cannot remove data that was set aside");
            }
        }
        let folder = self.transactions_folder();
        if transaction_log::files(&folder, "snapshot.")?.len() <= kept {
            return Ok(());
        }
        let files = transaction_log::listing(&folder)?;
        // `ZooKeeper` does not sync its snapshots. A power loss must leave one.
        for snapshot in files.snapshots.iter().filter(|snapshot| snapshot.complete).rev().take(kept) {
            File::open(folder.join(snapshot_name(snapshot.zxid)))?.sync_all()?;
        }
        let (snapshots, logs) = files.unneeded(kept);
        self.remove(snapshots.into_iter().map(snapshot_name).chain(logs.into_iter().map(log_name)));
        Ok(())
    }

    /// Removes partial snapshots, which a full disk leaves. Only while no `ZooKeeper` runs: it writes its snapshots under their
    /// final names.
    pub(super) fn remove_useless_snapshots(&self, files: &Files) {
        self.remove(files.useless_snapshots().into_iter().map(snapshot_name));
    }

    /// Gives complete copies of a leader's data their final names, and removes partial ones. Only while no `ZooKeeper` runs.
    ///
    /// # Errors
    /// If the folder or a copy cannot be read or written. A copy that cannot be read stays.
    pub(super) fn name_snapshots(&self) -> io::Result<()> {
        let folder = self.transactions_folder();
        let unnamed = transaction_log::unnamed_snapshots(&folder)?;
        if unnamed.is_empty() {
            return Ok(());
        }
        for (zxid, path) in unnamed {
            let complete = transaction_log::is_intact(&path)?;
            info!(file = %path.display(), complete, "a copied snapshot had no final name");
            if complete {
                File::open(&path)?.sync_all()?;
                fs::rename(&path, folder.join(snapshot_name(zxid)))?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        sync_folder(&folder)
    }

    /// Removes the marker of a bootstrap and the empty snapshot of a first start, of a server that has no data. `ZooKeeper`
    /// votes with either, although it holds nothing.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(super) fn remove_right_to_vote(&self) -> io::Result<()> {
        let folder = self.transactions_folder();
        let data = folder.parent().unwrap_or(&folder);
        if let Some(()) = if_found(fs::remove_file(data.join("initialize")))? {
            sync_folder(data)?;
        }
        if !transaction_log::files(&folder, "log.")?.is_empty() {
            return Ok(());
        }
        // No quorum gave it these epochs. The current one goes first: `ZooKeeper` refuses one that is above the accepted one, and
        // without a snapshot a missing one counts as the lowest. A server may have died after any of these removals.
        let epochs = ["currentEpoch", "acceptedEpoch"].map(|epoch| folder.join(epoch));
        let snapshots = transaction_log::files(&folder, "snapshot.")?.into_iter().map(|(_, snapshot)| snapshot);
        let mut removed = false;
        for path in epochs.into_iter().chain(snapshots) {
            removed |= if_found(fs::remove_file(path))?.is_some();
        }
        if removed { sync_folder(&folder) } else { Ok(()) }
    }

    fn remove(&self, names: impl Iterator<Item = String>) {
        for name in names {
            match fs::remove_file(self.transactions_folder().join(&name)) {
                Ok(()) => info!(name, "removed a file that ZooKeeper does not need"),
                Err(error) => warn!(%error, name, "cannot remove a file"),
            }
        }
    }
}

fn snapshot_name(zxid: i64) -> String {
    format!("snapshot.{zxid:x}")
}

fn log_name(zxid: i64) -> String {
    format!("log.{zxid:x}")
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

    /// Writes the epoch of the files, if `ZooKeeper` died after it had copied them and before it wrote the epoch itself.
    ///
    /// # Errors
    /// If an epoch cannot be read or written.
    pub(super) fn enter_epoch(&self, files: &Files) -> io::Result<()> {
        let path = |name: &str| self.transactions_folder().join(name);
        let read = |name: &str| if_found(fs::read_to_string(path(name)));
        // ZooKeeper creates a missing file, and refuses text that is no number.
        let number = |text: Option<String>| text.and_then(|text| text.trim().parse().ok());
        let (current, accepted) = (number(read("currentEpoch")?), number(read("acceptedEpoch")?));
        let epoch = current.zip(accepted).and_then(|(current, accepted)| files.entered_epoch(current, accepted));
        let Some(epoch) = epoch else { return Ok(()) };
        warn!(epoch, "ZooKeeper stopped between its copy of the data and the epoch of that copy: writing the epoch");
        mczk_runtime::atomic_file::write(&path("currentEpoch"), epoch.to_string().as_bytes(), 0o644)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;

    use super::*;
    use mczk_api::{contract::control_api::ConfiguredServer, zookeeper::Role};
    use mczk_rules::server::paths::Paths;

    /// Copies of another incarnation, and of a server that still votes, may hold what no other server has.
    #[rstest]
    #[case::room(79, true, &["other-1-0", "own-1-0", "own-2-0", "own-3-0"])]
    #[case::pressure(80, true, &["other-1-0", "own-2-0", "own-3-0"])]
    #[case::almost_full(95, true, &["other-1-0", "own-2-0"])]
    #[case::no_quorum(99, false, &["other-1-0", "own-1-0", "own-2-0", "own-3-0"])]
    fn a_full_volume_loses_copies_that_hold_nothing_of_their_own(
        #[case] used: u64,
        #[case] serves: bool,
        #[case] left: &[&str],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths {
            active_data: folder.path().join("active"),
            scratch: folder.path().join("scratch"),
            address: Ipv4Addr::LOCALHOST.into(),
            hosts: None,
        };
        let volume = Volume::new(folder.path().to_owned(), paths);
        for copy in ["other-1-0", "own-1-0", "own-2-0", "own-3-0"] {
            fs::create_dir_all(folder.path().join(format!("aside-{copy}/data"))).unwrap();
        }
        let servers = vec![ConfiguredServer { id: 2, host: "s2".to_owned(), role: Role::Voter }];
        let living = Configuration { version: 1, servers };
        volume.make_room_at(used, "own", serves.then_some(&living)).unwrap();
        let mut found = volume.set_aside_folders().unwrap();
        found.sort();
        assert_eq!(found, left.iter().map(|copy| format!("aside-{copy}")).collect::<Vec<_>>());
    }
}

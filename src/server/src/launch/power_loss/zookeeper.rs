//! What `ZooKeeper` 3.9.5 does to its files, in its order, and when it starts with them.
//!
//! `tests/server_zookeeper/power_loss.rs` takes the power from the real one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{transaction_log, volume::Volume};
use mczk_api::contract::control_api::ConfiguredServer;
use mczk_rules::server::dynamic_configuration::{self, ClientAddress};

/// A complete snapshot, with its checksum and its seal.
const SNAPSHOT: &[u8] = b"ZKSN and the content\0\0\0\0\x45\x55\x07\x16\0\0\0\x01/";
const LOG_HEAD: &[u8; 16] = b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0";

/// The files of one server.
pub(super) struct ZooKeeper {
    active: PathBuf,
    /// The real one syncs no folder. It needs a file system that keeps names in order.
    syncs_folders: bool,
}

impl ZooKeeper {
    pub(super) fn new(volume: &Path, syncs_folders: bool) -> Self {
        Self { active: volume.join("active"), syncs_folders }
    }

    fn transactions(&self) -> PathBuf {
        self.active.join("data/version-2")
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if self.syncs_folders { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    /// A start with an empty database. With the marker its first snapshot is written, but not synced.
    pub(super) fn load_nothing(&self) -> io::Result<()> {
        fs::create_dir(self.transactions())?;
        self.sync_folder(&self.active.join("data"))?;
        let marker = self.active.join("data/initialize");
        if marker.exists() {
            fs::remove_file(marker)?;
            self.sync_folder(&self.active.join("data"))?;
            fs::write(self.transactions().join("snapshot.0"), SNAPSHOT)?;
            self.sync_folder(&self.transactions())?;
            return self.write_epochs(0);
        }
        self.begin_without_vote()
    }

    /// A start with an empty database, without the marker. It has no transaction at all, not even the first one of an empty
    /// database.
    pub(super) fn begin_without_vote(&self) -> io::Result<()> {
        self.write_epochs(-1)
    }

    fn write_epochs(&self, epoch: i64) -> io::Result<()> {
        self.write_epoch("currentEpoch", epoch)?;
        self.write_epoch("acceptedEpoch", epoch)
    }

    fn write_epoch(&self, name: &str, epoch: i64) -> io::Result<()> {
        self.write(&self.transactions(), name, epoch.to_string().as_bytes())
    }

    /// A leader is elected: the server accepts its epoch, copies its data if it has none, and then enters the epoch.
    pub(super) fn enter_epoch(&self, epoch: i64, copied: Option<i64>) -> io::Result<()> {
        self.write_epoch("acceptedEpoch", epoch)?;
        if let Some(zxid) = copied {
            self.write(&self.transactions(), &format!("snapshot.{zxid:x}"), SNAPSHOT)?;
        }
        self.write_epoch("currentEpoch", epoch)
    }

    /// The membership changes.
    pub(super) fn configure(&self, version: i64, servers: &[ConfiguredServer]) -> io::Result<()> {
        let text = dynamic_configuration::seed(servers, ClientAddress::Host);
        self.write(&self.active.join("conf"), &format!("zoo.cfg.dynamic.{version:x}"), text.as_bytes())
    }

    /// Begins a log with its first transaction. The file is reserved before its head is synced.
    pub(super) fn begin_log(&self, zxid: i64) -> io::Result<File> {
        let path = self.transactions().join(format!("log.{zxid:x}"));
        let mut log = File::create(&path)?;
        log.write_all(LOG_HEAD)?;
        std::os::unix::fs::FileExt::write_all_at(&log, &[0], (1 << 16) - 1)?;
        self.append(&mut log, zxid)?;
        Ok(log)
    }

    /// Writes a transaction, and syncs it before the server acknowledges it.
    pub(super) fn append(&self, log: &mut File, zxid: i64) -> io::Result<()> {
        let body = [&[7; 12][..], &zxid.to_be_bytes(), b"content"].concat();
        let length = u32::try_from(body.len()).unwrap();
        log.write_all(&[&[0; 8], &length.to_be_bytes()[..], &body, b"B"].concat())?;
        log.sync_data()?;
        self.sync_folder(&self.transactions())
    }

    fn write(&self, folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
        let new = folder.join(format!("{name}.tmp"));
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, folder.join(name))?;
        self.sync_folder(folder)
    }
}

/// Why `ZooKeeper` does not start with the files of a volume.
pub(super) fn refuses(volume: &Volume, trusts_logs: bool) -> Option<String> {
    let folder = volume.transactions_folder();
    let files = |prefix: &str| transaction_log::files(&folder, prefix).unwrap();
    let data = folder.parent().unwrap();
    if !fs::read_to_string(data.join("myid")).is_ok_and(|id| id.trim().parse::<i32>().is_ok()) {
        return Some("myid is no number".into());
    }
    for name in ["acceptedEpoch", "currentEpoch"] {
        let text = fs::read_to_string(folder.join(name)).unwrap_or_else(|_| "0".into());
        if text.trim().parse::<i64>().is_err() {
            return Some(format!("{name} is no number: {text:?}"));
        }
    }
    let unnamed = transaction_log::unnamed_snapshots(&folder).unwrap().into_iter();
    let loaded = unnamed.filter(|(_, path)| transaction_log::is_intact(path).unwrap()).map(|(zxid, _)| zxid).max();
    // A database without the marker of a bootstrap has no transaction, not even number 0.
    let nothing = if data.join("initialize").exists() { 0 } else { -1 };
    let end = transaction_log::listing(&folder).unwrap().end().max(loaded).unwrap_or(nothing);
    let epoch = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().parse::<i64>().unwrap());
    let (current, accepted) = (epoch("currentEpoch"), epoch("acceptedEpoch"));
    // It takes the epoch of its last transaction for one that is missing.
    if accepted.unwrap_or(end >> 32) < current.unwrap_or(end >> 32) {
        return Some(format!("the accepted epoch {accepted:?} is less than the current epoch {current:?}"));
    }
    let tmp = fs::read_to_string(folder.join("currentEpoch.tmp")).ok().map(|text| text.trim().parse::<i64>());
    if current.is_some_and(|current| current < end >> 32) && !matches!(tmp, Some(Ok(_))) {
        return Some(format!("the current epoch {current:?} is older than the last zxid 0x{end:x}"));
    }
    let (complete, logs) = (has_snapshot(volume), files("log."));
    for (number, (_, log)) in logs.iter().enumerate() {
        let (content, is_newest) = (fs::read(log).unwrap(), number + 1 == logs.len());
        // It removes the newest log without content, at the price of one more start.
        let is_removed = content.is_empty() && is_newest;
        if !is_removed && !content.starts_with(b"ZKLG") {
            return Some(format!("{} has an invalid magic number", log.display()));
        }
    }
    if !complete && !logs.is_empty() && !trusts_logs {
        return Some("no snapshot, but logs".into());
    }
    None
}

/// True if `ZooKeeper` has no data on the volume. Without the marker of a bootstrap it then does not vote.
pub(super) fn is_without_vote(volume: &Volume) -> bool {
    !has_snapshot(volume) && transaction_log::files(&volume.transactions_folder(), "log.").unwrap().is_empty()
}

fn has_snapshot(volume: &Volume) -> bool {
    let snapshots = transaction_log::files(&volume.transactions_folder(), "snapshot.").unwrap();
    snapshots.iter().any(|(_, path)| fs::read(path).unwrap() == SNAPSHOT)
}

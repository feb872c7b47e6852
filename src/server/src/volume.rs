//! The data volume: what it holds, and what a start writes to it.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::transaction_log;
use mczk_api::{
    contract::control_api::{Configuration, ConfiguredServer, UNKNOWN_EPOCH},
    mutation::broken,
    zookeeper::Ensemble,
};
use mczk_rules::server::{
    dynamic_configuration::{self, ClientAddress},
    files::{Files, Held},
    paths::Paths,
    start::{MAX_SET_ASIDE, SET_ASIDE, StoredServer, set_aside_name},
    volume_age::{Generations, VolumeAge, VolumeMark, is_confirmed},
};
use mczk_runtime::atomic_file::{if_found, read_json, sync_folder, write, write_json};

/// File with the newest server list that suspended this server.
const SUSPENDED: &str = "suspended.json";

/// The data volume of a server.
#[derive(Clone, Debug)]
pub struct Volume {
    root: PathBuf,
    paths: Paths,
}

/// The incarnation and id that the volume serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    incarnation: String,
    id: i32,
    /// True if a quorum ever formed.
    #[serde(default)]
    formed: bool,
}

/// An identity that no volume has.
pub(super) fn new_identity() -> String {
    format!("{:032x}", rand::random::<u128>())
}

impl Volume {
    /// The volume at `root`.
    #[must_use]
    pub const fn new(root: PathBuf, paths: Paths) -> Self {
        Self { root, paths }
    }

    /// Identity of the volume. The first call creates it.
    ///
    /// # Errors
    /// If the identity can be neither read nor written.
    pub fn identity(&self) -> io::Result<String> {
        let path = self.root.join("volume");
        if let Some(text) = if_found(fs::read_to_string(&path))?
            && !text.trim().is_empty()
        {
            return Ok(text.trim().to_owned());
        }
        let identity = new_identity();
        self.set_identity(&identity)?;
        Ok(identity)
    }

    /// Gives the volume another identity.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(super) fn set_identity(&self, identity: &str) -> io::Result<()> {
        write(&self.root.join("volume"), format!("{identity}\n").as_bytes(), 0o644)
    }

    /// The server on the volume. `None` on a new volume.
    ///
    /// # Errors
    /// If an existing file cannot be read: the volume must not count as new.
    pub fn stored(&self) -> io::Result<Option<StoredServer>> {
        let data_folder = self.paths.data();
        let data = has_transactions(&data_folder)?;
        let Some(owner) = read_json::<Owner>(&self.owner_file())? else {
            // Data without an owner belongs to an unknown server.
            return Ok(data.then(|| StoredServer { data, ..StoredServer::default() }));
        };
        let myid = if_found(fs::read_to_string(data_folder.join("myid")))?;
        let accepted = if_found(fs::read_to_string(data_folder.join("version-2/acceptedEpoch")))?;
        // A truncated file was written: the server accepted an epoch.
        let accepted_epoch = accepted.map_or(0, |text| text.trim().parse().unwrap_or(1));
        // Before its first epoch a server has at most an empty snapshot. It may be incomplete after a power loss.
        let is_new = accepted_epoch == 0 && !owner.formed && !broken!(CountFirstSnapshot);
        let has_logs = !transaction_log::files(&self.transactions_folder(), "log.")?.is_empty();
        Ok(Some(StoredServer {
            incarnation: owner.incarnation,
            id: owner.id,
            // Text that does not parse is no id of mczk.
            myid: myid.map(|text| text.trim().parse().unwrap_or(0)),
            list: read_json(&self.list_file())?,
            dynamic: self.dynamic()?.map(|(_, configuration)| configuration),
            accepted_epoch,
            data: data && (has_logs || !is_new),
            formed: owner.formed,
        }))
    }

    /// Folder of the volume.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of `ZooKeeper`'s snapshots and logs.
    pub(super) fn transactions_folder(&self) -> PathBuf {
        self.paths.data().join("version-2")
    }

    /// Makes this process the only user of the volume, until the result is dropped and `ZooKeeper`, which inherits it, has
    /// exited. `None` if another process uses the volume: a pod that a node has not stopped yet.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = File::options().write(true).create(true).truncate(false).open(self.root.join("lock"))?;
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::warn!(%error, "the file system has no locks: another process could use the volume");
                Ok(Some(file))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// What the volume and its `files` tell about its age. `written` is the mark that this process has written.
    ///
    /// # Errors
    /// If anything but `files` cannot be read.
    pub(super) fn age(&self, files: &io::Result<Files>, written: Option<&VolumeMark>) -> io::Result<VolumeAge> {
        let confirmed = is_confirmed(written, self.mark()?.as_ref());
        let files = files.as_ref().map_err(io::Error::to_string);
        Ok(VolumeAge::of(&self.generations()?, files, confirmed))
    }

    /// True if this process, which has `written` that mark, has run `ZooKeeper` on the volume with a right to vote.
    ///
    /// # Errors
    /// If the volume cannot be read.
    pub(super) fn has_vote(&self, written: Option<&VolumeMark>) -> io::Result<bool> {
        Ok(self.age(&Ok(Files::default()), written)?.has_vote())
    }

    /// The mark of the volume. `None` without a server.
    ///
    /// # Errors
    /// If the volume can be neither read nor written.
    pub(super) fn mark(&self) -> io::Result<Option<VolumeMark>> {
        let Some(Owner { formed, .. }) = read_json(&self.owner_file())? else { return Ok(None) };
        Ok(Some(VolumeMark { identity: self.identity()?, generation: self.generations()?.own, formed }))
    }

    /// Generations on the volume.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn generations(&self) -> io::Result<Generations> {
        Ok(read_json(&self.generations_file())?.unwrap_or_default())
    }

    /// The generation of this volume and those of others that it knows, by the servers' ids.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub(super) fn known_generations(&self) -> io::Result<BTreeMap<i32, i64>> {
        let Some(owner) = read_json::<Owner>(&self.owner_file())? else { return Ok(BTreeMap::new()) };
        let Generations { own, mut known, .. } = self.generations()?;
        known.insert(owner.id, own);
        Ok(known)
    }

    /// Raises the generation and returns it. `None` if the volume is older than the `published` generation.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(super) fn raise_generation(
        &self,
        published: i64,
        held: Held,
        known: BTreeMap<i32, i64>,
    ) -> io::Result<Option<i64>> {
        let before = self.generations()?;
        if before.own < published && !before.seeded {
            return Ok(None);
        }
        let own = before.own.max(published) + 1;
        let raised = Generations { own, held, known, seeded: false };
        write_json(&self.generations_file(), &raised)?;
        Ok(Some(own))
    }

    /// Names of the folders with data that was set aside, oldest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn set_aside_folders(&self) -> io::Result<Vec<String>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(SET_ASIDE) {
                folders.push((entry.metadata()?.modified()?, name));
            }
        }
        folders.sort();
        Ok(folders.into_iter().map(|(_, name)| name).collect())
    }

    /// Accepted epoch of the stored server. 0 only if it certainly accepted none. If a quorum formed but the data is gone,
    /// 1 stands for the unknown epoch. [`UNKNOWN_EPOCH`] if the volume cannot be read or its data has no owner.
    #[must_use]
    pub fn accepted_epoch(&self) -> i64 {
        match self.stored() {
            Ok(None) => 0,
            Ok(Some(stored)) if stored.incarnation.is_empty() => UNKNOWN_EPOCH,
            Ok(Some(stored)) => stored.accepted_epoch.max(i64::from(stored.formed)),
            Err(_) => UNKNOWN_EPOCH,
        }
    }

    /// Newest server list that suspended this server.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn suspended(&self) -> io::Result<Option<Ensemble>> {
        read_json(&self.root.join(SUSPENDED))
    }

    /// Stores a list that suspends this server, even on a new volume. An older list that arrives for a moment must not start
    /// the server.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(crate) fn store_suspended(&self, list: &Ensemble) -> io::Result<()> {
        if self.suspended()?.as_ref() == Some(list) {
            return Ok(());
        }
        write_json(&self.root.join(SUSPENDED), list)
    }

    /// Stores that a quorum formed, so that an emptied volume does not count as new.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(crate) fn store_formed(&self) -> io::Result<()> {
        match read_json::<Owner>(&self.owner_file())? {
            Some(owner) if !owner.formed => write_json(&self.owner_file(), &Owner { formed: true, ..owner }),
            _ => Ok(()),
        }
    }

    /// Stores the newest server list.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(crate) fn store_list(&self, list: &Ensemble) -> io::Result<()> {
        let path = self.list_file();
        if !self.paths.active_data.try_exists()? || read_json::<Ensemble>(&path)?.as_ref() == Some(list) {
            return Ok(());
        }
        write_json(&path, list)
    }

    /// File of `ZooKeeper`'s newest dynamic configuration, and its content.
    ///
    /// # Errors
    /// If an existing file cannot be read.
    pub fn dynamic(&self) -> io::Result<Option<(PathBuf, Configuration)>> {
        let mut newest: Option<(PathBuf, Configuration)> = None;
        for path in self.dynamic_files()? {
            let Some(version) = version(&path) else { continue };
            let Some(parsed) = dynamic_configuration::parse(&fs::read_to_string(&path)?) else { continue };
            if newest.as_ref().is_none_or(|(_, newest)| newest.version < version) {
                newest = Some((path, Configuration { version, ..parsed }));
            }
        }
        Ok(newest)
    }

    /// Sets the client address of server `id` in the newest dynamic configuration.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub(crate) fn set_client_address(&self, id: i32, address: ClientAddress) -> io::Result<()> {
        let Some((path, _)) = self.dynamic()? else { return Ok(()) };
        match dynamic_configuration::with_client_address(&fs::read_to_string(&path)?, id, address) {
            Some(text) => write(&path, text.as_bytes(), 0o644),
            None => Ok(()),
        }
    }

    /// Renames the content of the volume and returns the new name. Only the newest [`MAX_SET_ASIDE`] copies stay.
    ///
    /// # Errors
    /// If the folder cannot be renamed.
    pub(crate) fn set_aside(&self) -> io::Result<PathBuf> {
        let owner: Option<Owner> = read_json(&self.owner_file())?;
        let (incarnation, id) =
            owner.map_or_else(|| ("unknown".to_owned(), 0), |owner| (owner.incarnation.replace('/', "_"), owner.id));
        for number in 0..10_000 {
            let target = self.root.join(set_aside_name(&incarnation, id, number));
            if !target.try_exists()? {
                // The time of the folder is the time at which it was set aside.
                File::open(&self.paths.active_data)?.set_modified(SystemTime::now())?;
                fs::rename(&self.paths.active_data, &target)?;
                sync_folder(&self.root)?;
                self.remove_oldest_set_aside(&target)?;
                return Ok(target);
            }
        }
        Err(io::Error::other("the volume contains too many folders that were set aside"))
    }

    /// A clock that was ahead may have dated older folders after the newest.
    fn remove_oldest_set_aside(&self, newest: &Path) -> io::Result<()> {
        let mut folders = self.set_aside_folders()?;
        folders.sort_by_key(|folder| self.root.join(folder) == newest);
        for oldest in folders.iter().take(folders.len().saturating_sub(MAX_SET_ASIDE)) {
            self.remove_set_aside(oldest)?;
        }
        Ok(())
    }

    /// Removes a folder with data that was set aside.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove_set_aside(&self, folder: &str) -> io::Result<()> {
        tracing::warn!(folder, "removing data that was set aside");
        fs::remove_dir_all(self.root.join(folder))
    }

    /// Writes the files of a new server. The dynamic configuration comes last: without it the server has not begun.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub fn seed(
        &self,
        incarnation: &str,
        id: i32,
        servers: &[ConfiguredServer],
        address: ClientAddress,
        initialize: bool,
    ) -> io::Result<()> {
        let data = self.paths.data();
        fs::create_dir_all(&data)?;
        fs::create_dir_all(self.paths.conf())?;
        if !broken!(UnsyncedFolders) {
            // A folder that is lost takes every file with it, however durable that is.
            sync_folder(&self.paths.active_data)?;
            sync_folder(&self.root)?;
        }
        let formed = read_json::<Owner>(&self.owner_file())?.is_some_and(|owner| owner.formed);
        write_json(&self.owner_file(), &Owner { incarnation: incarnation.to_owned(), id, formed })?;
        write(&data.join("myid"), format!("{id}\n").as_bytes(), 0o644)?;
        let marker = data.join("initialize");
        if initialize {
            write(&marker, b"", 0o644)?;
        } else {
            if_found(fs::remove_file(marker))?;
        }
        if !initialize && !self.generations_file().try_exists()? {
            write_json(&self.generations_file(), &Generations { seeded: true, ..Generations::default() })?;
        }
        let seed = self.paths.seed();
        write(&seed, dynamic_configuration::seed(servers, address).as_bytes(), 0o644)?;
        // Files of an earlier membership would count as newer than the seed. They named only other servers.
        for path in self.dynamic_files()? {
            if path != seed {
                fs::remove_file(path)?;
            }
        }
        sync_folder(&self.paths.conf())
    }

    fn owner_file(&self) -> PathBuf {
        self.paths.active_data.join("owner.json")
    }

    fn generations_file(&self) -> PathBuf {
        self.paths.active_data.join("generations.json")
    }

    fn list_file(&self) -> PathBuf {
        self.paths.active_data.join("server-list.json")
    }

    fn dynamic_files(&self) -> io::Result<Vec<PathBuf>> {
        let Some(entries) = if_found(fs::read_dir(self.paths.conf()))? else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("zoo.cfg.dynamic") {
                files.push(entry.path());
            }
        }
        Ok(files)
    }
}

/// The version in the name of a dynamic configuration. 0 for the seed.
fn version(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    match name.strip_prefix("zoo.cfg.dynamic")? {
        "" => Some(0),
        suffix => i64::from_str_radix(suffix.strip_prefix('.')?, 16).ok(),
    }
}

/// True if a folder contains snapshots or transaction logs.
fn has_transactions(folder: &Path) -> io::Result<bool> {
    let Some(entries) = if_found(fs::read_dir(folder.join("version-2")))? else { return Ok(false) };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snapshot.") || name.starts_with("log.") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use super::*;

    /// The clock of another node was ahead when it set data aside.
    #[test]
    fn data_that_is_set_aside_is_not_the_oldest() {
        let root = std::env::temp_dir().join(format!("mczk-aside-{}", std::process::id()));
        let paths = Paths {
            active_data: root.join("active"),
            scratch: root.join("scratch"),
            address: Ipv4Addr::LOCALHOST.into(),
            hosts: None,
        };
        let volume = Volume::new(root.clone(), paths);
        for number in 0..MAX_SET_ASIDE {
            let folder = root.join(format!("{SET_ASIDE}abc-1-{number}"));
            fs::create_dir_all(&folder).unwrap();
            File::open(&folder).unwrap().set_modified(SystemTime::now() + Duration::from_secs(86_400)).unwrap();
        }
        fs::create_dir_all(&volume.paths.active_data).unwrap();
        let aside = volume.set_aside().unwrap();
        let left = volume.set_aside_folders().unwrap();
        assert!(aside.exists() && left.len() == MAX_SET_ASIDE, "{left:?}");
        fs::remove_dir_all(root).unwrap();
    }
}

//! The data volume: what it holds is read, and what a start needs is written, each file whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    api::zookeeper::Ensemble,
    contract::control_api::{Configuration, ConfiguredServer, UNKNOWN_EPOCH},
    server::{
        configuration::{self, Paths, Plain},
        start::StoredServer,
    },
};

const ASIDE: &str = "aside-";
/// File with the newest list under which the server was parked.
const SUSPENDED: &str = "parked.json";

/// The data volume of a server.
#[derive(Clone, Debug)]
pub struct Volume {
    root: PathBuf,
    places: Paths,
}

/// Which life and id the volume serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    incarnation: String,
    id: i32,
    /// Whether a quorum was seen to form.
    #[serde(default)]
    formed: bool,
}

impl Volume {
    /// The volume at `root`.
    #[must_use]
    pub const fn new(root: PathBuf, places: Paths) -> Self {
        Self { root, places }
    }

    /// The identity of the volume: made when it is asked for the first time.
    ///
    /// # Errors
    /// If it can be neither read nor written.
    pub fn identity(&self) -> io::Result<String> {
        let path = self.root.join("volume");
        match fs::read_to_string(&path) {
            Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let identity = format!("{:032x}", rand::random::<u128>());
        write(&path, format!("{identity}\n").as_bytes(), 0o644)?;
        Ok(identity)
    }

    /// What it serves, if it ever served anything.
    ///
    /// # Errors
    /// If a file is there and cannot be read: what it holds must not be taken for nothing.
    pub fn life(&self) -> io::Result<Option<StoredServer>> {
        let life = &self.places.life;
        let Some(owner) = read_json::<Owner>(&life.join("owner.json"))? else {
            // A folder without an owner that holds data is somebody's, though nobody knows whose.
            let data = data(&self.places.data())?;
            return Ok(data.then(|| StoredServer { data, ..StoredServer::default() }));
        };
        let folder = self.places.data();
        let myid = optional(fs::read_to_string(folder.join("myid")))?;
        let accepted = optional(fs::read_to_string(folder.join("version-2/acceptedEpoch")))?;
        Ok(Some(StoredServer {
            incarnation: owner.incarnation,
            id: owner.id,
            // What does not parse is no id of ours.
            myid: myid.map(|text| text.trim().parse().unwrap_or(0)),
            list: read_json(&life.join("list.json"))?,
            dynamic: self.dynamic()?.map(|(_, configuration)| configuration),
            // A file that was cut off was written: an epoch was accepted.
            accepted_epoch: accepted.map_or(0, |text| text.trim().parse().unwrap_or(1)),
            data: data(&folder)?,
            formed: owner.formed,
        }))
    }

    /// Whether something that was set aside lies on it.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn has_aside(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.root)? {
            if entry?.file_name().to_string_lossy().starts_with(ASIDE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Accepted epoch of what it serves; 0 only if it is certain that there is none. Of data that was there once, 1 stands for
    /// whatever it was; [`UNKNOWN_EPOCH`] where nothing can be read, and of data that nobody is known to own.
    #[must_use]
    pub fn accepted_epoch(&self) -> i64 {
        match self.life() {
            Ok(None) => 0,
            Ok(Some(life)) if life.incarnation.is_empty() => UNKNOWN_EPOCH,
            Ok(Some(life)) => life.accepted_epoch.max(i64::from(life.formed)),
            Err(_) => UNKNOWN_EPOCH,
        }
    }

    /// The newest list under which it was parked.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn parked(&self) -> io::Result<Option<Ensemble>> {
        read_json(&self.root.join(SUSPENDED))
    }

    /// Remembers a list under which it was parked: whoever is told an older one for a moment must not start by it, also where
    /// nothing was ever started before.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remember_parked(&self, list: &Ensemble) -> io::Result<()> {
        if self.parked()?.as_ref() == Some(list) {
            return Ok(());
        }
        write_json(&self.root.join(SUSPENDED), list)
    }

    /// Remembers that a quorum formed, so that an empty volume is known as emptied.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remember_formed(&self) -> io::Result<()> {
        let path = self.places.life.join("owner.json");
        match read_json::<Owner>(&path)? {
            Some(owner) if !owner.formed => write_json(&path, &Owner { formed: true, ..owner }),
            _ => Ok(()),
        }
    }

    /// Remembers the newest list of servers that was seen.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remember_list(&self, list: &Ensemble) -> io::Result<()> {
        let path = self.places.life.join("list.json");
        if !self.places.life.exists() || read_json::<Ensemble>(&path)?.as_ref() == Some(list) {
            return Ok(());
        }
        write_json(&path, list)
    }

    /// The newest configuration of `ZooKeeper` and its file.
    ///
    /// # Errors
    /// If a file is there and cannot be read.
    pub fn dynamic(&self) -> io::Result<Option<(PathBuf, Configuration)>> {
        let mut newest: Option<(PathBuf, Configuration)> = None;
        for path in self.dynamic_files()? {
            let Some(version) = version(&path) else { continue };
            let Some(read) = configuration::parse(&fs::read_to_string(&path)?) else { continue };
            if newest.as_ref().is_none_or(|(_, known)| known.version < version) {
                newest = Some((path, Configuration { version, ..read }));
            }
        }
        Ok(newest)
    }

    /// Lets the server `id` take plain connections as wanted, in the newest configuration.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn readdress(&self, id: i32, plain: Plain) -> io::Result<()> {
        let Some((path, _)) = self.dynamic()? else { return Ok(()) };
        match configuration::readdressed(&fs::read_to_string(&path)?, id, plain) {
            Some(text) => write(&path, text.as_bytes(), 0o644),
            None => Ok(()),
        }
    }

    fn dynamic_files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.places.conf()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("zoo.cfg.dynamic") {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    /// Renames what it serves, and tells the new name. Nothing is ever removed.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let owner: Option<Owner> = read_json(&self.places.life.join("owner.json"))?;
        let (incarnation, id) =
            owner.map_or_else(|| ("unknown".to_owned(), 0), |owner| (owner.incarnation.replace('/', "_"), owner.id));
        for number in 0..10_000 {
            let aside = self.root.join(format!("{ASIDE}{incarnation}-{id}-{number}"));
            if !aside.exists() {
                fs::rename(&self.places.life, &aside)?;
                sync_folder(&self.root)?;
                return Ok(aside);
            }
        }
        Err(io::Error::other("too many folders were set aside"))
    }

    /// Writes what a new server starts with. The list comes last: until it is there, nothing was begun.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn seed(
        &self,
        incarnation: &str,
        id: i32,
        servers: &[ConfiguredServer],
        plain: Plain,
        initialize: bool,
    ) -> io::Result<()> {
        let (life, data) = (&self.places.life, self.places.data());
        fs::create_dir_all(&data)?;
        fs::create_dir_all(self.places.conf())?;
        let formed = read_json::<Owner>(&life.join("owner.json"))?.is_some_and(|owner| owner.formed);
        write_json(&life.join("owner.json"), &Owner { incarnation: incarnation.to_owned(), id, formed })?;
        write(&data.join("myid"), format!("{id}\n").as_bytes(), 0o644)?;
        let marker = data.join("initialize");
        if initialize {
            write(&marker, b"", 0o644)?;
        } else if marker.exists() {
            fs::remove_file(marker)?;
        }
        let seed = self.places.seed();
        write(&seed, configuration::seed(servers, plain).as_bytes(), 0o644)?;
        // What an earlier membership left would count as newer than the seed. It named others only.
        for path in self.dynamic_files()? {
            if path != seed {
                fs::remove_file(path)?;
            }
        }
        sync_folder(&self.places.conf())
    }
}

/// The version in the name of a file that `ZooKeeper` wrote; 0 for the seed.
fn version(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    match name.strip_prefix("zoo.cfg.dynamic")? {
        "" => Some(0),
        suffix => i64::from_str_radix(suffix.strip_prefix('.')?, 16).ok(),
    }
}

/// Whether a folder holds snapshots or logs of transactions.
fn data(folder: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(folder.join("version-2")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snapshot.") || name.starts_with("log.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `None` for a file that is not there.
fn optional<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = optional(fs::read(path))? else { return Ok(None) };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| io::Error::other(format!("{} does not parse: {error}", path.display())))
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write(path, &serde_json::to_vec(value)?, 0o644)
}

/// Writes a file whole or not at all, also if the machine loses its power.
///
/// # Errors
/// If it cannot be written; what was there before stays.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    // Not beginning with the name itself: what watches or lists by it must not see a half.
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    let temporary = folder.join(hidden);
    let _ = fs::remove_file(&temporary);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

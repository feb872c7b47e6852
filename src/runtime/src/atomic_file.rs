//! Files that are written completely or not at all, even if the machine loses power.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};

use mczk_api::mutation::broken;

/// Writes a file by rename.
///
/// # Errors
/// If the file cannot be written. The former content stays.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    // The temporary name does not begin with the name itself: a watch or a listing by prefix must not see a partial file.
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let temporary = folder.join(name);
    let _ = fs::remove_file(&temporary);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    if !broken!(UnsyncedFile) {
        file.sync_all()?;
    }
    fs::rename(&temporary, path)?;
    sync_folder(folder)
}

/// Writes a value as JSON.
///
/// # Errors
/// As [`write`].
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write(path, &serde_json::to_vec(value)?, 0o644)
}

/// Reads a value from JSON. `None` if the file does not exist.
///
/// # Errors
/// If the file cannot be read or does not parse.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = if_found(fs::read(path))? else { return Ok(None) };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| {
        let path = path.display();
        io::Error::other(format!(
            "{path} does not parse: {error}. If the other voters serve, replace the volume with mczk replace"
        ))
    })
}

/// Maps the error of a missing file to `None`.
///
/// # Errors
/// Every other error.
pub fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes renames and removals in a folder durable.
///
/// # Errors
/// If the folder cannot be synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if broken!(UnsyncedName) { Ok(()) } else { File::open(folder)?.sync_all() }
}

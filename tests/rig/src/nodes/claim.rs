//! One rig with nodes at a time on a machine: they would share names, addresses and the kernel's few inotify instances.
//! The supervisor holds a lock for as long as it lives; the file tells who it is, or who left something behind.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::ports::try_lock;

/// The same for all users and all cache folders, as the addresses are.
const LOCK: &str = "/run/lock/mczk-rig-with-nodes";

/// Somebody may look just now; a holder stays.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whose the machine is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Holder {
    /// The folder of the rig.
    pub(crate) dir: PathBuf,
    /// The supervisor's number.
    pub(crate) pid: i32,
    /// The name of its control groups.
    pub(crate) id: String,
}

/// What is to be found.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Nobody runs one; the rig named here was not taken down.
    Free(Option<Holder>),
    /// This one runs.
    Held(Option<Holder>),
}

/// Looks without taking.
pub(crate) fn look() -> Result<Claim> {
    look_at(Path::new(LOCK))
}

fn look_at(path: &Path) -> Result<Claim> {
    if !path.exists() {
        return Ok(Claim::Free(None));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Shared: whoever looks at the same time must not be taken for a holder.
    let free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", path.display())),
    };
    let holder = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(if free { Claim::Free(holder) } else { Claim::Held(holder) })
}

/// Fails with the name of the holder if another rig holds the machine.
pub(crate) fn ensure_free() -> Result<Option<Holder>> {
    match look()? {
        Claim::Free(left) => Ok(left),
        Claim::Held(holder) => bail!("{}", refusal(holder.as_ref())),
    }
}

/// Takes the machine for the rig in `dir`, for as long as the returned file is open.
pub(crate) fn take(dir: &Path, pid: i32, id: &str) -> Result<File> {
    let path = Path::new(LOCK);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let end = Instant::now() + PATIENCE;
    let mut file = loop {
        if let Some(file) = try_lock(path)? {
            break file;
        }
        if Instant::now() > end {
            let holder = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            bail!("{}", refusal(holder.as_ref()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&Holder { dir: dir.to_owned(), pid, id: id.to_owned() })?)?;
    Ok(file)
}

/// Forgets the rig in `dir`, which is down.
pub(crate) fn forget(dir: &Path) -> Result<()> {
    if let Claim::Free(Some(holder)) = look()?
        && holder.dir == dir
    {
        // Locked while it is removed, so that nobody takes it at this moment.
        let _lock = try_lock(Path::new(LOCK))?;
        fs::remove_file(LOCK).context("cannot remove the lock")?;
    }
    Ok(())
}

fn refusal(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder { dir, pid, .. }) => {
            let dir = dir.display();
            format!(
                "a rig with nodes runs already, in {dir} (its supervisor is process {pid}), and a machine carries one at a \
                 time: use that one, or take it down with `rig down --dir {dir}`"
            )
        }
        None => "another rig with nodes is starting: a machine carries one at a time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_holder_and_the_remedy() {
        let text = refusal(Some(&Holder { dir: "/a/b".into(), pid: 42, id: "x".into() }));
        assert!(text.contains("rig down --dir /a/b") && text.contains("process 42"));
    }

    #[test]
    fn a_holder_that_died_is_told_apart_from_one_that_runs() -> Result<()> {
        let path = std::env::temp_dir().join(format!("rig-claim-{}", std::process::id()));
        assert!(matches!(look_at(&path)?, Claim::Free(None)));
        let holder = Holder { dir: "/a".into(), pid: 1, id: "x".into() };
        fs::write(&path, serde_json::to_vec(&holder)?)?;
        assert!(matches!(look_at(&path)?, Claim::Free(Some(left)) if left == holder));
        let lock = try_lock(&path)?;
        assert!(matches!(look_at(&path)?, Claim::Held(Some(left)) if left == holder));
        drop(lock);
        fs::remove_file(&path)?;
        Ok(())
    }
}

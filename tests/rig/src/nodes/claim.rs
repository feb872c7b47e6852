//! Only one rig with nodes runs on a machine: two would share names, addresses and the few inotify instances of the
//! kernel. The supervisor holds a lock until it ends. The locked file names the rig, also after its death.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::ports::try_lock;

/// One for all users and cache folders, because all rigs have the same addresses.
const LOCK: &str = "/run/lock/mczk-rig-with-nodes";

/// Another process holds the lock for a moment when it checks it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The rig that claims the machine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Holder {
    /// The folder of the rig.
    pub(crate) dir: PathBuf,
    /// The process number of the supervisor.
    pub(crate) pid: i32,
    /// The name of its control groups.
    pub(crate) id: String,
}

/// The state of the claim.
#[derive(Debug)]
pub(crate) enum Claim {
    /// No rig with nodes runs. A rig named here was not taken down.
    Free(Option<Holder>),
    /// This rig runs.
    Held(Option<Holder>),
}

/// The state of the claim.
pub(crate) fn state() -> Result<Claim> {
    state_of(Path::new(LOCK))
}

fn state_of(path: &Path) -> Result<Claim> {
    if !path.exists() {
        return Ok(Claim::Free(None));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Shared, so that two processes that check at the same time do not block each other.
    let free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", path.display())),
    };
    let holder = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(if free { Claim::Free(holder) } else { Claim::Held(holder) })
}

/// Fails if a rig with nodes runs. Returns one that was not taken down.
pub(crate) fn ensure_free() -> Result<Option<Holder>> {
    match state()? {
        Claim::Free(left) => Ok(left),
        Claim::Held(holder) => bail!("{}", refusal(holder.as_ref())),
    }
}

/// Claims the machine for the rig in `dir` while the returned file is open.
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

/// Removes the claim of the rig in `dir`, which is down.
pub(crate) fn forget(dir: &Path) -> Result<()> {
    if let Claim::Free(Some(holder)) = state()?
        && holder.dir == dir
    {
        // Locked, so that no other rig claims the machine at this moment.
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
                "a rig with nodes runs in {dir} (its supervisor is process {pid}), and a machine can run only one: use it, or \
                 take it down with `rig down --dir {dir}`"
            )
        }
        None => "another rig with nodes is starting, and a machine can run only one".to_owned(),
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
    fn a_dead_holder_differs_from_a_running_one() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("claim");
        assert!(matches!(state_of(&path)?, Claim::Free(None)));
        let holder = Holder { dir: "/a".into(), pid: 1, id: "x".into() };
        fs::write(&path, serde_json::to_vec(&holder)?)?;
        assert!(matches!(state_of(&path)?, Claim::Free(Some(left)) if left == holder));
        let lock = try_lock(&path)?;
        assert!(matches!(state_of(&path)?, Claim::Held(Some(left)) if left == holder));
        drop(lock);
        Ok(())
    }
}

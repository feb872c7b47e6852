//! Limits and signals for the processes of a pod, from outside: no shell has to start in it.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use crate::programs;

/// A process of ZooKeeper.
const SERVER: &str = "QuorumPeerMain";

/// The ZooKeeper processes of a pod.
fn processes(uid: &str) -> Vec<String> {
    // Some drivers of control groups replace the dashes.
    let names = [uid.to_owned(), uid.replace('-', "_")];
    let read = |id: &str, file: &str| fs::read(Path::new("/proc").join(id).join(file)).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|id| id.parse::<u32>().is_ok());
    ids.filter(|id| {
        let groups = String::from_utf8_lossy(&read(id, "cgroup")).into_owned();
        names.iter().any(|name| groups.contains(name)) && String::from_utf8_lossy(&read(id, "cmdline")).contains(SERVER)
    })
    .collect()
}

/// Lets no file of the processes grow: a write fails, as on a full disk. Java ignores the signal that comes with it. Processes
/// that start later have no limit.
///
/// # Errors
/// If there is no process.
pub async fn fill(uid: &str) -> Result<()> {
    let found = processes(uid);
    ensure!(!found.is_empty(), "the server has no process now");
    limit(found, "1:unlimited").await
}

/// Ends [`fill`].
///
/// # Errors
/// If the program `prlimit` cannot be run.
pub async fn free(uid: &str) -> Result<()> {
    limit(processes(uid), "unlimited:unlimited").await
}

async fn limit(found: Vec<String>, bytes: &str) -> Result<()> {
    for id in found {
        let limit = programs::run(Path::new("prlimit"), &["--pid", &id, &format!("--fsize={bytes}")]).await;
        // The process may have ended meanwhile.
        ensure!(limit.is_ok() || !Path::new("/proc").join(&id).exists(), "prlimit: {limit:?}");
    }
    Ok(())
}

/// Lets stopped processes continue.
///
/// # Errors
/// If the program `kill` cannot be run.
pub async fn resume(uid: &str) -> Result<()> {
    for id in processes(uid) {
        let resumed = programs::run(Path::new("kill"), &["-CONT", &id]).await;
        ensure!(resumed.is_ok() || !Path::new("/proc").join(&id).exists(), "kill: {resumed:?}");
    }
    Ok(())
}

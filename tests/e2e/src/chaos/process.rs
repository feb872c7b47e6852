//! Limits and signals for the processes of a pod, from outside: no shell has to start in it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::programs::{self, Process};

/// A process of ZooKeeper.
const SERVER: &str = "QuorumPeerMain";
/// The parent process of ZooKeeper.
const PARENT: &str = "mczk\0server";

/// The time in which strace fails, if it may not hold up a process.
const ATTACHES: Duration = Duration::from_millis(500);

/// The ZooKeeper processes of a pod.
fn processes(uid: &str) -> Vec<String> {
    of_pod(uid, &[SERVER])
}

/// The ids of a pod's processes with one of these texts in their command lines.
fn of_pod(uid: &str, texts: &[&str]) -> Vec<String> {
    // Some drivers of control groups replace the dashes.
    let names = [uid.to_owned(), uid.replace('-', "_")];
    let read = |id: &str, file: &str| fs::read(Path::new("/proc").join(id).join(file)).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|id| id.parse::<u32>().is_ok());
    ids.filter(|id| {
        let groups = String::from_utf8_lossy(&read(id, "cgroup")).into_owned();
        let line = String::from_utf8_lossy(&read(id, "cmdline")).into_owned();
        names.iter().any(|name| groups.contains(name)) && texts.iter().any(|text| line.contains(text))
    })
    .collect()
}

/// The processes of a server, which stand still until this value is dropped.
pub struct Still(Vec<String>);

impl Still {
    /// Stops ZooKeeper and its parent.
    ///
    /// # Errors
    /// If one of them does not run.
    pub async fn of(uid: &str) -> Result<Self> {
        let still = Self(of_pod(uid, &[SERVER, PARENT]));
        ensure!(still.0.len() == 2, "the server has no process now");
        still.signal("-STOP").await?;
        Ok(still)
    }

    /// The server's volume, as this machine sees it.
    ///
    /// # Errors
    /// If the processes have ended.
    pub fn volume(&self) -> Result<PathBuf> {
        let id = self.0.first().context("the server has no process")?;
        Ok(Path::new("/proc").join(id).join("root/data"))
    }

    /// Kills the processes.
    ///
    /// # Errors
    /// If the program `kill` cannot be run.
    pub async fn kill(self) -> Result<()> {
        self.signal("-KILL").await
    }

    async fn signal(&self, signal: &str) -> Result<()> {
        let ids: Vec<&str> = [signal].into_iter().chain(self.0.iter().map(String::as_str)).collect();
        programs::run(Path::new("kill"), &ids).await.map(drop)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        // Killed processes are gone: then there is nothing to continue.
        let _ = std::process::Command::new("kill").arg("-CONT").args(&self.0).stderr(Stdio::null()).status();
    }
}

/// Lets no file of the processes grow: a write fails, as on a full disk. Java ignores the signal that comes with it. Processes
/// that start later have no limit.
///
/// # Errors
/// If there is no process.
pub async fn fill(uid: &str) -> Result<()> {
    let found = processes(uid);
    ensure!(!found.is_empty(), "the server has no process now");
    limit(found, "0").await
}

/// Ends [`fill`].
///
/// # Errors
/// If the program `prlimit` cannot be run.
pub async fn free(uid: &str) -> Result<()> {
    limit(processes(uid), "unlimited").await
}

/// Sets the soft limit, as the user of the processes: root may lack the right to limit the processes of others.
async fn limit(found: Vec<String>, bytes: &str) -> Result<()> {
    for id in found {
        let folder = Path::new("/proc").join(&id);
        let Some([user, group]) = fs::read_to_string(folder.join("status")).ok().and_then(|status| owner(&status))
        else {
            continue;
        };
        let flags = [format!("--reuid={user}"), format!("--regid={group}"), format!("--fsize={bytes}:")];
        let [user, group, bytes] = flags.each_ref().map(String::as_str);
        let arguments = [user, group, "--clear-groups", "prlimit", "--pid", &id, bytes];
        let limited = programs::run(Path::new("setpriv"), &arguments).await;
        // The process may have ended meanwhile.
        if folder.exists() {
            limited?;
        }
    }
    Ok(())
}

/// User and group of a process, from its status.
fn owner(status: &str) -> Option<[String; 2]> {
    let first = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    Some([first("Uid:")?, first("Gid:")?])
}

/// Stops the processes (SIGSTOP).
///
/// # Errors
/// If there is none.
pub async fn pause(uid: &str) -> Result<()> {
    let found = processes(uid);
    ensure!(!found.is_empty(), "the server has no process now");
    let ids: Vec<&str> = ["-STOP"].into_iter().chain(found.iter().map(String::as_str)).collect();
    programs::run(Path::new("kill"), &ids).await.map(drop)
}

/// Lets no write of the processes reach the disk: each `fsync` takes longer than the fault lasts. Adds what holds up a process,
/// by its id, until it is dropped. Processes that start later are not held up.
///
/// # Errors
/// If there is no process, or the program `strace` cannot hold it up.
pub async fn stall(uid: &str, stalled: &mut BTreeMap<String, Process>, log: &Path) -> Result<()> {
    let found = processes(uid);
    ensure!(!found.is_empty(), "the server has no process now");
    for id in found {
        if stalled.contains_key(&id) {
            continue;
        }
        let inject = "inject=fsync,fdatasync:delay_enter=60s";
        let arguments = ["-f", "-q", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", inject, "-p", &id];
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let mut strace = Process::start(Path::new("strace"), &arguments, log)?;
        tokio::time::sleep(ATTACHES).await;
        strace.alive()?;
        stalled.insert(id, strace);
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
        if Path::new("/proc").join(&id).exists() {
            resumed?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_process_is_read() {
        let status = "Name:\tjava\nUid:\t1000\t1000\t1000\t1000\nGid:\t1001\t1001\t1001\t1001\n";
        assert_eq!(owner(status), Some(["1000".to_owned(), "1001".to_owned()]));
        assert_eq!(owner("Name:\tjava\n"), None);
    }
}

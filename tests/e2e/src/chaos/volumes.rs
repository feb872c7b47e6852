//! Volumes that lost data: an older copy, deleted logs, or the volume of another server.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use mczk_rules::server::volume_age::Generations;
use serde::Deserialize;
use tokio::time::sleep;

use super::{
    operations::Operation,
    process::Still,
    world::{VOTERS, World},
};
use crate::{members::Server, programs};

/// The part of `owner.json` that names the server.
#[derive(Deserialize)]
struct Owner {
    id: i32,
}

impl World<'_> {
    /// Copies the volume of a server, lets the server run, and replaces the volume by the copy; says whose.
    ///
    /// # Errors
    /// If the server does not run all the time, or the copy is too young: no server recognizes a copy before the ensemble
    /// knows a newer generation.
    pub(super) async fn restore_old_volume(&self, operation: &Operation, server: &Server) -> Result<String> {
        let copy = self.saved(server);
        let still = Still::of(&server.uid).await?;
        copy_folder(&still.volume()?, &copy).await?;
        drop(still);
        sleep(operation.lasts).await;
        let restored = self.restore(server, &copy).await;
        fs::remove_dir_all(&copy)?;
        restored.map(|id| format!("server {id}, {server}"))
    }

    async fn restore(&self, server: &Server, copy: &Path) -> Result<i32> {
        self.gather().await?;
        let still = Still::of(&server.uid).await.context("the server was replaced")?;
        let volume = still.volume()?;
        let Owner { id } = read(&volume, "owner.json")?;
        let (old, new): (Generations, Generations) =
            (read(copy, "generations.json")?, read(&volume, "generations.json")?);
        let known = new.known.get(&id).copied().unwrap_or_default();
        ensure!(known > old.own, "the ensemble knows generation {known}, and the copy has {}", old.own);
        replace(&volume, copy).await?;
        still.kill().await?;
        Ok(id)
    }

    /// Deletes the logs of a server, as an administrator may on a full disk; says whose.
    ///
    /// # Errors
    /// If the server does not run, or its snapshots hold all that it is known to hold: then no server recognizes the loss.
    pub(super) async fn delete_logs(&self, server: &Server) -> Result<String> {
        self.gather().await?;
        let still = Still::of(&server.uid).await?;
        let volume = still.volume()?;
        let Owner { id } = read(&volume, "owner.json")?;
        let Generations { held, .. } = read(&volume, "generations.json")?;
        let folder = volume.join("active/data/version-2");
        let end = numbered(&folder, "snapshot.")?.into_keys().last().unwrap_or_default();
        let in_logs = held.logs.iter().map(|(_, last)| *last).max().unwrap_or_default();
        let held = held.applied.max(held.snapshot).max(in_logs);
        ensure!(end < held, "the snapshots end at 0x{end:x}, and the volume is known to hold 0x{held:x}");
        for log in numbered(&folder, "log.")?.into_values() {
            fs::remove_file(log)?;
        }
        still.kill().await?;
        Ok(format!("server {id}, {server}: its snapshots end at 0x{end:x}"))
    }

    /// Gives two of five voters each other's volume; says whose.
    ///
    /// # Errors
    /// If fewer than five servers vote: three must keep their data, because each acknowledged write is on a majority.
    pub(super) async fn swap_volumes(&self, servers: &[Server], first: &Server) -> Result<String> {
        let modes = join_all(servers.iter().map(Server::mode)).await;
        let voters = modes.iter().flatten().filter(|mode| ["leader", "follower"].contains(&mode.as_str())).count();
        ensure!(voters >= VOTERS, "{voters} servers vote");
        let second = servers.iter().find(|second| second.cluster != first.cluster);
        let second = second.context("all servers are in one cluster")?;
        self.gather().await?;
        let (one, other) = (Still::of(&first.uid).await?, Still::of(&second.uid).await?);
        let (copy, volume) = (self.saved(first), one.volume()?);
        copy_folder(&volume, &copy).await?;
        replace(&volume, &other.volume()?).await?;
        replace(&other.volume()?, &copy).await?;
        fs::remove_dir_all(&copy)?;
        one.kill().await?;
        other.kill().await?;
        Ok(format!("{first}, and {second}"))
    }

    /// A folder for a copy of a server's volume.
    fn saved(&self, server: &Server) -> PathBuf {
        self.members.federation.folder.join(format!("volume-{}", server.uid))
    }
}

fn read<T: for<'de> Deserialize<'de>>(volume: &Path, name: &str) -> Result<T> {
    let file = volume.join("active").join(name);
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}

/// The files of a folder whose names end with a transaction, by that transaction.
fn numbered(folder: &Path, prefix: &str) -> Result<BTreeMap<i64, PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let zxid = i64::from_str_radix(name.strip_prefix(prefix)?, 16).ok()?;
        Some((zxid, entry.path()))
    };
    Ok(entries.flatten().filter_map(named).collect())
}

/// Replaces the content of a volume by that of another folder.
async fn replace(volume: &Path, by: &Path) -> Result<()> {
    for entry in fs::read_dir(volume)? {
        let entry = entry?.path();
        if entry.is_dir() { fs::remove_dir_all(entry)? } else { fs::remove_file(entry)? }
    }
    copy_folder(by, volume).await
}

/// Copies the content of a folder, with owners and times.
async fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let (from, to) = (format!("{}/.", from.display()), to.display().to_string());
    programs::run(Path::new("cp"), &["-a", &from, &to]).await.map(drop)
}

//! A volume that goes back in time, as after a restored snapshot.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::time::sleep;

use super::{operations::Operation, process::Still, world::World};
use crate::{members::Server, programs};

/// The part of `generations.json` that tells the age of a volume.
#[derive(Deserialize)]
struct Generations {
    own: i64,
    known: BTreeMap<i32, i64>,
}

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
        let copy = self.members.federation.folder.join(format!("old-volume-{}", server.uid));
        let still = Still::of(&server.uid).await?;
        copy_folder(&still.volume()?, &copy).await?;
        drop(still);
        sleep(operation.lasts).await;
        let restored = self.restore(server, &copy).await;
        fs::remove_dir_all(&copy)?;
        restored.map(|id| format!("server {id}, {} in {}", server.name, server.cluster))
    }

    async fn restore(&self, server: &Server, copy: &Path) -> Result<i32> {
        // The logs of the lost volume are compared too.
        self.gather().await?;
        let still = Still::of(&server.uid).await.context("the server was replaced")?;
        let volume = still.volume()?;
        let Owner { id } = read(&volume, "owner.json")?;
        let (old, new): (Generations, Generations) =
            (read(copy, "generations.json")?, read(&volume, "generations.json")?);
        let known = new.known.get(&id).copied().unwrap_or_default();
        ensure!(known > old.own, "the ensemble knows generation {known}, and the copy has {}", old.own);
        for entry in fs::read_dir(&volume)? {
            let entry = entry?.path();
            if entry.is_dir() { fs::remove_dir_all(entry)? } else { fs::remove_file(entry)? }
        }
        copy_folder(copy, &volume).await?;
        still.kill().await?;
        Ok(id)
    }
}

fn read<T: for<'de> Deserialize<'de>>(volume: &Path, name: &str) -> Result<T> {
    let file = volume.join("active").join(name);
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}

/// Copies the content of a folder, with owners and times.
async fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let (from, to) = (format!("{}/.", from.display()), to.display().to_string());
    programs::run(Path::new("cp"), &["-a", &from, &to]).await.map(drop)
}

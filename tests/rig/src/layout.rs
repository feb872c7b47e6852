//! The files of a rig. Its processes exchange data through some of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::nodes::Nodes;
use crate::nodes::place::{Doors, Place};
use crate::ports::{Ports, try_lock};

/// The cache folder, which outlives rigs: `$MCZK_CACHE`, else `~/.cache/mczk`.
pub(crate) fn cache() -> Result<PathBuf> {
    let path = match std::env::var_os("MCZK_CACHE") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(std::env::var_os("HOME").context("neither MCZK_CACHE nor HOME is set: set one of them")?)
            .join(".cache/mczk"),
    };
    std::path::absolute(path).context("no working directory")
}

/// The folder of one rig and the names in it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

/// The parts of a rig. The starter writes it first of all.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct State {
    pub(crate) starter: Identity,
    pub(crate) phase: Phase,
    pub(crate) tools: PathBuf,
    /// The programs of Kubernetes in member clusters, if they are not the tools.
    #[serde(default)]
    pub(crate) kubernetes: Option<PathBuf>,
    pub(crate) members: u8,
    pub(crate) pull: Vec<String>,
    pub(crate) all_feature_gates: bool,
    pub(crate) audit_members: bool,
    /// None for a rig without nodes.
    #[serde(default)]
    pub(crate) nodes: Option<Nodes>,
}

/// The phase of a rig.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Phase {
    /// Not all components are ready. The rig ends with its starter.
    Starting,
    /// All components were ready. The rig ends with its starter.
    Attended,
    /// All components were ready. The rig outlives its starter.
    Detached,
}

/// A process that the supervisor keeps running. The starter and the commands `stop`, `start` and `restart` write it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    pub(crate) wanted: bool,
    /// The supervisor replaces a process of another revision.
    pub(crate) revision: u64,
    /// The place that it runs in. None for the machine itself.
    #[serde(default)]
    pub(crate) place: Option<Place>,
}

/// The state of the supervisor, which writes it at every change.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Record {
    pub(crate) supervisor: Identity,
    pub(crate) base_port: u16,
    pub(crate) components: BTreeMap<String, Activity>,
    /// The namespaces that it holds, by place.
    #[serde(default)]
    pub(crate) places: BTreeMap<String, Doors>,
}

/// The state of a component.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Activity {
    pub(crate) process: Option<Identity>,
    pub(crate) revision: u64,
    pub(crate) wanted: bool,
    pub(crate) starts: u32,
    /// The start of the process, in seconds since 1970.
    pub(crate) since: i64,
    pub(crate) last_end: Option<String>,
}

impl Layout {
    pub(crate) fn new(dir: Option<&Path>) -> Result<Self> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => cache()?.join("rig"),
        };
        let dir = std::path::absolute(dir).context("no working directory")?;
        Ok(Self { dir })
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("rig.json")
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.dir.join("supervisor.json")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(crate) fn spare_ports(&self) -> PathBuf {
        self.dir.join("ports")
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    pub(crate) fn pki(&self, cluster: &str) -> PathBuf {
        self.dir.join("pki").join(cluster)
    }

    pub(crate) fn etc(&self) -> PathBuf {
        self.dir.join("etc")
    }

    pub(crate) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.etc().join(format!("{name}.kubeconfig"))
    }

    /// The folder of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    pub(crate) fn nodes(&self) -> PathBuf {
        self.dir.join("nodes")
    }

    /// The faults of the network.
    pub(crate) fn faults(&self) -> PathBuf {
        self.nodes().join("faults.json")
    }

    /// The delays, for the forwarder.
    pub(crate) fn lines(&self) -> PathBuf {
        self.nodes().join("lines.json")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{}.log", file_name(component)))
    }

    pub(crate) fn audit_log(&self, cluster: &str) -> PathBuf {
        self.logs().join(format!("{cluster}-audit.log"))
    }

    fn component(&self, name: &str) -> PathBuf {
        self.run().join(format!("{}.json", file_name(name)))
    }

    pub(crate) fn read_state(&self) -> Result<Option<State>> {
        read(&self.state())
    }

    pub(crate) fn read_record(&self) -> Result<Option<Record>> {
        read(&self.record())
    }

    pub(crate) fn read_component(&self, name: &str) -> Result<Option<Component>> {
        read(&self.component(name))
    }

    pub(crate) fn write_component(&self, component: &Component) -> Result<()> {
        write_json(&self.component(&component.name), component)
    }

    /// The components of the rig, by name.
    pub(crate) fn components(&self) -> Result<BTreeMap<String, Component>> {
        let mut all = BTreeMap::new();
        let folder = self.run();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json")
                && let Some(component) = read::<Component>(&path)?
            {
                all.insert(component.name.clone(), component);
            }
        }
        Ok(all)
    }

    /// The record of the supervisor, if the supervisor runs.
    pub(crate) fn supervised(&self) -> Result<Option<Record>> {
        Ok(self.read_record()?.filter(|record| record.supervisor.lives()))
    }

    /// Makes the folder. Refuses one with foreign files, because `rig down` removes files.
    pub(crate) fn create(&self) -> Result<()> {
        if let Ok(entries) = fs::read_dir(&self.dir)
            && !self.state().exists()
            && entries.flatten().any(|entry| entry.file_name() != "lock")
        {
            bail!("{} holds files, but no rig: name an empty or new folder with --dir", self.dir.display());
        }
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))
    }

    /// Removes the files of the rig, and the folder if it is empty then.
    pub(crate) fn remove(&self) -> Result<()> {
        self.remove_all_but_lock()?;
        missing_is_fine(fs::remove_file(self.dir.join("lock")))
            .with_context(|| format!("cannot remove the lock in {}", self.dir.display()))?;
        // A folder that is not empty holds files of the user.
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }

    pub(crate) fn remove_all_but_lock(&self) -> Result<()> {
        crate::nodes::remove_folders(&self.nodes())?;
        for name in ["run", "etcd", "etc", "pki", "log", "ports", "tmp"] {
            missing_is_fine(fs::remove_dir_all(self.dir.join(name)))
                .with_context(|| format!("cannot remove {name} in {}", self.dir.display()))?;
        }
        // The state last: it marks the folder as one of a rig.
        for name in ["supervisor.json", "rig.json"] {
            missing_is_fine(fs::remove_file(self.dir.join(name)))
                .with_context(|| format!("cannot remove {name} in {}", self.dir.display()))?;
        }
        Ok(())
    }

    /// Locks the rig for a start or for `down`. None if another process holds the lock.
    pub(crate) fn try_lock(&self) -> Result<Option<File>> {
        let path = self.dir.join("lock");
        // `rig down` of another process removes folder and file.
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        let Some(file) = try_lock(&path)? else {
            return Ok(None);
        };
        // A lock on a removed file excludes no process.
        let same = fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|m| m.ino() == now.ino()));
        Ok(same.then_some(file))
    }

    /// As [`Layout::try_lock`], but waits for `patience`. Blocks.
    pub(crate) fn lock(&self, patience: Duration) -> Result<File> {
        let end = Instant::now() + patience;
        loop {
            if let Some(file) = self.try_lock()? {
                return Ok(file);
            }
            if Instant::now() > end {
                bail!("another `rig` is starting or taking down {} right now: wait, or end it", self.dir.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl State {
    /// The names of the member clusters: m1, m2, ...
    pub(crate) fn names(&self) -> Vec<String> {
        (1..=self.members).map(|i| format!("m{i}")).collect()
    }
}

impl Record {
    pub(crate) fn ports(&self) -> Ports {
        Ports { base: self.base_port }
    }
}

fn file_name(component: &str) -> String {
    component.replace('/', "-")
}

fn missing_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    serde_json::from_slice(&text).map(Some).with_context(|| {
        format!(
            "{} is not of this version of the rig: end the processes of that rig and remove the folder",
            path.display()
        )
    })
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write(path, &serde_json::to_vec_pretty(value)?)
}

/// Writes a file atomically. Only its owner may read it, because many files hold keys.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let parent = path.parent().context("a file has a folder")?;
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let attempt = || -> std::io::Result<()> {
        fs::create_dir_all(parent)?;
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        fs::rename(&new, path)
    };
    attempt().with_context(|| format!("cannot write {}: is the disk full?", path.display()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder that is deleted after the test, and the layout of one in it that does not exist yet.
    fn layout() -> Result<(TempDir, Layout)> {
        let folder = TempDir::new()?;
        let dir = folder.path().join("rig");
        Ok((folder, Layout { dir }))
    }

    #[test]
    fn a_folder_with_other_things_is_refused_and_left_alone() -> Result<()> {
        let (_folder, layout) = layout()?;
        fs::create_dir_all(layout.dir.join("etc"))?;
        assert!(layout.create().is_err());
        Ok(())
    }

    #[test]
    fn removing_keeps_what_is_not_the_rigs() -> Result<()> {
        let (_folder, layout) = layout()?;
        layout.create()?;
        write(&layout.kubeconfig("karmada"), b"{}")?;
        write(&layout.dir.join("notes"), b"mine")?;
        layout.remove()?;
        assert!(!layout.etc().exists());
        assert!(layout.dir.join("notes").exists());
        Ok(())
    }

    #[test]
    fn one_holder_of_the_lock_at_a_time() -> Result<()> {
        let (_folder, layout) = layout()?;
        layout.create()?;
        let held = layout.lock(Duration::ZERO)?;
        assert!(layout.lock(Duration::ZERO).is_err());
        drop(held);
        layout.lock(Duration::ZERO)?;
        layout.remove()?;
        assert!(!layout.dir.exists());
        Ok(())
    }

    #[test]
    fn components_are_read_back_by_their_full_name() -> Result<()> {
        let (_folder, layout) = layout()?;
        let component = Component {
            name: "m2/apiserver".into(),
            argv: vec!["true".into()],
            wanted: true,
            revision: 3,
            place: None,
        };
        layout.write_component(&component)?;
        assert_eq!(layout.components()?.get("m2/apiserver"), Some(&component));
        assert_eq!(layout.read_component("m2/apiserver")?, Some(component));
        assert_eq!(layout.read_component("m2/other")?, None);
        Ok(())
    }
}

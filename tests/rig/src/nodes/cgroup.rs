//! Control groups: a folder for the rig, below it one for each node, and below that one each for its programs, its pods and
//! the control plane. So the rig can kill a node at once, and find the processes of a dead rig.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The group of a node's programs: containerd, kubelet, kube-proxy, and a shim for each pod.
pub(crate) const NODE: &str = "node";
/// The group of kubelet, which makes one in it for each pod.
pub(crate) const PODS: &str = "kubepods";
/// The group of the control plane, which runs on without the node.
pub(crate) const CONTROL: &str = "control";

const ROOT: &str = "/sys/fs/cgroup";
const PATIENCE: Duration = Duration::from_secs(20);

/// The hierarchies of this machine: one for each controller in version 1, one in version 2.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchies {
    all: Vec<PathBuf>,
    /// In version 2, each folder enables the controllers of the folders in it.
    unified: bool,
}

impl Hierarchies {
    pub(crate) fn of_this_machine() -> Result<Self> {
        let root = Path::new(ROOT);
        if root.join("cgroup.controllers").exists() {
            return Ok(Self { all: vec![root.to_owned()], unified: true });
        }
        let mut all = vec![];
        for entry in fs::read_dir(root).with_context(|| format!("cannot list {ROOT}: mount the control groups"))? {
            let entry = entry?;
            // A link is a second name of a hierarchy. Beside version 1, `unified` has no controllers.
            if entry.file_type()?.is_dir()
                && entry.file_name() != "unified"
                && entry.path().join("cgroup.procs").exists()
            {
                all.push(entry.path());
            }
        }
        ensure!(!all.is_empty(), "no control groups below {ROOT}: mount them");
        all.sort();
        Ok(Self { all, unified: false })
    }

    /// Makes the folders of a rig.
    pub(crate) fn make(&self, rig: &str, nodes: &[String]) -> Result<()> {
        for hierarchy in &self.all {
            for name in folders(rig, nodes) {
                let folder = hierarchy.join(&name);
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                let parent = folder.parent().unwrap_or(hierarchy);
                // A group without processors accepts no process.
                for item in ["cpuset.cpus", "cpuset.mems"] {
                    if !self.unified && folder.join(item).exists() {
                        let value = fs::read(parent.join(item))?;
                        fs::write(folder.join(item), value)
                            .with_context(|| format!("cannot fill {item} of {}", folder.display()))?;
                    }
                }
                if self.unified {
                    let controllers = fs::read_to_string(parent.join("cgroup.controllers"))?;
                    for controller in controllers.split_whitespace() {
                        // The machine may lack a controller.
                        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The files that a process writes `0` to, to join a group.
    pub(crate) fn doors(&self, rig: &str, group: &str) -> Result<Vec<File>> {
        let open = |hierarchy: &PathBuf| {
            let path = hierarchy.join(top(rig)).join(group).join("cgroup.procs");
            File::options().write(true).open(&path).with_context(|| format!("cannot open {}", path.display()))
        };
        self.all.iter().map(open).collect()
    }

    /// Kills all processes in a folder of a rig and below it, until none is left.
    pub(crate) fn kill(&self, rig: &str, group: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut left = vec![];
            for hierarchy in &self.all {
                processes(&hierarchy.join(top(rig)).join(group), &mut left);
            }
            if left.is_empty() {
                return Ok(());
            }
            for pid in left {
                // It may have ended already.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            ensure!(Instant::now() < end, "processes in the control group {}/{group} do not end", top(rig));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes the folders of a rig in all hierarchies. No process may run in them.
    pub(crate) fn remove(&self, rig: &str) -> Result<()> {
        let mut all = self.all.clone();
        // runc makes folders there too.
        all.push(Path::new(ROOT).join("unified"));
        let end = Instant::now() + PATIENCE;
        for hierarchy in all {
            let folder = hierarchy.join(top(rig));
            // The kernel allows it some time after the end of the last process.
            while folder.exists() && remove(&folder).is_err() {
                ensure!(Instant::now() < end, "cannot remove {}: something still runs in it", folder.display());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// The folder of a rig in a hierarchy.
pub(crate) fn top(rig: &str) -> String {
    format!("rig-{rig}")
}

/// All folders of a rig, each after its parent.
fn folders(rig: &str, nodes: &[String]) -> Vec<String> {
    let top = top(rig);
    let mut all = vec![top.clone(), format!("{top}/{CONTROL}")];
    for node in nodes {
        all.push(format!("{top}/{node}"));
        all.extend([NODE, PODS, CONTROL].map(|group| format!("{top}/{node}/{group}")));
    }
    all
}

fn processes(folder: &Path, found: &mut Vec<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes(&entry.path(), found);
        }
    }
}

/// Removes a folder of a hierarchy from the innermost folder out. Files in a hierarchy cannot be removed.
fn remove(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_after_the_one_it_lies_in() {
        let all = folders("x", &["m1".into(), "m1-2".into()]);
        for (i, folder) in all.iter().enumerate() {
            if let Some((parent, _)) = folder.rsplit_once('/') {
                assert!(all.iter().take(i).any(|earlier| earlier == parent), "{folder}");
            }
        }
        assert!(all.contains(&"rig-x/m1-2/kubepods".to_owned()));
    }
}

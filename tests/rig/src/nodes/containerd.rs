//! The container runtime of a node, with images from files, and from the registry of the rig.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::run_blocking;
use crate::control_plane::Plan;
use crate::layout::{Component, write, write_json};
use crate::lifeline::end_with_parent;
use crate::nodes::address::Node;
use crate::nodes::cgroup::NODE;
use crate::nodes::component;
use crate::nodes::images::PAUSE;
use crate::nodes::registry;

/// The socket of containerd, in the /run of each node.
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
/// The folder of Debian's containernetworking-plugins.
pub(crate) const PLUGINS: &str = "/usr/lib/cni";
/// The folder of containerd in the /var of a node.
const ROOT: &str = "lib/containerd";
/// The namespace of kubelet in containerd.
const NAMESPACE: &str = "k8s.io";

/// The configuration of containerd, in format 2: releases 1.5 to 1.7 read it, and 2 still does.
fn config(etc: &str) -> String {
    format!(
        r#"version = 2
root = "/var/{ROOT}"
state = "/run/containerd"
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{etc}/registries"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{etc}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    )
}

/// Each pod gets a link to its node and an address of the node's range, without address translation.
fn pod_network(node: &Node) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "rig",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-rig",
                    "ranges": [[{"subnet": node.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

impl Plan {
    pub(crate) fn containerd(&self, node: &Node) -> Result<Component> {
        let etc = self.layout.node(&node.name).join("etc");
        let file = etc.join("containerd.toml");
        write(&file, config(&etc.to_string_lossy()).as_bytes())?;
        write_json(&etc.join("cni/10-rig.conflist"), &pod_network(node))?;
        let (hosts, content) = registry::hosts();
        write(&etc.join("registries").join(hosts), content.as_bytes())?;
        let flags = vec!["--config".into(), file.display().to_string()];
        Ok(component(node, NODE, "containerd", Path::new("containerd"), flags))
    }
}

/// Copies the containerd folder with the images to a node. Files are hard links, except databases, which containerd
/// changes in place.
pub(crate) fn furnish(golden: &Path, var: &Path) -> Result<()> {
    let target = var.join(ROOT);
    let parent = target.parent().unwrap_or(var);
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let copy = |flags: &str| {
        let mut cp = Command::new("cp");
        cp.arg(flags).arg(golden).arg(&target);
        run_blocking(cp, Signal::SIGKILL)
    };
    if copy("-al").is_err() {
        // Hard links are impossible between file systems.
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        copy("-a").context("cannot copy the images")?;
    }
    unlink_databases(&target)
}

fn unlink_databases(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // Files of images are never changed.
            if entry.file_name() != "fs" {
                unlink_databases(&path)?;
            }
        } else if path.extension().is_some_and(|e| e == "db") {
            let copy = path.with_extension("copy");
            fs::copy(&path, &copy)?;
            fs::rename(&copy, &path)?;
        }
    }
    Ok(())
}

/// Makes a containerd folder with these image archives in it, for [`furnish`]. Blocks for some seconds.
pub(crate) fn golden(archives: &[PathBuf], target: &Path) -> Result<()> {
    let folder = target.with_extension("new");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let socket = folder.join("containerd.sock");
    let toml = folder.join("containerd.toml");
    let place = folder.display();
    write(
        &toml,
        format!(
            "version = 2\nroot = \"{place}/root\"\nstate = \"{place}/state\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = \"{}\"\n",
            socket.display()
        )
        .as_bytes(),
    )?;
    let log = File::create(folder.join("log"))?;
    let mut command = Command::new("unshare");
    // Its own mount namespace, so that no mount stays.
    command.args(["--mount", "containerd", "--config"]).arg(&toml);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut daemon = Daemon(end_with_parent(&mut command, Signal::SIGKILL).spawn().context("cannot run containerd")?);
    let end = Instant::now() + Duration::from_secs(30);
    while run_blocking(ctr(&socket, &["version"]), Signal::SIGKILL).is_err() {
        ensure!(Instant::now() < end, "containerd does not answer: see {place}/log");
        std::thread::sleep(Duration::from_millis(50));
    }
    for archive in archives {
        let mut import = ctr(&socket, &["images", "import"]);
        import.arg(archive);
        run_blocking(import, Signal::SIGKILL).with_context(|| format!("cannot import {}", archive.display()))?;
    }
    daemon.end();
    fs::rename(folder.join("root"), target).with_context(|| format!("cannot make {}", target.display()))?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn ctr(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.arg("--address").arg(socket).args(["--namespace", NAMESPACE]).args(arguments);
    command
}

/// The command that checks in a node whether containerd answers.
pub(crate) const PING: [&str; 2] = ["ctr", "version"];

/// The command that imports an image archive in a node, from standard input.
pub(crate) fn import() -> Vec<&'static str> {
    vec!["ctr", "--namespace", NAMESPACE, "images", "import", "-"]
}

struct Daemon(Child);

impl Daemon {
    /// Ends it by SIGTERM, so that it writes its state.
    fn end(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn pods_get_addresses_of_their_node_and_keep_them_on_the_way() {
        let network = pod_network(&Node::second("m2", 2));
        assert_eq!(network["plugins"][0]["ipMasq"], false);
        assert_eq!(network["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.211.2.128/25");
    }

    #[test]
    fn the_pods_first_container_is_of_an_image_that_is_there() {
        assert!(config("/etc").contains(&format!("sandbox_image = \"{PAUSE}\"")));
    }

    #[test]
    fn databases_are_copied_and_images_are_not() -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let temporary = tempfile::tempdir()?;
        let folder = temporary.path();
        let golden = folder.join("golden");
        for (name, content) in [("x/meta.db", "a"), ("blobs/layer", "b"), ("snapshots/1/fs/app.db", "c")] {
            write(&golden.join(name), content.as_bytes())?;
        }
        furnish(&golden, &folder.join("var"))?;
        let inode = |path: &str| -> Result<u64> { Ok(fs::metadata(folder.join(path))?.ino()) };
        assert_ne!(inode("golden/x/meta.db")?, inode("var/lib/containerd/x/meta.db")?);
        assert_eq!(inode("golden/blobs/layer")?, inode("var/lib/containerd/blobs/layer")?);
        assert_eq!(inode("golden/snapshots/1/fs/app.db")?, inode("var/lib/containerd/snapshots/1/fs/app.db")?);
        Ok(())
    }
}

//! What a rig with nodes needs of the machine, checked before anything is started; each lack is told with its remedy.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::nodes::containerd::PLUGINS;
use crate::nodes::images;

/// Programs, and Debian's packages that have them.
const PROGRAMS: [(&str, &str); 16] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("busybox", "busybox-static"),
    ("cp", "coreutils"),
    ("tar", "tar"),
    ("ldd", "libc-bin"),
    ("mvn", "maven"),
    ("jlink", "default-jdk-headless"),
];
const PLUGIN_PACKAGE: &str = "containernetworking-plugins";
const INSTALL: &str = "`make prerequisites-nodes` installs it on Debian and its like";
/// A node puts folders of its own there.
const COVERED: [&str; 2] = ["/var", "/run"];

/// Fails with everything that is missing, not only the first.
pub(crate) fn check(folders: &[&Path]) -> Result<()> {
    let mut lacks = vec![];
    if !nix::unistd::geteuid().is_root() {
        lacks.push(
            "nodes need root (namespaces, mounts, control groups): run it as root, for example with sudo -E".into(),
        );
    }
    for (program, package) in PROGRAMS {
        if images::program(program).is_err() {
            lacks.push(format!("{program} is missing: it is in the package {package}; {INSTALL}"));
        }
    }
    for plugin in ["ptp", "host-local", "portmap"] {
        if !Path::new(PLUGINS).join(plugin).exists() {
            lacks.push(format!("{PLUGINS}/{plugin} is missing: it is in the package {PLUGIN_PACKAGE}; {INSTALL}"));
        }
    }
    if !Path::new("/dev/net/tun").exists() {
        lacks.push("/dev/net/tun is missing: `modprobe tun`, or give it to the container that this runs in".into());
    }
    if !fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\toverlay\n") {
        lacks.push("the kernel has no overlay file system: `modprobe overlay`".into());
    }
    lacks.extend(covered(folders));
    if lacks.is_empty() {
        return Ok(());
    }
    bail!("this machine cannot run a rig with nodes:\n- {}", lacks.join("\n- "))
}

fn covered(folders: &[&Path]) -> Vec<String> {
    folders
        .iter()
        .filter(|folder| COVERED.iter().any(|top| folder.starts_with(top)))
        .map(|folder| {
            format!(
                "{} lies below {}, where each node has a folder of its own: use another (--dir, MCZK_CACHE, \
                 CARGO_TARGET_DIR)",
                folder.display(),
                COVERED.join(" or ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_node_covers_are_refused() {
        let lacks = covered(&[Path::new("/var/tmp/x"), Path::new("/home/variant"), Path::new("/run")]);
        assert_eq!(lacks.len(), 2);
        assert!(lacks.iter().all(|lack| lack.contains("--dir")));
    }
}

//! The namespaces of a node: network, mounts, host name and IPC.
//!
//! The supervisor holds them by file descriptors, so that they end with it and with no other process. It is process 1 of a
//! process namespace for all nodes, so that all pods die with it, even after SIGKILL.
#![allow(
    unsafe_code,
    reason = "std can put a child into namespaces only through pre_exec, which is unsafe: the closure runs between fork \
              and exec. It makes system calls on descriptors opened before and touches no memory of the parent."
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{sethostname, write};
use serde::{Deserialize, Serialize};

use crate::layout::write as write_file;
use crate::nodes::cgroup::{CONTROL, Hierarchies};

/// The name of the router's place.
pub(crate) const ROUTER: &str = "router";

/// The place of a component: the namespaces of a node or of the router, and a control group there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Place {
    pub(crate) machine: String,
    pub(crate) group: String,
}

impl Place {
    pub(crate) fn router() -> Self {
        Self { machine: ROUTER.to_owned(), group: CONTROL.to_owned() }
    }

    /// The control group, below that of the rig.
    fn folder(&self) -> String {
        if self.machine == ROUTER { self.group.clone() } else { format!("{}/{}", self.machine, self.group) }
    }
}

/// The file descriptors of the supervisor for the namespaces of a place. Other processes enter it by their numbers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Doors {
    pub(crate) net: RawFd,
    pub(crate) mount: RawFd,
    pub(crate) uts: RawFd,
    pub(crate) ipc: RawFd,
}

impl Doors {
    /// The arguments of `nsenter` for the network alone, from the process number of the supervisor.
    pub(crate) fn network(self, supervisor: i32) -> String {
        format!("--net=/proc/{supervisor}/fd/{}", self.net)
    }

    /// The arguments of `nsenter` for all namespaces.
    pub(crate) fn all(self, supervisor: i32) -> Vec<String> {
        let fd = |kind: &str, number: RawFd| format!("--{kind}=/proc/{supervisor}/fd/{number}");
        vec![
            format!("--pid=/proc/{supervisor}/ns/pid"),
            fd("net", self.net),
            fd("mount", self.mount),
            fd("uts", self.uts),
            fd("ipc", self.ipc),
        ]
    }
}

/// The namespaces of a place. They end with this value and the last process in them.
#[derive(Debug)]
pub(crate) struct Machine {
    net: OwnedFd,
    mount: OwnedFd,
    uts: OwnedFd,
    ipc: OwnedFd,
}

impl Machine {
    /// Makes namespaces and runs `furnish` in them, on another thread, so that the caller's namespaces do not change.
    pub(crate) fn open(name: &str, furnish: impl FnOnce() -> Result<()> + Send) -> Result<Self> {
        let work = || -> Result<Self> {
            unshare(
                CloneFlags::CLONE_NEWNET
                    | CloneFlags::CLONE_NEWNS
                    | CloneFlags::CLONE_NEWUTS
                    | CloneFlags::CLONE_NEWIPC,
            )
            .context("cannot make namespaces")?;
            // Mounts from here on are invisible outside.
            mount_flags("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
            mount(Some("proc"), "/proc", Some("proc"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, None::<&str>)
                .context("cannot mount /proc")?;
            sethostname(name).context("cannot set the host name")?;
            furnish()?;
            let open = |kind: &str| -> Result<OwnedFd> {
                Ok(File::open(format!("/proc/thread-self/ns/{kind}")).context("cannot open a namespace")?.into())
            };
            Ok(Self { net: open("net")?, mount: open("mnt")?, uts: open("uts")?, ipc: open("ipc")? })
        };
        std::thread::scope(|scope| scope.spawn(work).join())
            .map_err(|_| anyhow!("a thread broke down"))?
            .with_context(|| format!("cannot set up the namespaces of {name}"))
    }

    pub(crate) fn doors(&self) -> Doors {
        Doors {
            net: self.net.as_raw_fd(),
            mount: self.mount.as_raw_fd(),
            uts: self.uts.as_raw_fd(),
            ipc: self.ipc.as_raw_fd(),
        }
    }

    /// Makes a program start in the network namespace of a place.
    pub(crate) fn enter_network<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        Ok(enter(command, vec![(self.net.try_clone()?, CloneFlags::CLONE_NEWNET)], vec![]))
    }

    fn enter(&self, command: &mut Command, groups: Vec<File>) -> Result<()> {
        let namespaces = vec![
            (self.net.try_clone()?, CloneFlags::CLONE_NEWNET),
            (self.uts.try_clone()?, CloneFlags::CLONE_NEWUTS),
            (self.ipc.try_clone()?, CloneFlags::CLONE_NEWIPC),
            // The last one, because it changes the meaning of paths.
            (self.mount.try_clone()?, CloneFlags::CLONE_NEWNS),
        ];
        enter(command, namespaces, groups);
        Ok(())
    }
}

fn enter(command: &mut Command, namespaces: Vec<(OwnedFd, CloneFlags)>, groups: Vec<File>) -> &mut Command {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: write(2) and setns(2) are.
    unsafe {
        command.pre_exec(move || {
            for group in &groups {
                // 0 stands for the writing process.
                write(group.as_fd(), b"0")?;
            }
            for (namespace, kind) in &namespaces {
                setns(namespace.as_fd(), *kind)?;
            }
            Ok(())
        })
    }
}

/// All places of a rig. A rig without nodes has none.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    rig: String,
    hierarchies: Option<Hierarchies>,
    pub(crate) all: BTreeMap<String, Machine>,
}

impl Machines {
    pub(crate) fn new(rig: &str, hierarchies: Hierarchies) -> Self {
        Self { rig: rig.to_owned(), hierarchies: Some(hierarchies), all: BTreeMap::new() }
    }

    pub(crate) fn doors(&self) -> BTreeMap<String, Doors> {
        self.all.iter().map(|(name, machine)| (name.clone(), machine.doors())).collect()
    }

    /// Makes a program start in a place.
    pub(crate) fn enter(&self, command: &mut Command, place: &Place) -> Result<()> {
        let machine = self.all.get(&place.machine).with_context(|| format!("no place {}", place.machine))?;
        let hierarchies = self.hierarchies.as_ref().context("no control groups")?;
        machine.enter(command, hierarchies.doors(&self.rig, &place.folder())?)
    }
}

/// Settings of the whole machine that kubelet and kube-proxy write. In a node, they are files without effect.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Mounts the folders of a node in the mount namespace of this thread: /var, /run, the configuration of the resolver, and
/// files for settings of the kernel.
pub(crate) fn furnish(folder: &Path) -> Result<()> {
    let var = folder.join("var");
    for name in ["lib/kubelet/volumeplugins", "log", "tmp"] {
        let path = var.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    if !var.join("run").is_symlink() {
        symlink("/run", var.join("run")).context("cannot make /var/run")?;
    }
    bind(&var, Path::new("/var"))?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"))
        .context("cannot mount /run")?;
    let resolver = Path::new("/etc/resolv.conf");
    if !resolver.exists() {
        // systemd-resolved makes a link into /run, which leads nowhere now.
        let target = Path::new("/etc").join(fs::read_link(resolver).context("no /etc/resolv.conf")?);
        write_file(&target, b"")?;
    }
    bind(&folder.join("etc/resolv.conf"), resolver)?;
    for (name, value) in SETTINGS {
        let entry = Path::new("/proc/sys").join(name);
        if entry.exists() {
            let own: PathBuf = folder.join("sysctl").join(name);
            write_file(&own, format!("{value}\n").as_bytes())?;
            bind(&own, &entry)?;
        }
    }
    // Mounts of kubelet must reach containers, and the reverse.
    mount_flags("/", MsFlags::MS_REC | MsFlags::MS_SHARED)
}

/// Enables forwarding in the network namespace of this thread.
pub(crate) fn forward_packets() -> Result<()> {
    for (name, value) in [
        ("ip_forward", "1"),
        ("conf/all/rp_filter", "0"),
        ("conf/default/rp_filter", "0"),
        ("conf/all/send_redirects", "0"),
        ("conf/default/send_redirects", "0"),
    ] {
        let path = Path::new("/proc/sys/net/ipv4").join(name);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", from.display(), to.display()))
}

fn mount_flags(path: &str, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot change how mounts below {path} spread"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_entered_through_the_supervisors_descriptors() {
        let doors = Doors { net: 7, mount: 8, uts: 9, ipc: 10 };
        assert_eq!(doors.network(42), "--net=/proc/42/fd/7");
        assert!(doors.all(42).contains(&"--mount=/proc/42/fd/8".to_owned()));
        assert!(doors.all(42).contains(&"--pid=/proc/42/ns/pid".to_owned()));
    }

    #[test]
    fn the_router_has_a_group_of_its_own() {
        assert_eq!(Place::router().folder(), "control");
        assert_eq!(Place { machine: "m1".into(), group: "node".into() }.folder(), "m1/node");
    }
}

//! Rigs with nodes: every cluster has real nodes in their own namespaces, connected by a router.

pub(crate) mod address;
pub(crate) mod cgroup;
pub(crate) mod claim;
pub(crate) mod containerd;
pub(crate) mod disks;
pub(crate) mod dns;
pub(crate) mod forwarder;
pub(crate) mod images;
pub(crate) mod kubelet;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod place;
pub(crate) mod power;
pub(crate) mod registry;
pub(crate) mod requirements;
pub(crate) mod storage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::api::{Api, wait_for};
use crate::command::run_blocking;
use crate::control_plane::{Cluster, Plan};
use crate::identity::Identity;
use crate::layout::{Component, Layout, State, write, write_json};
use crate::nodes::address::{HOST, HOST_INDEX, Node};
use crate::nodes::cgroup::{CONTROL, Hierarchies};
use crate::nodes::network::{CABLE, DELAYED, Faults, feed, ip};
use crate::nodes::place::{Machine, Machines, Place, ROUTER};
use crate::progress::Progress;
use crate::tools;

/// The path of nodes in the API.
pub(crate) const NODES: &str = "/api/v1/nodes";
/// The error of commands that need nodes.
pub(crate) const NO_NODES: &str = "this rig has no nodes: start one with `rig up --nodes`";

/// The additional state of a rig with nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Nodes {
    /// The name of the control groups of this rig.
    pub(crate) id: String,
    /// The member clusters with a second node.
    pub(crate) two: Vec<String>,
    /// The program of the DNS server.
    pub(crate) coredns: PathBuf,
    /// The program `rig`, which provides volumes and forwards packets.
    pub(crate) rig: PathBuf,
    /// An image archive of mczk, if there is one.
    pub(crate) mczk: Option<PathBuf>,
    /// True if the rig has clusters only, and no Karmada.
    #[serde(default)]
    pub(crate) without_karmada: bool,
    /// The machine's limit of inotify instances, if it was raised.
    pub(crate) inotify_before: Option<u32>,
}

impl State {
    /// All nodes, the first one of each cluster before the second.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let Some(nodes) = &self.nodes else { return vec![] };
        let mut all = vec![Node::first(HOST, HOST_INDEX)];
        for (index, name) in (1..).zip(self.names()) {
            all.push(Node::first(&name, index));
            if nodes.two.contains(&name) {
                all.push(Node::second(&name, index));
            }
        }
        all
    }
}

/// Checks the requirements of the machine, and that no rig with nodes runs.
pub(crate) fn check(layout: &Layout) -> Result<()> {
    requirements::check(&[&layout.dir, &crate::layout::cache()?, &std::env::current_exe()?])?;
    claim::ensure_free().map(drop)
}

/// Removes the rest of a dead rig, and makes the images. Blocks, the first time for a minute.
pub(crate) fn prepare(layout: &Layout, progress: &Progress) -> Result<PathBuf> {
    if let Some(left) = claim::ensure_free()?
        && left.dir != layout.dir
    {
        progress.print(format!(
            "removing the rest of a rig with nodes in {}, which was not taken down",
            left.dir.display()
        ));
        let other = Layout { dir: left.dir };
        crate::start::take_down(&other)?;
        // The user may have removed its folder.
        clear(&other, &left.id, None)?;
    }
    images::golden(progress)
}

/// Makes the files of all nodes.
pub(crate) fn furnish(layout: &Layout, state: &State, golden: &Path) -> Result<()> {
    for node in state.nodes() {
        let folder = layout.node(&node.name);
        containerd::furnish(golden, &folder.join("var"))?;
        let dns = address::cluster(node.index);
        write(&folder.join("etc/resolv.conf"), format!("nameserver {dns}\n").as_bytes())?;
    }
    write_json(&layout.lines(), &Faults::default().lines())
}

/// Makes and connects the namespaces of all nodes. The supervisor calls it, and holds them.
pub(crate) fn open(layout: &Layout, state: &State) -> Result<(Machines, Option<File>)> {
    let Some(nodes) = &state.nodes else { return Ok((Machines::default(), None)) };
    let this = Identity::of_this_process()?.pid;
    let claim = claim::take(&layout.dir, this, &nodes.id)?;
    let hierarchies = Hierarchies::of_this_machine()?;
    let all = state.nodes();
    let names: Vec<_> = all.iter().map(|node| node.name.clone()).collect();
    hierarchies.make(&nodes.id, &names)?;
    for mut door in hierarchies.doors(&nodes.id, CONTROL)? {
        std::io::Write::write_all(&mut door, b"0").context("cannot enter a control group")?;
    }
    let mut machines = Machines::new(&nodes.id, hierarchies);
    let router = Machine::open(ROUTER, place::forward_packets)?;
    // Inside, the supervisor is process 1; on the machine it has another number.
    let inside = format!("/proc/1/fd/{}", router.doors().net);
    let outside = format!("/proc/{this}/fd/{}", router.doors().net);
    for node in &all {
        let siblings: Vec<_> = all.iter().filter(|other| other.cluster == node.cluster).cloned().collect();
        let machine = Machine::open(&node.name, || {
            place::forward_packets()?;
            feed(&mut ip(), &network::node_batch(node, &siblings, &inside))?;
            place::furnish(&layout.node(&node.name))
        })?;
        machines.all.insert(node.name.clone(), machine);
    }
    let mut command = ip();
    feed(&mut command, &network::machine_batch(&outside)).with_context(|| {
        format!(
            "cannot lay the cable {CABLE}: if it is a leftover, `ip link delete {CABLE}` removes it; else another network of \
             this machine has addresses of {}",
            address::EVERYTHING
        )
    })?;
    feed(router.enter_network(&mut ip())?, &network::router_batch(&all))?;
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]);
    feed(router.enter_network(&mut nft)?, &Faults::default().filter())?;
    machines.all.insert(ROUTER.to_owned(), router);
    Ok((machines, Some(claim)))
}

/// Removes what a rig with nodes leaves on the machine when its processes are ended: the supervisor with a signal, and
/// with it all others by the kernel. Blocks for at most some seconds.
pub(crate) fn clear(layout: &Layout, id: &str, inotify_before: Option<u32>) -> Result<()> {
    let hierarchies = Hierarchies::of_this_machine()?;
    // There is none, unless the supervisor could not be identified.
    hierarchies.kill(id, "")?;
    let end = Instant::now() + Duration::from_secs(20);
    while Path::new("/sys/class/net").join(CABLE).exists() {
        if matches!(claim::state()?, claim::Claim::Held(_)) {
            // Another rig's.
            break;
        }
        ensure!(Instant::now() < end, "the cable {CABLE} is still there: `ip link delete {CABLE}` removes it");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The kernel unmounts disks some moments after the last process of a node.
    while let Err(e) = disks::ensure_none(layout) {
        if Instant::now() > end {
            return Err(e);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    hierarchies.remove(id)?;
    limits::restore(inotify_before)?;
    claim::forget(&layout.dir)
}

/// A component in a node's namespaces.
pub(crate) fn component(node: &Node, group: &str, name: &str, program: &Path, flags: Vec<String>) -> Component {
    let mut argv = vec![program.display().to_string()];
    argv.extend(flags);
    Component {
        name: format!("{}/{name}", node.name),
        argv,
        wanted: true,
        revision: 1,
        place: Some(Place { machine: node.name.clone(), group: group.to_owned() }),
    }
}

/// The name of a rig's control groups: no two rigs of one boot share it.
pub(crate) fn id(starter: &Identity) -> String {
    let time = jiff::Timestamp::now().as_millisecond();
    format!("{:x}-{:x}", starter.pid, time & 0xff_ffff)
}

impl Plan {
    /// The host cluster, if it has nodes, and all members.
    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.host().into_iter().chain(self.members()).collect()
    }

    pub(crate) fn all_nodes(&self) -> Vec<Node> {
        self.state.nodes()
    }

    pub(crate) fn nodes_of(&self, cluster: &Cluster) -> Vec<Node> {
        self.state.nodes().into_iter().filter(|node| node.cluster == cluster.name).collect()
    }

    pub(crate) fn rig_id(&self) -> String {
        self.state.nodes.as_ref().map(|nodes| nodes.id.clone()).unwrap_or_default()
    }

    pub(crate) fn coredns(&self) -> PathBuf {
        self.state.nodes.as_ref().map(|nodes| nodes.coredns.clone()).unwrap_or_default()
    }

    fn rig_program(&self) -> PathBuf {
        self.state.nodes.as_ref().map(|nodes| nodes.rig.clone()).unwrap_or_default()
    }

    /// A program for a cluster. Member clusters may have another Kubernetes than Karmada and `host`.
    pub(crate) fn tool(&self, cluster: u8, name: &str) -> PathBuf {
        let is_member = (1..=self.state.members).contains(&cluster);
        let folder = self.state.kubernetes.as_ref().filter(|_| is_member && tools::is_of_kubernetes(name));
        folder.unwrap_or(&self.state.tools).join(name)
    }

    /// Starts the components that need no API server.
    pub(crate) fn start_runtimes(&self) -> Result<()> {
        for node in self.all_nodes() {
            self.launch(&self.containerd(&node)?)?;
        }
        let mut argv = vec![self.rig_program().display().to_string()];
        argv.extend(["forward".into(), format!("--device={DELAYED}")]);
        argv.push(format!("--lines={}", self.layout.lines().display()));
        let name = format!("{ROUTER}/forwarder");
        self.launch(&Component { name, argv, wanted: true, revision: 1, place: Some(Place::router()) })
    }

    /// Starts the components that need an API server.
    pub(crate) fn start_nodes(&self, cluster: &Cluster) -> Result<()> {
        self.launch(&self.kube_scheduler(cluster))?;
        for node in self.nodes_of(cluster) {
            self.launch(&self.kubelet(&node)?)?;
            self.launch(&self.proxy(&node)?)?;
        }
        self.launch(&self.dns(cluster)?)?;
        self.launch(&self.volumes(cluster, &self.rig_program()))
    }

    /// Imports the image of mczk into all nodes, once their container runtimes answer.
    pub(crate) async fn import_mczk(&self) -> Result<()> {
        let Some(archive) = self.state.nodes.as_ref().and_then(|nodes| nodes.mczk.clone()) else { return Ok(()) };
        for node in self.all_nodes() {
            wait_for(&format!("containerd of {} answers", node.name), || async {
                let mut ctr = tokio::process::Command::from(inside(&self.layout, &node.name, &containerd::PING)?);
                let output = ctr.stdin(Stdio::null()).kill_on_drop(true).output().await?;
                Ok(output.status.success().then_some(()))
            })
            .await?;
        }
        let plan = self.clone();
        tokio::task::spawn_blocking(move || plan.import(&archive, &[])).await?
    }

    /// Waits until all nodes are Ready.
    pub(crate) async fn wait_nodes_ready(&self) -> Result<()> {
        let mut tasks = JoinSet::new();
        for cluster in self.clusters() {
            let plan = self.clone();
            tasks.spawn(async move {
                let api = Api::of(&plan.layout.kubeconfig(&cluster.name)).await?;
                wait_for(&format!("the nodes of {} are Ready", cluster.name), || async {
                    let list = api.get(NODES).await?;
                    Ok((ready(&list).len() == plan.nodes_of(&cluster).len()).then_some(()))
                })
                .await
            });
        }
        while let Some(result) = tasks.join_next().await {
            result??;
        }
        Ok(())
    }

    /// Imports an image archive into the given nodes, or into all. Blocks.
    pub(crate) fn import(&self, archive: &Path, nodes: &[String]) -> Result<()> {
        let names: Vec<_> = if nodes.is_empty() {
            self.all_nodes().into_iter().map(|node| node.name).collect()
        } else {
            nodes.iter().map(|name| Ok(self.node(name)?.name)).collect::<Result<_>>()?
        };
        std::thread::scope(|scope| {
            let imports: Vec<_> = names
                .iter()
                .map(|name| {
                    scope.spawn(move || -> Result<()> {
                        // From standard input, because the folder of the archive may be invisible in the node.
                        let file = File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
                        let mut command = inside(&self.layout, name, &containerd::import())?;
                        let output = command.stdin(Stdio::from(file)).output()?;
                        ensure!(
                            output.status.success(),
                            "{name} does not take {}: {}",
                            archive.display(),
                            String::from_utf8_lossy(&output.stderr).trim()
                        );
                        Ok(())
                    })
                })
                .collect();
            for import in imports {
                import.join().map_err(|_| anyhow::anyhow!("a thread broke down"))??;
            }
            Ok(())
        })
    }

    /// Changes the faults between clusters: `a` and `b`, or `a` and all others.
    pub(crate) fn change_faults(
        &self,
        a: Option<&str>,
        b: Option<&str>,
        edit: impl Fn(&mut network::Pair),
    ) -> Result<()> {
        let _lock = self.layout.lock(Duration::from_secs(10))?;
        let mut faults: Faults = crate::layout::read(&self.layout.faults())?.unwrap_or_default();
        let of = |name: &str| self.cluster(name).map(|c| (c.name, c.index));
        let all = self.clusters();
        let lefts = match a {
            Some(a) => vec![of(a)?],
            None => all.iter().map(|c| (c.name.clone(), c.index)).collect(),
        };
        for left in &lefts {
            let rights = match b {
                Some(b) => vec![of(b)?],
                None => all.iter().map(|c| (c.name.clone(), c.index)).collect(),
            };
            if let Some(b) = b {
                ensure!(a != Some(b), "name two different clusters");
            }
            for right in rights.iter().filter(|right| right.0 != left.0) {
                faults.change((&left.0, left.1), (&right.0, right.1), &edit);
            }
        }
        write_json(&self.layout.faults(), &faults)?;
        write_json(&self.layout.lines(), &faults.lines())?;
        feed(&mut within(&self.layout, ROUTER, &["nft", "-f", "-"])?, &faults.filter())?;
        feed(&mut within(&self.layout, ROUTER, &["ip", "-batch", "-"])?, &faults.rules())?;
        Ok(())
    }
}

/// The names of the Ready nodes in a list.
pub(crate) fn ready(nodes: &Value) -> Vec<String> {
    let is_ready = |node: &&Value| {
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        conditions
            .into_iter()
            .flatten()
            .any(|c| c.get("type").is_some_and(|t| t == "Ready") && c.get("status").is_some_and(|s| s == "True"))
    };
    let name = |node: &Value| Some(node.pointer("/metadata/name")?.as_str()?.to_owned());
    nodes.get("items").and_then(Value::as_array).into_iter().flatten().filter(is_ready).filter_map(name).collect()
}

/// A command in a node, with the kubeconfig of its cluster and the tools in PATH.
pub(crate) fn inside(layout: &Layout, place: &str, argv: &[&str]) -> Result<Command> {
    let record = layout.supervised()?.context("the supervisor of the rig has ended: run `rig down`, then `rig up`")?;
    let doors = record.places.get(place).with_context(|| {
        if record.places.is_empty() {
            NO_NODES.to_owned()
        } else {
            let names: Vec<_> = record.places.keys().map(String::as_str).collect();
            format!("no place {place:?}: there are {}", names.join(", "))
        }
    })?;
    let mut command = Command::new("nsenter");
    command.args(doors.all(record.supervisor.pid)).arg("--").args(argv);
    if let Some(state) = layout.read_state()? {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(state.tools.clone()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders)?);
        if let Some(node) = state.nodes().into_iter().find(|node| node.name == place) {
            command.env("KUBECONFIG", layout.kubeconfig(&node.cluster));
        }
    }
    Ok(command)
}

/// A command on the machine, but in the network of a place.
pub(crate) fn within(layout: &Layout, place: &str, argv: &[&str]) -> Result<Command> {
    let record = layout.supervised()?.context("the supervisor of the rig has ended: run `rig down`, then `rig up`")?;
    let doors = record.places.get(place).context(NO_NODES)?;
    let mut command = Command::new("nsenter");
    command.arg(doors.network(record.supervisor.pid)).arg("--").args(argv);
    Ok(command)
}

/// The image archive of the given program mczk, or of the one beside `rig`, if there is one. Blocks for some seconds.
pub(crate) fn mczk(program: Option<&Path>, rig: &Path, progress: &Progress) -> Result<Option<PathBuf>> {
    let beside = rig.with_file_name("mczk");
    let program = match program {
        Some(program) => program,
        None if beside.exists() => &beside,
        None => {
            progress.print("no image of mczk: there is no program mczk beside rig; name one with --mczk");
            return Ok(None);
        }
    };
    progress.print(format!("image {} from {}", images::MCZK, program.display()));
    images::mczk(program, images::MCZK, progress).map(Some)
}

/// Removes the folders of all nodes. Their mounts have ended with the namespaces.
pub(crate) fn remove_folders(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    // `rm` handles long paths that containers may make.
    let mut rm = Command::new("rm");
    rm.args(["-rf", "--one-file-system", "--"]).arg(folder);
    run_blocking(rm, Signal::SIGKILL)?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_nodes_that_are_ready_are_named() {
        let node = |name: &str, status: &str| {
            json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": status}]}})
        };
        assert_eq!(ready(&json!({"items": [node("m1", "True"), node("m1-2", "False"), {}]})), ["m1"]);
        assert!(ready(&json!({})).is_empty());
    }
}

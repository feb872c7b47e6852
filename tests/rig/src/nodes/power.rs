//! Power cuts of nodes, control planes and clusters. All processes are killed at once, and their addresses do not answer.
//! Only the address of a first node still does, because the control plane has it too.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::control_plane::{Cluster, Plan};
use crate::nodes::address::Node;
use crate::nodes::cgroup::{CONTROL, Hierarchies, NODE, PODS};
use crate::nodes::network::{cable_batch, feed, unplug_batch};
use crate::nodes::place::ROUTER;
use crate::nodes::{NO_NODES, within};
use crate::start::notify;

const PATIENCE: Duration = Duration::from_secs(20);
/// The components of a node, besides its pods.
const NODE_COMPONENTS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];
/// The components of a control plane. The DNS server is not among them: in a real cluster it is a pod.
const CONTROL_PLANE: [&str; 5] = ["etcd", "apiserver", "kube-controller-manager", "kube-scheduler", "volumes"];

impl Plan {
    /// Cuts or restores the power of a node with all its pods.
    pub(crate) fn power_node(&self, name: &str, on: bool) -> Result<()> {
        let node = self.node(name)?;
        // The link of the first node is that of the control plane.
        if !node.is_first() {
            self.plug(&node, on)?;
        }
        self.switch(&NODE_COMPONENTS.map(|c| format!("{}/{c}", node.name)), on)?;
        if on {
            return Ok(());
        }
        // The network of a killed pod outlives its processes, and would still answer pings.
        let links = feed(&mut within(&self.layout, &node.name, &["ip", "-o", "link", "show"])?, "")?;
        feed(&mut within(&self.layout, &node.name, &["ip", "-batch", "-"])?, &unplug_batch(&links))?;
        let hierarchies = Hierarchies::of_this_machine()?;
        hierarchies.kill(&self.rig_id(), &format!("{}/{NODE}", node.name))?;
        hierarchies.kill(&self.rig_id(), &format!("{}/{PODS}", node.name))
    }

    /// Stops or starts the control plane of a cluster.
    pub(crate) fn power_control_plane(&self, cluster: &str, on: bool) -> Result<()> {
        ensure!(self.state.nodes.is_some(), NO_NODES);
        let cluster = self.cluster(cluster)?;
        self.switch(&self.control_plane(&cluster), on)
    }

    /// Cuts or restores the power of a whole cluster.
    pub(crate) fn power_cluster(&self, cluster: &str, on: bool) -> Result<()> {
        ensure!(self.state.nodes.is_some(), NO_NODES);
        let cluster = self.cluster(cluster)?;
        for node in self.nodes_of(&cluster) {
            self.plug(&node, on)?;
        }
        let mut names = self.control_plane(&cluster);
        names.push(format!("{}/coredns", cluster.name));
        self.switch(&names, on)?;
        for node in self.nodes_of(&cluster) {
            self.power_node(&node.name, on)?;
        }
        if !on {
            Hierarchies::of_this_machine()?.kill(&self.rig_id(), &format!("{}/{CONTROL}", cluster.name))?;
        }
        Ok(())
    }

    fn plug(&self, node: &Node, on: bool) -> Result<()> {
        feed(&mut within(&self.layout, ROUTER, &["ip", "-batch", "-"])?, &cable_batch(node, on)).map(drop)
    }

    fn control_plane(&self, cluster: &Cluster) -> Vec<String> {
        let mut names: Vec<_> = CONTROL_PLANE.iter().map(|c| format!("{}/{c}", cluster.name)).collect();
        if self.state.pull.contains(&cluster.name) {
            names.push(format!("{}/karmada-agent", cluster.name));
        }
        names
    }

    /// Makes the supervisor start or end components, and waits for it.
    fn switch(&self, names: &[String], on: bool) -> Result<()> {
        for name in names {
            let mut component = self.layout.read_component(name)?.with_context(|| format!("no component {name:?}"))?;
            component.wanted = on;
            self.layout.write_component(&component)?;
        }
        let record = self.layout.supervised()?.context("the supervisor of the rig has ended")?;
        if !on {
            // The supervisor knows already that they stop, and does not start them again.
            notify(&self.layout)?;
            for name in names {
                if let Some(process) = record.components.get(name).and_then(|activity| activity.process.as_ref()) {
                    process.signal(nix::sys::signal::Signal::SIGKILL);
                }
            }
        }
        notify(&self.layout)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let record = self.layout.supervised()?.context("the supervisor of the rig has ended")?;
            let done = names.iter().all(|name| {
                record.components.get(name).is_some_and(|now| now.wanted == on && now.process.is_some() == on)
            });
            if done {
                return Ok(());
            }
            ensure!(Instant::now() < end, "not all of {} are {}", names.join(", "), if on { "up" } else { "down" });
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Result<Cluster> {
        let all = self.clusters();
        if let Some(cluster) = all.iter().find(|cluster| cluster.name == name) {
            return Ok(cluster.clone());
        }
        let names: Vec<_> = all.into_iter().map(|cluster| cluster.name).collect();
        bail!("no cluster {name:?}: there are {}", names.join(", "))
    }

    /// The node of this name.
    pub(crate) fn node(&self, name: &str) -> Result<Node> {
        let all = self.all_nodes();
        if let Some(node) = all.iter().find(|node| node.name == name) {
            return Ok(node.clone());
        }
        ensure!(!all.is_empty(), NO_NODES);
        let names: Vec<_> = all.into_iter().map(|node| node.name).collect();
        bail!("no node {name:?}: there are {}", names.join(", "))
    }
}

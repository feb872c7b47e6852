//! What can fail in a cluster besides its network: a node, the control plane, or both at once. They lose their power: no
//! process is asked to end, and what had an address falls silent, but for a first node's own, which is the control plane's.

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
/// What runs for a node; its pods besides.
const NODE_COMPONENTS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];
/// What is stopped with a control plane. The DNS server goes on: in a real cluster it is a pod.
const CONTROL_PLANE: [&str; 5] = ["etcd", "apiserver", "kube-controller-manager", "kube-scheduler", "volumes"];

impl Plan {
    /// Cuts the power of a node, with all its pods, or gives it back.
    pub(crate) fn power_node(&self, name: &str, on: bool) -> Result<()> {
        let node = self.node(name)?;
        // The cluster's control plane is behind the first node's cable.
        if !node.is_first() {
            self.plug(&node, on)?;
        }
        self.switch(&NODE_COMPONENTS.map(|c| format!("{}/{c}", node.name)), on)?;
        if on {
            return Ok(());
        }
        // Else a killed pod's address still answers pings: its network outlives its processes.
        let links = feed(&mut within(&self.layout, &node.name, &["ip", "-o", "link", "show"])?, "")?;
        feed(&mut within(&self.layout, &node.name, &["ip", "-batch", "-"])?, &unplug_batch(&links))?;
        let hierarchies = Hierarchies::of_this_machine()?;
        hierarchies.kill(&self.rig_id(), &format!("{}/{NODE}", node.name))?;
        hierarchies.kill(&self.rig_id(), &format!("{}/{PODS}", node.name))
    }

    /// Stops the control plane of a cluster, or starts it.
    pub(crate) fn power_control_plane(&self, cluster: &str, on: bool) -> Result<()> {
        ensure!(self.state.nodes.is_some(), NO_NODES);
        let cluster = self.cluster(cluster)?;
        self.switch(&self.control_plane(&cluster), on)
    }

    /// Cuts the power of a whole cluster, or gives it back.
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

    /// Tells the supervisor what shall run, and waits until it is so.
    fn switch(&self, names: &[String], on: bool) -> Result<()> {
        for name in names {
            let mut component = self.layout.read_component(name)?.with_context(|| format!("no component {name:?}"))?;
            component.wanted = on;
            self.layout.write_component(&component)?;
        }
        let record = self.layout.supervised()?.context("the rig's supervisor has ended")?;
        if !on {
            // The supervisor, which would start it again, is told already what is wanted.
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
            let record = self.layout.supervised()?.context("the rig's supervisor has ended")?;
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

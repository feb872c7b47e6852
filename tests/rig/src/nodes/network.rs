//! The cables, and what is wrong with them: the router between the clusters cuts, loses and delays.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::nodes::address::{self, EVERYTHING, MACHINE, MACHINE_PREFIX, Node};
use crate::nodes::forwarder::Line;

/// The machine's end of the cable to the router. There is one on a machine: so is there one rig with nodes.
pub(crate) const CABLE: &str = "rig0";
/// The device through which the forwarder takes packets and gives them back.
pub(crate) const DELAYED: &str = "delay0";
/// The routing table with nothing but that device.
const TABLE: u8 = 100;

/// What is wrong between two clusters, both ways alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Pair {
    /// Names and numbers of the two.
    pub(crate) a: (String, u8),
    pub(crate) b: (String, u8),
    pub(crate) cut: bool,
    /// Of packets, each way.
    pub(crate) loss_percent: f64,
    /// Each way.
    pub(crate) delay_ms: f64,
}

/// What is wrong in the whole network; a pair that is not there is well.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Faults {
    pub(crate) pairs: Vec<Pair>,
}

impl Faults {
    /// Changes what is wrong between two clusters.
    pub(crate) fn change(&mut self, a: (&str, u8), b: (&str, u8), edit: impl Fn(&mut Pair)) {
        let is = |pair: &Pair, x: &str, y: &str| pair.a.0 == x && pair.b.0 == y;
        if !self.pairs.iter().any(|pair| is(pair, a.0, b.0) || is(pair, b.0, a.0)) {
            let of = |(name, index): (&str, u8)| (name.to_owned(), index);
            self.pairs.push(Pair { a: of(a), b: of(b), cut: false, loss_percent: 0.0, delay_ms: 0.0 });
        }
        for pair in &mut self.pairs {
            if is(pair, a.0, b.0) || is(pair, b.0, a.0) {
                edit(pair);
            }
        }
        self.pairs.retain(|pair| pair.cut || pair.loss_percent > 0.0 || pair.delay_ms > 0.0);
    }

    /// Both directions of every pair.
    fn directions(&self) -> impl Iterator<Item = (&Pair, &(String, u8), &(String, u8))> {
        self.pairs.iter().flat_map(|pair| [(pair, &pair.a, &pair.b), (pair, &pair.b, &pair.a)])
    }

    /// The packet filter of the router, which replaces the former one. It selects packets by address: delayed ones come from
    /// the device of the forwarder. Cuts apply to those too, and losses do not, else they would count twice.
    pub(crate) fn filter(&self) -> String {
        let mut text = "add table ip rig\nflush table ip rig\ntable ip rig {\n  chain forward {\n    type filter hook \
                        forward priority 0; policy accept;\n"
            .to_owned();
        let set = |index: u8| address::networks(index).join(", ");
        for (pair, from, to) in self.directions() {
            let way = format!("ip saddr {{ {} }} ip daddr {{ {} }}", set(from.1), set(to.1));
            // Writing to a String cannot fail.
            if pair.cut {
                let _ = writeln!(text, "    {way} drop comment \"{} to {}\"", from.0, to.0);
            } else if pair.loss_percent > 0.0 {
                // The largest random number that drops the packet. nft accepts no number outside the range.
                let last = (pair.loss_percent * 100.0 - 1.0).max(0.0);
                let _ = writeln!(text, "    iifname != \"{DELAYED}\" {way} numgen random mod 10000 <= {last:.0} drop");
            }
        }
        text.push_str("  }\n}\n");
        text
    }

    /// The routing rules that send packets to the device of the forwarder, except those that come from it.
    pub(crate) fn rules(&self) -> String {
        let mut text = "rule flush\nrule add pref 32766 lookup main\nrule add pref 32767 lookup default\n".to_owned();
        for (_, from, to) in self.directions().filter(|(pair, ..)| pair.delay_ms > 0.0) {
            for network in address::networks(to.1) {
                let bridge = address::bridge(&from.0);
                let _ = writeln!(text, "rule add pref {TABLE} iif {bridge} to {network} lookup {TABLE}");
            }
        }
        text
    }

    /// The delays, for the forwarder.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.directions()
            .filter(|(pair, ..)| pair.delay_ms > 0.0)
            .map(|(pair, from, to)| Line { from: from.1, to: to.1, ms: pair.delay_ms })
            .collect()
    }
}

/// The commands for `ip` in a node's namespace; `router` is the path of the router's network namespace there.
pub(crate) fn node_batch(node: &Node, siblings: &[Node], router: &str) -> String {
    let mut text = format!(
        "link set lo up\n\
         link add eth0 type veth peer name {} netns {router}\n\
         addr add {}/24 dev eth0\n\
         link set eth0 up\n\
         route add default via {}\n\
         route add blackhole {}\n",
        node.cable(),
        node.address(),
        address::gateway(node.index),
        // Packets for an address without a pod are dropped, and do not return to the router.
        node.pods(),
    );
    for sibling in siblings.iter().filter(|other| other.name != node.name) {
        let _ = writeln!(text, "route add {} via {}", sibling.pods(), sibling.address());
    }
    text
}

/// The commands for `ip` in the namespace of the router, once all links exist.
pub(crate) fn router_batch(nodes: &[Node]) -> String {
    let mut text = format!(
        "link set lo up\naddr add {}/{MACHINE_PREFIX} dev root0\nlink set root0 up\n\
         tuntap add dev {DELAYED} mode tun\nlink set {DELAYED} up mtu 1500\n\
         route add {EVERYTHING} dev {DELAYED} table {TABLE}\n",
        address::ROUTER
    );
    for first in nodes.iter().filter(|node| node.is_first()) {
        let bridge = first.bridge();
        let gateway = address::gateway(first.index);
        let _ =
            writeln!(text, "link add {bridge} type bridge\naddr add {gateway}/24 dev {bridge}\nlink set {bridge} up");
    }
    for node in nodes {
        let _ = writeln!(
            text,
            "link set {} master {} up\nroute add {} via {}",
            node.cable(),
            node.bridge(),
            node.pods(),
            node.address()
        );
    }
    text
}

/// The commands for `ip` on the machine itself; `router` as in [`node_batch`].
pub(crate) fn machine_batch(router: &str) -> String {
    format!(
        "link add {CABLE} type veth peer name root0 netns {router}\n\
         addr add {MACHINE}/{MACHINE_PREFIX} dev {CABLE}\n\
         link set {CABLE} up\n\
         route add {EVERYTHING} via {}\n",
        address::ROUTER
    )
}

/// The commands for `ip` that remove the links of pods in the namespace of a node, from the output of `ip -o link show`
/// there. The link of the node is `eth0`; the CNI plugin names those of pods `veth...`.
pub(crate) fn unplug_batch(links: &str) -> String {
    links.lines().fold(String::new(), |mut text, line| {
        let name = line.split(": ").nth(1).and_then(|name| name.split('@').next()).unwrap_or_default();
        if name.starts_with("veth") {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "link delete {name}");
        }
        text
    })
}

/// The commands for `ip` that disconnect a node from the router, or connect it again.
pub(crate) fn cable_batch(node: &Node, on: bool) -> String {
    format!("link set {} {}\n", node.cable(), if on { "up" } else { "down" })
}

/// Runs a program with standard input, and returns its output. Blocks briefly.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    child.stdin.take().context("no pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{program}: {}\n{}\nof\n{input}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `ip`, which reads commands from standard input.
pub(crate) fn ip() -> Command {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    command
}

/// Checks a delay in milliseconds or a loss in percent.
pub(crate) fn check(what: &str, value: f64, most: f64) -> Result<()> {
    ensure!((0.0..=most).contains(&value), "{what} must be 0 to {most}, not {value}");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn faults() -> Faults {
        let mut faults = Faults::default();
        faults.change(("m1", 1), ("m2", 2), |pair| pair.delay_ms = 50.0);
        faults
    }

    #[test]
    fn a_pair_is_the_same_from_both_ends_and_forgotten_when_it_is_well() {
        let mut faults = faults();
        faults.change(("m2", 2), ("m1", 1), |pair| pair.cut = true);
        assert_eq!(faults.pairs.len(), 1);
        faults.change(("m2", 2), ("m1", 1), |pair| {
            pair.cut = false;
            pair.delay_ms = 0.0;
        });
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn a_cut_drops_both_ways_and_a_loss_is_not_counted_twice() {
        let mut faults = Faults::default();
        faults.change(("m1", 1), ("m2", 2), |pair| pair.cut = true);
        faults.change(("m1", 1), ("m3", 3), |pair| pair.loss_percent = 2.5);
        let text = faults.filter();
        assert!(
            text.contains("ip saddr { 10.210.2.0/24, 10.211.2.0/24 } ip daddr { 10.210.1.0/24, 10.211.1.0/24 } drop")
        );
        assert!(text.contains("numgen random mod 10000 <= 249 drop"));
        assert_eq!(text.matches("iifname != \"delay0\"").count(), 2);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn only_delayed_pairs_take_the_way_through_the_device() {
        let rules = faults().rules();
        assert_eq!(rules.lines().count(), 3 + 4);
        assert!(rules.contains("rule add pref 100 iif br-m2 to 10.211.1.0/24 lookup 100"));
        assert_eq!(faults().lines().len(), 2);
        assert_eq!(Faults::default().rules().lines().count(), 3);
    }

    #[test]
    fn only_the_pods_cables_are_unplugged() {
        let links = "1: lo: <LOOPBACK> mtu 65536\n2: eth0@if7: <UP> mtu 1500\n5: veth1a2b@if2: <UP> mtu 1500\n";
        assert_eq!(unplug_batch(links), "link delete veth1a2b\n");
        assert_eq!(cable_batch(&Node::second("m1", 1), false), "link set v-m1-2 down\n");
    }

    #[test]
    fn nodes_of_one_cluster_reach_each_others_pods_without_the_router() {
        let nodes = [Node::first("m1", 1), Node::second("m1", 1)];
        let text = node_batch(&nodes[0], &nodes, "/proc/1/fd/9");
        assert!(text.contains("route add 10.211.1.128/25 via 10.210.1.3"));
        assert!(text.contains("peer name v-m1 netns /proc/1/fd/9"));
        let text = router_batch(&nodes);
        assert_eq!(text.matches("type bridge").count(), 1);
        assert!(text.contains("link set v-m1-2 master br-m1 up"));
    }
}

//! Names and addresses. Cluster i has 10.210.i.0/24 for its nodes, 10.211.i.0/24 for its pods and 10.212.i.0/24 for its
//! services. A router connects the clusters and the machine itself, without address translation.

use std::net::Ipv4Addr;

use crate::MOST_MEMBERS;

/// The cluster that Karmada runs in.
pub(crate) const HOST: &str = "host";
/// The number of that cluster, above those of all member clusters.
pub(crate) const HOST_INDEX: u8 = MOST_MEMBERS + 1;
/// The address of the machine, for clusters.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 210, 255, 2);
/// The address of the router, for the machine.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 210, 255, 1);
/// The network of both.
pub(crate) const MACHINE_PREFIX: u8 = 30;
/// The network of all nodes and pods. Addresses of services are valid within their cluster only.
pub(crate) const EVERYTHING: &str = "10.210.0.0/15";

/// The address of the first node of a cluster. The control plane and the DNS server listen there too.
pub(crate) const fn cluster(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 210, index, 2)
}

/// The address of the router, for the nodes of a cluster.
pub(crate) const fn gateway(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 210, index, 1)
}

/// The networks of the nodes and pods of a cluster.
pub(crate) fn networks(index: u8) -> [String; 2] {
    [format!("10.210.{index}.0/24"), pods(index)]
}

/// The network of the pods of a cluster.
pub(crate) fn pods(index: u8) -> String {
    format!("10.211.{index}.0/24")
}

/// The DNS domain of a cluster. That of the host is the usual one of Kubernetes: installers of Karmada write it into
/// certificates.
pub(crate) fn domain(cluster: &str) -> String {
    if cluster == HOST { "cluster.local".to_owned() } else { format!("{cluster}.local") }
}

/// A node: a set of namespaces with a kubelet in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Node {
    /// The name of the cluster; with `-2` for the second node.
    pub(crate) name: String,
    pub(crate) cluster: String,
    /// The cluster's number.
    pub(crate) index: u8,
    second: bool,
}

impl Node {
    pub(crate) fn first(cluster: &str, index: u8) -> Self {
        Self { name: cluster.to_owned(), cluster: cluster.to_owned(), index, second: false }
    }

    pub(crate) fn second(cluster: &str, index: u8) -> Self {
        Self { name: format!("{cluster}-2"), second: true, ..Self::first(cluster, index) }
    }

    /// True for the first node of a cluster, beside its control plane.
    pub(crate) fn is_first(&self) -> bool {
        !self.second
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 210, self.index, if self.second { 3 } else { 2 })
    }

    /// The network of the pods of this node: half of the cluster's.
    pub(crate) fn pods(&self) -> String {
        format!("10.211.{}.{}/25", self.index, if self.second { 128 } else { 0 })
    }

    /// The bridge of the cluster in the router.
    pub(crate) fn bridge(&self) -> String {
        bridge(&self.cluster)
    }

    /// The link of the node in the router.
    pub(crate) fn cable(&self) -> String {
        format!("v-{}", self.name)
    }
}

/// The bridge of a cluster in the router.
pub(crate) fn bridge(cluster: &str) -> String {
    format!("br-{cluster}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_nodes_share_anything_and_names_fit_into_the_kernels_limit() {
        let mut nodes = vec![Node::first(HOST, HOST_INDEX)];
        for i in 1..=MOST_MEMBERS {
            nodes.push(Node::first(&format!("m{i}"), i));
            nodes.push(Node::second(&format!("m{i}"), i));
        }
        for of in [|n: &Node| n.name.clone(), |n: &Node| n.address().to_string(), Node::pods, Node::cable] {
            let all: BTreeSet<_> = nodes.iter().map(of).collect();
            assert_eq!(all.len(), nodes.len());
        }
        assert!(nodes.iter().all(|node| node.cable().len() < 16 && node.bridge().len() < 16));
    }

    #[test]
    fn the_machine_is_in_no_clusters_network() {
        assert!(MACHINE.octets()[2] > HOST_INDEX && ROUTER.octets()[2] > HOST_INDEX);
        assert_eq!(Node::first("m3", 3).address(), cluster(3));
        assert_eq!(Node::second("m3", 3).pods(), "10.211.3.128/25");
    }
}

//! Names: the domains of all clusters, and names of pods across clusters.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::Result;

use crate::control_plane::{Cluster, Plan};
use crate::layout::{Component, write};
use crate::nodes::address;
use crate::nodes::cgroup::CONTROL;
use crate::nodes::component;

/// The domain of `multicluster.x-k8s.io`.
const CLUSTERSET: &str = "clusterset.local";

/// The configuration of the DNS server of a cluster, from the names and addresses of all clusters.
///
/// - `POD.SERVICE.NAMESPACE.svc.m1.local` in all clusters: requests for other domains go to the server of that cluster.
/// - `POD.m1.SERVICE.NAMESPACE.svc.clusterset.local`: rewritten to the former, and so is the answer.
/// - No other name exists, because there is no network outside.
fn corefile(own: &str, address: Ipv4Addr, clusters: &[(String, Ipv4Addr)], kubeconfig: &str) -> String {
    let mut text = format!(
        ".:53 {{\n  bind {address}\n  errors\n  health {address}:18080\n  ready {address}:18181\n  cache 5 {{\n    denial \
         1000 1 1\n  }}\n"
    );
    for (name, _) in clusters {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  rewrite stop name regex (.*)\\.{name}\\.([^.]+)\\.([^.]+)\\.svc\\.{} \
             {{1}}.{{2}}.{{3}}.svc.{} answer auto",
            CLUSTERSET.replace('.', "\\."),
            address::domain(name)
        );
    }
    let _ = writeln!(
        text,
        "  kubernetes {} in-addr.arpa {{\n    kubeconfig {kubeconfig} {own}\n    pods verified\n    ttl 2\n  }}",
        address::domain(own)
    );
    for (name, address) in clusters.iter().filter(|(name, _)| name != own) {
        let _ = writeln!(text, "  forward {} {address} {{\n    max_fails 0\n  }}", address::domain(name));
    }
    text.push_str("  template ANY ANY {\n    rcode NXDOMAIN\n  }\n}\n");
    text
}

impl Plan {
    pub(crate) fn dns(&self, cluster: &Cluster) -> Result<Component> {
        let nodes = self.nodes_of(cluster);
        let all: Vec<_> = self.clusters().into_iter().map(|c| (c.name, c.address)).collect();
        let kubeconfig = self.layout.kubeconfig(&cluster.name);
        let file = self.layout.node(&cluster.name).join("etc/Corefile");
        write(&file, corefile(&cluster.name, cluster.address, &all, &kubeconfig.to_string_lossy()).as_bytes())?;
        let flags = vec!["-conf".into(), file.display().to_string()];
        let first = nodes.first().cloned().unwrap_or_else(|| address::Node::first(&cluster.name, cluster.index));
        Ok(component(&first, CONTROL, "coredns", &self.coredns(), flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_domains_are_asked_of_them_and_names_across_clusters_are_rewritten() {
        let clusters: Vec<_> = [("host", 10), ("m1", 1)].map(|(n, i)| (n.to_owned(), address::cluster(i))).into();
        let text = corefile("m1", address::cluster(1), &clusters, "/k");
        assert!(text.contains("bind 10.210.1.2\n"));
        assert!(text.contains("forward cluster.local 10.210.10.2 {"));
        assert!(!text.contains("forward m1.local"));
        assert!(text.contains(
            r"rewrite stop name regex (.*)\.m1\.([^.]+)\.([^.]+)\.svc\.clusterset\.local {1}.{2}.{3}.svc.m1.local answer auto"
        ));
        assert!(text.contains("kubeconfig /k m1\n"));
    }
}

//! kubelet, kube-proxy and kube-scheduler.

use anyhow::Result;
use serde_json::{Value, json};

use crate::control_plane::{Cluster, Plan};
use crate::layout::{Component, write_json};
use crate::nodes::address::{self, Node};
use crate::nodes::cgroup::{self, NODE};
use crate::nodes::component;
use crate::nodes::containerd::SOCKET;

const SCHEDULER_PORT: u16 = 10_259;

/// The configuration of kubelet. It never lowers `oom_score_adj` and never raises the limit of open files, because the rig
/// may run in a container without the right to do so.
fn kubelet(node: &Node, rig: &str, etc: &str, pki: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}/{}", cgroup::top(rig), node.name),
        "cgroupsPerQOS": true,
        "enforceNodeAllocatable": ["pods"],
        "oomScoreAdj": 0,
        "maxOpenFiles": 20_000,
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        // Other processes fill the disk of the machine too, which must evict no pod.
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            "imagefs.available": "0%", "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "clusterDNS": [address::cluster(node.index)],
        "clusterDomain": address::domain(&node.cluster),
        "resolvConf": format!("{etc}/resolv.conf"),
        "tlsCertFile": format!("{pki}/{}.crt", certificate(node)),
        "tlsPrivateKeyFile": format!("{pki}/{}.key", certificate(node)),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": format!("{pki}/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        // A lost node is noticed after 16 s; with the defaults, after 47 s.
        "nodeStatusUpdateFrequency": "3s",
        "nodeLeaseDurationSeconds": 12,
        "syncFrequency": "10s",
    })
}

fn proxy(node: &Node, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": address::pods(node.index),
        "hostnameOverride": node.name,
        "oomScoreAdj": 0,
        // The limits of connection tracking belong to the machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

/// The name of the serving certificate of a kubelet.
pub(crate) fn certificate(node: &Node) -> String {
    format!("kubelet-{}", node.name)
}

/// The name of the kubeconfig of a kubelet.
pub(crate) fn kubeconfig(node: &Node) -> String {
    format!("{}-kubelet", node.name)
}

impl Plan {
    pub(crate) fn kubelet(&self, node: &Node) -> Result<Component> {
        let etc = self.layout.node(&node.name).join("etc");
        let pki = self.layout.pki(&node.cluster);
        let rig = self.rig_id();
        let config = etc.join("kubelet.json");
        write_json(&config, &kubelet(node, &rig, &etc.to_string_lossy(), &pki.to_string_lossy()))?;
        let flags = vec![
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", self.layout.kubeconfig(&kubeconfig(node)).display()),
            format!("--hostname-override={}", node.name),
            format!("--node-ip={}", node.address()),
        ];
        Ok(component(node, NODE, "kubelet", &self.tool(node.index, "kubelet"), flags))
    }

    pub(crate) fn proxy(&self, node: &Node) -> Result<Component> {
        let config = self.layout.node(&node.name).join("etc/kube-proxy.json");
        let kubeconfig = self.layout.kubeconfig(&format!("{}-kube-proxy", node.cluster));
        write_json(&config, &proxy(node, &kubeconfig.to_string_lossy()))?;
        let flags = vec![format!("--config={}", config.display())];
        Ok(component(node, NODE, "kube-proxy", &self.tool(node.index, "kube-proxy"), flags))
    }

    pub(crate) fn kube_scheduler(&self, cluster: &Cluster) -> Component {
        let kubeconfig = self.layout.kubeconfig(&format!("{}-kube-scheduler", cluster.name));
        let kubeconfig = kubeconfig.display();
        self.component(
            cluster,
            &format!("{}/kube-scheduler", cluster.name),
            "kube-scheduler",
            vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                format!("--bind-address={}", cluster.address),
                format!("--secure-port={SCHEDULER_PORT}"),
                "--leader-elect=false".into(),
            ],
        )
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn both_nodes_of_a_cluster_ask_its_one_dns_server_and_have_groups_of_their_own() {
        let second = kubelet(&Node::second("m1", 1), "ab", "/e", "/p");
        assert_eq!(second["clusterDNS"], json!(["10.210.1.2"]));
        assert_eq!(second["cgroupRoot"], "/rig-ab/m1-2");
        assert_eq!(second["tlsCertFile"], "/p/kubelet-m1-2.crt");
    }

    #[test]
    fn nothing_of_the_whole_machine_is_set() {
        let config = proxy(&Node::first("m1", 1), "/k");
        assert_eq!(config["conntrack"]["maxPerCore"], 0);
        assert_eq!(config["clusterCIDR"], "10.211.1.0/24");
    }
}

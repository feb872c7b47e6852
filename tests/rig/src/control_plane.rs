//! The control plane of every cluster: etcd, kube-apiserver and kube-controller-manager, with their flags.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::layout::{Component, Layout, State, write_json};
use crate::nodes::address::{self, HOST, HOST_INDEX};
use crate::nodes::cgroup::CONTROL;
use crate::nodes::kubelet;
use crate::nodes::place::Place;
use crate::pki::Authority;
use crate::ports::Ports;

/// The name of cluster 0, Karmada itself. Cluster 1 is m1.
pub(crate) const KARMADA: &str = "karmada";
/// The group with all rights.
const MASTERS: &str = "system:masters";
/// The group with the rights of nodes.
const NODES: &str = "system:nodes";

/// A cluster: its name, its number, and its address.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) index: u8,
    pub(crate) address: Ipv4Addr,
    /// The node that its control plane runs beside. None if it runs on the machine itself.
    pub(crate) place: Option<Place>,
}

impl Cluster {
    /// True for Karmada itself, which has no nodes.
    pub(crate) fn is_karmada(&self) -> bool {
        self.index == 0
    }

    /// True if pods can run in it.
    pub(crate) fn has_nodes(&self) -> bool {
        self.place.is_some() && !self.is_karmada()
    }
}

/// All that the command lines of components depend on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    pub(crate) state: State,
    pub(crate) ports: Ports,
}

impl Plan {
    pub(crate) fn members(&self) -> Vec<Cluster> {
        (1..).zip(self.state.names()).map(|(i, name)| self.at(name.clone(), i, &name, i)).collect()
    }

    /// The cluster that stands for Karmada itself.
    pub(crate) fn karmada(&self) -> Cluster {
        self.at(KARMADA.to_owned(), 0, HOST, HOST_INDEX)
    }

    /// The cluster that Karmada runs in, if the rig has nodes.
    pub(crate) fn host(&self) -> Option<Cluster> {
        self.state.nodes.is_some().then(|| self.at(HOST.to_owned(), HOST_INDEX, HOST, HOST_INDEX))
    }

    /// A cluster; with nodes, its control plane runs beside its first node.
    fn at(&self, name: String, index: u8, node: &str, node_index: u8) -> Cluster {
        if self.state.nodes.is_none() {
            return Cluster { name, index, address: Ipv4Addr::LOCALHOST, place: None };
        }
        let place = Some(Place { machine: node.to_owned(), group: CONTROL.to_owned() });
        Cluster { name, index, address: address::cluster(node_index), place }
    }

    pub(crate) fn url(&self, cluster: &Cluster) -> String {
        format!("https://{}:{}", cluster.address, self.ports.apiserver(cluster.index.into()))
    }

    /// A component of a cluster. Its program is one of the tools.
    pub(crate) fn component(&self, cluster: &Cluster, name: &str, tool: &str, flags: Vec<String>) -> Component {
        let mut argv = vec![self.tool(cluster.index, tool).display().to_string()];
        argv.extend(flags);
        Component { name: name.to_owned(), argv, wanted: true, revision: 1, place: cluster.place.clone() }
    }

    pub(crate) fn etcd_url(&self, cluster: &Cluster) -> String {
        format!("http://{}:{}", cluster.address, self.ports.etcd())
    }

    /// One etcd for all API servers, with a prefix for each. With nodes, one in each cluster; Karmada uses the one of
    /// `host`. The data does not outlive the rig, so they do not fsync.
    pub(crate) fn etcds(&self) -> Vec<Component> {
        match self.host() {
            None => vec![self.etcd(&self.karmada(), "etcd", &self.layout.etcd())],
            Some(_) => self
                .clusters()
                .iter()
                .map(|c| self.etcd(c, &format!("{}/etcd", c.name), &self.layout.etcd().join(&c.name)))
                .collect(),
        }
    }

    fn etcd(&self, cluster: &Cluster, name: &str, data: &Path) -> Component {
        let client = self.etcd_url(cluster);
        let peer = format!("http://{}:{}", cluster.address, self.ports.etcd_peer());
        self.component(
            cluster,
            name,
            "etcd",
            vec![
                "--name=rig".into(),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=rig={peer}"),
                "--unsafe-no-fsync".into(),
                // etcd must keep its leader on a busy machine.
                "--heartbeat-interval=500".into(),
                "--election-timeout=2500".into(),
                "--auto-compaction-retention=10m".into(),
                "--quota-backend-bytes=4294967296".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    pub(crate) fn etcd_flags(&self, cluster: &Cluster, prefix: &str) -> Vec<String> {
        vec![format!("--etcd-servers={}", self.etcd_url(cluster)), format!("--etcd-prefix=/{prefix}")]
    }

    /// Certificates and kubeconfigs of a cluster.
    pub(crate) fn identities(&self, cluster: &Cluster) -> Result<()> {
        let service_address = Ipv4Addr::new(10, 212, cluster.index, 1);
        let mut addresses = vec![Ipv4Addr::LOCALHOST, service_address];
        if cluster.place.is_some() {
            addresses.push(cluster.address);
        }
        let authority = Authority::new(&self.layout, &cluster.name, &addresses)?;
        let url = self.url(cluster);
        let name = &cluster.name;
        // The role cluster-proxy-admin of Karmada gives a user of this name access to member clusters.
        authority.user(name, "system:admin", Some(MASTERS), &url)?;
        let controllers = format!("{name}-kube-controller-manager");
        if cluster.index == 0 {
            // One user for each component, to distinguish them in the audit log.
            for user in [
                "karmada-controller-manager",
                "karmada-scheduler",
                "karmada-webhook",
                "karmada-aggregated-apiserver",
                "karmadactl",
            ] {
                authority.user(user, user, Some(MASTERS), &url)?;
            }
            for member in &self.state.pull {
                let user = format!("{member}-karmada-agent");
                authority.user(&user, &user, Some(MASTERS), &url)?;
            }
            authority.user("mczk-operator", "mczk-operator", None, &url)?;
            authority.user(&controllers, "system:kube-controller-manager", Some(MASTERS), &url)
        } else {
            // As in a real cluster: the built-in role of this user, and a service account for each controller.
            authority.user(&controllers, "system:kube-controller-manager", None, &url)?;
            if !cluster.has_nodes() {
                return Ok(());
            }
            authority.user(&format!("{name}-kube-scheduler"), "system:kube-scheduler", None, &url)?;
            authority.user(&format!("{name}-kube-proxy"), "system:kube-proxy", None, &url)?;
            authority.server("kubelet-client", "kube-apiserver-kubelet-client", MASTERS, cluster.address)?;
            for node in self.nodes_of(cluster) {
                let user = format!("system:node:{}", node.name);
                authority.user(&kubelet::kubeconfig(&node), &user, Some(NODES), &url)?;
                authority.server(&kubelet::certificate(&node), &user, NODES, node.address())?;
            }
            Ok(())
        }
    }

    pub(crate) fn apiserver(&self, cluster: &Cluster) -> Result<Component> {
        let pki = self.layout.pki(&cluster.name);
        let pki = pki.display();
        let mut flags = self.etcd_flags(cluster, &cluster.name);
        // kube-apiserver requires an address that is not loopback, and the machine may have none. Without nodes, no
        // client uses it, so this one is from a range for documentation.
        let advertised = if cluster.place.is_some() { cluster.address } else { Ipv4Addr::new(198, 51, 100, 1) };
        flags.extend([
            format!("--secure-port={}", self.ports.apiserver(cluster.index.into())),
            format!("--bind-address={}", cluster.address),
            format!("--advertise-address={advertised}"),
            "--authorization-mode=Node,RBAC".into(),
            "--allow-privileged=true".into(),
            format!("--service-cluster-ip-range=10.212.{}.0/24", cluster.index),
            format!("--client-ca-file={pki}/ca.crt"),
            format!("--tls-cert-file={pki}/server.crt"),
            format!("--tls-private-key-file={pki}/server.key"),
            format!("--service-account-key-file={pki}/sa.pub"),
            format!("--service-account-signing-key-file={pki}/sa.key"),
            format!("--service-account-issuer=https://kubernetes.default.svc.{}.local", cluster.name),
            format!("--proxy-client-cert-file={pki}/front-proxy.crt"),
            format!("--proxy-client-key-file={pki}/front-proxy.key"),
            format!("--requestheader-client-ca-file={pki}/ca.crt"),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--profiling=false".into(),
        ]);
        if cluster.has_nodes() {
            flags.extend([
                "--enable-admission-plugins=NodeRestriction".into(),
                "--enable-aggregator-routing=true".into(),
                "--kubelet-preferred-address-types=InternalIP".into(),
                format!("--kubelet-certificate-authority={pki}/ca.crt"),
                format!("--kubelet-client-certificate={pki}/kubelet-client.crt"),
                format!("--kubelet-client-key={pki}/kubelet-client.key"),
            ]);
        }
        if cluster.index == 0 {
            flags.push("--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount".into());
        }
        if cluster.index == 0 || self.state.audit_members {
            let policy = self.layout.etc().join("audit-policy.json");
            write_json(
                &policy,
                &json!({
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [{"level": "Metadata"}],
                }),
            )?;
            flags.extend([
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", self.layout.audit_log(&cluster.name).display()),
                // Megabytes; one older file is kept. An hour of tests writes far less.
                "--audit-log-maxsize=512".into(),
                "--audit-log-maxbackup=1".into(),
            ]);
        }
        Ok(self.component(cluster, &apiserver_name(cluster), "kube-apiserver", flags))
    }

    pub(crate) fn kube_controllers(&self, cluster: &Cluster) -> Component {
        let pki = self.layout.pki(&cluster.name);
        let pki = pki.display();
        let kubeconfig = self.layout.kubeconfig(&format!("{}-kube-controller-manager", cluster.name));
        let kubeconfig = kubeconfig.display();
        let mut flags = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", cluster.address),
            format!("--secure-port={}", self.ports.kube_controllers(cluster.index.into())),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={pki}/sa.key"),
            format!("--root-ca-file={pki}/ca.crt"),
            format!("--cluster-signing-cert-file={pki}/ca.crt"),
            format!("--cluster-signing-key-file={pki}/ca.key"),
            "--allocate-node-cidrs=false".into(),
            // The default is in /usr, and kube-controller-manager makes the folder.
            format!("--flex-volume-plugin-dir={}", self.layout.dir.join("tmp/flex").display()),
        ];
        flags.push(if cluster.index == 0 {
            "--controllers=namespace,garbagecollector,serviceaccount-token,ttl-after-finished,bootstrapsigner,\
             tokencleaner,csrcleaner,clusterrole-aggregation"
                .into()
        } else {
            "--controllers=*,-bootstrapsigner,-tokencleaner".into()
        });
        if cluster.has_nodes() {
            flags.extend([
                format!("--cluster-cidr={}", address::pods(cluster.index)),
                // A lost node is noticed after 16 s; with the defaults, after 47 s.
                "--node-monitor-period=2s".into(),
                "--node-monitor-grace-period=16s".into(),
            ]);
        }
        let name = if cluster.index == 0 {
            "karmada-kube-controller-manager".to_owned()
        } else {
            format!("{}/kube-controller-manager", cluster.name)
        };
        self.component(cluster, &name, "kube-controller-manager", flags)
    }
}

fn apiserver_name(cluster: &Cluster) -> String {
    if cluster.index == 0 { "karmada-apiserver".to_owned() } else { format!("{}/apiserver", cluster.name) }
}

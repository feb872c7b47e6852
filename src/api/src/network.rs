//! Names of servers across clusters.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::preflight::PreflightMode;

/// Names by which servers reach each other across clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.mode == oldSelf.mode").message("mode cannot change: it determines the names of servers"),
    validation = Rule::new("has(self.fqdnTemplate) == has(oldSelf.fqdnTemplate) && (!has(self.fqdnTemplate) || self.fqdnTemplate == oldSelf.fqdnTemplate)")
        .message("fqdnTemplate cannot change: it determines the names of servers"),
    validation = Rule::new("has(self.clusterDomain) == has(oldSelf.clusterDomain) && (!has(self.clusterDomain) || self.clusterDomain == oldSelf.clusterDomain)")
        .message("clusterDomain cannot change: it determines the names of servers"),
    validation = Rule::new("!has(oldSelf.clusterIds) || (has(self.clusterIds) && oldSelf.clusterIds.all(o, self.clusterIds.exists(n, n.cluster == o.cluster && n.id == o.id)))")
        .message("clusterIds entries can be added, but not changed or removed: they determine the names of servers"),
    validation = Rule::new("(self.mode == 'Custom') == has(self.fqdnTemplate)").message("fqdnTemplate is required in mode Custom, and refused in any other mode"),
    validation = Rule::new("self.mode != 'Custom' || !has(self.clusterDomain)").message("clusterDomain is refused in mode Custom: write the domain in fqdnTemplate"),
    validation = Rule::new("self.mode != 'Flat' || !has(self.clusterDomain) || self.clusterDomain.contains('{cluster}') || self.clusterDomain.contains('{clusterId}')")
        .message("clusterDomain must contain {cluster} or {clusterId} in mode Flat: otherwise servers of two clusters share a name"),
    validation = Rule::new("!has(self.fqdnTemplate) || ((self.fqdnTemplate.contains('{cluster}') || self.fqdnTemplate.contains('{clusterId}')) && self.fqdnTemplate.contains('{pod}'))")
        .message("fqdnTemplate must contain {pod}, and {cluster} or {clusterId}: otherwise two servers share a name")
)]
pub struct Network {
    /// Rule for the names of servers. `MCS` uses the pod names of the multi-cluster services API. `Flat` uses a DNS
    /// domain for each cluster that all clusters resolve. `Custom` uses `fqdnTemplate`. Defaults to `MCS`. Immutable.
    #[serde(default)]
    pub mode: NetworkMode,
    /// Name of a server in mode Custom, made from `{pod}`, `{service}`, `{namespace}`, `{cluster}`, `{clusterId}` and
    /// `{ordinal}`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9.-]|\{(pod|service|namespace|cluster|clusterId|ordinal)\})+$")
    )]
    pub fqdn_template: Option<String>,
    /// Names of clusters in DNS, for clusters whose DNS name differs from Karmada's name. Entries may be added; a
    /// change or removal of an entry is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub cluster_ids: Vec<ClusterId>,
    /// Domain below `svc`. Defaults to `clusterset.local` in mode MCS and to `{clusterId}.local` in mode Flat.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^([a-z0-9.-]|\{(cluster|clusterId)\})+$"))]
    pub cluster_domain: Option<String>,
    /// Clusters without servers that import the client Service. Defaults to none. A change restarts no server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub import_clusters: Vec<String>,
    /// Address ranges of servers in other clusters, for the `NetworkPolicy` of the servers. Defaults to any address. A
    /// change is rolled out cluster by cluster and restarts no server.
    #[serde(default, rename = "peerCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 49), regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub peer_cidrs: Vec<String>,
    /// Check of the network before the first server starts, and before clusters join. From every cluster, the names of
    /// the servers resolve, and their ports answer. `Required` starts no server, and lets no cluster join, before it has
    /// passed. `Skip` does both without it. Defaults to `Required`. A change restarts no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightMode>,
}

/// Rule for the names of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkMode {
    /// `POD.CLUSTERID.SERVICE.NAMESPACE.svc.clusterset.local`, as the DNS of multi-cluster services serves it.
    #[default]
    #[serde(rename = "MCS")]
    Mcs,
    /// `POD.SERVICE.NAMESPACE.svc.CLUSTERDOMAIN`, with a domain for each cluster.
    Flat,
    /// Names made from `fqdnTemplate`.
    Custom,
}

/// Name of a cluster in DNS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterId {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Name of the cluster in DNS.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub id: String,
}

/// Names of servers across clusters: the part of `network` that makes names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// Rule for the names of servers.
    pub mode: NetworkMode,
    /// Name of a server in mode Custom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub fqdn_template: Option<String>,
    /// Names of clusters in DNS, for clusters whose DNS name differs from Karmada's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_ids: Vec<ClusterId>,
    /// Domain below `svc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub cluster_domain: Option<String>,
}

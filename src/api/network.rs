//! How servers are named over clusters.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How servers find each other over clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.mode == oldSelf.mode").message("mode cannot change: servers are known by the names that it gives them"),
    validation = Rule::new("has(self.fqdnTemplate) == has(oldSelf.fqdnTemplate) && (!has(self.fqdnTemplate) || self.fqdnTemplate == oldSelf.fqdnTemplate)")
        .message("fqdnTemplate cannot change: servers are known by the names that it gives them"),
    validation = Rule::new("has(self.clusterDomain) == has(oldSelf.clusterDomain) && (!has(self.clusterDomain) || self.clusterDomain == oldSelf.clusterDomain)")
        .message("clusterDomain cannot change: servers are known by the names that it gives them"),
    validation = Rule::new("!has(oldSelf.clusterIds) || (has(self.clusterIds) && oldSelf.clusterIds.all(o, self.clusterIds.exists(n, n.cluster == o.cluster && n.id == o.id)))")
        .message("clusterIds may be added to, but an entry cannot change or go: servers are known by the names that it gives them"),
    validation = Rule::new("(self.mode == 'Custom') == has(self.fqdnTemplate)").message("fqdnTemplate is for mode Custom, and needed there"),
    validation = Rule::new("self.mode != 'Custom' || !has(self.clusterDomain)").message("clusterDomain is not used in mode Custom: write the domain in fqdnTemplate"),
    validation = Rule::new("self.mode != 'Flat' || !has(self.clusterDomain) || self.clusterDomain.contains('{cluster}') || self.clusterDomain.contains('{clusterId}')")
        .message("in mode Flat clusterDomain must contain {cluster} or {clusterId}: else servers of two clusters have one name"),
    validation = Rule::new("!has(self.fqdnTemplate) || ((self.fqdnTemplate.contains('{cluster}') || self.fqdnTemplate.contains('{clusterId}')) && self.fqdnTemplate.contains('{pod}'))")
        .message("fqdnTemplate must contain {pod}, and {cluster} or {clusterId}: else two servers have one name")
)]
pub struct Network {
    /// `MCS`: multi-cluster services' names of pods; `Flat`: every cluster has a DNS domain of its own that the others
    /// resolve; `Custom`: by `fqdnTemplate`. A change is refused.
    #[serde(default)]
    pub mode: NetworkMode,
    /// Name of a server in mode Custom, from `{pod}`, `{service}`, `{namespace}`, `{cluster}`, `{clusterId}` and
    /// `{ordinal}`. A change is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9.-]|\{(pod|service|namespace|cluster|clusterId|ordinal)\})+$")
    )]
    pub fqdn_template: Option<String>,
    /// Names of clusters in DNS, where they differ from Karmada's. Entries may be added; a change or removal is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cluster".to_owned()]))]
    pub cluster_ids: Vec<ClusterId>,
    /// Domain below `svc`: `clusterset.local` in mode MCS if absent, `{clusterId}.local` in mode Flat if absent. A change
    /// is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^([a-z0-9.-]|\{(cluster|clusterId)\})+$"))]
    pub cluster_domain: Option<String>,
    /// Clusters without servers, into which the client Service is imported. A change is only metadata: no server
    /// restarts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 48)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub import_clusters: Vec<String>,
    /// Addresses from which servers of other clusters come; any if empty. A change travels cluster by cluster, but is only
    /// metadata: no server restarts.
    #[serde(default, rename = "peerCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 49), regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub peer_cidrs: Vec<String>,
}

/// How servers are named over clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkMode {
    /// `POD.CLUSTERID.SERVICE.NAMESPACE.svc.clusterset.local`, as multi-cluster services' DNS serves it.
    #[default]
    #[serde(rename = "MCS")]
    Mcs,
    /// `POD.SERVICE.NAMESPACE.svc.CLUSTERDOMAIN`, where every cluster has a domain of its own.
    Flat,
    /// By a template.
    Custom,
}

/// The name of a cluster in DNS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterId {
    /// Karmada's name of the cluster.
    #[schemars(length(min = 1, max = 48))]
    pub cluster: String,
    /// Its name in DNS.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub id: String,
}

/// How servers are named over clusters: the part of `network` that makes names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// By which rule.
    pub mode: NetworkMode,
    /// Name of a server in mode Custom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub fqdn_template: Option<String>,
    /// Names of clusters in DNS, where they differ from Karmada's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_ids: Vec<ClusterId>,
    /// Domain below `svc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub cluster_domain: Option<String>,
}

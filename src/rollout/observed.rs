//! Everything that a decision rests on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            cluster::Cluster,
            policy::{OverridePolicy, PropagationPolicy},
            resource_binding::ResourceBinding,
            work::Work,
        },
    },
    rollout::certificates::Certificate,
};

/// Everything that a decision rests on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The MultiClusterZooKeeper.
    pub object: MultiClusterZooKeeper,
    /// The ZooKeeper template of its name.
    pub template: Option<ZooKeeper>,
    /// The PropagationPolicy of template and exports.
    pub policy: Option<PropagationPolicy>,
    /// The OverridePolicy.
    pub overrides: Option<OverridePolicy>,
    /// ServiceExports, ServiceImports and the import's policy that carry our names, by `Kind/name`.
    pub services: BTreeMap<String, Value>,
    /// Karmada's binding of the template.
    pub binding: Option<ResourceBinding>,
    /// Karmada's Works of that binding; read only during deletion.
    pub works: Vec<Work>,
    /// The federation's clusters.
    pub clusters: Vec<Cluster>,
    /// Secrets of the quorum's certificates, without their content.
    pub certificates: Vec<Certificate>,
    /// Lives of ensembles of this name that ended while a cluster could not be told.
    pub tombstones: BTreeSet<String>,
    /// Image of mczk itself, for reports.
    pub server_image: String,
    /// Why the last attempt to write failed, if it did.
    pub failure: Option<String>,
}

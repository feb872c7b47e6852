//! Everything that the operator has observed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use crate::rollout::{certificates::Certificate, live::Live};
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    karmada::{
        cluster::Cluster,
        policy::{OverridePolicy, PropagationPolicy},
        resource_binding::ResourceBinding,
        work::Work,
    },
};

/// Everything that the operator has observed of one ensemble.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The MultiClusterZooKeeper.
    pub object: MultiClusterZooKeeper,
    /// The ZooKeeper template of its name.
    pub template: Option<Live<ZooKeeper>>,
    /// The PropagationPolicy of template and exports.
    pub policy: Option<Live<PropagationPolicy>>,
    /// The OverridePolicy.
    pub overrides: Option<Live<OverridePolicy>>,
    /// ServiceExports, ServiceImports and their policies that have the operator's names, by `Kind/name`.
    pub services: BTreeMap<String, Value>,
    /// Karmada's binding of the template.
    pub binding: Option<ResourceBinding>,
    /// Karmada's binding of the object that asks spares.
    pub spares: Option<ResourceBinding>,
    /// Karmada's Works of the template's binding. The operator reads them only during deletion, and while a cluster that left may
    /// still have the object.
    pub works: Vec<Work>,
    /// The member clusters of the federation.
    pub clusters: Vec<Cluster>,
    /// Secrets of the quorum's certificates, without their content.
    pub certificates: Vec<Certificate>,
    /// Incarnations of this name that a tombstone ended.
    pub tombstones: BTreeSet<String>,
    /// Image of mczk itself, which member clusters run.
    pub server_image: String,
    /// Time since this process last asked Karmada to schedule again.
    pub asked: Option<Duration>,
    /// Number of the term in which this operator acts. `None` without an election, and for commands.
    pub term: Option<i32>,
    /// Why the last reconciles failed.
    pub failure: Option<String>,
}

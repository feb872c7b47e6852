//! What a move of a pod depends on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kube_core::ResourceExt;

/// A volume that a pod mounts.
#[derive(Clone, Debug)]
pub enum PodVolume {
    /// The volume, as the API server shows it.
    Known(Box<PersistentVolume>),
    /// The agent may not read the volume of this name.
    Unreadable(String),
}

/// What a move depends on, besides the room on nodes.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Pods of the ensemble.
    pub pods: &'a [Pod],
    /// Nodes that run them, and others.
    pub nodes: &'a [Node],
    /// Bound volumes, by the name of their claim.
    pub volumes: &'a BTreeMap<String, PodVolume>,
}

/// The node that runs a pod.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Names of the claims that a pod mounts.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// The node of this name.
pub(super) fn named<'a>(nodes: &'a [Node], name: &str) -> Option<&'a Node> {
    nodes.iter().find(|node| node.name_any() == name)
}

//! Which servers have to leave their nodes, and which of them stay because no other node fits them. Pure.

mod fit;
mod node_terms;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Taint};
use kube::ResourceExt;

pub(crate) use fit::has_room;

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints of nodes that are being drained: by a cordon, by Karpenter since version 1 and before, and by the cluster
/// autoscaler. `DeletionCandidateOfClusterAutoscaler` is none: the autoscaler may keep such a node.
const DRAIN_TAINTS: [&str; 4] =
    [UNSCHEDULABLE, "karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"];

/// The node of a server is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Name of the node.
    pub node: String,
    /// Why the server stays there. Absent if it moves.
    pub stays: Option<Stay>,
}

/// Why a server stays on a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stay {
    /// A new pod could start on no other node, for this reason. So the server does not restart at all.
    NoOtherNode(String),
    /// An ensemble of one or two voters can spare none.
    TooFewVoters,
}

/// A volume that a pod mounts.
#[derive(Clone, Debug)]
pub(crate) enum Volume {
    /// The volume, as the API server shows it.
    Known(Box<PersistentVolume>),
    /// The agent may not read the volume of this name.
    Unreadable(String),
}

/// What a move depends on, besides the room on nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// Pods of the ensemble.
    pub(crate) pods: &'a [Pod],
    /// Nodes that run them, and others.
    pub(crate) nodes: &'a [Node],
    /// Bound volumes, by the name of their claim.
    pub(crate) volumes: &'a BTreeMap<String, Volume>,
}

/// The nodes that could run a pod instead of its own, apart from their room.
///
/// # Errors
/// If there is none: what excludes the last one.
pub(crate) fn other_nodes<'a>(pod: &Pod, surroundings: Surroundings<'a>) -> Result<Vec<&'a Node>, String> {
    fit::other_nodes(pod, surroundings)
}

/// True if a node is being drained, for a pod that does not tolerate it. A pod that does could come back to the node, again
/// and again.
#[must_use]
pub(crate) fn drains(node: &Node, pod: &Pod) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let cordon = Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let marks = taints.filter(|taint| DRAIN_TAINTS.contains(&taint.key.as_str()) && taint.effect != "PreferNoSchedule");
    let all = marks.chain(Some(&cordon).filter(|_| cordoned));
    all.into_iter().any(|taint| !fit::tolerates(pod, taint))
}

/// The node that runs a pod.
#[must_use]
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Names of the claims that a pod mounts.
pub(crate) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// The node of this name.
fn named<'a>(nodes: &'a [Node], name: &str) -> Option<&'a Node> {
    nodes.iter().find(|node| node.name_any() == name)
}

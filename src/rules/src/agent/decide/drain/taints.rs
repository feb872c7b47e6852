//! Taints: which ones drain a node, and which ones a pod tolerates.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints of nodes that are being drained: by a cordon, by Karpenter since version 1 and before, and by the cluster
/// autoscaler. `DeletionCandidateOfClusterAutoscaler` is none: the autoscaler may keep such a node.
const DRAIN_TAINTS: [&str; 4] =
    [UNSCHEDULABLE, "karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"];

/// True if a node is being drained, for a pod that does not tolerate it. A pod that does could come back to the node, again
/// and again.
#[must_use]
pub fn drains(node: &Node, pod: &Pod) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let cordon = Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let marks = taints.filter(|taint| DRAIN_TAINTS.contains(&taint.key.as_str()) && taint.effect != "PreferNoSchedule");
    let all = marks.chain(Some(&cordon).filter(|_| cordoned));
    all.into_iter().any(|taint| !tolerates(pod, taint))
}

/// True if a pod tolerates a taint, by the rules of Kubernetes' scheduler.
pub(super) fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let matches = |toleration: &Toleration| {
        let exists = toleration.operator.as_deref() == Some("Exists");
        let key = toleration.key.as_deref().filter(|key| !key.is_empty());
        let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
        key.map_or(exists, |key| key == taint.key)
            && effect.is_none_or(|effect| effect == taint.effect)
            && (exists || toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""))
    };
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).any(matches)
}

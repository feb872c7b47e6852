//! Which servers have to leave cordoned nodes.
//!
//! A server leaves a cordoned node only if another node could run its pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::{Api, ResourceExt, api::ListParams};
use tracing::debug;

use crate::runtime::failure::is_not_found;

/// Nodes that the agent reads to find one that fits a pod. Any fitting node is enough.
const MOST_NODES: u32 = 100;

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The cordoned node that each pod has to leave, by the pod's uid. `labels` are those that a node must have. If the agent
/// cannot read nodes, no pod leaves its node, and everything else continues.
pub(super) async fn cordoned(
    pods: &[Pod],
    labels: &BTreeMap<String, String>,
    nodes: &Api<Node>,
) -> BTreeMap<String, String> {
    match find(pods, labels, nodes).await {
        Ok(drains) => drains,
        Err(error) => {
            debug!(%error, "cannot read nodes: no server leaves a cordoned one");
            BTreeMap::new()
        }
    }
}

async fn find(
    pods: &[Pod],
    labels: &BTreeMap<String, String>,
    nodes: &Api<Node>,
) -> kube::Result<BTreeMap<String, String>> {
    // A pod that tolerates cordoned nodes could come back to the same node, again and again.
    let cordon = Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let pods: Vec<&Pod> = pods.iter().filter(|pod| !tolerates(pod, &cordon)).collect();
    let node_of = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    let names: BTreeSet<String> = pods.iter().filter_map(|pod| node_of(pod)).collect();
    let mut closed = BTreeSet::new();
    for name in names {
        match nodes.get(&name).await {
            Ok(node) if is_cordoned(&node) => drop(closed.insert(name)),
            Ok(_) => {}
            // The node's pods are deleted with it.
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if closed.is_empty() {
        return Ok(BTreeMap::new());
    }
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let params = ListParams::default().fields("spec.unschedulable=false").labels(&selector.join(",")).limit(MOST_NODES);
    let others = nodes.list(&params).await?.items;
    let has_another = |pod: &Pod| others.iter().any(|node| fits(node, pod) && !closed.contains(&node.name_any()));
    let drained = pods.into_iter().filter(|pod| has_another(pod));
    Ok(drained.filter_map(|pod| Some((pod.uid()?, node_of(pod).filter(|node| closed.contains(node))?))).collect())
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// True if a node could run a pod, as far as the agent knows without the pod's volume and the node's capacity.
fn fits(node: &Node, pod: &Pod) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let repels = |taint: &Taint| taint.effect != "PreferNoSchedule" && !tolerates(pod, taint);
    ready && !is_cordoned(node) && node.metadata.deletion_timestamp.is_none() && !taints.into_iter().any(repels)
}

/// True if a pod tolerates a taint, by the rules of Kubernetes' scheduler.
fn tolerates(pod: &Pod, taint: &Taint) -> bool {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::none(json!([]), false)]
    #[case::all(json!([{ "operator": "Exists" }]), true)]
    #[case::this_one(json!([{ "key": "zone", "operator": "Equal", "value": "a", "effect": "NoSchedule" }]), true)]
    #[case::by_default(json!([{ "key": "zone", "value": "a" }]), true)]
    #[case::another_value(json!([{ "key": "zone", "value": "b" }]), false)]
    #[case::another_effect(json!([{ "key": "zone", "operator": "Exists", "effect": "NoExecute" }]), false)]
    #[case::another_key(json!([{ "key": "other", "operator": "Exists" }]), false)]
    fn a_taint_repels_pods_that_do_not_tolerate_it(#[case] tolerations: Value, #[case] expected: bool) {
        let pod: Pod =
            serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } })).unwrap();
        let node: Node = serde_json::from_value(json!({
            "spec": { "taints": [{ "key": "zone", "value": "a", "effect": "NoSchedule" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
        .unwrap();
        assert_eq!(fits(&node, &pod), expected);
    }
}

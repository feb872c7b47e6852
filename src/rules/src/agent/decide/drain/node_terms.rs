//! Node selector terms, by the rules of Kubernetes' scheduler.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm};
use kube_core::ResourceExt;

/// True if any term matches a node. A term without requirements matches none.
pub(super) fn any_matches(terms: &[NodeSelectorTerm], node: &Node) -> bool {
    terms.iter().any(|term| {
        let labels = term.match_expressions.iter().flatten();
        let fields = term.match_fields.iter().flatten();
        let name = node.name_any();
        (labels.clone().count() + fields.clone().count() > 0)
            && labels.into_iter().all(|wanted| holds(wanted, node.labels().get(&wanted.key).map(String::as_str)))
            // The name is the only field that the API server accepts.
            && fields.into_iter().all(|wanted| wanted.key == "metadata.name" && holds(wanted, Some(&name)))
    })
}

fn holds(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        // An operator of a later Kubernetes: the node counts as one that does not fit.
        _ => false,
    }
}

//! Which nodes fit a pod.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, Pod, PodAffinityTerm, ResourceRequirements, Taint},
    apimachinery::pkg::api::resource::Quantity,
};
use kube_core::{ResourceExt, Selector, SelectorExt};

use crate::agent::{
    decide::drain::{
        node_terms::any_matches,
        surroundings::{PodVolume, Surroundings, claims_of, named, node_of},
        taints::{drains, tolerates},
    },
    render::amount::thousandths,
};

/// The nodes that could run a pod instead of its own, apart from their room.
///
/// # Errors
/// If there is none: what excludes the last one.
pub fn other_nodes<'a>(pod: &Pod, surroundings: Surroundings<'a>) -> Result<Vec<&'a Node>, String> {
    let own = node_of(pod);
    let mut fitting: Vec<&Node> =
        surroundings.nodes.iter().filter(|node| Some(node.name_any().as_str()) != own && is_open(node, pod)).collect();
    let mut left = |why: &str, fits: &dyn Fn(&Node) -> bool| {
        fitting.retain(|node| fits(node));
        if fitting.is_empty() { Err(why.to_owned()) } else { Ok(()) }
    };
    left("no other node is ready and without a taint that its pod does not tolerate", &|_| true)?;
    left("its nodeSelector and affinity admit no other node that is ready", &|node| is_admitted(node, pod))?;
    for claim in claims_of(pod) {
        match surroundings.volumes.get(claim) {
            None => {}
            Some(PodVolume::Unreadable(name)) => {
                return Err(format!(
                    "the agent may not read PersistentVolume {name}, so the volume counts as one that cannot move"
                ));
            }
            Some(PodVolume::Known(volume)) => {
                let why = format!("its volume {} cannot move to another node that fits", volume.name_any());
                left(&why, &|node| {
                    let spec = volume.spec.as_ref();
                    let required = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
                    // The data of a local volume without an affinity stays behind all the same.
                    let is_local = spec.is_some_and(|spec| spec.host_path.is_some() || spec.local.is_some());
                    required.map_or(!is_local, |required| any_matches(&required.node_selector_terms, node))
                })?;
            }
        }
    }
    left("its anti-affinity to other servers excludes every other node that fits", &|node| {
        !is_excluded(node, pod, surroundings)
    })?;
    Ok(fitting)
}

/// True if a node accepts new pods, and its taints do not repel this one.
fn is_open(node: &Node, pod: &Pod) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let repels = |taint: &Taint| taint.effect != "PreferNoSchedule" && !tolerates(pod, taint);
    ready && !cordoned && node.metadata.deletion_timestamp.is_none() && !drains(node, pod) && !taints.any(repels)
}

/// True if the pod's own node selector and required node affinity admit a node.
fn is_admitted(node: &Node, pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let mut selector = spec.into_iter().flat_map(|spec| spec.node_selector.iter().flatten());
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selector.all(|(key, value)| node.labels().get(key) == Some(value))
        && required.is_none_or(|required| any_matches(&required.node_selector_terms, node))
}

/// True if the pod must not share this node, or its zone, with another server of the ensemble.
fn is_excluded(node: &Node, pod: &Pod, surroundings: Surroundings<'_>) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let terms = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
    let others = || surroundings.pods.iter().filter(|other| other.uid() != pod.uid());
    terms.unwrap_or_default().iter().any(|term| {
        others().filter(|other| selects(term, other)).filter_map(node_of).any(|name| {
            let domain = |node: &Node| node.labels().get(&term.topology_key).cloned();
            let theirs = named(surroundings.nodes, name).and_then(domain);
            name == node.name_any() || theirs.is_some() && theirs == domain(node)
        })
    })
}

fn selects(term: &PodAffinityTerm, pod: &Pod) -> bool {
    let namespaces = term.namespaces.iter().flatten().count() > 0;
    let here = pod.namespace().is_some_and(|own| term.namespaces.iter().flatten().any(|other| *other == own));
    let selector = term.label_selector.clone().map(Selector::try_from);
    // A selector that does not parse counts as one that selects the pod.
    (!namespaces || here || term.namespace_selector.is_some())
        && selector.is_some_and(|selector| selector.map_or(true, |selector| selector.matches(pod.labels())))
}

/// True if the requests of a pod fit a node beside the pods that it runs. A node that reports no amount has room.
#[must_use]
pub fn has_room(node: &Node, running: &[Pod], pod: &Pod) -> bool {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = |name: &str| allocatable.and_then(|amounts| thousandths(&amounts.get(name)?.0));
    let counts = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = || running.iter().filter(counts);
    let pods = u128::try_from(running().count()).unwrap_or(u128::MAX).saturating_add(1).saturating_mul(1000);
    let fits = |name: &str| {
        let used = running().map(|pod| requested(pod, name)).fold(requested(pod, name), u128::saturating_add);
        amount(name).is_none_or(|all| used <= all)
    };
    amount("pods").is_none_or(|all| pods <= all) && fits("cpu") && fits("memory")
}

/// What a pod requests of a resource, in thousandths: the sum of its containers, or its largest init container.
fn requested(pod: &Pod, name: &str) -> u128 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |amounts: Option<&BTreeMap<String, Quantity>>| {
        amounts.and_then(|amounts| thousandths(&amounts.get(name)?.0)).unwrap_or(0)
    };
    let requests = |resources: &Option<ResourceRequirements>| {
        of(resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let containers = spec.containers.iter().map(|container| requests(&container.resources));
    let inits = spec.init_containers.iter().flatten().map(|container| requests(&container.resources));
    let most = inits.max().unwrap_or(0).max(containers.fold(0, u128::saturating_add));
    most.saturating_add(of(spec.overhead.as_ref()))
}

//! The next pod of a StatefulSet and its claim, and whether it fits into a quota that still counts the pod before it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PersistentVolumeClaim, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use kube_core::{DynamicObject, ResourceExt};
use serde_json::{Value, json};

use crate::agent::render::amount::thousandths;
use mczk_api::contract::naming::claim_of;

/// The pod that a StatefulSet makes as `pod`, under a name.
#[must_use]
pub fn pod_of(set: &DynamicObject, pod: &str, name: &str) -> Option<Pod> {
    let spec = set.data.get("spec")?;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set.name_any(), "uid": set.uid(), "controller": true,
    });
    let added = json!({
        "metadata": {
            "name": name, "ownerReferences": [owner], "labels": { "statefulset.kubernetes.io/pod-name": pod },
        },
        "spec": { "hostname": pod, "subdomain": spec.get("serviceName") },
    });
    let mut next = spec.get("template")?.clone();
    json_patch::merge(&mut next, &added);
    let claims = spec.get("volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten();
    let claims = claims.filter_map(|claim| claim.pointer("/metadata/name")?.as_str());
    let volumes = claims
        .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": format!("{claim}-{pod}") } }));
    next.pointer_mut("/spec/volumes")?.as_array_mut()?.extend(volumes);
    serde_json::from_value(next).ok()
}

/// The claim that the StatefulSet controller creates for a pod, with the labels of the selector.
#[must_use]
pub fn claim_for(set: &DynamicObject, pod: &str) -> Option<PersistentVolumeClaim> {
    let spec = set.data.get("spec")?;
    let labels = spec.pointer("/selector/matchLabels");
    let mut claim = spec.pointer("/volumeClaimTemplates/0")?.clone();
    json_patch::merge(&mut claim, &json!({ "metadata": { "name": claim_of(pod), "labels": labels } }));
    serde_json::from_value(claim).ok()
}

/// True if a refusal says that a quota is exceeded, and the next pod would fit once `live` is gone. The refusal names one quota,
/// and another may limit what the next pod has more of, so the refusal must name all of that. Quotas may select pods by their
/// priority, so both must have the same. A pod without a class gets the default one.
#[must_use]
pub fn fits_in_place_of(refusal: &str, live: &Pod, next: &Pod) -> bool {
    let (Some(live), Some(next)) = (&live.spec, &next.spec) else { return false };
    let class = next.priority_class_name.as_ref();
    let is_selected_alike = class.is_none() || class == live.priority_class_name.as_ref();
    let fits = |[requested, used, limited]: [Amounts<'_>; 3]| {
        let is_named = |resource: &String| {
            let plain = resource.strip_prefix("requests.");
            [Some(resource.as_str()), plain].into_iter().flatten().any(|name| requested.contains_key(name))
        };
        let mut more = resources(next).filter(|resource| amount(next, resource) > amount(live, resource));
        more.all(|resource| is_named(&resource))
            && requested.iter().all(|(resource, requested)| {
                let (Some(used), Some(limited)) = (used.get(resource), limited.get(resource)) else { return false };
                used.saturating_sub(amount(live, resource)).saturating_add(*requested) <= *limited
            })
    };
    is_selected_alike && exceeded(refusal).is_some_and(fits)
}

/// Amounts by resource, in thousandths.
type Amounts<'a> = BTreeMap<&'a str, u128>;

/// What the API server says of a quota that is exceeded: the amounts requested, used and limited.
fn exceeded(refusal: &str) -> Option<[Amounts<'_>; 3]> {
    let (_, quota) = refusal.split_once("exceeded quota: ")?;
    let amounts = |label: &str| -> Option<Amounts<'_>> {
        let text = quota.split(", ").find_map(|part| part.strip_prefix(label))?;
        text.split(',').map(|pair| pair.split_once('=').and_then(|(name, n)| Some((name, thousandths(n)?)))).collect()
    };
    Some([amounts("requested: ")?, amounts("used: ")?, amounts("limited: ")?])
}

/// The resources of a pod, by their names in a quota.
fn resources(pod: &PodSpec) -> impl Iterator<Item = String> {
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    containers.filter_map(|container| container.resources.as_ref()).flat_map(|resources| {
        let names = |kind: &'static str, amounts: &'_ Option<BTreeMap<String, Quantity>>| {
            amounts.iter().flatten().map(|(name, _)| format!("{kind}.{name}")).collect::<Vec<_>>()
        };
        [names("requests", &resources.requests), names("limits", &resources.limits)].concat()
    })
}

/// How much of a resource a pod counts in a quota: the larger of all its containers together, and of any one init container.
fn amount(pod: &PodSpec, resource: &str) -> u128 {
    if matches!(resource, "pods" | "count/pods") {
        return 1000;
    }
    let of = |container: &Container| {
        let resources = container.resources.as_ref()?;
        let (amounts, name) = match resource.strip_prefix("limits.") {
            Some(name) => (&resources.limits, name),
            None => (&resources.requests, resource.strip_prefix("requests.").unwrap_or(resource)),
        };
        thousandths(&amounts.as_ref()?.get(name)?.0)
    };
    let together = pod.containers.iter().filter_map(of).fold(0, u128::saturating_add);
    together.max(pod.init_containers.iter().flatten().filter_map(of).max().unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)]
    fn pod(memory: &str, more: Value) -> Pod {
        let resources = |memory| json!({ "requests": { "memory": memory }, "limits": { "cpu": "1" } });
        let mut spec = json!({
            "initContainers": [{ "name": "program", "resources": resources("32Mi") }],
            "containers": [{ "name": "zookeeper", "resources": resources(memory) }],
        });
        json_patch::merge(&mut spec, &more);
        serde_json::from_value(json!({ "metadata": { "name": "zk-0" }, "spec": spec })).unwrap()
    }

    fn quota(requested: &str, used: &str, limited: &str) -> String {
        format!(
            "pods \"zk-0-next\" is forbidden: exceeded quota: q, requested: {requested}, used: {used}, limited: {limited}"
        )
    }

    #[rstest]
    #[case::another_quota_may_limit_what_grows(quota("pods=1", "pods=3", "pods=3"), false)]
    #[case::over_full(quota("pods=1", "pods=4", "pods=3"), false)]
    #[case::same_memory(quota("requests.memory=1Gi", "requests.memory=3Gi", "requests.memory=3Gi"), true)]
    #[case::other_units(quota("memory=1024Mi", "memory=3Gi", "memory=3221225472"), true)]
    #[case::grows_beyond(quota("memory=2Gi", "memory=3Gi", "memory=3Gi"), false)]
    #[case::grows_within(quota("memory=2Gi", "memory=3Gi", "memory=4Gi"), true)]
    #[case::limits(quota("limits.cpu=1,memory=2Gi", "limits.cpu=3,memory=3Gi", "limits.cpu=3,memory=4Gi"), true)]
    #[case::one_of_two(quota("limits.cpu=2,pods=1", "limits.cpu=3,pods=3", "limits.cpu=3,pods=3"), false)]
    #[case::a_resource_that_the_pod_lacks(quota("limits.memory=1Gi", "limits.memory=1Gi", "limits.memory=1Gi"), false)]
    #[case::no_quota("admission webhook \"x\" denied the request".to_owned(), false)]
    #[case::demands_limits("failed quota: q: must specify limits.cpu for: program".to_owned(), false)]
    #[case::damaged("exceeded quota: q, requested: pods=1, used: x, limited: pods=3".to_owned(), false)]
    fn a_full_quota_is_no_obstacle_if_this_pod_fills_it(#[case] refusal: String, #[case] expected: bool) {
        let (live, next) = (pod("1Gi", json!({})), pod("2Gi", json!({})));
        assert_eq!(fits_in_place_of(&refusal, &live, &next), expected);
    }

    /// The quota may not count the running pod.
    #[test]
    fn another_priority_may_count_in_another_quota() {
        let full = quota("pods=1", "pods=3", "pods=3");
        let (live, next) = (pod("1Gi", json!({})), pod("1Gi", json!({ "priorityClassName": "high" })));
        assert!(fits_in_place_of(&full, &live, &live));
        assert!(!fits_in_place_of(&full, &live, &next));
        assert!(fits_in_place_of(&full, &next, &live), "a default class");
    }

    #[test]
    fn the_next_pod_and_its_claim_have_what_the_controller_adds() {
        let set: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "zk", "uid": "u" },
            "spec": {
                "serviceName": "zk",
                "selector": { "matchLabels": { "of": "zk" } },
                "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [], "volumes": [] } },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "storageClassName": "fast" } }],
            },
        }))
        .unwrap();
        let pod = serde_json::to_value(pod_of(&set, "zk-0", "zk-0-next").unwrap()).unwrap();
        let of = |path: &str| pod.pointer(path).cloned().unwrap();
        assert_eq!(of("/metadata/name"), "zk-0-next");
        assert_eq!(of("/metadata/labels"), json!({ "a": "b", "statefulset.kubernetes.io/pod-name": "zk-0" }));
        assert_eq!(of("/metadata/ownerReferences/0/uid"), "u");
        assert_eq!(of("/spec/volumes/0/persistentVolumeClaim/claimName"), "data-zk-0");
        assert_eq!((of("/spec/hostname"), of("/spec/subdomain")), (json!("zk-0"), json!("zk")));
        let claim = serde_json::to_value(claim_for(&set, "zk-0").unwrap()).unwrap();
        let of = |path: &str| claim.pointer(path).cloned().unwrap();
        assert_eq!(of("/metadata"), json!({ "name": "data-zk-0", "labels": { "of": "zk" } }));
        assert_eq!(of("/spec/storageClassName"), "fast");
    }
}

//! `InterpretReplica`: number of replicas of the template, and requirements of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{object::read, refusal::Refusal};
use crate::agent::render::resources;
use mczk_api::{
    pod::{Resources, Scheduling, Toleration},
    quantity::Quantity,
};

/// Requirements of each replica. Karmada's estimator then counts only nodes that can run one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// Requirements on nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_claim: Option<NodeClaim>,
    /// Resources of a node that a replica uses, with its init container. The agent renders pods from the same function.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resource_request: BTreeMap<String, Quantity>,
    /// Priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_class_name: Option<String>,
}

/// Requirements on nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeClaim {
    /// The part of the pod's affinity that nodes must fulfil.
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_node_affinity: Option<Value>,
    /// Labels that nodes must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<String, String>,
    /// Taints that the replica tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<Toleration>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct ReplicaView {
    spec: ReplicaSpec,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct ReplicaSpec {
    replicas: i32,
    #[serde(default)]
    template: Option<ReplicaTemplate>,
    #[serde(default)]
    source: Option<ReplicaSource>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct ReplicaSource {
    #[serde(default)]
    surveys: bool,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "a map")]
struct ReplicaTemplate {
    #[serde(default)]
    resources: Option<Resources>,
    #[serde(default)]
    scheduling: Option<Scheduling>,
}

/// Number of replicas, and requirements of each. The requirements are present for 0 replicas too: without them Karmada
/// would treat the object as no workload. A survey is none: 0 replicas without requirements go to every selected cluster.
///
/// # Errors
/// If a field that is read has another type, or the number is below 0.
pub(crate) fn interpret(object: &RawValue) -> Result<(i32, Option<ReplicaRequirements>), Refusal> {
    let ReplicaView { spec } = read("object", object)?;
    if spec.source.is_some_and(|source| source.surveys) {
        return Ok((0, None));
    }
    if spec.replicas < 0 {
        return Err(Refusal::unreadable(format!("object.spec.replicas: {} is below 0", spec.replicas)));
    }
    let ReplicaTemplate { resources, scheduling } = spec.template.unwrap_or_default();
    let scheduling = scheduling.unwrap_or_default();
    let claim = NodeClaim {
        hard_node_affinity: scheduling
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.get("nodeAffinity"))
            .and_then(|affinity| affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
            .filter(|terms| terms.is_object())
            .cloned(),
        node_selector: scheduling.node_selector,
        tolerations: scheduling.tolerations,
    };
    let requirements = ReplicaRequirements {
        node_claim: (claim != NodeClaim::default()).then_some(claim),
        resource_request: resources::of_pod(resources.as_ref()),
        priority_class_name: scheduling.priority_class_name,
    };
    Ok((spec.replicas, Some(requirements)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        agent::render::{Kind, amount::thousandths, render, source::Source},
        fixtures::zookeeper_spec,
    };
    use mczk_api::zookeeper::{Ensemble, ZooKeeperSpec};

    fn answer(spec: &Value) -> Result<(i32, Value), Refusal> {
        let object = serde_json::value::to_raw_value(&json!({ "spec": spec })).unwrap();
        interpret(&object).map(|(replicas, requirements)| (replicas, serde_json::to_value(requirements).unwrap()))
    }

    #[rstest]
    #[case::no_replicas(json!({"replicas": 0}), 0, json!({"resourceRequest": {"cpu": "10m", "memory": "1Gi"}}))]
    #[case::a_survey(json!({"replicas": 3, "source": {"surveys": true}}), 0, json!(null))]
    #[case::no_survey(json!({"replicas": 0, "source": {}}), 0, json!({"resourceRequest": {"cpu": "10m", "memory": "1Gi"}}))]
    #[case::a_bare_template(json!({"replicas": 3, "template": {"image": "zookeeper:3.9"}}), 3, json!({"resourceRequest": {"cpu": "10m", "memory": "1Gi"}}))]
    #[case::nulls(json!({"replicas": 3, "template": {"resources": null, "scheduling": null}}), 3, json!({"resourceRequest": {"cpu": "10m", "memory": "1Gi"}}))]
    #[case::limits_are_used_as_requests(
        json!({"replicas": 1, "template": {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "2", "memory": "1Gi"}}}}),
        1,
        json!({"resourceRequest": {"cpu": "1", "memory": "1Gi"}})
    )]
    #[case::scheduling(
        json!({"replicas": 5, "template": {"scheduling": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "zk", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}
            },
            "priorityClassName": "high"
        }}}),
        5,
        json!({
            "nodeClaim": {
                "hardNodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": []}]},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "zk", "operator": "Exists", "effect": "NoSchedule"}]
            },
            "resourceRequest": {"cpu": "10m", "memory": "1Gi"},
            "priorityClassName": "high"
        })
    )]
    fn requirements_are_interpreted(#[case] spec: Value, #[case] replicas: i32, #[case] expected: Value) {
        assert_eq!(answer(&spec), Ok((replicas, expected)));
    }

    /// What a pod requests by Kubernetes' rule: of each resource the sum of its containers, or the largest of its init
    /// containers if that is larger. Without a request its limit counts.
    fn requested(pod: &Value) -> BTreeMap<String, u128> {
        let of = |container: &Value| {
            let resources = &container["resources"];
            let all = [&resources["limits"], &resources["requests"]].map(|amounts| amounts.as_object().cloned());
            let amount = |(name, amount): (String, Value)| (name, thousandths(amount.as_str().unwrap()).unwrap());
            all.into_iter().flatten().flatten().map(amount).collect::<BTreeMap<_, _>>()
        };
        let mut total = BTreeMap::new();
        for (name, amount) in pod["containers"].as_array().unwrap().iter().flat_map(of) {
            *total.entry(name).or_insert(0) += amount;
        }
        for (name, amount) in pod["initContainers"].as_array().unwrap().iter().flat_map(of) {
            let total = total.entry(name).or_insert(0);
            *total = amount.max(*total);
        }
        total
    }

    #[rstest]
    #[case::none(json!(null))]
    #[case::unlimited(json!({}))]
    #[case::less_than_the_init_container(json!({"requests": {"cpu": "5m", "memory": "16Mi"}}))]
    #[case::only_memory(json!({"requests": {"memory": "2Gi"}}))]
    #[case::only_limits(json!({"limits": {"cpu": "0.002", "memory": "4Gi"}}))]
    #[case::more_kinds(json!({"requests": {"cpu": 2, "ephemeral-storage": "1Gi"}, "limits": {"example.com/disk": 1}}))]
    fn karmada_reserves_what_pods_request(#[case] resources: Value) {
        let spec: ZooKeeperSpec = zookeeper_spec(json!({ "template": { "resources": resources } }));
        let (spec, list) = (&spec, &Ensemble::default());
        let (name, cluster) = ("zk", "m1");
        let source = Source {
            name,
            namespace: "n",
            cluster,
            spec,
            list,
            voters: 3,
            observers: 0,
            material: None,
            client: None,
            none_ready: false,
        };
        let set = render(&source).unwrap().into_iter().find(|object| object.kind == Kind::StatefulSet).unwrap().value;
        let (_, heard) = answer(&json!({ "replicas": 3, "template": spec.template })).unwrap();
        let heard: BTreeMap<String, Quantity> = serde_json::from_value(heard["resourceRequest"].clone()).unwrap();
        let heard = heard.into_iter().map(|(name, amount)| (name, thousandths(&amount.0).unwrap())).collect();
        assert_eq!(requested(&set["spec"]["template"]["spec"]), heard);
    }

    #[rstest]
    #[case(json!({}), "object.spec: missing field `replicas`")]
    #[case(json!({"replicas": -1}), "object.spec.replicas: -1 is below 0")]
    #[case(json!({"replicas": 1.5}), "object.spec.replicas: invalid type: floating point `1.5`, expected i32")]
    #[case(
        json!({"replicas": 1, "template": {"scheduling": {"nodeSelector": {"a": 1}}}}),
        "object.spec.template.scheduling.nodeSelector.a: invalid type: integer `1`, expected a string"
    )]
    fn an_unreadable_field_is_named(#[case] spec: Value, #[case] message: &str) {
        assert_eq!(answer(&spec).unwrap_err(), Refusal::unreadable(message));
    }
}

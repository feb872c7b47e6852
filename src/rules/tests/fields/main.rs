//! The operator ignores no field that it accepts. The test changes every field of the schema of the spec: either a rule refuses
//! the change, or the plan differs. `src/rules/src/agent/render` tests what the agent makes of `template`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod scenes;
// Other tests use more of it.
#[allow(dead_code)]
#[path = "../rules/world.rs"]
mod world;

use std::collections::BTreeSet;

use kube_cel::Validator;
use mczk_api::crd;
use scenes::{outcome, scenes};
use serde_json::{Value, json};

/// Two specs that together set every field: some fields exclude each other.
fn bases() -> [Value; 2] {
    let common = json!({
        "replicas": 5,
        "observers": [{ "cluster": "m1", "count": 1 }],
        "placement": {
            "clusterAffinity": {
                "labelSelector": {
                    "matchLabels": { "tier": "one" },
                    "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["one"] }]
                },
                "fieldSelector": { "matchExpressions": [{ "key": "region", "operator": "In", "values": ["eu"] }] },
                "clusterNames": ["m1", "m2", "m3"],
                "exclude": ["m9"]
            },
            "clusterTolerations": [{ "key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3 }],
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Weighted",
                "weightPreference": {
                    "staticWeightList": [{
                        "targetCluster": {
                            "labelSelector": {
                                "matchLabels": { "tier": "one" },
                                "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["one"] }]
                            },
                            "fieldSelector": { "matchExpressions": [{ "key": "region", "operator": "In", "values": ["eu"] }] },
                            "clusterNames": ["m1"],
                            "exclude": ["m9"]
                        },
                        "weight": 1
                    }],
                    "dynamicWeight": "AvailableReplicas"
                }
            }
        },
        "template": pod_template(),
        "tls": { "quorum": true, "client": { "mode": "Optional", "secretName": "client-tls", "certificates": "Optional" } },
        "failover": { "demoteAfterSeconds": 300, "spares": ["m4"], "moveAfterSeconds": 900, "moveBackAfterSeconds": 900 },
        "rollout": {
            "order": "Listed", "clusters": ["m3", "m2", "m1"], "holdSeconds": 30, "progressDeadlineSeconds": 300,
            "onFailure": "Pause", "paused": false
        },
        "overrides": [{
            "cluster": "m1",
            "image": "zookeeper:3.9.2",
            "resources": { "requests": { "cpu": "2" }, "limits": { "memory": "2Gi" } },
            "storageClassName": "slow",
            "nodeSelector": { "disk": "hdd" },
            "tolerations": [{ "key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3 }],
            "zooCfg": [{ "name": "maxClientCnxns", "value": "5" }],
            "jvmFlags": ["-Xms64m"]
        }],
        "recordHistoryLimit": 2
    });
    let with = |network: Value| {
        let mut spec = common.clone();
        spec["network"] = network;
        spec
    };
    [
        with(json!({
            "mode": "Flat", "clusterDomain": "{clusterId}.local", "clusterIds": [{ "cluster": "m1", "id": "eins" }],
            "importClusters": ["m7"], "peerCIDRs": ["10.0.0.0/8"], "preflight": "Skip"
        })),
        with(json!({
            "mode": "Custom", "fqdnTemplate": "{pod}.{cluster}.example", "clusterIds": [{ "cluster": "m1", "id": "eins" }],
            "importClusters": ["m7"], "peerCIDRs": ["10.0.0.0/8"], "preflight": "Skip"
        })),
    ]
}

/// A pod template with every field set.
fn pod_template() -> Value {
    json!({
        "image": "zookeeper:3.9.4",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": ["registry"],
        "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
        "storage": { "size": "1Gi", "storageClassName": "fast", "reclaim": "Retain" },
        "zooCfg": [{ "name": "tickTime", "value": "2000" }],
        "jvmFlags": ["-Xmx64m"],
        "scheduling": {
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3 }],
            "affinity": { "nodeAffinity": {} },
            "priorityClassName": "high"
        },
        "metadata": { "labels": { "a": "b" }, "annotations": { "a": "b" } }
    })
}

/// Another value of a field, by its schema.
fn other(path: &str, schema: &Value, value: &Value) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        return choices.iter().find(|c| *c != value).expect("two choices").clone();
    }
    match value {
        Value::Bool(b) => json!(!b),
        // Only a lower limit makes a difference: there are no further records.
        Value::Number(n) if path.ends_with("recordHistoryLimit") => json!(n.as_i64().unwrap() - 1),
        Value::Number(n) => json!(n.as_i64().unwrap() + 1),
        Value::String(text) => json!(match path.rsplit('.').next().unwrap().trim_end_matches("[]") {
            "size" | "cpu" | "memory" | "{}" if text.ends_with("Gi") => "3Gi".to_owned(),
            "peerCIDRs" => "192.168.0.0/16".to_owned(),
            "clusterDomain" => "{cluster}.lan".to_owned(),
            "fqdnTemplate" => "{pod}.{clusterId}.example".to_owned(),
            "dynamicWeight" => text.clone(),
            "key" if path.contains("fieldSelector") => "provider".to_owned(),
            "name" if path.contains("zooCfg") => "snapCount".to_owned(),
            "cluster" | "clusterNames" | "clusters" => "m2".to_owned(),
            _ if text.parse::<i64>().is_ok() => "7".to_owned(),
            _ => format!("{text}x"),
        }),
        Value::Object(_) | Value::Null | Value::Array(_) => json!({ "other": {} }),
    }
}

/// Path of every field that is set in a value, with the value after a change of that field.
fn flips(path: &str, schema: &Value, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) if schema["properties"].is_object() => {
            for (name, own) in schema["properties"].as_object().unwrap() {
                let inner = format!("{path}.{name}");
                let Some(current) = members.get(name) else { continue };
                let mut changed = Vec::new();
                flips(&inner, own, current, &mut changed);
                for (field, next) in changed {
                    let mut whole = value.clone();
                    whole[name] = next;
                    found.push((field, whole));
                }
            }
        }
        Value::Object(members) if schema["additionalProperties"].is_object() => {
            for (key, current) in members {
                let mut whole = value.clone();
                whole[key] = other(&format!("{path}.{{}}"), &schema["additionalProperties"], current);
                found.push((format!("{path}.{{}}"), whole));
            }
        }
        Value::Array(items) => {
            let mut changed = Vec::new();
            flips(&format!("{path}[]"), &schema["items"], &items[0], &mut changed);
            for (field, next) in changed {
                let mut whole = value.clone();
                whole[0] = next;
                found.push((field, whole));
            }
        }
        _ => found.push((path.to_owned(), other(path, schema, value))),
    }
}

/// Every field of a schema.
fn fields(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        properties.iter().for_each(|(name, own)| fields(&format!("{path}.{name}"), own, found));
    } else if schema["items"].is_object() {
        fields(&format!("{path}[]"), &schema["items"], found);
    } else if schema["additionalProperties"].is_object() {
        found.insert(format!("{path}.{{}}"));
    } else {
        found.insert(path.to_owned());
    }
}

fn spec_schema() -> Value {
    let definition = serde_json::to_value(&crd::definitions().unwrap()[0]).unwrap();
    let mut spec = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone();
    // The operator passes an affinity on as a whole.
    let scheduling = spec.pointer_mut("/properties/template/properties/scheduling/properties").unwrap();
    scheduling["affinity"].as_object_mut().unwrap().remove("properties");
    spec
}

/// The rules that refuse a change. The rules of the whole object are left out: they concern its name.
fn refusals(schema: &Value, new: &Value, old: &Value) -> Vec<String> {
    match Validator::new().validate(schema, new, Some(old)) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|e| e.message.clone()).collect(),
    }
}

#[test]
fn every_field_makes_a_difference_or_is_refused() {
    let schema = spec_schema();
    let mut all = BTreeSet::new();
    fields("spec", &schema, &mut all);
    let (mut ignored, mut tried) = (BTreeSet::new(), BTreeSet::new());
    let (mut different, mut refused) = (0, 0);
    for base in bases() {
        assert_eq!(refusals(&schema, &base, &base), Vec::<String>::new(), "the base is valid");
        let mut changes = Vec::new();
        flips("spec", &schema, &base, &mut changes);
        let scenes = scenes(&base);
        for (field, changed) in changes {
            tried.insert(field.clone());
            if changed == base {
                // The field has one possible value: the only other choice is to omit it.
                continue;
            }
            if !refusals(&schema, &changed, &base).is_empty() {
                refused += 1;
                continue;
            }
            if scenes.iter().any(|scene| outcome(scene, &changed) != outcome(scene, &base)) {
                different += 1;
            } else {
                ignored.insert(field);
            }
        }
    }
    println!("{different} changes make a difference, {refused} are refused");
    assert!(ignored.is_empty(), "accepted and ignored: {ignored:#?}");
    let refused_by_presence = ["spec.placement.clusterAffinities[]", "spec.placement.spreadConstraints[]"];
    let missed: Vec<_> = all.difference(&tried).filter(|f| !refused_by_presence.contains(&f.as_str())).collect();
    assert!(missed.is_empty(), "no base sets: {missed:#?}");
}

#[test]
fn the_schema_refuses_unsupported_fields() {
    let schema = spec_schema();
    let [base, _] = bases();
    for field in ["clusterAffinities", "spreadConstraints"] {
        let mut changed = base.clone();
        changed["placement"][field] = json!([{ "a": "b" }]);
        let refusals = refusals(&schema, &changed, &base).join("\n");
        assert!(refusals.contains(field), "{refusals}");
    }
    let mut changed = base.clone();
    changed["placement"]["replicaScheduling"]["weightPreference"].as_object_mut().unwrap().remove("dynamicWeight");
    assert!(scenes(&base).iter().any(|scene| outcome(scene, &changed) != outcome(scene, &base)));
}

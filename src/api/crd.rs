//! CustomResourceDefinitions of both kinds, from the Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{MultiClusterZooKeeper, ZooKeeper};

/// Longest text, list and map where a type names no bound of its own. The API server estimates the cost of a rule from
/// the bounds of everything below it, and refuses a CRD with lists that have none.
const MAX_LENGTH: u64 = 1024;
const MAX_ITEMS: u64 = 64;

/// Schema of a field that is Kubernetes' own object and passed on as it is.
#[must_use]
pub fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": MAX_ITEMS })
}

/// Schema of a list that a rule refuses with a message: without it, the API server would drop the field silently.
#[must_use]
pub fn free_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_ITEMS,
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
    })
}

/// The definitions of both kinds, `MultiClusterZooKeeper` first.
///
/// # Errors
/// Never for the types of this crate; the error is serde's and a test makes sure of it.
pub fn definitions() -> serde_json::Result<Vec<CustomResourceDefinition>> {
    [MultiClusterZooKeeper::crd(), ZooKeeper::crd()].into_iter().map(bounded).collect()
}

/// The definitions as YAML documents, as `manifests/crds/` holds them.
///
/// # Errors
/// Never for the types of this crate.
pub fn yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for definition in definitions()? {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&definition)?);
    }
    Ok(text)
}

/// Gives every text, list and map without a bound one.
fn bounded(definition: CustomResourceDefinition) -> serde_json::Result<CustomResourceDefinition> {
    let mut value = serde_json::to_value(definition)?;
    if let Some(versions) = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for version in versions {
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                bound(schema);
            }
        }
    }
    serde_json::from_value(value)
}

fn bound(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    match object.get("type").and_then(Value::as_str) {
        Some("string") if !object.contains_key("enum") && !object.contains_key("format") => {
            object.entry("maxLength").or_insert_with(|| json!(MAX_LENGTH));
        }
        Some("array") => {
            object.entry("maxItems").or_insert_with(|| json!(MAX_ITEMS));
        }
        Some("object") if object.contains_key("additionalProperties") => {
            object.entry("maxProperties").or_insert_with(|| json!(MAX_ITEMS));
        }
        _ => {}
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            bound(inner);
        }
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(bound);
    }
}

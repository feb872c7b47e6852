//! CustomResourceDefinitions of both kinds, from the Rust types.
//!
//! The schema is generated here and not by `kube`, for three effects that users see. An optional field keeps its own
//! description although its type has one too. `null` is never a value: the API server drops it instead of storing it.
//! Every text, list and map has a bound.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube_core::{CustomResourceExt, schema::StructuralSchemaRewriter};
use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::{
    multiclusterzookeeper::MultiClusterZooKeeper,
    schema::{MAX_ITEMS, MAX_LENGTH},
    yaml,
    zookeeper::ZooKeeper,
};

/// The definitions of both kinds, `MultiClusterZooKeeper` first.
///
/// # Errors
/// Never for the types of this crate, which a test ensures.
pub fn definitions() -> serde_json::Result<Vec<CustomResourceDefinition>> {
    Ok(vec![definition::<MultiClusterZooKeeper>(Defaults::InSpec)?, definition::<ZooKeeper>(Defaults::None)?])
}

/// The definitions as YAML documents: the file name in `manifests/crds/` and the text of each.
///
/// # Errors
/// Never for the types of this crate.
pub fn files() -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for definition in definitions()? {
        let name = format!("{}.yaml", definition.metadata.name.as_deref().unwrap_or_default());
        files.push((name, document(&definition)?));
    }
    Ok(files)
}

/// The definitions as one stream of YAML documents.
///
/// # Errors
/// Never for the types of this crate.
pub fn yaml() -> anyhow::Result<String> {
    Ok(files()?.into_iter().map(|(_, text)| text).collect())
}

/// One object as a YAML document, with its start marked.
///
/// # Errors
/// If the object cannot be serialized.
pub fn document<T: serde::Serialize>(object: &T) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(object)?;
    whole_numbers(&mut value);
    Ok(format!("---\n{}", yaml::write(&value)?))
}

/// Place at which the API server fills in fields that are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defaults {
    /// In the spec, which users write. A status holds only what its writer wrote.
    InSpec,
    /// Nowhere. A member cluster with a newer definition would otherwise change an object whose exact bytes are hashed.
    None,
}

fn definition<T: CustomResourceExt + JsonSchema>(defaults: Defaults) -> serde_json::Result<CustomResourceDefinition> {
    let mut definition = T::crd();
    let mut schema = serde_json::to_value(
        SchemaSettings::openapi3()
            .with(|settings| {
                settings.inline_subschemas = true;
                settings.meta_schema = None;
            })
            .with_transform(NeverNull)
            .with_transform(StructuralSchemaRewriter)
            .into_generator()
            .into_root_schema_for::<T>(),
    )?;
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    bound(&mut schema);
    match defaults {
        Defaults::None => remove_defaults(&mut schema),
        Defaults::InSpec => {
            if let Some(status) = schema.pointer_mut("/properties/status") {
                remove_defaults(status);
            }
        }
    }
    let schema: JSONSchemaProps = serde_json::from_value(schema)?;
    for version in &mut definition.spec.versions {
        version.schema.get_or_insert_default().open_api_v3_schema = Some(schema.clone());
    }
    Ok(definition)
}

/// Removes `null` from the allowed values, and gives the description of a field precedence over that of its type.
///
/// It runs after the transforms of `openapi3`, which have written `nullable: true`.
#[derive(Clone, Debug)]
struct NeverNull;

impl Transform for NeverNull {
    fn transform(&mut self, schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("nullable");
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        if let Some(Value::Array(choices)) = object.get("anyOf")
            && let [Value::Object(choice), null] = choices.as_slice()
            && null.get("enum").is_some_and(|values| *values == json!([null]))
        {
            let choice = choice.clone();
            object.remove("anyOf");
            for (key, value) in choice {
                object.entry(key).or_insert(value);
            }
        }
        transform_subschemas(self, schema);
    }
}

/// Calls `visit` for the schemas of all values inside a value of this schema.
fn visit_inner(schema: &mut Value, visit: fn(&mut Value)) {
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key)
            && inner.is_object()
        {
            visit(inner);
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(visit);
    }
}

/// Adds a bound to every text, list and map without one.
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
    visit_inner(schema, bound);
}

fn remove_defaults(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("default");
    }
    visit_inner(schema, remove_defaults);
}

/// Writes `5` for `5.0`: the bounds of a schema are floating-point numbers in its Rust type.
fn whole_numbers(value: &mut Value) {
    /// Above this number, not every integer is a floating-point number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            if let Some(float) =
                number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT)
            {
                #[allow(clippy::cast_possible_truncation, reason = "it is an integer within the exact range")]
                let whole = float as i64;
                *value = json!(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// M4: an API server with an older definition must not prune a field of a newer server list, whose bytes are hashed.
    #[test]
    fn no_field_of_a_server_list_is_pruned() {
        let definition = serde_json::to_value(definition::<ZooKeeper>(Defaults::None).unwrap()).unwrap();
        for list in ["spec", "status"]
            .map(|part| format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}/properties/ensemble"))
        {
            for object in ["", "/properties/tls", "/properties/servers/items", "/properties/leaving/items"] {
                let schema = definition.pointer(&format!("{list}{object}")).unwrap();
                assert_eq!(schema.get("x-kubernetes-preserve-unknown-fields"), Some(&json!(true)), "{list}{object}");
            }
        }
    }
}

//! Schemas that no type derives, and the bounds of values without a bound of their own.

use k8s_openapi::api::core::v1::Affinity;
use schemars::{
    JsonSchema as _, Schema, SchemaGenerator, json_schema,
    transform::{RecursiveTransform, Transform as _},
};
use serde_json::{Value, json};

/// Longest text if a type names no bound. The API server estimates the cost of a rule from the bounds of everything
/// below it, and refuses a CRD with unbounded lists.
pub(super) const MAX_LENGTH: u64 = 1024;
pub(super) const MAX_ITEMS: u64 = 64;

/// A name of an object: a DNS subdomain.
pub(super) const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A key of a taint.
pub(super) const QUALIFIED_NAME: &str =
    r"^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
/// A value of a label or a taint.
pub(super) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Schema of the values of labels, for the values of a map.
pub(super) fn label_value() -> Value {
    json!({ "type": "string", "maxLength": 63, "pattern": LABEL_VALUE })
}

/// Schema of an affinity as Kubernetes has it. The API server refuses unknown members, and the agent passes it on unchanged.
pub(super) fn affinity(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Affinity::json_schema(generator);
    // The descriptions of Kubernetes are longer than the schema.
    let describe =
        |schema: &mut Schema| drop(schema.insert("description".to_owned(), json!("As in the spec of a pod.")));
    RecursiveTransform(describe).transform(&mut schema);
    schema
}

/// Schema of a field with an object of Kubernetes that is passed on unchanged.
fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": MAX_ITEMS })
}

/// Schema of a list that a rule refuses with a message. If the schema did not name the field, the API server would drop
/// it silently.
pub(super) fn free_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": MAX_ITEMS, "items": free_object(generator) })
}

//! Schemas that no type derives, and the bounds of values without a bound of their own.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Longest text if a type names no bound. The API server estimates the cost of a rule from the bounds of everything
/// below it, and refuses a CRD with unbounded lists.
pub(super) const MAX_LENGTH: u64 = 1024;
pub(super) const MAX_ITEMS: u64 = 64;

/// Schema of a field with an object of Kubernetes that is passed on unchanged.
pub(super) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": MAX_ITEMS })
}

/// Schema of a list that a rule refuses with a message. If the schema did not name the field, the API server would drop
/// it silently.
pub(super) fn free_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": MAX_ITEMS, "items": free_object(generator) })
}

//! Schemas that no type derives, and the bounds of everything without one of its own.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Longest text, list and map where a type names no bound of its own. The API server estimates the cost of a rule from
/// the bounds of everything below it, and refuses a CRD with lists that have none.
pub(super) const MAX_LENGTH: u64 = 1024;
pub(super) const MAX_ITEMS: u64 = 64;

/// Schema of a field that is Kubernetes' own object and passed on as it is.
pub(super) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": MAX_ITEMS })
}

/// Schema of a list that a rule refuses with a message: without it, the API server would drop the field silently.
pub(super) fn free_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": MAX_ITEMS, "items": free_object(generator) })
}

//! `ReviseReplica`: 0, in every cluster, whatever Karmada divides.
//!
//! The first of two locks: a member starts servers only when its turn has come, and its turn is an override, which applies
//! after this. Karmada does not tell for which cluster it asks, so a real number could not be answered anyway.

use std::collections::BTreeMap;

use json_patch::{AddOperation, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{object::read, wire::Refusal};

#[derive(Deserialize)]
struct View<'a> {
    /// Its values stay text: nothing in the rest of the spec may keep the number from becoming 0.
    #[serde(borrow)]
    spec: BTreeMap<String, &'a RawValue>,
}

/// What makes the object's replicas 0. Nothing, if they are.
///
/// # Errors
/// If there is no spec.
pub fn revise(object: &RawValue) -> Result<Vec<PatchOperation>, Refusal> {
    let View { spec } = read("object", object)?;
    let path = PointerBuf::from_tokens(["spec", "replicas"]);
    let value = json!(0);
    Ok(match spec.get("replicas") {
        Some(replicas) if replicas.get() == "0" => vec![],
        Some(_) => vec![PatchOperation::Replace(ReplaceOperation { path, value })],
        None => vec![PatchOperation::Add(AddOperation { path, value })],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    #[rstest]
    #[case(r#"{"spec":{"replicas":3,"ensemble":{}}}"#, json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]))]
    #[case(r#"{"spec":{"replicas":0}}"#, json!([]))]
    #[case(r#"{"spec":{"replicas":null}}"#, json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]))]
    #[case(r#"{"spec":{"replicas":"3","template":7}}"#, json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]))]
    #[case(r#"{"spec":{"replicas":1e999,"x":1e999}}"#, json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]))]
    #[case(r#"{"spec":{}}"#, json!([{"op": "add", "path": "/spec/replicas", "value": 0}]))]
    fn always_zero(#[case] object: &str, #[case] patch: Value) {
        let raw = RawValue::from_string(object.to_owned()).unwrap();
        let operations = revise(&raw).unwrap();
        assert_eq!(serde_json::to_value(&operations).unwrap(), patch);
        let mut patched: Value = serde_json::from_str(&object.replace("1e999", "1e9")).unwrap();
        json_patch::patch(&mut patched, &operations).unwrap();
        assert_eq!(patched["spec"]["replicas"], 0);
    }

    #[rstest]
    #[case("{}", "object: missing field `spec`")]
    #[case(r#"{"spec":[]}"#, "object.spec: invalid type: sequence, expected a map")]
    #[case("null", "object: invalid type: null, expected struct View")]
    fn no_spec_is_refused(#[case] object: &str, #[case] message: &str) {
        let raw = RawValue::from_string(object.to_owned()).unwrap();
        assert_eq!(revise(&raw).unwrap_err(), Refusal::unreadable(message));
    }
}

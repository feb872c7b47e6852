//! `ReviseReplica`: always 0 replicas, for every cluster and every division by Karmada.
//!
//! This is the first of two locks. A member cluster starts servers only at its position in the rollout, when the
//! OverridePolicy sets its replicas, which applies after this. Karmada does not name the cluster in its question, so
//! another number would not be possible.

use std::collections::BTreeMap;

use json_patch::{AddOperation, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{object::read, refusal::Refusal};

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct ReviseView<'a> {
    /// Values stay text: no other field of the spec may prevent that the number becomes 0.
    #[serde(borrow)]
    spec: BTreeMap<String, &'a RawValue>,
}

/// Changes that set the object's replicas to 0. Empty if they are 0.
///
/// # Errors
/// If there is no spec.
pub(crate) fn revise(object: &RawValue) -> Result<Vec<PatchOperation>, Refusal> {
    let ReviseView { spec } = read("object", object)?;
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
    fn replicas_are_always_zero(#[case] object: &str, #[case] patch: Value) {
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
    #[case("null", "object: invalid type: null, expected a map")]
    fn an_object_without_spec_is_refused(#[case] object: &str, #[case] message: &str) {
        let raw = RawValue::from_string(object.to_owned()).unwrap();
        assert_eq!(revise(&raw).unwrap_err(), Refusal::unreadable(message));
    }
}

//! Whether a live object already holds every field that a writer wants.

use serde_json::Value;

/// True if a live value holds every wanted member. Members that the API server added are no difference. Lists must have the
/// same items in the same order. `same` decides whether two texts have one meaning.
pub fn is_superset_with(live: &Value, wanted: &Value, same: fn(&str, &str) -> bool) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key).map_or(value.is_null(), |live| is_superset_with(live, value, same))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| is_superset_with(live, wanted, same))
        }
        (Value::String(live), Value::String(wanted)) => same(live, wanted),
        _ => live == wanted,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_the_api_server_added_are_no_difference() {
        let live = json!({ "a": { "x": 1, "y": 2 }, "cpu": "500m", "list": [{ "n": 1, "d": true }] });
        let holds = |wanted: &Value| is_superset_with(&live, wanted, |live, wanted| live == wanted);
        assert!(holds(&json!({ "a": { "x": 1 }, "b": null, "list": [{ "n": 1 }] })));
        assert!(!holds(&json!({ "a": { "x": 2 } })));
        assert!(!holds(&json!({ "list": [] })));
        assert!(!holds(&json!({ "cpu": "0.5" })));
    }
}

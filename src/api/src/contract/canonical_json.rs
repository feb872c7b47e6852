//! Canonical JSON and its hash, which identify cluster specs, revisions and server lists.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// JSON with the keys of every object sorted, without white space and null members. API servers may drop null members and
/// reorder keys; the canonical text stays the same.
///
/// # Errors
/// If the value has no JSON, such as a map whose keys are not text.
pub fn canonical_json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut text = String::new();
    write(&serde_json::to_value(value)?, &mut text);
    Ok(text)
}

/// SHA-256 of the canonical JSON, in hexadecimal: 64 characters.
///
/// # Errors
/// As [`canonical_json`].
pub fn hash<T: Serialize>(value: &T) -> serde_json::Result<String> {
    Ok(hash_text(&canonical_json(value)?))
}

/// The first 16 characters of [`hash`]: enough to notice a change, and short enough for an annotation.
///
/// # Errors
/// As [`canonical_json`].
pub fn short_hash<T: Serialize>(value: &T) -> serde_json::Result<String> {
    Ok(hash(value)?.chars().take(16).collect())
}

/// SHA-256 of a text, in hexadecimal.
#[must_use]
pub fn hash_text(text: &str) -> String {
    hash_bytes(text.as_bytes())
}

/// SHA-256, in hexadecimal.
#[must_use]
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().filter(|(_, member)| !member.is_null()).collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            text.push('{');
            for (index, (key, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                write(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_of_keys_and_null_members_do_not_change_the_hash() {
        let a = json!({ "b": [1, { "y": 2, "x": null }], "a": "ü\n" });
        let b: Value = serde_json::from_str(r#"{ "a": "ü\n", "b": [1, {"y": 2}], "c": null }"#).unwrap();
        assert_eq!(canonical_json(&a).unwrap(), r#"{"a":"ü\n","b":[1,{"y":2}]}"#);
        assert_eq!(hash(&a).unwrap(), hash(&b).unwrap());
        assert_eq!(hash(&a).unwrap().len(), 64);
    }

    #[test]
    fn order_of_items_changes_the_hash() {
        assert_ne!(hash(&json!([1, 2])).unwrap(), hash(&json!([2, 1])).unwrap());
    }
}

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
    canonical_json_without(&serde_json::to_value(value)?, &[])
}

/// As [`canonical_json`], without some members of an object.
///
/// # Errors
/// Never for a value that came from JSON.
pub(crate) fn canonical_json_without(value: &Value, excluded: &[&str]) -> serde_json::Result<String> {
    let mut text = Vec::new();
    write(value, excluded, &mut text)?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
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
    let digits = |byte: u8| [byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16));
    Sha256::digest(bytes).into_iter().flat_map(digits).collect()
}

// Every pass hashes several objects, and the search over all states calls it millions of times.
fn write(value: &Value, excluded: &[&str], text: &mut Vec<u8>) -> serde_json::Result<()> {
    match value {
        Value::Object(members) => {
            let is_written = |key: &str, member: &Value| !member.is_null() && !excluded.contains(&key);
            let mut sorted: Vec<_> = members.iter().filter(|(key, member)| is_written(key, member)).collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            text.push(b'{');
            for (index, (key, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                serde_json::to_writer(&mut *text, key)?;
                text.push(b':');
                write(member, &[], text)?;
            }
            text.push(b'}');
        }
        Value::Array(items) => {
            text.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                write(item, &[], text)?;
            }
            text.push(b']');
        }
        other => serde_json::to_writer(text, other)?,
    }
    Ok(())
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

    /// Stored hashes are compared with those of later versions. Another program made these of the texts in the comments.
    #[test]
    fn hashes_stay_as_earlier_versions_wrote_them() {
        // {"a":{"c":true},"b":[1,null,1.5,"ü\n\""],"e":-3}
        let value = json!({ "e": -3, "b": [1, null, 1.5, "ü\n\""], "a": { "d": null, "c": true } });
        assert_eq!(hash(&value).unwrap(), "d529850becfbd91e3cc6fbd768584b63f1eb35b2bda9b633089c526551da57ef");
        // [5,{"a":{"c":true,"specHash":"kept"},"replicas":3}]
        let spec = json!({ "specHash": "x", "ensemble": {}, "replicas": 3, "a": { "specHash": "kept", "c": true } });
        let expected = "5-f95a068a46ed5890d9eed41517850e29b8af369900a4494841628904740de010";
        assert_eq!(crate::contract::spec_hash::spec_hash_of(&spec, 5).unwrap(), expected);
    }

    #[test]
    fn order_of_items_changes_the_hash() {
        assert_ne!(hash(&json!([1, 2])).unwrap(), hash(&json!([2, 1])).unwrap());
    }
}

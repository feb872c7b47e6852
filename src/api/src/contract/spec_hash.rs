//! The spec hash, which identifies a cluster spec.

use serde_json::Value;

use crate::contract::canonical_json::{canonical_json_without, hash_text};

/// No cluster reaches this generation: a report with a higher one is damaged.
const MAX_GENERATION: i64 = 1 << 53;

/// Generation in a spec hash; 0 if the text has none or a damaged one.
#[must_use]
pub fn generation_of(spec_hash: &str) -> i64 {
    let generation = spec_hash.split_once('-').and_then(|(generation, _)| generation.parse().ok());
    generation.filter(|generation| (0..MAX_GENERATION).contains(generation)).unwrap_or(0)
}

/// True if the content of a cluster spec matches its spec hash. It takes the stored JSON, because that may have fields that
/// this version does not know.
#[must_use]
pub fn hash_matches(spec: &Value) -> bool {
    let stored = spec.get("specHash").and_then(Value::as_str);
    stored.is_some_and(|stored| spec_hash_of(spec, generation_of(stored)).is_ok_and(|computed| computed == stored))
}

/// The spec hash: the generation, and the hash of generation and spec. The fields `specHash`, `ensemble`, `preflight` and
/// `dependencies` are not part of it.
///
/// # Errors
/// As [`canonical_json_without`].
pub fn spec_hash_of(spec: &Value, generation: i64) -> serde_json::Result<String> {
    let content = canonical_json_without(spec, &["specHash", "ensemble", "preflight", "dependencies"])?;
    Ok(format!("{generation}-{}", hash_text(&format!("[{generation},{content}]"))))
}

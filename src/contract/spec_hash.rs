//! The hash by which a cluster spec is known.

use serde_json::Value;

use crate::contract::canonical_json::hash;

/// Beyond this a generation is a damaged report: nobody counts so far.
const MAX_GENERATION: i64 = 1 << 53;

/// Generation of a pin's name; 0 if it has none that could have been given.
#[must_use]
pub fn generation_of(name: &str) -> i64 {
    let generation = name.split_once('-').and_then(|(generation, _)| generation.parse().ok());
    generation.filter(|generation| (0..MAX_GENERATION).contains(generation)).unwrap_or(0)
}

/// Whether a spec is as it was pinned: the name of its pin is the one that follows from it. Of a spec as it is stored, since
/// it may have fields that this version does not know.
#[must_use]
pub fn hash_matches(spec: &Value) -> bool {
    let told = spec.get("specHash").and_then(Value::as_str);
    told.is_some_and(|told| spec_hash_of(spec, generation_of(told)).is_ok_and(|name| name == told))
}

/// The name of a pin: of a spec without `pin`, `ensemble` and `dependencies`.
pub fn spec_hash_of(spec: &Value, generation: i64) -> serde_json::Result<String> {
    let mut value = spec.clone();
    if let Some(members) = value.as_object_mut() {
        for excluded in ["specHash", "ensemble", "dependencies"] {
            members.remove(excluded);
        }
    }
    Ok(format!("{generation}-{}", hash(&(generation, value))?))
}

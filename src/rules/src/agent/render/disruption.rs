//! The PodDisruptionBudget, which allows no eviction.
//!
//! The budget of one cluster does not know those of others: together they could evict three of five servers at once.

use serde_json::json;

use crate::agent::render::{
    object::{Kind, Object},
    source::Source,
};

pub(super) fn budget(source: &Source<'_>) -> Object {
    let spec = json!({ "spec": { "maxUnavailable": 0, "selector": { "matchLabels": source.selector() } } });
    source.object(Kind::PodDisruptionBudget, source.base(), &source.labels(), spec)
}

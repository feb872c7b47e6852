//! The PodDisruptionBudget allows none: budgets of several clusters cannot know of each other, and three of five servers
//! could go at once.

use serde_json::json;

use crate::agent::render::{Kind, Object, Source};

pub(super) fn budget(source: &Source<'_>) -> Object {
    let spec = json!({ "spec": { "maxUnavailable": 0, "selector": { "matchLabels": source.selector() } } });
    source.object(Kind::PodDisruptionBudget, source.base(), &source.labels(), spec)
}

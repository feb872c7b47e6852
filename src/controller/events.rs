//! Logs the events of a plan and queues them to be published.

use kube::{
    Resource, ResourceExt,
    runtime::events::{Event, EventType},
};
use tracing::info;

use super::context::Context;
use crate::rollout::{
    events::Severity,
    plan::{Observed, Plan},
};

/// Longest note of an event, in bytes: the API server's limit is 1024.
const MAX_NOTE: usize = 1000;

/// Logs the plan's events and queues them.
pub(super) fn queue(observed: &Observed, plan: &Plan, context: &Context) {
    let reference = observed.object.object_ref(&());
    for event in &plan.events {
        info!(
            namespace = observed.object.namespace(),
            name = observed.object.name_any(),
            reason = event.reason.as_str(),
            "{}",
            event.message
        );
        let event = Event {
            type_: match event.reason.severity() {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: event.reason.as_str().to_owned(),
            note: Some(prefix(&event.message, MAX_NOTE)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        context.events.put(event, reference.clone());
    }
}

/// The longest prefix of at most this many bytes.
fn prefix(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

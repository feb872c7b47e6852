//! Logs the events of a cluster and queues them to be published.

use std::time::Instant;

use kube::{Resource as _, ResourceExt as _};
use tracing::info;

use crate::{context::AgentContext, observe::snapshot::MemberSnapshot};
use mczk_rules::agent::decide::{
    Decision,
    events::{AgentEventReason, events},
    warnings::warnings,
};
use mczk_runtime::event_queue;

/// Queues the events between the status of the object and the one that the agent has just written.
pub(crate) fn queue(key: &(String, String), snapshot: &MemberSnapshot, decision: &Decision, context: &AgentContext) {
    let before = snapshot.observation.object.status.clone().unwrap_or_default();
    let mut all = events(&before, &decision.status);
    context.remember(key, |memory| {
        all.extend(warnings(&before.conditions, &decision.status.conditions, &mut memory.warned, Instant::now()));
    });
    for event in all {
        put(event.reason, &event.message, snapshot, context);
    }
}

/// Queues one event.
pub(super) fn put(reason: AgentEventReason, message: &str, snapshot: &MemberSnapshot, context: &AgentContext) {
    let object = &snapshot.observation.object;
    info!(namespace = object.namespace(), name = object.name_any(), reason = reason.as_str(), "{message}");
    let event = event_queue::event(reason.severity(), reason.as_str(), message);
    context.events.put(event, object.object_ref(&()));
}

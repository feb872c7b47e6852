//! Logs the events of a plan and queues them to be published.

use kube::{Resource, ResourceExt};
use tracing::info;

use super::context::Context;
use mczk_rules::rollout::plan::{Observed, Plan};
use mczk_runtime::event_queue;

/// Logs the plan's events and queues them.
pub(super) fn queue(observed: &Observed, plan: &Plan, context: &Context) {
    let reference = observed.object.object_ref(&());
    for event in &plan.events {
        let reason = event.reason.as_str();
        info!(namespace = observed.object.namespace(), name = observed.object.name_any(), reason, "{}", event.message);
        context.events.put(event_queue::event(event.reason.severity(), reason, &event.message), reference.clone());
    }
}

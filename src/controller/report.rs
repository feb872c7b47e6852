//! Tells people: the status, once a reconcile and only if it changed, and what happened.

use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    runtime::events::{Event, EventType},
};
use serde_json::json;
use tracing::{info, warn};

use super::{Context, During, Error, FIELD_MANAGER, resource};
use crate::{
    api::MultiClusterZooKeeper,
    contract::conditions::{ConditionStatus, ConditionType, Reason},
    rollout::{
        events::Severity,
        plan::{Observed, Plan},
    },
};

/// Longest note of an event, in bytes: the API server's limit is 1024.
const MAX_NOTE: usize = 1000;

fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Writes the status if it differs.
pub(super) async fn status(observed: &Observed, plan: &Plan, context: &Context) -> Result<(), Error> {
    let object = &observed.object;
    if object.status.as_ref() == Some(&plan.status) {
        return Ok(());
    }
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let api: Api<MultiClusterZooKeeper> = Api::namespaced(context.client.clone(), &namespace);
    let mut next = object.clone();
    next.status = Some(plan.status.clone());
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    api.replace_status(&name, &params, &next)
        .await
        .during(|| format!("writing the status of MultiClusterZooKeeper {namespace}/{name}"))?;
    context.metrics.wrote("MultiClusterZooKeeper", "status");
    Ok(())
}

/// Logs the plan's events and queues them to be published.
pub(super) fn events(observed: &Observed, plan: &Plan, context: &Context) {
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
            note: Some(cut(&event.message, MAX_NOTE)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        context.events.put(event, reference.clone());
    }
}

/// Says of an object which this version does not understand that it does not, and why.
pub(super) async fn unreadable(object: &DynamicObject, error: &str, context: &Context) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    warn!(namespace, name, error, "object not understood");
    let message = format!(
        "this version of mczk does not understand the object: {error}; correct the field, or bring mczk and its CRDs to one version"
    );
    let told = object
        .data
        .pointer("/status/conditions")
        .and_then(|c| c.as_array())
        .is_some_and(|c| c.iter().any(|c| c.get("message").and_then(|m| m.as_str()) == Some(message.as_str())));
    if told {
        return Ok(());
    }
    let now = Timestamp::now().to_string();
    let conditions: Vec<_> = [ConditionType::Ready, ConditionType::Progressing]
        .iter()
        .map(|type_| {
            json!({
                "type": type_.as_str(), "status": ConditionStatus::False.as_str(),
                "reason": Reason::UnsupportedSpec.as_str(), "message": message,
                "lastTransitionTime": now, "observedGeneration": object.metadata.generation,
            })
        })
        .collect();
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &resource());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch_status(&name, &params, &Patch::Merge(json!({ "status": { "conditions": conditions } })))
        .await
        .map(drop)
        .during(|| format!("writing the status of MultiClusterZooKeeper {namespace}/{name}"))
}

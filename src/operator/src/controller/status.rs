//! Writes the status of a MultiClusterZooKeeper, at most once a reconcile and only if it differs.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tracing::warn;

use super::context::Context;
use mczk_api::{
    MultiClusterZooKeeper,
    contract::conditions::{ConditionStatus, ConditionType, Reason},
};
use mczk_reading::{kinds, operator_identity::FIELD_MANAGER};
use mczk_rules::rollout::plan::{Observed, Plan};
use mczk_runtime::{
    failure::{During, Error, is_conflict},
    reconcile::ObjectKey,
};

/// Writes the plan's status if it differs, and returns the new metadata.
pub(super) async fn write(observed: &Observed, plan: &Plan, context: &Context) -> Result<Option<ObjectMeta>, Error> {
    let object = &observed.object;
    if object.status.as_ref() == Some(&plan.status) {
        return Ok(None);
    }
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let api: Api<MultiClusterZooKeeper> = Api::namespaced(context.client.clone(), &namespace);
    let mut next = object.clone();
    next.status = Some(plan.status.clone());
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = api
        .replace_status(&name, &params, &next)
        .await
        .during(|| format!("writing the status of MultiClusterZooKeeper {namespace}/{name}"))?;
    context.metrics.wrote("MultiClusterZooKeeper", "status");
    Ok(Some(written.metadata))
}

/// The shortest time between two conditions of failed reads with different messages.
const UNOBSERVED_INTERVAL: Duration = Duration::from_secs(60);

/// Writes the condition `Progressing` for an object around which the operator cannot read everything: at most once a minute,
/// because each of several reads may be the first that fails.
pub(super) async fn write_unobserved(key: &ObjectKey, message: &str, context: &Context) {
    if !context.may_report_failure(key) {
        return;
    }
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &key.0, &kinds::multiclusterzookeeper());
    let object = match api.get_opt(&key.1).await {
        Ok(Some(object)) => object,
        Ok(None) => return,
        Err(error) => {
            warn!(%error, "Cannot read the object of a failed read");
            return;
        }
    };
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is = |condition: &Value, field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
    let progressing = ConditionType::Progressing.as_str();
    let now = Timestamp::now();
    let is_recent = |condition: &Value| {
        let since =
            condition.get("lastTransitionTime").and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
        since.is_some_and(|since| now.duration_since(since).unsigned_abs() < UNOBSERVED_INTERVAL)
    };
    let is_written = |condition: &Value| {
        is(condition, "type", progressing)
            && is(condition, "reason", Reason::ApplyFailed.as_str())
            && (is(condition, "message", message) || is_recent(condition))
    };
    if conditions.iter().any(is_written) {
        return;
    }
    let others = conditions.into_iter().filter(|condition| !is(condition, "type", progressing));
    let failed = json!({
        "type": progressing, "status": ConditionStatus::False.as_str(), "reason": Reason::ApplyFailed.as_str(),
        "message": message, "lastTransitionTime": now.to_string(),
        "observedGeneration": object.metadata.generation,
    });
    if let Err(error) = patch_conditions(&object, others.chain([failed]).collect(), context).await {
        warn!(%error, "Cannot write the condition of a failed read");
    }
}

/// Writes conditions for an object that this version cannot parse.
pub(super) async fn write_unreadable(object: &DynamicObject, error: &str, context: &Context) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    warn!(namespace, name, error, "Cannot parse MultiClusterZooKeeper");
    let message = format!(
        "This version of mczk cannot parse the object: {error}. Correct the field, or bring mczk and its CRDs to one version."
    );
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let is_current = |condition: &Value| condition.get("message").and_then(Value::as_str) == Some(message.as_str());
    if conditions.is_some_and(|all| all.iter().any(is_current)) {
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
    patch_conditions(object, conditions, context).await
}

/// Replaces the conditions. If the object has changed since the watch saw it, it leaves them: its watch event follows.
async fn patch_conditions(object: &DynamicObject, conditions: Vec<Value>, context: &Context) -> Result<(), Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &kinds::multiclusterzookeeper());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({
        "metadata": { "resourceVersion": object.metadata.resource_version }, "status": { "conditions": conditions }
    });
    match api.patch_status(&name, &params, &Patch::Merge(patch)).await {
        Err(error) if is_conflict(&error) => Ok(()),
        other => other.map(drop).during(|| format!("writing the status of MultiClusterZooKeeper {namespace}/{name}")),
    }
}

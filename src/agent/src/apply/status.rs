//! Writes the status if it differs.

use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::warn;

use crate::{context::AgentContext, observe::snapshot::MemberSnapshot, write_history::ObjectVerb};
use mczk_api::contract::{
    canonical_json::short_hash,
    conditions::{ConditionType, Reason},
};
use mczk_rules::agent::decide::Decision;
use mczk_runtime::failure::{During, Error};

/// Writes the status of a decision if it differs from the live one. False if the API server refuses it: servers and locks do not
/// wait for it.
pub(crate) async fn write(
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<bool, Error> {
    let object = &snapshot.observation.object;
    if object.status.as_ref() == Some(&decision.status) {
        return Ok(true);
    }
    let as_json = || "writing the status as JSON".to_owned();
    let value = serde_json::to_value(&decision.status).during(as_json)?;
    let (fingerprint, write) = (short_hash(&value).during(as_json)?, patch(&object.metadata, &value, context));
    let key = snapshot.key();
    Ok(context
        .attempt(&key, ("The status of ZooKeeper", &key.1, ObjectVerb::Write), &fingerprint, write)
        .await?
        .is_some())
}

/// Reports an object that this version of mczk cannot parse, with the name of the field. Its servers keep running.
pub(crate) async fn write_unreadable(object: &DynamicObject, why: &str, context: &AgentContext) -> Result<(), Error> {
    warn!(
        name = object.name_any(),
        namespace = object.namespace(),
        why,
        "an object does not parse: upgrade mczk in this cluster"
    );
    let message = format!("This version of mczk does not understand the object: {why}. Upgrade mczk in this cluster");
    write_blocked(object, Reason::UnsupportedSpec, &message, context).await
}

/// Reports an object in a namespace that the agent does not handle. An object with the status of an agent has another agent,
/// or had this one: its status stays.
pub(crate) async fn write_not_handled(key: &(String, String), context: &AgentContext) -> Result<(), Error> {
    let (namespace, name) = key;
    let reading = || format!("reading ZooKeeper {namespace}/{name}");
    let Some(object) = context.zookeepers(namespace).get_opt(name).await.during(reading)? else { return Ok(()) };
    warn!(namespace, name, "this agent does not handle the namespace: see its flag --namespaces");
    if object.data.pointer("/status/observedGeneration").is_some() {
        return Ok(());
    }
    let handled: Vec<&str> = context.options.namespaces.iter().map(String::as_str).collect();
    let message = format!(
        "The agent of this cluster does not handle namespace {namespace}, only {}. Add it to the agent's flag --namespaces, \
         or to namespaces in its chart",
        handled.join(", ")
    );
    write_blocked(&object, Reason::NamespaceNotHandled, &message, context).await
}

/// Replaces all conditions by this one, unless it is there.
async fn write_blocked(
    object: &DynamicObject,
    reason: Reason,
    message: &str,
    context: &AgentContext,
) -> Result<(), Error> {
    let mut status = object.data.get("status").cloned().unwrap_or_else(|| json!({}));
    let before = status.pointer("/conditions/0").cloned().unwrap_or(Value::Null);
    let text = |field: &str| before.get(field).and_then(Value::as_str);
    if text("reason") == Some(reason.as_str()) && text("message") == Some(message) {
        return Ok(());
    }
    let now = k8s_openapi::jiff::Timestamp::now();
    let seconds = k8s_openapi::jiff::Timestamp::new(now.as_second(), 0).unwrap_or_default();
    let conditions = json!([{
        "type": ConditionType::Blocked.as_str(), "status": "True", "reason": reason.as_str(),
        "lastTransitionTime": seconds.to_string(), "message": message,
    }]);
    if let Some(members) = status.as_object_mut() {
        members.insert("conditions".to_owned(), conditions);
    }
    patch(&object.metadata, &status, context).await
}

/// Replaces the whole status, since a merge would keep fields that are no longer reported. Only on the version of the object on
/// which the status was decided: a late write would erase the first start of a server that another agent has recorded since. The
/// uid keeps it from an object that has taken the name.
async fn patch(metadata: &ObjectMeta, status: &Value, context: &AgentContext) -> Result<(), Error> {
    let (namespace, name) =
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": metadata.uid },
        { "op": "replace", "path": "/metadata/resourceVersion", "value": metadata.resource_version },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let patch = serde_json::from_value(patch).during(|| "writing the status as JSON".to_owned())?;
    context
        .zookeepers(namespace)
        .patch_status(name, &PatchParams::default(), &Patch::Json::<()>(patch))
        .await
        .during(|| format!("writing the status of ZooKeeper {namespace}/{name}"))?;
    context.metrics.wrote("ZooKeeper", "status");
    Ok(())
}

//! Writes the status, when it differs.

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::warn;

use crate::agent::{Context, During, Error, decide::Decision, observe::Seen, resource};

pub(super) async fn status(seen: &Seen, decision: &Decision, context: &Context) -> Result<(), Error> {
    let object = &seen.observed.object;
    if object.status.as_ref() == Some(&decision.status) {
        return Ok(());
    }
    let value = serde_json::to_value(&decision.status).during(|| "writing the status as JSON".to_owned())?;
    write(&seen.namespace(), &object.name_any(), object.uid(), &value, context).await
}

/// An object that this version cannot read gets a condition that names the field, and keeps what it runs.
pub(super) async fn unreadable(object: &DynamicObject, why: &str, context: &Context) -> Result<(), Error> {
    let name = object.name_any();
    warn!(name, namespace = object.namespace(), why, "an object does not parse: upgrade mczk in this cluster");
    let mut status = object.data.get("status").cloned().unwrap_or_else(|| json!({}));
    let before = status.pointer("/conditions/0").cloned().unwrap_or(Value::Null);
    if before.get("reason").and_then(Value::as_str) == Some("Unreadable") {
        return Ok(());
    }
    let now = k8s_openapi::jiff::Timestamp::now();
    let seconds = k8s_openapi::jiff::Timestamp::new(now.as_second(), 0).unwrap_or_default();
    let told = json!([{
        "type": "Blocked", "status": "True", "reason": "Unreadable", "lastTransitionTime": seconds.to_string(),
        "message": format!("this version of mczk does not understand the object: {why}"),
    }]);
    if let Some(members) = status.as_object_mut() {
        members.insert("conditions".to_owned(), told);
    }
    write(&object.namespace().unwrap_or_default(), &name, object.uid(), &status, context).await
}

/// As a whole: a merge would leave fields that are no longer reported. And never of an object that took the place of this
/// one.
async fn write(
    namespace: &str,
    name: &str,
    uid: Option<String>,
    status: &Value,
    context: &Context,
) -> Result<(), Error> {
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let patch = serde_json::from_value(patch).during(|| "writing the status as JSON".to_owned())?;
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &resource());
    api.patch_status(name, &PatchParams::default(), &Patch::Json::<()>(patch))
        .await
        .during(|| format!("writing the status of ZooKeeper {namespace}/{name}"))?;
    context.metrics.wrote("ZooKeeper", "status");
    Ok(())
}

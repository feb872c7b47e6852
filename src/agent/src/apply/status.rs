//! Writes the status if it differs.

use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    context::{AgentContext, STATUS},
    observe::{cluster_name, snapshot::MemberSnapshot},
    write_history::ObjectVerb,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        canonical_json::short_hash,
        cause::Cause,
        conditions::{ConditionType, Reason},
    },
};
use mczk_rules::agent::decide::{Decision, status};
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
    Ok(context.attempt(&key, (STATUS, &key.1, ObjectVerb::Write), &fingerprint, write).await?.is_some())
}

/// Reports an object that this version of mczk cannot parse, with the name of the field. Its servers keep running, and the agent
/// does not know any more which of them serve.
pub(crate) async fn write_unreadable(object: &DynamicObject, why: &str, context: &AgentContext) -> Result<(), Error> {
    warn!(
        name = object.name_any(),
        namespace = object.namespace(),
        why,
        "an object does not parse: upgrade mczk in this cluster"
    );
    let message = format!("This version of mczk does not understand the object: {why}. Upgrade mczk in this cluster");
    halt(object, Cause { reason: Reason::UnsupportedSpec, message }, context).await
}

/// Reports that the API server refuses what the agent needs before it can report anything else, if it accepts at least this.
pub(crate) async fn write_halted(key: &(String, String), error: &Error, context: &AgentContext) -> Result<(), Error> {
    let (Error::Api { action, .. }, Some(why), (namespace, name)) = (error, error.refusal(), key) else {
        return Ok(());
    };
    let reading = || format!("reading ZooKeeper {namespace}/{name}");
    let Some(raw) = context.zookeepers(namespace).get_opt(name).await.during(reading)? else { return Ok(()) };
    let value = serde_json::to_value(&raw).during(|| "reading an object as JSON".to_owned())?;
    // An object that does not parse is reported as such.
    let Ok(object) = serde_json::from_value::<ZooKeeper>(value) else { return Ok(()) };
    let cluster = cluster_name(&object, context).unwrap_or_default();
    let message = format!(
        "The agent of cluster {cluster} cannot continue, and changes nothing. It is refused {action}: {why}. Servers run on, \
         and the agent cannot say which of them serve"
    );
    halt(&raw, Cause { reason: Reason::RequestRefused, message }, context).await
}

/// Writes the status of an agent that cannot continue, unless it is there. What a newer version of mczk has written stays.
async fn halt(object: &DynamicObject, cause: Cause, context: &AgentContext) -> Result<(), Error> {
    let before = object.data.get("status");
    match before.and_then(|before| status::halted_as_written(before, cause.clone(), Timestamp::now())) {
        Some(status) if before == Some(&status) => Ok(()),
        Some(status) => patch(&object.metadata, &status, context).await,
        None => write_blocked(object, cause, context).await,
    }
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
    write_blocked(&object, Cause { reason: Reason::NamespaceNotHandled, message }, context).await
}

/// Replaces all conditions by this one, unless it is there.
async fn write_blocked(object: &DynamicObject, why: Cause, context: &AgentContext) -> Result<(), Error> {
    let Cause { reason, message } = why;
    let mut status = object.data.get("status").cloned().unwrap_or_else(|| json!({}));
    let before = status.pointer("/conditions/0").cloned().unwrap_or(Value::Null);
    let text = |field: &str| before.get(field).and_then(Value::as_str);
    if text("reason") == Some(reason.as_str()) && text("message") == Some(&message) {
        return Ok(());
    }
    let seconds = Timestamp::new(Timestamp::now().as_second(), 0).unwrap_or_default();
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::{Method, Request, Response};
    use kube::{Client, client::Body};
    use tower::service_fn;

    use super::*;
    use crate::context::tests::with_client;

    /// A client of an API server that has this object, and the bodies of its writes.
    fn storing(object: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let writes = Arc::<Mutex<Vec<Value>>>::default();
        let all = Arc::clone(&writes);
        let service = service_fn(move |request: Request<Body>| {
            let (all, answer) = (Arc::clone(&all), object.to_string());
            async move {
                if request.method() != Method::GET {
                    let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                    all.lock().unwrap().push(serde_json::from_slice(&body)?);
                }
                Ok::<_, tower::BoxError>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        (Client::new(service, "n"), writes)
    }

    /// It was written with the fields of this version alone.
    #[tokio::test]
    async fn the_report_of_a_refused_read_keeps_what_a_newer_version_wrote() {
        let (client, writes) = storing(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
            "metadata": { "name": "zk", "namespace": "n", "uid": "u", "resourceVersion": "1" },
            "spec": {
                "replicas": 1, "template": { "image": "zookeeper:3.9.4", "storage": { "size": "2Gi" } },
                "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r1",
                "ensemble": {},
            },
            "status": { "later": 1, "readyReplicas": 1, "servers": [{ "id": 1, "serving": true, "later": 2 }] },
        }));
        let answer = kube::core::Status { code: 403, message: "no claims".to_owned(), ..kube::core::Status::default() };
        let refused = Err::<(), _>(kube::Error::Api(Box::new(answer))).during(|| "reading claims".to_owned());
        let key = ("n".to_owned(), "zk".to_owned());
        write_halted(&key, &refused.unwrap_err(), &with_client(client)).await.unwrap();
        let writes = writes.lock().unwrap();
        let status = writes.iter().find_map(|patch| patch.pointer("/2/value")).unwrap();
        let at = |path: &str| status.pointer(path).cloned().unwrap_or_default();
        assert_eq!((at("/later"), at("/servers/0/later")), (json!(1), json!(2)));
        assert_eq!((at("/readyReplicas"), at("/servers/0/serving")), (json!(0), json!(false)));
        assert_eq!(at("/conditions/0/reason"), json!("RequestRefused"));
    }
}

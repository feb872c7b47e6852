//! Writes what a command requests into the MultiClusterZooKeeper.

use anyhow::{Context, anyhow};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::terminal::error::Error;
use mczk_api::MultiClusterZooKeeper;
use mczk_runtime::failure::is_conflict;

/// Other writes of the status that a command overtakes, before it reports that the object has changed.
const ATTEMPTS: usize = 8;

/// A request of a command.
pub(super) struct Written<'a> {
    /// Name of the writer in `managedFields`.
    pub(super) manager: &'a str,
    /// The object that the user has seen.
    pub(super) seen: &'a DynamicObject,
    /// Merge patch of this object.
    pub(super) patch: &'a Value,
    /// What did not happen to anything, if the object has changed: "restarted".
    pub(super) verb: &'a str,
    /// What cannot be written, before the object's name: "the restart of".
    pub(super) what: &'a str,
}

/// Writes it, or with `dry_run` lets the API server check it. The operator may write the status meanwhile, and does so often while
/// a rollout moves: what the user has declared must be as seen.
///
/// # Errors
/// If what is declared has changed meanwhile, or the API server refuses or does not answer.
pub(super) async fn write(
    client: &Client,
    (namespace, name): (&str, &str),
    written: &Written<'_>,
    dry_run: bool,
) -> Result<DynamicObject, Error> {
    let Written { manager, seen, patch, verb, what } = *written;
    let resource = ApiResource::erase::<MultiClusterZooKeeper>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let params = PatchParams { dry_run, field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let failed = || format!("cannot write {what} {namespace}/{name}");
    let mut version = seen.metadata.resource_version.clone();
    for _ in 0..ATTEMPTS {
        let mut patch = patch.clone();
        json_patch::merge(&mut patch, &json!({ "metadata": { "resourceVersion": version } }));
        match api.patch(name, &params, &Patch::Merge(&patch)).await {
            Err(error) if is_conflict(&error) => {}
            other => return Ok(other.with_context(failed)?),
        }
        let live = api.get(name).await.with_context(failed)?;
        if declared(&live) != declared(seen) {
            break;
        }
        version = live.metadata.resource_version;
    }
    Err(Error::Failed(anyhow!(
        "{namespace}/{name} has changed meanwhile, and nothing is {verb}: run the command again"
    )))
}

/// What others than the operator say of an object.
fn declared(object: &DynamicObject) -> impl PartialEq + use<'_> {
    let metadata = &object.metadata;
    let is_deleted = metadata.deletion_timestamp.is_some();
    (&metadata.uid, is_deleted, &metadata.labels, &metadata.annotations, object.data.get("spec"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use tower::service_fn;

    use super::*;

    fn object(version: usize, metadata: &Value, spec: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "spec": spec,
            "metadata": { "name": "zk", "uid": "u", "resourceVersion": version.to_string() },
            "status": { "observedGeneration": version },
        });
        json_patch::merge(&mut object, &json!({ "metadata": metadata }));
        object
    }

    /// An API server whose object has another version for each request, until `writes` writes of the status are over.
    #[rstest]
    #[case::at_rest(0, json!({}), json!({}), Ok(1))]
    #[case::status(3, json!({}), json!({}), Ok(4))]
    #[case::status_for_ever(usize::MAX, json!({}), json!({}), Err(ATTEMPTS))]
    #[case::spec(1, json!({}), json!({ "replicas": 5 }), Err(1))]
    #[case::annotation(1, json!({ "annotations": { "mczk.io/adopt": "abc" } }), json!({}), Err(1))]
    #[case::deleted(1, json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), json!({}), Err(1))]
    #[case::created_again(1, json!({ "uid": "v" }), json!({}), Err(1))]
    #[tokio::test]
    async fn only_what_is_declared_must_be_as_seen(
        #[case] writes: usize,
        #[case] metadata: Value,
        #[case] spec: Value,
        #[case] expected: Result<usize, usize>,
    ) {
        let patches: Arc<AtomicUsize> = Arc::default();
        let counted = patches.clone();
        let service = service_fn(move |request: Request<Body>| {
            let live = |writes: usize| object(writes, &metadata, &spec);
            let (counted, is_patch) = (counted.clone(), request.method() == Method::PATCH);
            let (before, after) = (counted.load(Ordering::Relaxed), live(counted.load(Ordering::Relaxed).min(writes)));
            async move {
                let body = request.into_body().collect_bytes().await?;
                let is_refused = is_patch && {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let sent: Value = serde_json::from_slice(&body)?;
                    before < writes || sent["metadata"]["resourceVersion"] != after["metadata"]["resourceVersion"]
                };
                let conflict = json!({ "status": "Failure", "reason": "Conflict", "code": 409, "message": "modified" });
                let (status, answer) = if is_refused { (409, conflict) } else { (200, after) };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(status).body(answer)?)
            }
        });
        let client = Client::new(service, "n");
        let seen: DynamicObject = serde_json::from_value(object(0, &json!({}), &json!({}))).unwrap();
        let patch = json!({ "metadata": { "annotations": { "mczk.io/adopt": "old" } } });
        let written = Written { manager: "m", seen: &seen, patch: &patch, verb: "changed", what: "the request into" };
        let outcome = write(&client, ("n", "zk"), &written, false).await;
        let sent = patches.load(Ordering::Relaxed);
        assert_eq!(outcome.map(|_| sent).map_err(|_| sent), expected);
    }
}

//! Asks the API server whether it would accept the next pod of a StatefulSet, or the claim of one, without creating it. What it
//! would refuse, the StatefulSet controller could not create, and only an event of that controller would say so. Events are
//! rationed: after 25 about one object there is one in five minutes.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tracing::debug;

use crate::{
    context::{AgentContext, FIELD_MANAGER, Memory},
    observe::{
        objects::{LiveObjects, revision, server_set},
        snapshot::MemberSnapshot,
    },
    write_history::ObjectVerb,
};
use mczk_api::contract::labels::TRY_AGAIN;
use mczk_rules::agent::{
    next_pod::{claim_for, fits_in_place_of, pod_of},
    render::Kind,
};
use mczk_runtime::failure::{During, Error, is_conflict, refusal};

/// What the API server says if a webhook allows no dry run.
pub(super) const NO_DRY_RUN: &str = "does not support dry run";
/// How long a pod may be missing before the agent asks why.
const MISSING_FOR: Duration = Duration::from_secs(5);

/// Asks why a pod is missing that a StatefulSet should have created.
pub(super) async fn check_missing(
    key: &(String, String),
    live: &LiveObjects,
    (pods, claims): (&[Pod], &[PersistentVolumeClaim]),
    memory: &Memory,
    context: &AgentContext,
) -> Result<(), Error> {
    let missing = live.values().find_map(|set| {
        let known = server_set(set).filter(|known| known.revision.is_some())?;
        let mut names = (0..known.replicas).map(|ordinal| format!("{}-{ordinal}", known.name));
        Some((set, names.find(|name| pods.iter().all(|pod| pod.name_any() != *name))?))
    });
    let since = missing.as_ref().map(|_| memory.pod_missing_since.unwrap_or_else(Instant::now));
    context.remember(key, |memory| {
        memory.pod_missing_since = since;
        memory.must_wake &= since.is_some();
    });
    match missing {
        Some((set, name)) if since.is_some_and(|since| since.elapsed() >= MISSING_FOR) => {
            let claim = claim_for(set, &name).filter(|claim| claims.iter().all(|c| c.name_any() != claim.name_any()));
            let asked = claim.as_ref().map_or_else(
                || ("Pod", name.clone(), ObjectVerb::Ask),
                |claim| ("PersistentVolumeClaim", claim.name_any(), ObjectVerb::Ask),
            );
            let was_refused =
                [&asked, &("Pod", name.clone(), ObjectVerb::Ask)].iter().any(|asked| memory.writes.refuses(asked));
            context.remember(key, |memory| memory.must_wake |= was_refused);
            let is_due = context.may_write(key, &asked, revision(set).unwrap_or_default());
            let is_accepted = is_due
                && ask(key, set, (&name, &name), context).await?
                && match &claim {
                    Some(claim) => ask_for_claim(key, set, claim, context).await?,
                    None => true,
                };
            if is_accepted && (was_refused || memory.must_wake) { try_again(key, set, context).await } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Changes a StatefulSet, so that its controller creates the missing pod now: it tries again ever later, after up to 17 minutes.
async fn try_again(key: &(String, String), set: &DynamicObject, context: &AgentContext) -> Result<(), Error> {
    let name = set.name_any();
    let annotations = json!({ TRY_AGAIN: Timestamp::now().to_string() });
    let patch = json!({
        "metadata": { "uid": set.uid(), "resourceVersion": set.resource_version(), "annotations": annotations },
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let write = async {
        let api = context.api(&key.0, Kind::StatefulSet);
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            // Another change wakes the controller as well.
            Err(error) if is_conflict(&error) => {}
            other => drop(other.during(|| format!("waking the controller of {name}"))?),
        }
        context.metrics.wrote("StatefulSet", "patch");
        Ok(())
    };
    if context.attempt(key, ("StatefulSet", &name, ObjectVerb::Ask), "try again", write).await?.is_some() {
        context.remember(key, |memory| memory.must_wake = false);
    }
    Ok(())
}

/// Asks for a claim, which the StatefulSet controller creates before its pod. A refusal is remembered, as that of a write.
async fn ask_for_claim(
    key: &(String, String),
    set: &DynamicObject,
    claim: &PersistentVolumeClaim,
    context: &AgentContext,
) -> Result<bool, Error> {
    let name = claim.name_any();
    let question = async {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &key.0);
        let Err(error) = claims.create(&without_creating(), claim).await else { return Ok(()) };
        // A quota is asked before the name, and the claim may have come meanwhile, or without the labels of the list.
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let exists = !claims.list(&named).await.during(|| format!("reading claim {name}"))?.items.is_empty();
        if exists {
            return Ok(());
        }
        unless_unanswered(error).during(|| format!("asking for claim {name}"))
    };
    answered(key, ("PersistentVolumeClaim", &name), set, context, question).await
}

/// Asks, and remembers a refusal for as long as the StatefulSet is as it is. False if it is refused.
async fn answered(
    key: &(String, String),
    (kind, name): (&'static str, &str),
    set: &DynamicObject,
    context: &AgentContext,
    question: impl Future<Output = Result<(), Error>>,
) -> Result<bool, Error> {
    let revision = revision(set).unwrap_or_default();
    let is_accepted = context.attempt(key, (kind, name, ObjectVerb::Ask), revision, question).await?.is_some();
    if is_accepted {
        context.remember(key, |memory| memory.writes.forget(&(kind, name.to_owned(), ObjectVerb::Ask)));
    }
    Ok(is_accepted)
}

pub(super) fn without_creating() -> PostParams {
    PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// An object of this name is there already, a webhook allows no dry run, or the agent has no right to create: that is no
/// answer. The StatefulSet controller creates without the agent's rights.
pub(super) fn unless_unanswered(error: kube::Error) -> Result<(), kube::Error> {
    let words = refusal(&error).unwrap_or_default();
    let unanswered = [NO_DRY_RUN, "cannot create resource"].iter().any(|part| words.contains(part));
    if unanswered {
        debug!(%error, "a dry run gives no answer");
    }
    if is_conflict(&error) || unanswered { Ok(()) } else { Err(error) }
}

/// True if the API server would accept the pod that follows this one.
pub(crate) async fn is_accepted(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    pod: &str,
    context: &AgentContext,
) -> Result<bool, Error> {
    let of_pod = |set: &&DynamicObject| {
        server_set(set).is_some() && pod.rsplit_once('-').is_some_and(|(of, _)| of == set.name_any())
    };
    let Some(set) = snapshot.live.values().find(of_pod) else { return Ok(true) };
    // The name of the pod is taken.
    ask(key, set, (pod, &format!("{pod}-next")), context).await
}

/// True if a StatefulSet owns a pod. One without its labels is released.
fn is_of(set: &DynamicObject, pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

/// Asks for a pod of a StatefulSet under another name. A refusal is remembered, as that of a write.
/// A quota that only the running pod fills is no obstacle, and a webhook that allows no dry run gives no answer.
async fn ask(
    key: &(String, String),
    set: &DynamicObject,
    (pod, called): (&str, &str),
    context: &AgentContext,
) -> Result<bool, Error> {
    let Some(next) = pod_of(set, pod, called) else { return Ok(true) };
    let question = async {
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
        let Err(error) = pods.create(&without_creating(), &next).await else { return Ok(()) };
        let why = refusal(&error).unwrap_or_default();
        let named = ListParams::default().fields(&format!("metadata.name={pod}"));
        let live = pods.list(&named).await.during(|| format!("reading pod {pod}"))?.items.pop();
        if let Some(live) = live.as_ref().filter(|live| called == pod && !is_of(set, live)) {
            let why = format!("a pod {} that is not of StatefulSet {} has the name", live.name_any(), set.name_any());
            let why = format!(
                "{why}: give it the labels and the owner back. If nothing else needs it and the other voters serve, you may \
                 delete it instead"
            );
            return Err(Error::Altered { action: format!("asking for pod {called}"), why });
        }
        let fits = live.is_some_and(|live| fits_in_place_of(why, &live, &next));
        if fits {
            return Ok(());
        }
        unless_unanswered(error).during(|| format!("asking for pod {called}"))
    };
    answered(key, ("Pod", pod), set, context, question).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use hyper::{Method, Request, Response};
    use kube::{Client, client::Body};
    use serde_json::Value;
    use tower::service_fn;

    use super::*;
    use crate::context::tests::with_client;

    /// Its controller tried in vain, and tries again ever later: up to 17 minutes after the quota was raised.
    #[tokio::test]
    async fn the_controller_of_a_pod_that_was_refused_tries_at_once() {
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&calls);
        let service = service_fn(move |request: Request<Body>| {
            let mut calls = seen.lock().unwrap();
            let sent = |method: &str| calls.iter().filter(|call| call.starts_with(method)).count();
            let (asked, woken) = (sent("POST"), sent("PATCH"));
            let (code, answer) = match *request.method() {
                // It has to be woken all the same.
                Method::PATCH if woken == 0 => (504, json!({ "message": "timeout", "code": 504 })),
                Method::POST if asked == 0 => (403, json!({ "message": "exceeded quota", "code": 403 })),
                Method::GET => (200, json!({ "metadata": {}, "items": [] })),
                _ => (200, json!({ "metadata": { "name": "zk-abc" } })),
            };
            calls.push(format!("{} {}", request.method(), request.uri().path()));
            let body = Body::from(Value::to_string(&answer).into_bytes());
            async move { Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?) }
        });
        let context = with_client(Client::new(service, "n"));
        let set: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": "zk-abc", "namespace": "n", "uid": "s", "generation": 1,
                "labels": { "mczk.io/incarnation": "abc", "mczk.io/role": "voter" },
            },
            "spec": { "replicas": 1, "template": {
                "metadata": { "labels": { "mczk.io/revision": "r1" } }, "spec": { "containers": [], "volumes": [] },
            } },
            "status": { "observedGeneration": 1 },
        }))
        .unwrap();
        let live = BTreeMap::from([((Kind::StatefulSet, "zk-abc".to_owned()), set)]);
        let key = ("n".to_owned(), "zk".to_owned());
        let patches = || calls.lock().unwrap().iter().filter(|call| call.starts_with("PATCH")).count();
        for expected in [0, 1, 2, 2] {
            context.memory(&key, "u");
            context.remember(&key, |memory| memory.pod_missing_since = Instant::now().checked_sub(MISSING_FOR));
            let memory = context.memory(&key, "u");
            check_missing(&key, &live, (&[], &[]), &memory, &context).await.unwrap();
            assert_eq!(patches(), expected, "{:?}", calls.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
    }
}

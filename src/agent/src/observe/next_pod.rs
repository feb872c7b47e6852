//! Asks the API server whether it would accept the next pod of a StatefulSet, without creating one. What it would refuse, the
//! StatefulSet controller could not create, and only an event of that controller would say so.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
};

use crate::{
    context::{AgentContext, FIELD_MANAGER, Memory},
    observe::{
        objects::{LiveObjects, revision, server_set},
        snapshot::MemberSnapshot,
    },
    write_history::ObjectVerb,
};
use mczk_rules::agent::next_pod::{fits_in_place_of, pod_of};
use mczk_runtime::failure::{During, Error, is_conflict, refusal};

/// How long a pod may be missing before the agent asks why.
const MISSING_FOR: Duration = Duration::from_secs(5);

/// Asks why a pod is missing that a StatefulSet should have created.
pub(super) async fn check_missing(
    key: &(String, String),
    live: &LiveObjects,
    pods: &[Pod],
    memory: &Memory,
    context: &AgentContext,
) -> Result<(), Error> {
    let missing = live.values().find_map(|set| {
        let known = server_set(set).filter(|known| known.revision.is_some())?;
        let mut names = (0..known.replicas).map(|ordinal| format!("{}-{ordinal}", known.name));
        Some((set, names.find(|name| pods.iter().all(|pod| pod.name_any() != *name))?))
    });
    let since = missing.as_ref().map(|_| memory.pod_missing_since.unwrap_or_else(Instant::now));
    context.remember(key, |memory| memory.pod_missing_since = since);
    match missing {
        Some((set, name)) if since.is_some_and(|since| since.elapsed() >= MISSING_FOR) => {
            ask(key, set, (&name, &name), context).await.map(drop)
        }
        _ => Ok(()),
    }
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
        let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let Err(error) = pods.create(&params, &next).await else { return Ok(()) };
        let why = refusal(&error).unwrap_or_default();
        let named = ListParams::default().fields(&format!("metadata.name={pod}"));
        let live = pods.list(&named).await.during(|| format!("reading pod {pod}"))?.items.pop();
        let fits = live.is_some_and(|live| fits_in_place_of(why, &live, &next));
        if fits || is_conflict(&error) || why.contains("does not support dry run") {
            return Ok(());
        }
        Err(error).during(|| format!("asking for pod {called}"))
    };
    let revision = revision(set).unwrap_or_default();
    let is_accepted = context.attempt(key, ("Pod", pod, ObjectVerb::Ask), revision, question).await?.is_some();
    if is_accepted {
        context.remember(key, |memory| memory.writes.forget(&("Pod", pod.to_owned(), ObjectVerb::Ask)));
    }
    Ok(is_accepted)
}

//! Asks the API server whether it would accept the next pod of a StatefulSet, or the claim of one, without creating it. What it
//! would refuse, the StatefulSet controller could not create, and only an event of that controller would say so. Events are
//! rationed: after 25 about one object there is one in five minutes.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
};
use tracing::debug;

use crate::{
    context::{AgentContext, FIELD_MANAGER, Memory},
    observe::{
        objects::{LiveObjects, revision, server_set},
        snapshot::MemberSnapshot,
    },
    write_history::ObjectVerb,
};
use mczk_rules::agent::next_pod::{claim_for, fits_in_place_of, pod_of};
use mczk_runtime::failure::{During, Error, is_conflict, refusal};

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
    context.remember(key, |memory| memory.pod_missing_since = since);
    match missing {
        Some((set, name)) if since.is_some_and(|since| since.elapsed() >= MISSING_FOR) => {
            let claim = claim_for(set, &name).filter(|claim| claims.iter().all(|c| c.name_any() != claim.name_any()));
            let Some(claim) = claim else { return ask(key, set, (&name, &name), context).await.map(drop) };
            let asked = ("PersistentVolumeClaim", claim.name_any(), ObjectVerb::Ask);
            if context.may_write(key, &asked, revision(set).unwrap_or_default())
                && ask(key, set, (&name, &name), context).await?
            {
                ask_for_claim(key, set, &claim, context).await?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Asks for a claim, which the StatefulSet controller creates before its pod. A refusal is remembered, as that of a write.
async fn ask_for_claim(
    key: &(String, String),
    set: &DynamicObject,
    claim: &PersistentVolumeClaim,
    context: &AgentContext,
) -> Result<(), Error> {
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
    answered(key, ("PersistentVolumeClaim", &name), set, context, question).await.map(drop)
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

fn without_creating() -> PostParams {
    PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// An object of this name is there already, a webhook allows no dry run, or the agent has no right to create: that is no
/// answer. The StatefulSet controller creates without the agent's rights.
fn unless_unanswered(error: kube::Error) -> Result<(), kube::Error> {
    let words = refusal(&error).unwrap_or_default();
    let unanswered = ["does not support dry run", "cannot create resource"].iter().any(|part| words.contains(part));
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

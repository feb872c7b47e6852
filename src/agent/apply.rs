//! Writes what differs from what is rendered, and removes what is over. Nothing that is not ours is written or deleted:
//! what was not seen is made, never taken over, and deletes carry the uid of what was seen.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::{
    agent::{
        Context, During, Error, FIELD_MANAGER, api,
        decide::Decision,
        observe::{self, Seen},
        render::{self, Kind, Object, Source, thousandths},
        resource,
    },
    api::tls::EnsembleTls,
    contract::{
        canonical_json::hash,
        certificate_names::{Holds, former, secret_name},
        labels::{
            AGENT_FINALIZER, APPLIED_HASH, CLUSTER_ANNOTATION, INCARNATION_LABEL, KARMADA_MANAGED_LABEL, REVISION_LABEL,
        },
    },
    runtime::reconcile::{is_conflict, is_gone},
};

/// Adds or removes the finalizer, and stores the cluster's name with the first one; tells whether it wrote.
pub(super) async fn finalizer(seen: &Seen, decision: &Decision, context: &Context) -> Result<bool, Error> {
    let object = &seen.observed.object;
    let has = object.finalizers().iter().any(|f| f == AGENT_FINALIZER);
    if has == decision.finalizer {
        return Ok(false);
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|f| f != AGENT_FINALIZER);
    // Stored once, with the first server.
    let name = decision.finalizer.then(|| seen.observed.cluster.clone()).flatten();
    if decision.finalizer {
        finalizers.push(AGENT_FINALIZER.to_owned());
    }
    let meta = match name {
        Some(name) => json!({ "finalizers": finalizers, "annotations": { CLUSTER_ANNOTATION: name } }),
        None => json!({ "finalizers": finalizers }),
    };
    let version = json!({ "resourceVersion": object.resource_version() });
    let mut patch = json!({ "metadata": meta });
    json_patch::merge(&mut patch, &json!({ "metadata": version }));
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &seen.namespace(), &resource());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&object.name_any(), &params, &Patch::Merge(&patch)).await {
        // With its last finalizer the object is gone.
        Err(error) if is_gone(&error) => {}
        other => drop(other.during(|| "writing the finalizer".to_owned())?),
    }
    context.metrics.wrote("ZooKeeper", "patch");
    Ok(true)
}

/// Writes what differs; tells whether it did.
pub(super) async fn apply(
    key: &(String, String),
    seen: &Seen,
    decision: &Decision,
    context: &Context,
) -> Result<bool, Error> {
    let (Some(run), Some(list)) = (decision.run, &decision.list) else { return Ok(false) };
    let source = seen.observed.source(list, run);
    let wanted = render::render(&source)?;
    let lacks = seen.observed.lacks_client_certificates(list);
    let mut wrote = false;
    let mut foreign = BTreeSet::new();
    for object in &wanted {
        let live = seen.live.get(&(object.kind, object.name.clone()));
        if lacks && waits(&source, object, live.is_some()) {
            continue;
        }
        let value = sealed(object, live)?;
        if live.is_some_and(|live| is_current(live, &value)) {
            continue;
        }
        if live.is_none() && is_there(seen, context, object).await? {
            if object.kind == Kind::ConfigMap && object.name == source.clients() {
                // Somebody's own: applications have to be told otherwise, and the servers do without.
                debug!(
                    name = object.name,
                    namespace = seen.namespace(),
                    "this ConfigMap is not the agent's, and stays"
                );
                continue;
            }
            foreign.insert(format!("{} {}", object.kind.name(), object.name));
            continue;
        }
        match write(seen, context, object, value, live).await {
            // It appeared just now.
            Err(error) if live.is_none() && is_conflict(&error) => {
                foreign.insert(format!("{} {}", object.kind.name(), object.name));
            }
            other => {
                other.during(|| format!("writing {} {}", object.kind.name(), object.name))?;
                wrote = true;
            }
        }
    }
    context.remember(key, |memory| memory.foreign = foreign);
    // An observer's set that is no longer wanted, instructions that no pod follows any more, and what clients saw of servers of
    // which none mounts it any more.
    let names: BTreeSet<(Kind, &str)> = wanted.iter().map(|object| (object.kind, object.name.as_str())).collect();
    // Those of pods that are to be made, too.
    let made = seen.live.values().filter_map(observe::revision);
    let revisions: BTreeSet<&str> =
        seen.observed.own.iter().map(|(_, own)| own.revision.as_str()).chain(made).collect();
    for ((kind, name), live) in &seen.live {
        let surplus = match kind {
            Kind::StatefulSet => *name == format!("{}-o", source.base()),
            Kind::ConfigMap => live.labels().get(REVISION_LABEL).is_some_and(|r| !revisions.contains(r.as_str())),
            Kind::Secret => {
                *name == source.client_copy()
                    && render::copied_client(source.spec).is_none()
                    && revisions.iter().all(|r| *r == source.revision())
            }
            _ => false,
        };
        let own_life = live.labels().get(INCARNATION_LABEL).map(String::as_str) == Some(source.id());
        if surplus && own_life && !names.contains(&(*kind, name.as_str())) {
            delete(seen, context, *kind, live).await?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// Whether an object is left as it is while the certificates that clients are to see are lacking: who has to be made anew comes
/// back as it was, and clients reach it as before. A set is not begun that the kubelet would only try, unless the certificates
/// are written before it.
fn waits(source: &Source<'_>, object: &Object, is_there: bool) -> bool {
    match object.kind {
        Kind::StatefulSet => is_there || source.client.is_none(),
        Kind::Service => is_there,
        Kind::ConfigMap => is_there && object.name == source.clients(),
        _ => false,
    }
}

/// Whether an object of this name is there, which is then not ours: it stays, and a person is told. Asked for by a list,
/// since the agent may list these kinds and not get them; Secrets the other way round.
async fn is_there(seen: &Seen, context: &Context, object: &Object) -> Result<bool, Error> {
    let api = api(context, &seen.namespace(), object.kind);
    let found = if object.kind == Kind::Secret {
        api.get_opt(&object.name).await.map(|found| found.is_some())
    } else {
        let name = ListParams::default().fields(&format!("metadata.name={}", object.name));
        api.list_metadata(&name).await.map(|list| !list.items.is_empty())
    };
    found.during(|| format!("looking for {} {}", object.kind.name(), object.name))
}

/// The object with the hash of what is wanted, so that fields which are no longer wanted are seen.
fn sealed(object: &Object, live: Option<&DynamicObject>) -> Result<Value, Error> {
    let mut value = object.value.clone();
    if live.is_some()
        && object.kind == Kind::StatefulSet
        && let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        // Claims cannot change there; they grow by themselves.
        spec.remove("volumeClaimTemplates");
    }
    let mut hashed = value.clone();
    if let Some(spec) = hashed.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.remove("volumeClaimTemplates");
    }
    let hash: String = hash(&hashed).during(|| "writing an object as JSON".to_owned())?.chars().take(16).collect();
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("annotations".to_owned(), json!({ APPLIED_HASH: hash }));
    }
    Ok(value)
}

fn is_current(live: &DynamicObject, wanted: &Value) -> bool {
    serde_json::to_value(live).is_ok_and(|live| is_superset_of(&live, wanted))
}

/// Whether a live value holds everything that is wanted. Members that a server added are no difference, nor are two texts
/// of one quantity.
fn is_superset_of(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).map_or(value.is_null(), |live| is_superset_of(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| is_superset_of(live, wanted))
        }
        (Value::String(live), Value::String(wanted)) => {
            live == wanted || thousandths(live).is_some_and(|amount| thousandths(wanted) == Some(amount))
        }
        _ => live == wanted,
    }
}

async fn write(
    seen: &Seen,
    context: &Context,
    object: &Object,
    mut value: Value,
    live: Option<&DynamicObject>,
) -> kube::Result<()> {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        match live {
            Some(live) => {
                // An agent that was asleep must not bring former certificates back, nor a former list.
                if matches!(object.kind, Kind::Secret | Kind::ConfigMap) {
                    meta.insert("resourceVersion".to_owned(), json!(live.resource_version()));
                }
                meta.insert("uid".to_owned(), json!(live.uid()))
            }
            // Only if there is none.
            None => meta.insert("resourceVersion".to_owned(), json!("0")),
        };
    }
    if let Some(claims) = live.and_then(|live| live.data.pointer("/spec/volumeClaimTemplates"))
        && let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        spec.insert("volumeClaimTemplates".to_owned(), claims.clone());
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api(context, &seen.namespace(), object.kind).patch(&object.name, &params, &Patch::Apply(&value)).await?;
    info!(kind = object.kind.name(), name = object.name, namespace = seen.namespace(), "written");
    context.metrics.wrote(object.kind.name(), "apply");
    Ok(())
}

async fn delete(seen: &Seen, context: &Context, kind: Kind, live: &DynamicObject) -> Result<(), Error> {
    let name = live.name_any();
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: live.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match api(context, &seen.namespace(), kind).delete(&name, &params).await {
        Err(error) if is_gone(&error) => return Ok(()),
        other => drop(other.during(|| format!("deleting {} {name}", kind.name()))?),
    }
    info!(kind = kind.name(), name, namespace = seen.namespace(), "deleted");
    context.metrics.wrote(kind.name(), "delete");
    Ok(())
}

/// Stops the servers of these lives, and removes everything of them but volumes: first no pods, then no sets, then the
/// rest. Tells whether it did anything.
pub(super) async fn remove(seen: &Seen, lives: &BTreeSet<String>, context: &Context) -> Result<bool, Error> {
    let mut did = false;
    for id in lives {
        let of_this = |object: &&DynamicObject| object.labels().get(INCARNATION_LABEL) == Some(id);
        let running: Vec<&DynamicObject> = seen
            .live
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::StatefulSet)
            .map(|(_, object)| object)
            .filter(of_this)
            .filter(|set| set.data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0))
            .collect();
        for set in &running {
            warn!(name = set.name_any(), namespace = seen.namespace(), "stopping all servers");
            let patch = json!({
                "metadata": { "uid": set.uid(), "resourceVersion": set.resource_version() },
                "spec": { "replicas": 0 },
            });
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            api(context, &seen.namespace(), Kind::StatefulSet)
                .patch(&set.name_any(), &params, &Patch::Merge(&patch))
                .await
                .during(|| format!("stopping the servers of {}", set.name_any()))?;
            context.metrics.wrote("StatefulSet", "patch");
            did = true;
        }
        if !running.is_empty() || seen.observed.own.iter().any(|(incarnation, _)| incarnation == id) {
            continue;
        }
        for ((kind, _), object) in seen.live.iter().rev().filter(|(_, object)| of_this(object)) {
            delete(seen, context, *kind, object).await?;
            did = true;
        }
    }
    Ok(did)
}

/// Former identities and authorities that are looked for at most: of the first one is made a year.
const FORMER: u32 = 100;

/// Identities and authorities of a former life that are looked for.
const FIRST: u32 = 3;

/// The Secrets with certificates that may be left of a life: those that the list names, and those before them.
fn certificates(tls: &EnsembleTls) -> Vec<String> {
    tls.secrets().cloned().chain(former(tls, FORMER)).collect()
}

/// What becomes of a Secret that may have been left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It is not of this life, and not our business.
    Foreign,
    /// Karmada still keeps it.
    ReplicaFloor,
    /// Nobody does.
    Behind,
}

fn left(labels: &BTreeMap<String, String>, life: Option<&String>) -> Left {
    match (life, labels.contains_key(KARMADA_MANAGED_LABEL)) {
        (Some(life), managed) if labels.get(INCARNATION_LABEL) == Some(life) => {
            if managed {
                Left::ReplicaFloor
            } else {
                Left::Behind
            }
        }
        _ => Left::Foreign,
    }
}

/// Removes the certificates that Karmada left behind when it let go of this cluster: with them a server could still speak to
/// those that go on.
pub(super) async fn remove_certificates(seen: &Seen, decision: &Decision, context: &Context) -> Result<(), Error> {
    let Some((list, tls)) = decision.list.as_ref().and_then(|list| Some((list, list.tls.as_ref()?))) else {
        return Ok(());
    };
    remove_left(seen, list.incarnation.as_ref(), certificates(tls), context).await.map(drop)
}

/// Removes the certificates that were used before those that all servers here have loaded, once Karmada lets go of them; and
/// those of lives that the list names as over, of which a life in which no quorum formed had only the first few. Done once for
/// each change.
pub(super) async fn remove_former(
    key: &(String, String),
    seen: &Seen,
    decision: &Decision,
    context: &Context,
) -> Result<(), Error> {
    let Some((list, tls)) = decision.list.as_ref().and_then(|list| Some((list, list.tls.as_ref()?))) else {
        return Ok(());
    };
    if decision.status.ensemble_tls.as_ref() != Some(tls) || seen.memory.cleared.as_ref() == Some(tls) {
        return Ok(());
    }
    let mut none = remove_left(seen, list.incarnation.as_ref(), former(tls, FORMER), context).await?;
    let name = seen.observed.object.name_any();
    for life in &list.former_incarnations {
        let of_life = |holds| (1..=FIRST).map(move |number| (holds, number));
        let names = of_life(Holds::Identity).chain(of_life(Holds::Trust));
        let names = names.map(|(holds, number)| secret_name(&name, life, holds, number)).collect();
        none &= remove_left(seen, Some(life), names, context).await?;
    }
    if none {
        context.remember(key, |memory| memory.cleared = Some(tls.clone()));
    }
    Ok(())
}

/// Removes those of these Secrets that nobody keeps; tells whether none is left.
async fn remove_left(seen: &Seen, life: Option<&String>, names: Vec<String>, context: &Context) -> Result<bool, Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &seen.namespace());
    let mut none = true;
    for name in names {
        let secret = api.get_metadata_opt(&name).await.during(|| format!("reading Secret {name}"))?;
        let Some(secret) = secret else { continue };
        match left(secret.labels(), life) {
            Left::Foreign => continue,
            Left::ReplicaFloor => {
                none = false;
                continue;
            }
            Left::Behind => {}
        }
        let preconditions = Preconditions { uid: secret.uid(), resource_version: secret.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(&name, &params).await {
            Err(error) if is_gone(&error) => {}
            other => {
                other.during(|| format!("deleting Secret {name}"))?;
                context.metrics.wrote("Secret", "delete");
            }
        }
    }
    Ok(none)
}

/// Removes the object, which nobody else would.
pub(super) async fn remove_object(seen: &Seen, context: &Context) -> Result<(), Error> {
    let object = &seen.observed.object;
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &seen.namespace(), &resource());
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&object.name_any(), &params).await {
        Err(error) if is_gone(&error) => Ok(()),
        other => {
            other.during(|| format!("deleting ZooKeeper {}", object.name_any()))?;
            context.metrics.wrote("ZooKeeper", "delete");
            Ok(())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_added_is_no_difference() {
        let live = json!({ "a": { "x": 1, "y": 2 }, "cpu": "500m", "list": [{ "n": 1, "d": true }] });
        assert!(is_superset_of(&live, &json!({ "a": { "x": 1 }, "cpu": "0.5", "list": [{ "n": 1 }] })));
        assert!(!is_superset_of(&live, &json!({ "a": { "x": 2 } })));
        assert!(!is_superset_of(&live, &json!({ "cpu": "501m" })));
        assert!(!is_superset_of(&live, &json!({ "list": [] })));
    }

    #[test]
    fn which_certificates_may_be_left() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let tls = EnsembleTls { identity: "zk-a1-identity-3".into(), trust: names(&["zk-a1-trust-2"]) };
        let all = ["zk-a1-trust-2", "zk-a1-identity-3", "zk-a1-identity-2", "zk-a1-identity-1", "zk-a1-trust-1"];
        assert_eq!(certificates(&tls), names(&all));
        let many = EnsembleTls { identity: "zk-a1-identity-1000".into(), ..tls };
        assert_eq!(certificates(&many).len(), 2 + 100 + 1, "the newest hundred");
    }

    #[test]
    fn only_what_nobody_keeps_is_left_behind() {
        let life = "a1".to_owned();
        let labels = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let own = (INCARNATION_LABEL, "a1");
        assert_eq!(left(&labels(&[own]), Some(&life)), Left::Behind);
        assert_eq!(left(&labels(&[own, (KARMADA_MANAGED_LABEL, "x")]), Some(&life)), Left::ReplicaFloor);
        for foreign in [vec![], vec![(INCARNATION_LABEL, "b2")]] {
            assert_eq!(left(&labels(&foreign), Some(&life)), Left::Foreign);
        }
        assert_eq!(left(&labels(&[]), None), Left::Foreign, "what has no life is of none");
    }
}

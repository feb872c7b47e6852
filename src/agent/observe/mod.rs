//! Reads everything that a decision rests on: live, from the API server and from the servers themselves.

pub mod nodes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::debug;

use crate::{
    agent::{
        Context, During, Error, FIELD_MANAGER, Memory, api, certificates,
        control_client::Servers,
        decide::{
            self, Decision, Observed, Set, Volume,
            accept::{self, Acceptance},
            local_server::LocalServer,
            membership::{Action, Quorum},
        },
        render::{Kind, bytes, role_name},
        resource,
    },
    api::{
        ZooKeeper,
        zookeeper::{Ensemble, Role},
    },
    contract::{
        control_api::ServerReport,
        labels::{
            ENSEMBLE_LABEL, INCARNATION_LABEL, KARMADA_MANAGED_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL,
            REVISION_LABEL, ROLE_LABEL,
        },
        tombstone,
    },
};

/// For how long no node may fit a pod before that is told.
const UNSCHEDULED: SignedDuration = SignedDuration::from_secs(30);
/// Servers that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// What came of looking.
pub(super) enum Outcome {
    /// The object does not exist any more.
    Gone,
    /// The object is there but is not what this version understands.
    Unreadable(Box<DynamicObject>, String),
    /// Everything.
    Seen(Box<Seen>),
}

/// What was seen, with what is needed to act on it.
pub(super) struct Seen {
    pub(super) observed: Observed,
    /// What we wrote, of every life.
    pub(super) live: BTreeMap<(Kind, String), DynamicObject>,
    /// How own servers are reached, by pod; others by their host.
    pub(super) hosts: BTreeMap<i32, String>,
    /// The client for this ensemble's servers, if they can be spoken to at all.
    pub(super) servers: Option<Arc<dyn Servers>>,
    /// What was remembered when this was seen.
    pub(super) memory: Memory,
}

impl Seen {
    pub(super) fn namespace(&self) -> String {
        self.observed.object.namespace().unwrap_or_default()
    }

    /// Remembers when something began.
    pub(super) fn note(&self, memory: &mut Memory, decision: &Decision) {
        let due = matches!(decision.membership, Action::Publish | Action::Reconfigure(_));
        // Whoever took the step before this one goes on: the others were waited for.
        let goes_on = |action: &Action| *action == decision.membership || memory.stepped;
        let since = memory.due.take().filter(|(action, _)| goes_on(action)).map(|(_, since)| since);
        memory.stepped &= due;
        memory.due = due.then(|| (decision.membership.clone(), since.unwrap_or_else(Instant::now)));
        let ours =
            |view: &ServerReport| view.restart_lock.as_ref().is_some_and(|turn| turn.holder == self.observed.holder);
        memory.turn =
            if self.observed.views.iter().any(ours) { memory.turn.or_else(|| Some(Instant::now())) } else { None };
        let silent = self.observed.own.iter().filter(|(_, own)| !own.may_serve()).map(|(_, own)| &own.uid);
        memory.silent =
            silent.map(|uid| (uid.clone(), memory.silent.get(uid).copied().unwrap_or_else(Instant::now))).collect();
    }
}

pub(super) async fn observe(key: &(String, String), context: &Context) -> Result<Outcome, Error> {
    let (namespace, name) = key;
    let objects: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &resource());
    let Some(raw) = objects.get_opt(name).await.during(|| format!("reading ZooKeeper {namespace}/{name}"))? else {
        return Ok(Outcome::Gone);
    };
    let stored = raw.data.get("spec").cloned().unwrap_or(Value::Null);
    let value = serde_json::to_value(&raw).during(|| "reading an object as JSON".to_owned())?;
    let object: ZooKeeper = match serde_path_to_error::deserialize(value) {
        Ok(object) => object,
        Err(error) => return Ok(Outcome::Unreadable(Box::new(raw), error.to_string())),
    };
    let memory = context.memory(key, &object.uid().unwrap_or_default());
    let cluster = accept::cluster_name(
        |annotation| object.annotations().get(annotation).map(String::as_str),
        context.options.cluster.as_deref(),
    );
    let cluster = cluster.map(str::to_owned);
    let obey = decide::obey(&object, &stored, cluster.as_deref());
    let mut live = ours(context, key).await?;
    let list = accept::newest(decide::list_here(&object, &stored, &obey), &[]).cloned();
    let selector =
        ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"));
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pods = pods.list(&selector).await.during(|| "reading pods".to_owned())?.items;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let volumes = claims.list(&selector).await.during(|| "reading claims".to_owned())?.items;
    let foreign = |name: &String| {
        (
            "Foreign",
            format!("{name} is not the agent's, and has a name that is needed: remove it, or choose another name"),
        )
    };
    let mut obstacles: Vec<_> = memory.foreign.iter().map(foreign).collect();
    if obey == Acceptance::Yes {
        obstacles.extend(grow(&object, list.as_ref(), &volumes, &claims, context).await?);
    }
    certificates::own(context, namespace, name, list.as_ref(), &mut live).await?;
    let quorum = certificates::quorum(context, namespace, name, list.as_ref(), &live).await?;
    let client = certificates::client(context, &object, list.as_ref(), &live).await?;
    // In plain text only where the ensemble itself speaks plain text.
    let servers = match quorum.spoken_with() {
        None if object.spec.tls.quorum => None,
        material => match (context.options.dial)(material.filter(|_| object.spec.tls.quorum)) {
            Ok(servers) => Some(servers),
            Err(error) => {
                obstacles.push(("Certificates", error.to_string()));
                None
            }
        },
    };
    let ended = ended(context, namespace, &object, list.as_ref(), &live).await?;
    let holder = cluster.clone().unwrap_or_default();
    let node_labels = object.spec.template.scheduling.as_ref().map(|s| s.node_selector.clone()).unwrap_or_default();
    // Of one voter, or two, none can be spared for a drain.
    let voters = list.iter().flat_map(|list| &list.servers).filter(|server| server.role == Role::Voter).count();
    let leave = if voters > 2 { nodes::cordoned(&pods, &node_labels, context).await } else { BTreeMap::new() };
    let mut seen = Seen {
        observed: Observed {
            sets: live.values().filter_map(set).collect(),
            own: pods.iter().filter_map(|pod| own(pod, &leave, &memory)).collect(),
            volumes: volumes.iter().filter_map(volume).collect(),
            left: live.values().filter_map(|o| o.labels().get(INCARNATION_LABEL).cloned()).collect(),
            tombstones: ended,
            views: Vec::new(),
            material: quorum.newest,
            tls: list.as_ref().and_then(|list| list.tls.clone()),
            mounted: quorum.mounted,
            client,
            obstacles,
            published: memory.published.clone(),
            due_for: memory.due.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed()),
            turn_for: memory.turn.map_or(Duration::ZERO, |since| since.elapsed()),
            holder: format!("{holder}/{FIELD_MANAGER}/{}", context.options.instance),
            object,
            stored,
            cluster,
        },
        live,
        hosts: BTreeMap::new(),
        servers,
        memory,
    };
    if let Some(list) = &list {
        views(&mut seen, list, &addresses(&pods)).await;
    }
    Ok(Outcome::Seen(Box::new(seen)))
}

/// Asks every server: those of this cluster by their pods' addresses, others by the names that all use, and those that the
/// configuration names and the list does not.
pub(super) async fn views(seen: &mut Seen, list: &Ensemble, addresses: &BTreeMap<String, String>) {
    let Some(servers) = seen.servers.clone() else { return };
    let id = list.incarnation.clone().unwrap_or_default();
    let ask = async |host: String| {
        let view = servers.view(&host).await;
        if let Err(error) = &view {
            debug!(%error, "a server does not answer");
        }
        // Of another life it would be a server that has only the address in common.
        (host, view.ok().filter(|view| view.incarnation == id))
    };
    let own: Vec<(usize, String)> = seen
        .observed
        .own
        .iter()
        .enumerate()
        .filter(|(_, (incarnation, own))| *incarnation == id && !own.terminating)
        .filter_map(|(index, (_, own))| Some((index, addresses.get(&own.uid)?.clone())))
        .collect();
    let own: Vec<_> = stream::iter(own)
        .map(async |(index, host)| (index, ask(host).await))
        .buffer_unordered(ASKED_AT_ONCE)
        .collect()
        .await;
    for (index, (host, view)) in own {
        let Some(view) = view else { continue };
        if let Some(id) = view.id {
            seen.hosts.insert(id, host);
        }
        seen.observed.views.push(view.clone());
        if let Some((_, own)) = seen.observed.own.get_mut(index) {
            own.view = Some(view);
        }
    }
    let cluster = seen.observed.cluster.clone().unwrap_or_default();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let others = list.all_servers().filter(|s| s.cluster != cluster).map(|s| s.host.clone());
    let mut next: Vec<String> = others.collect();
    // Twice: what the first answers name besides the list is asked then.
    for _ in 0..2 {
        next.retain(|host| asked.insert(host.clone()));
        let answers: Vec<_> = stream::iter(next).map(&ask).buffer_unordered(ASKED_AT_ONCE).collect().await;
        for (host, view) in answers {
            let Some(view) = view else { continue };
            if let Some(id) = view.id {
                seen.hosts.entry(id).or_insert(host);
            }
            seen.observed.views.push(view);
        }
        let known: BTreeSet<i32> = seen.observed.views.iter().filter_map(|view| view.id).collect();
        let own: BTreeSet<&str> =
            list.servers.iter().filter(|s| s.cluster == cluster).map(|s| s.host.as_str()).collect();
        next = Quorum::of(&seen.observed.views)
            .map(|quorum| quorum.configuration.servers)
            .unwrap_or_default()
            .into_iter()
            .filter(|server| !known.contains(&server.id) && !own.contains(server.host.as_str()))
            .map(|server| server.host)
            .collect();
    }
    seen.observed.views.sort_by_key(|view| view.id);
}

/// Addresses of pods, by uid.
pub(super) fn addresses(pods: &[Pod]) -> BTreeMap<String, String> {
    pods.iter().filter_map(|pod| Some((pod.uid()?, pod.status.as_ref()?.pod_ip.clone()?))).collect()
}

/// Everything that we wrote for this ensemble, but Secrets: to list those is a right of its own.
async fn ours(context: &Context, key: &(String, String)) -> Result<BTreeMap<(Kind, String), DynamicObject>, Error> {
    let (namespace, name) = key;
    let selector =
        ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"));
    let mut all = BTreeMap::new();
    for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Secret) {
        let list = api(context, namespace, kind).list(&selector).await;
        for object in list.during(|| format!("reading {}", kind.plural()))?.items {
            let object = DynamicObject {
                types: Some(kube::api::TypeMeta {
                    api_version: kind.api_version().to_owned(),
                    kind: kind.name().to_owned(),
                }),
                ..object
            };
            all.insert((kind, object.name_any()), object);
        }
    }
    Ok(all)
}

/// The lives that the control plane noted as over, of those that may be: another one than the list's, and the list's own
/// where the object goes, or Karmada let go of it, or nothing of it runs any more.
async fn ended(
    context: &Context,
    namespace: &str,
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    live: &BTreeMap<(Kind, String), DynamicObject>,
) -> Result<BTreeSet<String>, Error> {
    let name = object.name_any();
    let id = list.and_then(|list| list.incarnation.as_ref());
    let kept = object.labels().contains_key(KARMADA_MANAGED_LABEL) && object.metadata.deletion_timestamp.is_none();
    let told = object.spec.ensemble.incarnation.as_ref().is_none_or(|told| Some(told) == id);
    let lives = live.values().filter_map(|o| o.labels().get(INCARNATION_LABEL)).chain(id);
    let mut ended = BTreeSet::new();
    for life in lives.collect::<BTreeSet<_>>() {
        if Some(life) == id && kept && told && list.is_some_and(|list| !list.phase.is_suspended()) {
            continue;
        }
        let note = tombstone::secret_name(&name, life);
        let found = api(context, namespace, Kind::Secret).get_opt(&note).await;
        let found = found.during(|| format!("reading Secret {note}"))?;
        ended.extend(found.and_then(|secret| tombstone::read(&secret.metadata, &name)));
    }
    Ok(ended)
}

/// Asks for larger volumes where the spec says so. A StatefulSet does not, and its claims cannot be changed there. What
/// stands in the way is answered.
async fn grow(
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    claims: &[PersistentVolumeClaim],
    api: &Api<PersistentVolumeClaim>,
    context: &Context,
) -> Result<Option<(&'static str, String)>, Error> {
    let size = &object.spec.template.storage.size.0;
    let id = list.and_then(|list| list.incarnation.as_deref()).unwrap_or_default();
    for claim in claims.iter().filter(|claim| claim.labels().get(INCARNATION_LABEL).map(String::as_str) == Some(id)) {
        let asked = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
        if asked.and_then(|asked| bytes(&asked.0)) >= bytes(size) {
            continue;
        }
        let name = claim.name_any();
        let patch = json!({
            "metadata": { "resourceVersion": claim.resource_version() },
            "spec": { "resources": { "requests": { "storage": size } } },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => context.metrics.wrote("PersistentVolumeClaim", "patch"),
            Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => {
                let why = format!("PersistentVolumeClaim {name} does not grow to {size}: {}", status.message);
                return Ok(Some(("Volume", why)));
            }
            other => drop(other.during(|| format!("growing PersistentVolumeClaim {name}"))?),
        }
    }
    Ok(None)
}

fn role(labels: &BTreeMap<String, String>) -> Option<Role> {
    let text = labels.get(ROLE_LABEL)?;
    [Role::Voter, Role::Observer].into_iter().find(|role| role_name(*role) == text)
}

/// Revision of the pods that a StatefulSet makes; nothing of other kinds.
pub(super) fn revision(object: &DynamicObject) -> Option<&str> {
    object.data.pointer("/spec/template/metadata/labels")?.get(REVISION_LABEL)?.as_str()
}

fn set(object: &DynamicObject) -> Option<Set> {
    if object.types.as_ref().is_none_or(|types| types.kind != "StatefulSet") {
        return None;
    }
    let labels = object.labels();
    let seen = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64) == object.metadata.generation;
    let revision = revision(object).filter(|_| seen);
    Some(Set {
        name: object.name_any(),
        incarnation: labels.get(INCARNATION_LABEL)?.clone(),
        role: role(labels)?,
        replicas: object
            .data
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(1),
        revision: revision.map(str::to_owned),
    })
}

fn volume(claim: &PersistentVolumeClaim) -> Option<Volume> {
    Some(Volume { name: claim.name_any(), incarnation: claim.labels().get(INCARNATION_LABEL)?.clone() })
}

/// A pod as a server, with the life that it belongs to.
fn own(pod: &Pod, leave: &BTreeMap<String, String>, memory: &Memory) -> Option<(String, LocalServer)> {
    let labels = pod.labels();
    let name = pod.name_any();
    let uid = pod.uid()?;
    let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let own = LocalServer {
        role: role(labels)?,
        ordinal,
        id: None,
        revision: labels.get(REVISION_LABEL).cloned().unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        drain_from: leave.get(&uid).cloned(),
        failure: trouble(pod),
        view: None,
        unready_for: memory.silent.get(&uid).map_or(Duration::ZERO, Instant::elapsed),
        pod: name,
        uid,
    };
    Some((labels.get(INCARNATION_LABEL)?.clone(), own))
}

/// Why a pod does not start, in words that do not change from attempt to attempt.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    for container in containers {
        let reason = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
        let told = match reason {
            Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
                format!("image {} cannot be pulled", container.image)
            }
            Some("CrashLoopBackOff") => format!("its container {} ends again and again", container.name),
            Some("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                format!("its container {} cannot be made", container.name)
            }
            _ => continue,
        };
        return Some(told);
    }
    // For a moment that is so of every pod whose volume is only being made.
    let long = |since: &Time| Timestamp::now().duration_since(since.0) > UNSCHEDULED;
    let unscheduled = |c: &k8s_openapi::api::core::v1::PodCondition| {
        c.type_ == "PodScheduled"
            && c.status == "False"
            && c.reason.as_deref() == Some("Unschedulable")
            && c.last_transition_time.as_ref().is_some_and(long)
    };
    status.conditions.iter().flatten().any(unscheduled).then(|| "no node fits it".to_owned())
}

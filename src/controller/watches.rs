//! What makes the controller look at an object again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use futures::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store},
        watcher::{self, Event},
    },
};
use serde::Deserialize;
use tokio::sync::watch;
use tracing::warn;

use super::{Context, Key, resource, watch_config};
use crate::{
    api::karmada::cluster::{ApiEnablement, Cluster},
    contract::labels::ENSEMBLE_LABEL,
    rollout::desired::MCS_API_VERSION,
};

/// End of the name of every binding that Karmada makes for a `ZooKeeper`.
const BINDING_SUFFIX: &str = "-zookeeper";

/// The federation's clusters, with only what decisions need: Karmada's list of what a cluster serves is long.
#[derive(Debug)]
pub(super) struct Clusters {
    known: RwLock<BTreeMap<String, Cluster>>,
    listed: watch::Sender<bool>,
}

impl Default for Clusters {
    fn default() -> Self {
        Self { known: RwLock::default(), listed: watch::Sender::new(false) }
    }
}

impl Clusters {
    /// Resolves once all of them were listed: nothing may be decided on a part of a federation.
    pub(super) async fn listed(&self) {
        // The sender lives as long as this does, so there is no error.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Cluster> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes one over; tells whether anything changed that decisions rest on.
    fn put(&self, cluster: Cluster) -> bool {
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if all.get(cluster.name()) == Some(&cluster) {
            return false;
        }
        all.insert(cluster.name().to_owned(), cluster);
        true
    }

    fn remove(&self, name: &str) -> bool {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    /// Forgets those that a new list does not have.
    fn retain(&self, names: &[String]) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| names.contains(name));
    }
}

/// Reads a cluster and drops what no decision rests on.
fn reduced(object: &DynamicObject) -> Option<Cluster> {
    let part = |field: &str| object.data.get(field);
    let mut cluster = Cluster {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            labels: object.metadata.labels.clone(),
            deletion_timestamp: object.metadata.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: part("spec").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
        status: part("status").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
    };
    cluster.status.conditions.retain(|c| c.type_ == "Ready");
    cluster.status.api_enablements = cluster
        .status
        .api_enablements
        .into_iter()
        .filter(|e| e.group_version == crate::api::API_VERSION || e.group_version == MCS_API_VERSION)
        .map(|mut e: ApiEnablement| {
            e.resources.sort_by(|a, b| a.kind.cmp(&b.kind));
            e
        })
        .collect();
    Some(cluster)
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Everything else that concerns a MultiClusterZooKeeper, as a stream of the objects to look at.
pub(super) fn triggers(
    client: &Client,
    context: &Arc<Context>,
    store: Store<DynamicObject>,
) -> impl Stream<Item = Key> + Send + 'static {
    let mut streams: Vec<BoxStream<'static, Key>> = Vec::new();
    for resource in [
        kind("mczk.io", "v1alpha1", "ZooKeeper", "zookeepers"),
        kind("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies"),
        kind("policy.karmada.io", "v1alpha1", "OverridePolicy", "overridepolicies"),
        kind("multicluster.x-k8s.io", "v1alpha1", "ServiceExport", "serviceexports"),
        kind("multicluster.x-k8s.io", "v1alpha1", "ServiceImport", "serviceimports"),
    ] {
        streams.push(owned(client, &resource));
    }
    streams.push(bindings(client, Arc::clone(context)));
    streams.push(clusters(client, Arc::clone(context), store));
    futures::stream::select_all(streams)
}

/// Objects with our label, as metadata only.
fn owned(client: &Client, resource: &ApiResource) -> BoxStream<'static, Key> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
    let kind = resource.kind.clone();
    let mut known = Known::default();
    watcher::watcher(api, watch_config().labels(ENSEMBLE_LABEL))
        .default_backoff()
        .flat_map(move |event| {
            let event = event.inspect_err(|error| warn!(kind, %error, "watch"));
            futures::stream::iter(event.map(|event| known.take(event)).unwrap_or_default())
        })
        .boxed()
}

/// What is known of owned objects, by which an event that tells nothing new is told from others. Karmada writes the status
/// of a template at every report of a member, right after the binding: if both were looked at, the next report would wait
/// for the second look.
#[derive(Debug, Default)]
struct Known {
    /// By uid: to whom the object belongs, and its metadata without what every write changes.
    objects: HashMap<String, (Key, ObjectMeta)>,
    /// Uids of the list that is being taken.
    listed: HashSet<String>,
}

impl Known {
    /// The objects to look at after an event.
    fn take(&mut self, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.extend(object.uid());
                self.put(&object)
            }
            // What went while the watch was away.
            Event::InitDone => {
                let gone = self.objects.extract_if(|uid, _| !self.listed.contains(uid));
                gone.map(|(_, (key, _))| key).collect()
            }
            Event::Apply(object) => self.put(&object),
            Event::Delete(object) => {
                let known = object.uid().and_then(|uid| self.objects.remove(&uid));
                known.map(|(key, _)| key).or_else(|| owner(&object)).into_iter().collect()
            }
        }
    }

    fn put(&mut self, object: &PartialObjectMeta<DynamicObject>) -> Vec<Key> {
        let Some(key) = owner(object) else { return Vec::new() };
        let mut meta = object.metadata.clone();
        (meta.resource_version, meta.managed_fields) = (None, None);
        let before = self.objects.insert(object.uid().unwrap_or_default(), (key.clone(), meta.clone()));
        match before {
            Some((_, same)) if same == meta => Vec::new(),
            // A label that names another one: both have to do with it.
            Some((other, _)) if other != key => vec![other, key],
            _ => vec![key],
        }
    }
}

fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let name = object.labels().get(ENSEMBLE_LABEL)?;
    Some(ObjectRef::new_with(name, resource()).within(&object.namespace()?))
}

/// Bindings of templates, as metadata only: the watch sees every binding of the control plane, and keeps none.
fn bindings(client: &Client, context: Arc<Context>) -> BoxStream<'static, Key> {
    let resource = kind("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    watcher::watcher(api, watch_config())
        .default_backoff()
        .touched_objects()
        .filter_map(move |item| {
            let object = item.inspect_err(|error| warn!(%error, "watch of ResourceBindings")).ok();
            let key = object.as_ref().and_then(binding_owner);
            if let (Some(key), Some(object)) = (&key, &object) {
                let name = (key.namespace.clone().unwrap_or_default(), key.name.clone());
                if let Some(memory) = context.memory().get_mut(&name) {
                    memory.report(version(&object.metadata));
                }
            }
            async move { key }
        })
        .boxed()
}

/// The resource version as a number: those of one kind rise.
pub(super) fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}

fn binding_owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let name = object.name_any();
    let template = name.strip_suffix(BINDING_SUFFIX)?;
    Some(ObjectRef::new_with(template, resource()).within(&object.namespace()?))
}

/// Clusters: every object is looked at again when something changed that decisions rest on.
fn clusters(client: &Client, context: Arc<Context>, store: Store<DynamicObject>) -> BoxStream<'static, Key> {
    let resource = kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut listed: Vec<String> = Vec::new();
    watcher::watcher(api, watch_config())
        .default_backoff()
        .flat_map(move |event| {
            let changed = match event {
                Ok(Event::Init) => {
                    listed.clear();
                    false
                }
                Ok(Event::InitApply(object)) => {
                    listed.push(object.name_any());
                    reduced(&object).is_some_and(|c| context.clusters.put(c))
                }
                Ok(Event::InitDone) => {
                    context.clusters.retain(&listed);
                    context.clusters.listed.send_replace(true);
                    true
                }
                Ok(Event::Apply(object)) => reduced(&object).is_some_and(|c| context.clusters.put(c)),
                Ok(Event::Delete(object)) => context.clusters.remove(&object.name_any()),
                Err(error) => {
                    warn!(%error, "watch of Clusters");
                    false
                }
            };
            let keys: Vec<Key> = if changed {
                store
                    .state()
                    .iter()
                    .map(|object| ObjectRef::from_obj_with(object.as_ref(), super::resource()))
                    .collect()
            } else {
                Vec::new()
            };
            futures::stream::iter(keys)
        })
        .boxed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(version: u32, more: &Value) -> PartialObjectMeta<DynamicObject> {
        let mut meta = json!({
            "name": "zoo", "namespace": "n", "uid": "u1", "generation": 1, "labels": { ENSEMBLE_LABEL: "zoo" },
            "resourceVersion": version.to_string(),
        });
        json_patch::merge(&mut meta, more);
        serde_json::from_value(json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "metadata": meta }))
            .unwrap()
    }

    fn names(keys: &[Key]) -> Vec<&str> {
        keys.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn only_events_that_tell_something_new_make_us_look() {
        let mut known = Known::default();
        let mut apply = |object| known.take(Event::Apply(object)).len();
        assert_eq!(apply(object(1, &json!({}))), 1);
        let managed = json!({ "managedFields": [{ "manager": "karmada", "operation": "Update" }] });
        assert_eq!(apply(object(2, &managed)), 0, "a status was written");
        for (version, more) in [
            (3, json!({ "generation": 2 })),
            (4, json!({ "generation": 2, "annotations": { "a": "b" } })),
            (5, json!({ "generation": 2 })),
            (6, json!({ "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] })),
            (7, json!({ "uid": "u2" })),
        ] {
            assert_eq!(apply(object(version, &more)), 1, "{more}");
        }
    }

    #[test]
    fn what_is_deleted_or_given_to_another_one_is_looked_at() {
        let mut known = Known::default();
        known.take(Event::Apply(object(1, &json!({}))));
        let other = json!({ "labels": { ENSEMBLE_LABEL: "other" } });
        assert_eq!(names(&known.take(Event::Apply(object(2, &other)))), ["zoo", "other"]);
        assert_eq!(names(&known.take(Event::Delete(object(3, &other)))), ["other"]);
        assert_eq!(known.take(Event::Apply(object(4, &json!({})))).len(), 1);
    }

    #[test]
    fn what_went_while_the_watch_was_away_is_looked_at() {
        let mut known = Known::default();
        let mut list = |objects: Vec<PartialObjectMeta<DynamicObject>>| {
            let mut keys = known.take(Event::Init);
            keys.extend(objects.into_iter().flat_map(|object| known.take(Event::InitApply(object))));
            keys.extend(known.take(Event::InitDone));
            keys
        };
        let both = || vec![object(1, &json!({})), object(2, &json!({ "name": "b", "uid": "u2" }))];
        assert_eq!(list(both()).len(), 2);
        assert!(list(both()).is_empty(), "nothing is new");
        assert_eq!(names(&list(vec![object(1, &json!({}))])), ["zoo"]);
        assert!(list(vec![object(1, &json!({}))]).is_empty());
    }
}

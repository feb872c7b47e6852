//! What makes the controller look at an object again.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store},
        watcher::{self, Event},
    },
};
use tokio::sync::watch;
use tracing::warn;

use super::{Context, Key, resource, watch_config};
use crate::{
    api::karmada::cluster::{ApiEnablement, Cluster},
    rollout::{desired::MCS_API_VERSION, objects::ENSEMBLE_LABEL},
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
    let full: Cluster = serde_json::from_value(serde_json::to_value(object).ok()?).ok()?;
    let mut cluster = full;
    let labels = cluster.metadata.labels.take();
    cluster.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        name: cluster.metadata.name.take(),
        labels,
        deletion_timestamp: cluster.metadata.deletion_timestamp.take(),
        ..Default::default()
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
    watcher::watcher(api, watch_config().labels(ENSEMBLE_LABEL))
        .default_backoff()
        .touched_objects()
        .filter_map(move |item| {
            let key = match item {
                Ok(object) => owner(&object),
                Err(error) => {
                    warn!(kind, %error, "watch");
                    None
                }
            };
            async move { key }
        })
        .boxed()
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
            let key = match item {
                Ok(object) => binding_owner(&object),
                Err(error) => {
                    warn!(%error, "watch of ResourceBindings");
                    None
                }
            };
            if let Some(key) = &key {
                let name = (key.namespace.clone().unwrap_or_default(), key.name.clone());
                if let Some(memory) = context.memory().get_mut(&name) {
                    memory.reported.get_or_insert_with(Instant::now);
                }
            }
            async move { key }
        })
        .boxed()
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

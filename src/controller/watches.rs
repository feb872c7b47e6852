//! Watches whose events cause another reconcile of a MultiClusterZooKeeper.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store},
        watcher::{self, Event},
    },
};
use tracing::warn;

use super::{
    clusters::reduced,
    context::{self, Context},
    kinds,
};
use crate::{
    api::{
        API_VERSION,
        karmada::{cluster, policy, resource_binding},
    },
    contract::labels::ENSEMBLE_LABEL,
    rollout::services::MCS_API_VERSION,
    runtime::reconcile::watch_config,
};

type Key = ObjectRef<DynamicObject>;

/// End of the name of every binding that Karmada makes for a `ZooKeeper`.
const BINDING_SUFFIX: &str = "-zookeeper";

/// Streams the objects to reconcile after changes of everything else around a MultiClusterZooKeeper.
pub(super) fn triggers(
    client: &Client,
    context: &Arc<Context>,
    store: Store<DynamicObject>,
) -> impl Stream<Item = Key> + Send + use<> {
    let mut streams: Vec<BoxStream<'static, Key>> = Vec::new();
    for resource in [
        kinds::resource(API_VERSION, "ZooKeeper"),
        kinds::resource(policy::API_VERSION, "PropagationPolicy"),
        kinds::resource(policy::API_VERSION, "OverridePolicy"),
        kinds::resource(MCS_API_VERSION, "ServiceExport"),
        kinds::resource(MCS_API_VERSION, "ServiceImport"),
    ] {
        streams.push(owned(client, &resource));
    }
    streams.push(bindings(client, Arc::clone(context)));
    streams.push(clusters(client, Arc::clone(context), store));
    futures::stream::select_all(streams)
}

/// Watches objects with our label, as metadata only.
fn owned(client: &Client, resource: &ApiResource) -> BoxStream<'static, Key> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
    let kind = resource.kind.clone();
    let mut owned = OwnedObjects::default();
    watcher::watcher(api, watch_config().labels(ENSEMBLE_LABEL))
        .default_backoff()
        .flat_map(move |event| {
            let event = event.inspect_err(|error| warn!(kind, %error, "Watch failed"));
            futures::stream::iter(event.map(|event| owned.keys_after(event)).unwrap_or_default())
        })
        .boxed()
}

/// Metadata of owned objects. An event that does not change it causes no reconcile. Karmada writes the status of a template
/// at every report of an agent, right after the binding: a reconcile for both would delay the next report.
#[derive(Debug, Default)]
struct OwnedObjects {
    /// By uid: the owner of the object, and its metadata without the fields that every write changes.
    objects: HashMap<String, (Key, ObjectMeta)>,
    /// Uids in the current list.
    listed: HashSet<String>,
}

impl OwnedObjects {
    /// The owners to reconcile after an event.
    fn keys_after(&mut self, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.extend(object.uid());
                self.put(&object)
            }
            // Objects that were deleted while the watch was interrupted.
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
            // The label names another owner: reconcile both.
            Some((other, _)) if other != key => vec![other, key],
            _ => vec![key],
        }
    }
}

fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let name = object.labels().get(ENSEMBLE_LABEL)?;
    Some(ObjectRef::new_with(name, kinds::multiclusterzookeeper()).within(&object.namespace()?))
}

/// Watches bindings of templates, as metadata only. It receives every binding of the control plane, and keeps none.
fn bindings(client: &Client, context: Arc<Context>) -> BoxStream<'static, Key> {
    let resource = kinds::resource(resource_binding::API_VERSION, "ResourceBinding");
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    watcher::watcher(api, watch_config())
        .default_backoff()
        .touched_objects()
        .filter_map(move |item| {
            let object = item.inspect_err(|error| warn!(%error, "Watch of ResourceBindings failed")).ok();
            let key = object.as_ref().and_then(binding_owner);
            if let (Some(key), Some(object)) = (&key, &object) {
                let name = (key.namespace.clone().unwrap_or_default(), key.name.clone());
                context.report_arrived(&name, context::version(&object.metadata));
            }
            async move { key }
        })
        .boxed()
}

fn binding_owner(object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
    let name = object.name_any();
    let template = name.strip_suffix(BINDING_SUFFIX)?;
    Some(ObjectRef::new_with(template, kinds::multiclusterzookeeper()).within(&object.namespace()?))
}

/// Watches member clusters. A change of a field that decisions use causes a reconcile of every object.
fn clusters(client: &Client, context: Arc<Context>, store: Store<DynamicObject>) -> BoxStream<'static, Key> {
    let resource = kinds::resource(cluster::API_VERSION, "Cluster");
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
                    context.clusters.end_list(&listed);
                    true
                }
                Ok(Event::Apply(object)) => reduced(&object).is_some_and(|c| context.clusters.put(c)),
                Ok(Event::Delete(object)) => context.clusters.remove(&object.name_any()),
                Err(error) => {
                    warn!(%error, "Watch of Clusters failed");
                    false
                }
            };
            let keys: Vec<Key> = if changed {
                let key = |object: &Arc<DynamicObject>| {
                    ObjectRef::from_obj_with(object.as_ref(), kinds::multiclusterzookeeper())
                };
                store.state().iter().map(key).collect()
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
    fn only_a_change_of_metadata_causes_a_reconcile() {
        let mut owned = OwnedObjects::default();
        let mut apply = |object| owned.keys_after(Event::Apply(object)).len();
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
    fn a_deletion_or_a_new_owner_causes_a_reconcile() {
        let mut owned = OwnedObjects::default();
        owned.keys_after(Event::Apply(object(1, &json!({}))));
        let other = json!({ "labels": { ENSEMBLE_LABEL: "other" } });
        assert_eq!(names(&owned.keys_after(Event::Apply(object(2, &other)))), ["zoo", "other"]);
        assert_eq!(names(&owned.keys_after(Event::Delete(object(3, &other)))), ["other"]);
        assert_eq!(owned.keys_after(Event::Apply(object(4, &json!({})))).len(), 1);
    }

    #[test]
    fn a_deletion_during_an_interrupted_watch_causes_a_reconcile() {
        let mut owned = OwnedObjects::default();
        let mut list = |objects: Vec<PartialObjectMeta<DynamicObject>>| {
            let mut keys = owned.keys_after(Event::Init);
            keys.extend(objects.into_iter().flat_map(|object| owned.keys_after(Event::InitApply(object))));
            keys.extend(owned.keys_after(Event::InitDone));
            keys
        };
        let both = || vec![object(1, &json!({})), object(2, &json!({ "name": "b", "uid": "u2" }))];
        assert_eq!(list(both()).len(), 2);
        assert!(list(both()).is_empty(), "nothing is new");
        assert_eq!(names(&list(vec![object(1, &json!({}))])), ["zoo"]);
        assert!(list(vec![object(1, &json!({}))]).is_empty());
    }
}

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
        reflector::ObjectRef,
        watcher::{Config, Event},
    },
};

use super::context::Context;
use mczk_api::{
    API_VERSION,
    contract::{
        certificate_names::{Holds, ensemble_of},
        labels::ENSEMBLE_LABEL,
        naming::{binding_name, ensemble_of_template, template_of_binding},
    },
    karmada::{cluster, policy, resource_binding},
};
use mczk_reading::{
    clusters::{ClusterChange, ClusterVersion, reduced},
    kinds,
    versions::{BINDING, Id, Sighting, hash, version},
};
use mczk_rules::rollout::services::MCS_API_VERSION;
use mczk_runtime::{reconcile::ObjectKey, watch};

type Key = ObjectRef<DynamicObject>;

/// Watches all MultiClusterZooKeepers, as metadata only. What it yields stays in memory, so it leaves out what nothing reads.
pub(super) fn ensembles(client: Client) -> BoxStream<'static, Event<DynamicObject>> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kinds::multiclusterzookeeper());
    watch::events(api, Config::default()).map(|event| map_event(event, least)).boxed()
}

fn map_event<A, B>(event: Event<A>, map: fn(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(map(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(map(object)),
        Event::Delete(object) => Event::Delete(map(object)),
    }
}

/// What a reconcile needs before it reads the object.
fn least(object: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    let ObjectMeta { name, namespace, uid, resource_version, generation, deletion_timestamp, .. } = object.metadata;
    let metadata =
        ObjectMeta { name, namespace, uid, resource_version, generation, deletion_timestamp, ..ObjectMeta::default() };
    DynamicObject { types: None, metadata, data: serde_json::Value::Null }
}

/// Streams the objects to reconcile after changes of everything else around a MultiClusterZooKeeper.
pub(super) fn triggers(client: &Client, context: &Arc<Context>) -> impl Stream<Item = Key> + Send + use<> {
    let mut streams: Vec<BoxStream<'static, Key>> = Vec::new();
    for resource in [
        kinds::resource(API_VERSION, "ZooKeeper"),
        kinds::resource(policy::API_VERSION, "PropagationPolicy"),
        kinds::resource(policy::API_VERSION, "OverridePolicy"),
        kinds::resource(MCS_API_VERSION, "ServiceExport"),
        kinds::resource(MCS_API_VERSION, "ServiceImport"),
    ] {
        streams.push(owned(client, Arc::clone(context), &resource));
    }
    streams.push(bindings(client, Arc::clone(context)));
    streams.push(clusters(client, Arc::clone(context)));
    futures::stream::select_all(streams)
}

/// Watches objects with our label, as metadata only.
fn owned(client: &Client, context: Arc<Context>, resource: &ApiResource) -> BoxStream<'static, Key> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
    let kind = resource.kind.clone();
    let mut owned = OwnedObjects::default();
    watch::events(api, Config::default().labels(ENSEMBLE_LABEL))
        .flat_map(move |event| {
            let changed = owned.after(event).into_iter().filter(|OwnedChange { owner, version, sighting }| {
                if let Some((name, version)) = version {
                    return context.saw(owner, (Id::of(&kind, name), *version), *sighting);
                }
                context.invalidate(owner);
                true
            });
            futures::stream::iter(changed.map(|seen| reference(&seen.owner)).collect::<Vec<_>>())
        })
        .boxed()
}

/// A change of an owned object that may cause a reconcile of its owner.
#[derive(Debug)]
struct OwnedChange {
    owner: Arc<ObjectKey>,
    /// Name and version of the object. `None` if the watch missed its deletion.
    version: Option<(String, Option<u64>)>,
    sighting: Sighting,
}

/// Owned objects. An event that does not change the metadata of one causes no reconcile. Karmada writes the status of a
/// template at every report of an agent, right after the binding: a reconcile for both would delay the next report.
#[derive(Debug, Default)]
struct OwnedObjects {
    /// By hash of the uid: the owner of the object, and the hash of its metadata without the fields that every write
    /// changes. There may be 100,000 objects.
    objects: HashMap<u64, (Arc<ObjectKey>, u64)>,
    /// The objects in the current list.
    listed: HashSet<u64>,
}

impl OwnedObjects {
    /// What an event changes.
    fn after(&mut self, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<OwnedChange> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(hash(&object.metadata.uid));
                self.put(&object, Sighting::Listed)
            }
            // Objects that were deleted while the watch was interrupted.
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone = self.objects.extract_if(|uid, _| !listed.contains(uid));
                gone.map(|(_, (owner, _))| OwnedChange { owner, version: None, sighting: Sighting::Changed }).collect()
            }
            Event::Apply(object) => self.put(&object, Sighting::Changed),
            Event::Delete(object) => {
                let known = self.objects.remove(&hash(&object.metadata.uid)).map(|(owner, _)| owner);
                let owner = known.or_else(|| owner(&object).map(Arc::new));
                owner.map(|owner| seen(owner, &object, Sighting::Changed)).into_iter().collect()
            }
        }
    }

    fn put(&mut self, object: &PartialObjectMeta<DynamicObject>, sighting: Sighting) -> Vec<OwnedChange> {
        let Some(key) = owner(object) else { return Vec::new() };
        let meta = ObjectMeta { resource_version: None, managed_fields: None, ..object.metadata.clone() };
        let meta = hash(&serde_json::to_string(&meta).unwrap_or_default());
        let (before, key) = match self.objects.get(&hash(&object.metadata.uid)) {
            Some((before, same)) if **before == key => {
                if *same == meta {
                    return Vec::new();
                }
                (None, Arc::clone(before))
            }
            // The label names another owner: reconcile both.
            other => (other.map(|(before, _)| Arc::clone(before)), Arc::new(key)),
        };
        self.objects.insert(hash(&object.metadata.uid), (Arc::clone(&key), meta));
        before.into_iter().chain([key]).map(|owner| seen(owner, object, sighting)).collect()
    }
}

fn seen(owner: Arc<ObjectKey>, object: &PartialObjectMeta<DynamicObject>, sighting: Sighting) -> OwnedChange {
    OwnedChange { owner, version: Some((object.name_any(), version(&object.metadata))), sighting }
}

fn reference((namespace, name): &ObjectKey) -> Key {
    ObjectRef::new_with(name, kinds::multiclusterzookeeper()).within(namespace)
}

fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<ObjectKey> {
    Some((object.namespace()?, object.labels().get(ENSEMBLE_LABEL)?.clone()))
}

/// Watches bindings of templates, as metadata only. It receives every binding of the control plane, and keeps none.
fn bindings(client: &Client, context: Arc<Context>) -> BoxStream<'static, Key> {
    let resource = kinds::resource(resource_binding::API_VERSION, "ResourceBinding");
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    watch::events(api, Config::default())
        .filter_map(move |event| std::future::ready(after_binding(&context, event)))
        .boxed()
}

/// The object to reconcile after the event of a binding.
fn after_binding(context: &Context, event: Event<PartialObjectMeta<DynamicObject>>) -> Option<Key> {
    let (object, sighting) = match event {
        Event::Apply(object) | Event::Delete(object) => (object, Sighting::Changed),
        Event::InitApply(object) => (object, Sighting::Listed),
        Event::Init | Event::InitDone => return None,
    };
    if let Some(key) = exposed_owner(&object).filter(|_| sighting == Sighting::Changed) {
        context.invalidate(&key);
        return Some(reference(&key));
    }
    let (key, version) = (binding_owner(&object)?, version(&object.metadata));
    if !context.saw(&key, (Id::of(BINDING, &object.name_any()), version), sighting) {
        return None;
    }
    // The answer of a spare is no report: it must not make the operator read the others again.
    if object.name_any() == binding_name(&key.1) {
        context.report_arrived(&key, version);
    }
    Some(reference(&key))
}

/// The ensemble whose private key a policy carries: Karmada makes a binding for its Secret, which no watch of ours shows.
fn exposed_owner(object: &PartialObjectMeta<DynamicObject>) -> Option<ObjectKey> {
    let name = object.name_any();
    let ensemble = ensemble_of(name.strip_suffix("-secret")?, Holds::Authority)?;
    Some((object.namespace()?, ensemble.to_owned()))
}

fn binding_owner(object: &PartialObjectMeta<DynamicObject>) -> Option<ObjectKey> {
    let name = object.name_any();
    Some((object.namespace()?, ensemble_of_template(template_of_binding(&name)?).to_owned()))
}

/// Watches member clusters. A change of a field that decisions use causes a reconcile of the objects that use the cluster.
fn clusters(client: &Client, context: Arc<Context>) -> BoxStream<'static, Key> {
    let resource = kinds::resource(cluster::API_VERSION, "Cluster");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut listed: Vec<String> = Vec::new();
    let (own, renewing, verified) = (Arc::clone(&context), Arc::clone(&context), context.clusters.take_changes());
    let verified = verified.flat_map(move |change| woken(&own, &[change]));
    // An old list would undo what the last comparison with the API server found.
    let watched = watch::newest(api, Config::default())
        .flat_map(move |event| {
            let put = |object: DynamicObject, sighting| {
                let stored = ClusterVersion::of(&object.metadata);
                let change = reduced(&object).and_then(|cluster| context.clusters.put(cluster, stored, sighting));
                change.into_iter().collect()
            };
            let changes: Vec<ClusterChange> = match event {
                Event::Init => {
                    listed.clear();
                    Vec::new()
                }
                Event::InitApply(object) => {
                    listed.push(object.name_any());
                    put(object, Sighting::Listed)
                }
                Event::InitDone => context.clusters.end_list(&listed),
                Event::Apply(object) => put(object, Sighting::Changed),
                Event::Delete(object) => context.clusters.remove(&object.name_any()).into_iter().collect(),
            };
            woken(&context, &changes)
        })
        .boxed();
    let renewals = futures::stream::once(async move { renewing.clusters.renew(&renewing.client).await });
    let renewals = renewals.flat_map(|()| futures::stream::empty());
    futures::stream::select_all([watched, verified.boxed(), renewals.boxed()]).boxed()
}

/// The objects that use these clusters.
fn woken(context: &Context, changes: &[ClusterChange]) -> impl Stream<Item = Key> + Send + use<> {
    let keys = changes.iter().flat_map(|change| context.cluster_changed(change));
    futures::stream::iter(keys.map(|key| reference(&key)).collect::<Vec<_>>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
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

    fn names(seen: &[OwnedChange]) -> Vec<&str> {
        seen.iter().map(|seen| seen.owner.1.as_str()).collect()
    }

    /// At rest the operator reads Secrets after five minutes alone.
    #[rstest]
    #[case::key_of_an_authority("my-zoo-abc123-authority-2-secret", Some("my-zoo"))]
    #[case::servers_need_it("my-zoo-abc123-identity-2-secret", None)]
    #[case::of_a_user("authority-2-secret", None)]
    #[case::of_a_template("my-zoo-zookeeper", None)]
    fn the_binding_of_a_private_key_causes_a_reconcile(#[case] name: &str, #[case] expected: Option<&str>) {
        let owner = exposed_owner(&object(1, &json!({ "name": name })));
        assert_eq!(owner, expected.map(|ensemble| ("n".to_owned(), ensemble.to_owned())));
    }

    #[test]
    fn only_a_change_of_metadata_causes_a_reconcile() {
        let mut owned = OwnedObjects::default();
        let mut apply = |object| owned.after(Event::Apply(object)).len();
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
        owned.after(Event::Apply(object(1, &json!({}))));
        let other = json!({ "labels": { ENSEMBLE_LABEL: "other" } });
        assert_eq!(names(&owned.after(Event::Apply(object(2, &other)))), ["zoo", "other"]);
        assert_eq!(names(&owned.after(Event::Delete(object(3, &other)))), ["other"]);
        assert_eq!(owned.after(Event::Apply(object(4, &json!({})))).len(), 1);
    }

    #[test]
    fn a_deletion_during_an_interrupted_watch_causes_a_reconcile() {
        let mut owned = OwnedObjects::default();
        let mut list = |objects: Vec<PartialObjectMeta<DynamicObject>>| {
            let mut seen = owned.after(Event::Init);
            seen.extend(objects.into_iter().flat_map(|object| owned.after(Event::InitApply(object))));
            seen.extend(owned.after(Event::InitDone));
            seen
        };
        let both = || vec![object(1, &json!({})), object(2, &json!({ "name": "b", "uid": "u2" }))];
        assert_eq!(list(both()).len(), 2);
        assert!(list(both()).is_empty(), "nothing is new");
        let gone = list(vec![object(1, &json!({}))]);
        assert_eq!((names(&gone), gone[0].version.is_none()), (vec!["zoo"], true));
        assert!(list(vec![object(1, &json!({}))]).is_empty());
    }
}

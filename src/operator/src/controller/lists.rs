//! Reads everything around many MultiClusterZooKeepers: a list of each kind, instead of a read of each object.
//!
//! The lists are as new as single reads. A list without a version is a read of the newest state, and it is complete: the API
//! server answers it from its cache only once the cache has reached that state.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ListMeta};
use kube::{
    Client, ResourceExt as _,
    api::{Api, ListParams, PartialObjectMeta},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use mczk_api::{
    API_VERSION, MultiClusterZooKeeper,
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
        naming::{binding_name, policy_name},
        tombstone,
    },
    karmada::{policy, resource_binding},
};
use mczk_reading::observe::{Related, list_text, parse, text};
use mczk_rules::rollout::services::{MCS_API_VERSION, has_spares, service_names};
use mczk_runtime::{
    failure::{During, Error, is_forbidden},
    reconcile::ObjectKey,
};

/// Single reads at once.
const AT_ONCE: usize = 40;

/// The kinds whose objects have our label.
const LABELLED: [(&str, &str); 5] = [
    (API_VERSION, "ZooKeeper"),
    (policy::API_VERSION, "PropagationPolicy"),
    (policy::API_VERSION, "OverridePolicy"),
    (MCS_API_VERSION, "ServiceExport"),
    (MCS_API_VERSION, "ServiceImport"),
];

/// A kind whose objects have no label of ours.
#[derive(Clone, Copy)]
struct Unlabelled {
    api_version: &'static str,
    kind: &'static str,
    /// The name of an ensemble's object, from that of the ensemble.
    name_of: fn(&str) -> String,
    /// Most objects of a namespace for each ensemble in a list. With more, a list costs more than single reads.
    most: usize,
}

const OBJECTS: Unlabelled =
    Unlabelled { api_version: API_VERSION, kind: "MultiClusterZooKeeper", name_of: str::to_owned, most: 2 };
/// Karmada makes one for the template, and one for each service and Secret that it propagates with it.
const BINDINGS: Unlabelled =
    Unlabelled { api_version: resource_binding::API_VERSION, kind: "ResourceBinding", name_of: binding_name, most: 8 };

/// A MultiClusterZooKeeper and everything around it.
pub(super) type WithRelated = (MultiClusterZooKeeper, Related);

/// The labelled objects and Secrets of one ensemble.
#[derive(Default)]
struct Listed {
    /// By kind and name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// `None` if the operator may not list them.
    secrets: Option<Vec<PartialObjectMeta<Secret>>>,
}

/// Reads these ensembles. The result lacks those that do not exist or do not parse, and those whose Secrets the operator may
/// not list. The caller reads them alone.
pub(super) async fn read(client: &Client, keys: &[ObjectKey]) -> Result<BTreeMap<ObjectKey, WithRelated>, Error> {
    // The labelled lists first: if the API server refuses one, no other request follows.
    let mut listed = labelled(client, keys).await?;
    let (mut objects, mut bindings) =
        futures::try_join!(unlabelled(client, OBJECTS, keys), unlabelled(client, BINDINGS, keys),)?;
    let all = keys.iter().filter_map(|key| {
        let listed = listed.remove(key).unwrap_or_default();
        Some((key.clone(), with_related(&objects.remove(key)?, bindings.remove(key).as_deref(), listed)?))
    });
    Ok(all.collect())
}

/// `None` if a part is missing or does not parse.
fn with_related(object: &str, binding: Option<&str>, listed: Listed) -> Option<WithRelated> {
    let object: MultiClusterZooKeeper = parse(object).ok()?;
    // It has a second binding, which the lists do not contain.
    if has_spares(&object) {
        return None;
    }
    let Listed { mut objects, secrets } = listed;
    let (name, secrets) = (object.name_any(), secrets?);
    let policy = policy_name(&name);
    let ended: BTreeSet<String> =
        secrets.iter().filter_map(|secret| tombstone::read(&secret.metadata, &name)).collect();
    let mut take = |kind, name: &str| objects.remove(&(kind, name.to_owned()));
    let mut services = BTreeMap::new();
    for (_, kind, name) in service_names(&object, &ended) {
        services.extend(take(kind, &name).map(|value| (format!("{kind}/{name}"), value)));
    }
    let related = Related {
        template: take("ZooKeeper", &name).map(serde_json::from_value).transpose().ok()?,
        policy: take("PropagationPolicy", &policy).map(serde_json::from_value).transpose().ok()?,
        overrides: take("OverridePolicy", &policy).map(serde_json::from_value).transpose().ok()?,
        services,
        binding: binding.map(parse).transpose().ok()?,
        spares: None,
        works: Vec::new(),
        secrets,
    };
    Some((object, related))
}

/// Lists the labelled kinds and the Secrets, all at the same time.
async fn labelled(client: &Client, keys: &[ObjectKey]) -> Result<BTreeMap<ObjectKey, Listed>, Error> {
    let names: BTreeSet<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
    let selector = format!("{ENSEMBLE_LABEL} in ({})", names.into_iter().collect::<Vec<_>>().join(","));
    let (namespaces, only) = (namespaces(keys), only_namespace(keys));
    let params = ListParams::default().labels(&selector);
    let objects = futures::future::try_join_all(LABELLED.map(|kind| list::<Value>(client, kind, only, &params)));
    // One list for each namespace: the operator may not list the Secrets of all.
    let secrets =
        futures::future::try_join_all(namespaces.iter().map(|namespace| secrets(client, namespace, selector.as_str())));
    let (objects, secrets) = futures::try_join!(objects, secrets)?;
    let mut all: BTreeMap<ObjectKey, Listed> = keys.iter().map(|key| (key.clone(), Listed::default())).collect();
    for (namespace, secrets) in namespaces.into_iter().zip(secrets) {
        let Some(secrets) = secrets else { continue };
        for (_, listed) in all.iter_mut().filter(|((of, _), _)| of == namespace) {
            listed.secrets = Some(Vec::new());
        }
        for secret in secrets {
            let owner = secret.labels().get(ENSEMBLE_LABEL).cloned().unwrap_or_default();
            if let Some(listed) = all.get_mut(&(namespace.to_owned(), owner)) {
                listed.secrets.get_or_insert_default().push(secret);
            }
        }
    }
    for ((_, kind), objects) in LABELLED.into_iter().zip(objects) {
        for object in objects.items {
            let field = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let labels = object.pointer("/metadata/labels").and_then(|labels| labels.get(ENSEMBLE_LABEL));
            let owner = labels.and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = field("/metadata/name");
            if let Some(listed) = all.get_mut(&(field("/metadata/namespace"), owner)) {
                listed.objects.insert((kind, name), object);
            }
        }
    }
    Ok(all)
}

/// The namespaces of these ensembles.
fn namespaces(keys: &[ObjectKey]) -> BTreeSet<&str> {
    keys.iter().map(|(namespace, _)| namespace.as_str()).collect()
}

/// The namespace of these ensembles, if all are in the same one.
fn only_namespace(keys: &[ObjectKey]) -> Option<&str> {
    let namespaces = namespaces(keys);
    namespaces.first().copied().filter(|_| namespaces.len() == 1)
}

/// Reads one object for each ensemble. It lists the namespace if all ensembles are in the same one, and gets those that the
/// list does not hold.
async fn unlabelled(client: &Client, of: Unlabelled, keys: &[ObjectKey]) -> Result<BTreeMap<ObjectKey, String>, Error> {
    let Unlabelled { api_version, kind, name_of, most } = of;
    let mut all = BTreeMap::new();
    if let Some(namespace) = only_namespace(keys) {
        let params = ListParams::default().limit(u32::try_from(most * keys.len()).unwrap_or(u32::MAX));
        let list = list::<Box<RawValue>>(client, (api_version, kind), Some(namespace), &params).await?;
        all = by_ensemble(list.items, keys, name_of);
        if list.metadata.continue_.unwrap_or_default().is_empty() {
            return Ok(all);
        }
    }
    let missing: Vec<&ObjectKey> = keys.iter().filter(|key| !all.contains_key(*key)).collect();
    let reads = missing.into_iter().map(|key| async move {
        let found = text(client, api_version, kind, &key.0, &name_of(&key.1)).await?;
        Ok::<_, Error>(found.map(|text| (key.clone(), text)))
    });
    let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE).boxed();
    while let Some(found) = reads.try_next().await? {
        all.extend(found);
    }
    Ok(all)
}

/// The listed objects that belong to these ensembles.
fn by_ensemble(
    items: Vec<Box<RawValue>>,
    keys: &[ObjectKey],
    name_of: fn(&str) -> String,
) -> BTreeMap<ObjectKey, String> {
    let wanted: BTreeMap<String, &ObjectKey> = keys.iter().map(|key| (name_of(&key.1), key)).collect();
    let named = items.into_iter().filter_map(|item| {
        let Named { metadata: NamedItem { name } } = serde_json::from_str(item.get()).ok()?;
        let key = *wanted.get(&name)?;
        Some((key.clone(), String::from(Box::<str>::from(item))))
    });
    named.collect()
}

/// A list of objects.
#[derive(Deserialize)]
struct ListedItems<T> {
    metadata: ListMeta,
    items: Vec<T>,
}

/// Any object with a name. The rest may not parse.
#[derive(Deserialize)]
struct Named {
    metadata: NamedItem,
}

#[derive(Deserialize)]
struct NamedItem {
    name: String,
}

async fn list<T: DeserializeOwned>(
    client: &Client,
    of: (&str, &str),
    namespace: Option<&str>,
    params: &ListParams,
) -> Result<ListedItems<T>, Error> {
    let text = list_text(client, of, namespace, params).await?;
    parse(&text).during(|| format!("parsing the list of {}s", of.1))
}

/// The Secrets without their content; `None` if the operator may not list them.
async fn secrets(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> Result<Option<Vec<PartialObjectMeta<Secret>>>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match api.list_metadata(&ListParams::default().labels(&format!("{selector},{INCARNATION_LABEL}"))).await {
        Err(error) if is_forbidden(&error) => Ok(None),
        other => Ok(Some(other.during(|| format!("listing the Secrets of namespace {namespace}"))?.items)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;

    /// A client whose answers are those of a function of the path and query, and all paths that were asked.
    fn client(answer: fn(&str) -> Option<Value>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Body>| {
            let path = request.uri().to_string();
            let (status, body) = match answer(&path) {
                Some(body) => (200, body),
                None => (404, json!({ "status": "Failure", "message": "", "reason": "NotFound", "code": 404 })),
            };
            all.lock().unwrap().push(path);
            async move {
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(status).body(body)?)
            }
        });
        (Client::new(service, "n"), asked)
    }

    fn answer(path: &str) -> Option<Value> {
        let meta = |name: &str| json!({ "name": name, "namespace": "n", "labels": { ENSEMBLE_LABEL: "zk" } });
        let list = |items: Value| Some(json!({ "metadata": {}, "items": items }));
        match path {
            _ if path.contains("/multiclusterzookeepers?") => {
                list(json!([multi_cluster_zookeeper::<Value>(json!({}))]))
            }
            _ if path.contains("/multiclusterzookeepers/zk") => Some(multi_cluster_zookeeper(json!({}))),
            _ if path.contains("/zookeepers?") => list(json!([])),
            _ if path.contains("/serviceexports?") => {
                list(json!([{ "metadata": meta("zk") }, { "metadata": meta("unknown") }]))
            }
            _ if path.contains('?') => list(json!([])),
            _ => None,
        }
    }

    #[tokio::test]
    async fn lists_replace_single_reads() {
        let (client, asked) = client(answer);
        let keys: Vec<ObjectKey> = ["zk", "gone"].map(|name| ("n".to_owned(), name.to_owned())).into();
        let read = read(&client, &keys).await.unwrap();
        assert_eq!(read.keys().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["zk"], "the other does not exist");
        let related = read.into_values().next().unwrap().1;
        assert_eq!(related.services.keys().collect::<Vec<_>>(), ["ServiceExport/zk"]);
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), LABELLED.len() + 3, "the Secrets, the objects and the bindings: {asked:?}");
        assert!(asked.iter().all(|path| path.contains('?') && !path.contains("resourceVersion")), "{asked:?}");
    }

    /// The first page of the objects holds one of two. The bindings, which may be more, are complete.
    #[tokio::test]
    async fn single_reads_follow_if_a_namespace_holds_many_others() {
        let (client, asked) = client(|path| {
            let mut list = answer(path)?;
            if path.contains("limit=4") {
                list["metadata"]["continue"] = json!("more");
            }
            Some(list)
        });
        let keys: Vec<ObjectKey> = ["zk", "other"].map(|name| ("n".to_owned(), name.to_owned())).into();
        assert_eq!(read(&client, &keys).await.unwrap().len(), 1);
        let asked = asked.lock().unwrap();
        let single: Vec<&String> = asked.iter().filter(|path| !path.contains('?')).collect();
        assert!(matches!(&*single, [path] if path.ends_with("/multiclusterzookeepers/other")), "{single:?}");
    }

    #[tokio::test]
    async fn a_refused_list_ends_the_read_before_any_get() {
        let (client, asked) = client(|_| None);
        let keys: Vec<ObjectKey> = (0..50).map(|number| ("n".to_owned(), format!("zk-{number}"))).collect();
        assert!(read(&client, &keys).await.is_err());
        assert!(asked.lock().unwrap().len() <= LABELLED.len() + 1);
    }
}

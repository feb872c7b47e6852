//! Reads everything that a decision rests on: live, from the API server, at the time of the decision.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, GetParams, GroupVersionKind, ListParams, Request},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Context, During, Error, certificates};
use crate::{
    api::{
        API_VERSION, MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            policy::{self, OverridePolicy, PropagationPolicy},
            resource_binding::{self, ResourceBinding},
            work::{self, BINDING_PERMANENT_ID, Work},
        },
    },
    contract::{
        certificate_names::Holds,
        naming::{binding_name, policy_name},
        tombstone,
    },
    rollout::{certificates::Certificate, desired::service_names, plan::Observed},
};

/// What came of looking.
pub(super) enum Outcome {
    /// The object does not exist any more.
    Gone,
    /// The object is there but is not what this version understands.
    Unreadable(Box<DynamicObject>, String),
    /// Everything.
    Observed(Box<Observed>),
}

fn resource_of(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// An API of one kind in one namespace, without its type.
pub(super) fn api(client: &Client, api_version: &str, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource_of(api_version, kind, plural))
}

/// Plural of the kinds that are reached without a type.
pub(super) fn plural(kind: &str) -> &'static str {
    match kind {
        "ServiceExport" => "serviceexports",
        "ServiceImport" => "serviceimports",
        "PropagationPolicy" => "propagationpolicies",
        "OverridePolicy" => "overridepolicies",
        "ResourceBinding" => "resourcebindings",
        "ZooKeeper" => "zookeepers",
        _ => "multiclusterzookeepers",
    }
}

/// What the API server has of one object, as text: it is read into its type in one step, at the reader's place.
async fn text(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, Error> {
    let path = DynamicObject::url_path(&resource_of(api_version, kind, plural(kind)), Some(namespace));
    let answer = match Request::new(path).get(name, &GetParams::default()) {
        Ok(request) => client.request_text(request).await,
        Err(error) => Err(kube::Error::BuildRequest(error)),
    };
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        other => other.map(Some).during(|| format!("reading {kind} {namespace}/{name}")),
    }
}

async fn get<T: DeserializeOwned>(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, Error> {
    let found = text(client, api_version, kind, namespace, name).await?;
    found.map(|text| understand(&text)).transpose().during(|| format!("understanding {kind} {namespace}/{name}"))
}

/// Reads a text in one step. An error names no place in it: what is told in a status must not change with every write.
fn understand<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str::<Value>(text).and_then(serde_json::from_value))
}

/// Version, kind and name.
type Name = (&'static str, &'static str, String);

/// Reads services, exports, imports and their policy.
async fn services(client: &Client, namespace: &str, names: &[Name]) -> Result<BTreeMap<String, Value>, Error> {
    let found = futures::future::try_join_all(names.iter().map(|(api_version, kind, name)| async move {
        let value = get::<Value>(client, api_version, kind, namespace, name).await?;
        Ok::<_, Error>(value.map(|v| (format!("{kind}/{name}"), v)))
    }))
    .await?;
    Ok(found.into_iter().flatten().collect())
}

/// The names that services have if the object is still as the watch saw it.
fn likely_names(seen: &DynamicObject) -> Vec<Name> {
    let spec = seen.data.get("spec").and_then(|spec| Deserialize::deserialize(spec).ok());
    let status = seen.data.get("status").and_then(|status| Deserialize::deserialize(status).ok());
    let object = spec.map(|spec| MultiClusterZooKeeper { metadata: seen.metadata.clone(), spec, status });
    // Seldom is anything noted; then they are read again.
    object.map(|object| service_names(&object, &BTreeSet::new())).unwrap_or_default()
}

/// How the notes of lives that are over, and the certificates, are to be read: while no quorum formed a note decides which life
/// it is, and must not be overlooked.
fn secrets_as_of(seen: &DynamicObject) -> certificates::AsOf {
    let formed = seen.data.pointer("/status/ensemble/formed").and_then(Value::as_bool) == Some(true);
    match (seen.metadata.deletion_timestamp.is_some(), formed) {
        (true, _) => certificates::AsOf::Now,
        (false, true) => certificates::AsOf::JustBefore,
        (false, false) => certificates::AsOf::NowOrNever,
    }
}

/// Reads everything that concerns one object. What the watch has `seen` of it tells only what else to read at the same
/// time.
pub(super) async fn observe(
    seen: &DynamicObject,
    namespace: &str,
    name: &str,
    context: &Context,
    failure: Option<String>,
) -> Result<Outcome, Error> {
    let client = &context.client;
    let likely = likely_names(seen);
    let (policies, bound) = (policy_name(name), binding_name(name));
    // All at once: what is read one after the other adds to the time between two clusters.
    let (raw, template, policy, overrides, binding, found, secrets) = futures::try_join!(
        text(client, API_VERSION, "MultiClusterZooKeeper", namespace, name),
        get::<ZooKeeper>(client, API_VERSION, "ZooKeeper", namespace, name),
        get::<PropagationPolicy>(client, policy::API_VERSION, "PropagationPolicy", namespace, &policies),
        get::<OverridePolicy>(client, policy::API_VERSION, "OverridePolicy", namespace, &policies),
        get::<ResourceBinding>(client, resource_binding::API_VERSION, "ResourceBinding", namespace, &bound),
        services(client, namespace, &likely),
        certificates::seen(namespace, name, secrets_as_of(seen), context),
    )?;
    let Some(raw) = raw else { return Ok(Outcome::Gone) };
    let object: MultiClusterZooKeeper = match understand(&raw) {
        Ok(object) => object,
        Err(error) => {
            let raw = understand(&raw).during(|| format!("understanding MultiClusterZooKeeper {namespace}/{name}"))?;
            return Ok(Outcome::Unreadable(Box::new(raw), error.to_string()));
        }
    };
    let ended: BTreeSet<String> = secrets.iter().filter_map(|secret| tombstone::read(&secret.metadata, name)).collect();
    let names = service_names(&object, &ended);
    // Their names have the ensemble's id in them, which the watch may not have seen yet.
    let services = if names == likely { found } else { services(client, namespace, &names).await? };
    let certificates: Vec<Certificate> =
        secrets.iter().filter_map(|secret| Certificate::read(&secret.metadata, &object)).collect();
    let works = if object.metadata.deletion_timestamp.is_some() {
        let exports = names.iter().filter(|(_, kind, _)| *kind != "PropagationPolicy");
        let bindings = exports.map(|(_, kind, name)| format!("{name}-{}", kind.to_lowercase()));
        let travel = certificates.iter().filter(|c| c.holds != Holds::Authority);
        let bindings = bindings.chain(travel.map(|c| format!("{}-secret", c.name)));
        let mut all = works(client, binding.as_ref()).await?;
        for name in bindings {
            let binding = get(client, resource_binding::API_VERSION, "ResourceBinding", namespace, &name).await?;
            all.extend(works(client, binding.as_ref()).await?);
        }
        all
    } else {
        Vec::new()
    };
    Ok(Outcome::Observed(Box::new(Observed {
        object,
        template,
        policy,
        overrides,
        services,
        binding,
        works,
        clusters: context.clusters.all(),
        certificates,
        tombstones: ended,
        server_image: context.options.server_image.clone(),
        failure,
    })))
}

/// The Works of a binding, in all clusters' namespaces.
async fn works(client: &Client, binding: Option<&ResourceBinding>) -> Result<Vec<Work>, Error> {
    let Some(id) = binding.and_then(|b| b.metadata.labels.as_ref()).and_then(|l| l.get(BINDING_PERMANENT_ID)) else {
        return Ok(Vec::new());
    };
    let path = DynamicObject::url_path(&resource_of(work::API_VERSION, "Work", "works"), None);
    let params = ListParams::default().labels(&format!("{BINDING_PERMANENT_ID}={id}"));
    let answer = match Request::new(path).list(&params) {
        Ok(request) => client.request_text(request).await,
        Err(error) => Err(kube::Error::BuildRequest(error)),
    };
    let text = answer.during(|| "listing Works".to_owned())?;
    let list: Works = understand(&text).during(|| "understanding a Work".to_owned())?;
    Ok(list.items)
}

/// A list of Works.
#[derive(Deserialize)]
struct Works {
    items: Vec<Work>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_not_understood_is_told_of_without_a_place_in_its_text() {
        let text = |version: &str| {
            json!({
                "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
                "metadata": { "name": "zoo", "resourceVersion": version }, "spec": { "replicas": "three" },
            })
            .to_string()
        };
        let error = |version| understand::<MultiClusterZooKeeper>(&text(version)).unwrap_err().to_string();
        assert_eq!(error("9"), error("1000"));
        assert!(!error("9").contains("column"), "{}", error("9"));
    }

    #[test]
    fn likely_names_are_those_of_the_object_as_the_watch_saw_it() {
        let object = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zoo", "namespace": "n", "uid": "u" },
            "spec": { "replicas": 3, "template": { "image": "zk:1", "storage": { "size": "1Gi" } }, "unknown": 1 },
            "status": { "ensemble": { "incarnation": "abc123", "epoch": 1, "formed": true } },
        });
        for pointer in ["", "/status"] {
            let mut object = object.clone();
            if !pointer.is_empty() {
                object.as_object_mut().unwrap().remove("status");
            }
            let seen: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let typed: MultiClusterZooKeeper = serde_json::from_value(object).unwrap();
            assert_eq!(likely_names(&seen), service_names(&typed, &BTreeSet::new()));
            // Before a quorum formed, those of another life too.
            assert_eq!(likely_names(&seen).len(), if pointer.is_empty() { 4 } else { 5 });
        }
        let strange =
            json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "K", "metadata": { "name": "zoo" }, "spec": 1 });
        assert!(likely_names(&serde_json::from_value(strange).unwrap()).is_empty());
    }
}

//! Reads everything that a decision depends on: live, from the API server, at the time of the decision.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Client, Resource, ResourceExt,
    api::{DynamicObject, GetParams, ListParams, PartialObjectMeta, Request},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    certificate_secrets::{self, Freshness},
    clusters::Clusters,
    kinds,
    versions::{BINDING, Id, ObjectVersion, version},
};
use mczk_api::{
    API_VERSION, MultiClusterZooKeeper, ZooKeeper,
    contract::{
        certificate_names::Holds,
        naming::{binding_name, policy_name, spare_check_name},
        tombstone,
    },
    karmada::{
        policy::{self, OverridePolicy, PropagationPolicy},
        resource_binding::{self, ResourceBinding},
        work::{self, BINDING_PERMANENT_ID, Work},
    },
};
use mczk_rules::rollout::{
    certificates::Certificate,
    live::Live,
    plan::Observed,
    services::{MCS_API_VERSION, ServiceName, has_spares, names_in, names_of_spares, service_names},
};
use mczk_runtime::{
    failure::{During, Error},
    reconcile::ObjectKey,
};

/// What an observation needs besides the object.
pub struct Sources<'a> {
    /// Client of karmada-apiserver.
    pub client: &'a Client,
    /// The member clusters.
    pub clusters: &'a Clusters,
    /// Image of mczk itself, which member clusters run.
    pub server_image: &'a str,
    /// Time since the caller last asked Karmada to schedule the object again.
    pub asked: Option<Duration>,
    /// Number of the term in which the caller acts.
    pub term: Option<i32>,
    /// Why the last reconciles failed.
    pub failure: Option<String>,
    /// True if the last attempt failed.
    pub retried: bool,
    /// True if the observation fails without the right to list Secrets. The operator continues, and reports what it lacks.
    pub needs_secrets: bool,
}

/// The objects around a MultiClusterZooKeeper.
pub struct Related {
    /// The template.
    pub template: Option<Live<ZooKeeper>>,
    /// The PropagationPolicy.
    pub policy: Option<Live<PropagationPolicy>>,
    /// The OverridePolicy.
    pub overrides: Option<Live<OverridePolicy>>,
    /// The objects beside the template, by `Kind/name`.
    pub services: BTreeMap<String, Value>,
    /// The binding of the template.
    pub binding: Option<ResourceBinding>,
    /// The binding of the object that asks spares.
    pub spares: Option<ResourceBinding>,
    /// The Works of the template's binding.
    pub works: Vec<Work>,
    /// The Secrets of the ensemble: certificates and tombstones.
    pub secrets: Vec<PartialObjectMeta<Secret>>,
}

impl Related {
    /// The whole observation.
    #[must_use]
    pub fn of(self, object: MultiClusterZooKeeper, sources: Sources<'_>) -> Observed {
        let name = object.name_any();
        let Self { template, policy, overrides, services, binding, spares, works, secrets } = self;
        let certificates = secrets.iter().filter_map(|secret| Certificate::read(&secret.metadata, &object)).collect();
        Observed {
            template,
            policy,
            overrides,
            services,
            binding,
            spares,
            works,
            clusters: sources.clusters.all(),
            certificates,
            tombstones: secrets.iter().filter_map(|secret| tombstone::read(&secret.metadata, &name)).collect(),
            server_image: sources.server_image.to_owned(),
            asked: sources.asked,
            term: sources.term,
            failure: sources.failure,
            object,
        }
    }
}

/// Result of an observation.
pub enum ReadOutcome {
    /// The object does not exist any more.
    Gone,
    /// This version cannot parse the object.
    Unreadable(Box<DynamicObject>, String),
    /// The object and everything around it.
    Observed(Box<Observed>),
}

/// Sends a request as kube has built it, and returns the answer as text: the caller parses it into its type in one step.
async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<String> {
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await
}

/// A list as text, of a namespace or of all.
///
/// # Errors
/// Those of the API server.
pub async fn list_text(
    client: &Client,
    (api_version, kind): (&str, &str),
    namespace: Option<&str>,
    params: &ListParams,
) -> Result<String, Error> {
    let path = DynamicObject::url_path(&kinds::resource(api_version, kind), namespace);
    send(client, Request::new(path).list(params)).await.during(|| format!("listing {kind}s"))
}

/// One object as text, `None` if it does not exist.
///
/// # Errors
/// All others of the API server.
pub async fn text(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, Error> {
    let path = DynamicObject::url_path(&kinds::resource(api_version, kind), Some(namespace));
    match send(client, Request::new(path).get(name, &GetParams::default())).await {
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
    found.map(|text| parse(&text)).transpose().during(|| format!("parsing {kind} {namespace}/{name}"))
}

/// Parses a text. An error names no position in it: a message in a status must not change with every write.
///
/// # Errors
/// If the text is not of this type.
pub fn parse<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str::<Value>(text).and_then(serde_json::from_value))
}

/// Reads exports, imports and their policy.
async fn services(client: &Client, namespace: &str, names: &[ServiceName]) -> Result<BTreeMap<String, Value>, Error> {
    let found = futures::future::try_join_all(names.iter().map(|(api_version, kind, name)| async move {
        let value = get::<Value>(client, api_version, kind, namespace, name).await?;
        Ok::<_, Error>(value.map(|v| (format!("{kind}/{name}"), v)))
    }))
    .await?;
    Ok(found.into_iter().flatten().collect())
}

/// Names of exports and imports, if the object is still as the watch or the last read saw it.
fn likely_names(watched: &DynamicObject) -> Vec<ServiceName> {
    if watched.data.get("spec").is_some_and(|spec| !spec.is_object()) {
        return Vec::new();
    }
    let ensemble = watched.data.pointer("/status/ensemble");
    let incarnation = ensemble.and_then(|ensemble| ensemble.get("incarnation")).and_then(Value::as_str);
    let formed = ensemble.and_then(|ensemble| ensemble.get("formed")).and_then(Value::as_bool) == Some(true);
    let (name, uid) = (watched.name_any(), watched.uid().unwrap_or_default());
    // Tombstones are rare. If there is one, the caller reads again.
    let mut names = names_in(&name, &uid, incarnation.map(|incarnation| (incarnation, formed)), &BTreeSet::new());
    if likely_has_spares(watched) {
        names.extend(names_of_spares(&name));
    }
    names
}

/// True if the object has spares, if it is still as the watch or the last read saw it.
fn likely_has_spares(watched: &DynamicObject) -> bool {
    let spares = watched.data.pointer("/spec/failover/spares").and_then(Value::as_array);
    spares.is_some_and(|spares| !spares.is_empty())
}

/// The binding of the object that asks spares; `None` if it shall not be read.
async fn spares_binding(
    client: &Client,
    (namespace, name): &ObjectKey,
    reads: bool,
) -> Result<Option<ResourceBinding>, Error> {
    if !reads {
        return Ok(None);
    }
    let bound = binding_name(&spare_check_name(name));
    get(client, resource_binding::API_VERSION, "ResourceBinding", namespace, &bound).await
}

/// How recent the list of tombstones and certificates must be. Until a quorum has formed, a tombstone decides which
/// incarnation is current, so none may be missed.
fn freshness(watched: &DynamicObject) -> Freshness {
    let formed = watched.data.pointer("/status/ensemble/formed").and_then(Value::as_bool) == Some(true);
    match (watched.metadata.deletion_timestamp.is_some(), formed) {
        (true, _) => Freshness::Current,
        (false, true) => Freshness::Recent,
        (false, false) => Freshness::CurrentOrError,
    }
}

/// Reads one object and everything around it. The object as the watch saw it only names what else to read at the same
/// time.
///
/// # Errors
/// If one of the reads fails, or an object other than the watched one does not parse.
pub async fn observe(watched: &DynamicObject, key: &ObjectKey, sources: Sources<'_>) -> Result<ReadOutcome, Error> {
    let (namespace, name) = key;
    let client = sources.client;
    let freshness = if sources.needs_secrets { Freshness::CurrentOrError } else { freshness(watched) };
    let (likely, asks) = (likely_names(watched), likely_has_spares(watched));
    let (policies, bound) = (policy_name(name), binding_name(name));
    if sources.retried {
        // An API server that refuses this read refuses the others too.
        Box::pin(text(client, API_VERSION, "MultiClusterZooKeeper", namespace, name)).await?;
    }
    // All at once: sequential reads add to the time between two clusters.
    let (raw, template, policy, overrides, binding, spares, found, secrets, ()) = futures::try_join!(
        text(client, API_VERSION, "MultiClusterZooKeeper", namespace, name),
        get::<Live<ZooKeeper>>(client, API_VERSION, "ZooKeeper", namespace, name),
        get::<Live<PropagationPolicy>>(client, policy::API_VERSION, "PropagationPolicy", namespace, &policies),
        get::<Live<OverridePolicy>>(client, policy::API_VERSION, "OverridePolicy", namespace, &policies),
        get::<ResourceBinding>(client, resource_binding::API_VERSION, "ResourceBinding", namespace, &bound),
        Box::pin(spares_binding(client, key, asks)),
        Box::pin(services(client, namespace, &likely)),
        Box::pin(certificate_secrets::list(namespace, name, freshness, client)),
        Box::pin(sources.clusters.verify(client)),
    )?;
    let Some(raw) = raw else { return Ok(ReadOutcome::Gone) };
    let object: MultiClusterZooKeeper = match parse(&raw) {
        Ok(object) => object,
        Err(error) => {
            let raw = parse(&raw).during(|| format!("parsing MultiClusterZooKeeper {namespace}/{name}"))?;
            return Ok(ReadOutcome::Unreadable(Box::new(raw), error.to_string()));
        }
    };
    let tombstones: BTreeSet<String> =
        secrets.iter().filter_map(|secret| tombstone::read(&secret.metadata, name)).collect();
    let names = service_names(&object, &tombstones);
    // Their names contain the incarnation, which the watch may not have seen yet.
    let services = if names == likely { found } else { services(client, namespace, &names).await? };
    let works = if object.metadata.deletion_timestamp.is_some() {
        let certificates = secrets.iter().filter_map(|secret| Certificate::read(&secret.metadata, &object));
        let exports = names.iter().filter(|(api_version, _, _)| *api_version == MCS_API_VERSION);
        let bindings = exports.map(|(_, kind, name)| format!("{name}-{}", kind.to_lowercase()));
        let propagated = certificates.filter(|c| c.holds != Holds::Authority);
        let bindings = bindings.chain(propagated.map(|c| format!("{}-secret", c.name)));
        let mut all = works(client, binding.as_ref()).await?;
        for name in bindings {
            let binding = get(client, resource_binding::API_VERSION, "ResourceBinding", namespace, &name).await?;
            all.extend(works(client, binding.as_ref()).await?);
        }
        all
    } else if may_be_left_behind(&object, binding.as_ref()) {
        works(client, binding.as_ref()).await?
    } else {
        Vec::new()
    };
    let spares = if asks { spares } else { Box::pin(spares_binding(client, key, has_spares(&object))).await? };
    let related = Related { template, policy, overrides, services, binding, spares, works, secrets };
    Ok(ReadOutcome::Observed(Box::new(related.of(object, sources))))
}

/// True if a cluster of the ensemble has left Karmada's schedule since it reported. Its Work may still be there.
fn may_be_left_behind(object: &MultiClusterZooKeeper, binding: Option<&ResourceBinding>) -> bool {
    let items = || binding.iter().flat_map(|binding| &binding.status.aggregated_status);
    let reported = object.status.iter().flat_map(|status| &status.clusters).filter(|cluster| cluster.reported);
    reported.into_iter().any(|cluster| items().all(|item| item.cluster_name != cluster.name))
}

/// The versions of everything in an observation that the controller watches.
#[must_use]
pub fn versions(observed: &Observed) -> Vec<ObjectVersion> {
    let name = observed.object.name_any();
    let of = |kind: &str, name: &str, meta: &ObjectMeta| (Id::of(kind, name), version(meta));
    let mut versions = vec![own_version(observed, &observed.object.metadata)];
    versions.extend(observed.template.as_ref().map(|object| of("ZooKeeper", &name, &object.metadata)));
    let policy = policy_name(&name);
    versions.extend(observed.policy.as_ref().map(|object| of("PropagationPolicy", &policy, &object.metadata)));
    versions.extend(observed.overrides.as_ref().map(|object| of("OverridePolicy", &policy, &object.metadata)));
    versions.extend(observed.binding.as_ref().map(|object| of(BINDING, &binding_name(&name), &object.metadata)));
    let check = binding_name(&spare_check_name(&name));
    versions.extend(observed.spares.as_ref().map(|object| of(BINDING, &check, &object.metadata)));
    versions.extend(observed.services.iter().filter_map(|(key, object)| {
        let (kind, name) = key.split_once('/')?;
        Some((Id::of(kind, name), object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()))
    }));
    versions
}

/// A version of the object itself.
#[must_use]
pub fn own_version(observed: &Observed, meta: &ObjectMeta) -> ObjectVersion {
    (Id::of("MultiClusterZooKeeper", &observed.object.name_any()), version(meta))
}

/// The Works of a binding, in all clusters' namespaces.
async fn works(client: &Client, binding: Option<&ResourceBinding>) -> Result<Vec<Work>, Error> {
    works_labelled(client, BINDING_PERMANENT_ID, binding.map(|binding| &binding.metadata)).await
}

/// The Works that have the same label as their binding.
pub(super) async fn works_labelled(
    client: &Client,
    label: &str,
    binding: Option<&ObjectMeta>,
) -> Result<Vec<Work>, Error> {
    let Some(id) = binding.and_then(|meta| meta.labels.as_ref()).and_then(|labels| labels.get(label)) else {
        return Ok(Vec::new());
    };
    let params = ListParams::default().labels(&format!("{label}={id}"));
    let text = list_text(client, (work::API_VERSION, "Work"), None, &params).await?;
    let list: Works = parse(&text).during(|| "parsing a Work".to_owned())?;
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
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;

    #[test]
    fn a_parse_error_names_no_position() {
        let text = |version: &str| {
            json!({
                "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
                "metadata": { "name": "zoo", "resourceVersion": version }, "spec": { "replicas": "three" },
            })
            .to_string()
        };
        let error = |version| parse::<MultiClusterZooKeeper>(&text(version)).unwrap_err().to_string();
        assert_eq!(error("9"), error("1000"));
        assert!(!error("9").contains("column"), "{}", error("9"));
    }

    #[test]
    fn likely_names_are_those_of_the_object_as_the_watch_saw_it() {
        let formed = json!({ "ensemble": { "incarnation": "abc123", "epoch": 1, "formed": true } });
        // Before a quorum has formed, those of another incarnation too.
        for (status, count) in [(formed, 6), (Value::Null, 7)] {
            let more = json!({ "spec": { "unknown": 1 }, "status": status });
            let watched: DynamicObject = multi_cluster_zookeeper(more.clone());
            let typed: MultiClusterZooKeeper = multi_cluster_zookeeper(more);
            assert_eq!(likely_names(&watched), service_names(&typed, &BTreeSet::new()));
            assert_eq!(likely_names(&watched).len(), count);
        }
        let more = json!({ "spec": { "failover": { "spares": ["m4"] } } });
        let with_spares = likely_names(&multi_cluster_zookeeper(more.clone()));
        let typed: MultiClusterZooKeeper = multi_cluster_zookeeper(more);
        assert_eq!(with_spares, service_names(&typed, &BTreeSet::new()));
        assert_eq!(with_spares.len(), 9);
        let invalid =
            json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "K", "metadata": { "name": "zoo" }, "spec": 1 });
        assert!(likely_names(&serde_json::from_value(invalid).unwrap()).is_empty());
    }
}

//! Reads everything that a decision rests on: live, from the API server, at the time of the decision.

use std::collections::BTreeMap;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Context, During, Error, resource};
use crate::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            policy::{OverridePolicy, PropagationPolicy},
            resource_binding::ResourceBinding,
            work::{BINDING_PERMANENT_ID, Work},
        },
    },
    rollout::{
        desired::service_names,
        objects::{binding_name, policy_name},
        plan::Observed,
    },
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

/// An API of one kind in one namespace, without its type.
pub(super) fn api(client: &Client, api_version: &str, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
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

async fn get<T: DeserializeOwned>(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, Error> {
    let found = api(client, api_version, kind, plural(kind), namespace)
        .get_opt(name)
        .await
        .during(|| format!("reading {kind} {namespace}/{name}"))?;
    found
        .map(|object| serde_json::to_value(object).and_then(serde_json::from_value))
        .transpose()
        .during(|| format!("understanding {kind} {namespace}/{name}"))
}

/// Reads everything that concerns one object.
pub(super) async fn observe(
    namespace: &str,
    name: &str,
    context: &Context,
    failure: Option<String>,
) -> Result<Outcome, Error> {
    let client = &context.client;
    let own: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let raw = async { own.get_opt(name).await.during(|| format!("reading MultiClusterZooKeeper {namespace}/{name}")) };
    let (policies, bound) = (policy_name(name), binding_name(name));
    // All at once: what is read one after the other adds to the time between two clusters.
    let (raw, template, policy, overrides, binding) = futures::try_join!(
        raw,
        get::<ZooKeeper>(client, crate::api::API_VERSION, "ZooKeeper", namespace, name),
        get::<PropagationPolicy>(client, "policy.karmada.io/v1alpha1", "PropagationPolicy", namespace, &policies),
        get::<OverridePolicy>(client, "policy.karmada.io/v1alpha1", "OverridePolicy", namespace, &policies),
        get::<ResourceBinding>(client, "work.karmada.io/v1alpha2", "ResourceBinding", namespace, &bound),
    )?;
    let Some(raw) = raw else { return Ok(Outcome::Gone) };
    let object: MultiClusterZooKeeper =
        match serde_json::to_value(&raw).and_then(serde_json::from_value::<MultiClusterZooKeeper>) {
            Ok(object) => object,
            Err(error) => return Ok(Outcome::Unreadable(Box::new(raw), error.to_string())),
        };
    let names = service_names(&object);
    let found = futures::future::try_join_all(names.iter().map(|(api_version, kind, name)| async move {
        let value = get::<Value>(client, api_version, kind, namespace, name).await?;
        Ok::<_, Error>(value.map(|v| (format!("{kind}/{name}"), v)))
    }))
    .await?;
    let services: BTreeMap<String, Value> = found.into_iter().flatten().collect();
    let works = if object.metadata.deletion_timestamp.is_some() {
        let exports = names.iter().filter(|(_, kind, _)| *kind != "PropagationPolicy");
        let bindings = exports.map(|(_, kind, name)| format!("{name}-{}", kind.to_lowercase()));
        let mut all = works(client, binding.as_ref()).await?;
        for name in bindings {
            let binding = get(client, "work.karmada.io/v1alpha2", "ResourceBinding", namespace, &name).await?;
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
        server_image: context.options.server_image.clone(),
        failure,
    })))
}

/// The Works of a binding, in all clusters' namespaces.
async fn works(client: &Client, binding: Option<&ResourceBinding>) -> Result<Vec<Work>, Error> {
    let Some(id) = binding.and_then(|b| b.metadata.labels.as_ref()).and_then(|l| l.get(BINDING_PERMANENT_ID)) else {
        return Ok(Vec::new());
    };
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work"), "works");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let list = api
        .list(&ListParams::default().labels(&format!("{BINDING_PERMANENT_ID}={id}")))
        .await
        .during(|| "listing Works".to_owned())?;
    list.items
        .into_iter()
        .map(|work| serde_json::to_value(work).and_then(serde_json::from_value))
        .collect::<serde_json::Result<_>>()
        .during(|| "understanding a Work".to_owned())
}

//! What commands read of the control plane: single objects, and what the operator observes. Nothing here writes; a dry run
//! asks the API server to check a write and to make none.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
};
use serde::de::DeserializeOwned;

use super::{
    certificate_secrets::NO_RIGHTS,
    clusters::{self, Clusters},
    kinds,
    observe::{self, Sources},
    operator_identity::{DEFAULT_SERVER_IMAGE, FIELD_MANAGER},
    pages::Pages,
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{conditions::Reason, naming::binding_name},
    karmada::{
        cluster,
        resource_binding::{self, ResourceBinding},
        work::{BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID},
    },
};
use mczk_rules::rollout::plan::Observed;
use mczk_runtime::failure::{During, Error};

pub use observe::ReadOutcome;

/// The MultiClusterZooKeepers of a namespace, or of all.
///
/// # Errors
/// If the API server refuses or does not answer.
pub async fn ensembles(client: &Client, namespace: Option<&str>) -> Result<Vec<DynamicObject>, Error> {
    let resource = kinds::multiclusterzookeeper();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let list = api.list(&ListParams::default()).await.during(|| "listing MultiClusterZooKeepers".to_owned())?;
    Ok(list.items)
}

/// One MultiClusterZooKeeper, if it exists.
///
/// # Errors
/// As [`ensembles`].
pub async fn ensemble(client: &Client, namespace: &str, name: &str) -> Result<Option<DynamicObject>, Error> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kinds::multiclusterzookeeper());
    api.get_opt(name).await.during(|| format!("reading MultiClusterZooKeeper {namespace}/{name}"))
}

/// Karmada's binding of the template, which holds the reports of the member clusters.
///
/// # Errors
/// As [`ensembles`], and if this version cannot parse it.
pub async fn binding(client: &Client, namespace: &str, name: &str) -> Result<Option<ResourceBinding>, Error> {
    binding_of(client, namespace, &binding_name(name)).await
}

/// True if no Work preserves an object, so that Karmada deletes it in the member clusters together with its template.
///
/// # Errors
/// As [`ensembles`].
pub async fn is_released(client: &Client, kind: &str, namespace: Option<&str>, name: &str) -> Result<bool, Error> {
    let (resource, label) = match namespace {
        Some(_) => ("ResourceBinding", BINDING_PERMANENT_ID),
        None => ("ClusterResourceBinding", CLUSTER_BINDING_PERMANENT_ID),
    };
    let resource = kinds::resource(resource_binding::API_VERSION, resource);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = format!("{name}-{}", kind.to_lowercase());
    let binding = api.get_metadata_opt(&name).await.during(|| format!("reading {} {name}", resource.kind))?;
    let works = observe::works_labelled(client, label, binding.as_ref().map(|binding| &binding.metadata)).await?;
    Ok(works.iter().all(|work| work.spec.preserve_resources_on_deletion != Some(true)))
}

/// A ResourceBinding.
///
/// # Errors
/// As [`binding`].
pub async fn binding_of(client: &Client, namespace: &str, name: &str) -> Result<Option<ResourceBinding>, Error> {
    let api = kinds::api(client, resource_binding::API_VERSION, "ResourceBinding", namespace);
    let found = api.get_opt(name).await.during(|| format!("reading ResourceBinding {namespace}/{name}"))?;
    found.map(parse).transpose().during(|| format!("parsing ResourceBinding {namespace}/{name}"))
}

fn parse<T: DeserializeOwned>(object: DynamicObject) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::to_value(object)?)
}

/// The member clusters.
///
/// # Errors
/// As [`ensembles`].
pub async fn member_clusters(client: &Client) -> Result<Vec<cluster::Cluster>, Error> {
    Ok(list_clusters(client).await?.all())
}

async fn list_clusters(client: &Client) -> Result<Clusters, Error> {
    let (mut all, mut pages) = (Vec::new(), Pages::of(client, (cluster::API_VERSION, "Cluster"), None));
    // A Cluster lists every kind that it serves, so it is large.
    while let Some(page) = pages.next().await? {
        all.extend(page.iter().filter_map(clusters::reduced));
    }
    Ok(Clusters::just_listed(all))
}

/// Everything that the operator observes of an ensemble.
///
/// The operator knows two more things, which the objects show only in part: the image of mczk that it runs with, and whether
/// its last attempts failed. They come from the template and from the condition `Progressing`, or from the caller.
///
/// # Errors
/// As [`ensembles`], and without the right to list Secrets.
pub async fn observe(
    client: &Client,
    watched: &DynamicObject,
    server_image: Option<&str>,
) -> Result<ReadOutcome, Error> {
    let clusters = list_clusters(client).await?;
    let key = (watched.namespace().unwrap_or_default(), watched.name_any());
    let sources = Sources {
        client,
        clusters: &clusters,
        server_image: server_image.unwrap_or(DEFAULT_SERVER_IMAGE),
        asked: None,
        term: None,
        failure: None,
        retried: false,
        needs_secrets: true,
    };
    let mut outcome =
        Box::pin(observe::observe(watched, &key, sources)).await.map_err(|error| without_rights(error, &key.0))?;
    if let ReadOutcome::Observed(observed) = &mut outcome {
        if let Some(template) = observed.template.as_ref().filter(|_| server_image.is_none()) {
            observed.server_image.clone_from(&template.spec.server_image);
        }
        let conditions = observed.object.status.iter().flat_map(|status| &status.conditions);
        let failed = conditions.into_iter().find(|condition| condition.reason == Reason::ApplyFailed.as_str());
        observed.failure = failed.map(|condition| condition.message.clone());
    }
    Ok(outcome)
}

/// The operator's own message names the command that grants a right to the operator.
fn without_rights(error: Error, namespace: &str) -> Error {
    if error.category() != NO_RIGHTS {
        return error;
    }
    let message = format!(
        "you have no right to list Secrets in the namespace {namespace}: decisions of the operator depend on their names"
    );
    Error::Other { category: NO_RIGHTS, message }
}

/// What the operator observes of an object that does not exist yet: the member clusters alone. It reads no objects of other
/// owners that have the operator's names.
///
/// # Errors
/// As [`ensembles`].
pub async fn observe_new(
    client: &Client,
    object: MultiClusterZooKeeper,
    server_image: Option<&str>,
) -> Result<Observed, Error> {
    Ok(Observed {
        object,
        template: None,
        policy: None,
        overrides: None,
        services: BTreeMap::new(),
        binding: None,
        spares: None,
        works: Vec::new(),
        clusters: member_clusters(client).await?,
        certificates: Vec::new(),
        tombstones: BTreeSet::new(),
        server_image: server_image.unwrap_or(DEFAULT_SERVER_IMAGE).to_owned(),
        asked: None,
        term: None,
        failure: None,
    })
}

/// What the API server would store for a MultiClusterZooKeeper: it validates the object, fills in defaults, and stores
/// nothing.
///
/// # Errors
/// As [`ensembles`], and if the API server refuses the object.
pub async fn dry_run(client: &Client, object: &DynamicObject, exists: bool) -> kube::Result<DynamicObject> {
    let namespace = object.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kinds::multiclusterzookeeper());
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    if exists { api.replace(&object.name_any(), &params, object).await } else { api.create(&params, object).await }
}

//! Writes objects into Karmada's control plane, and deletes them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client, ResourceExt,
    api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, PartialObjectMeta, Status},
};
use serde_json::Value;

use super::{
    interpreter,
    object::{FIELD_MANAGER, NAME, Object},
    ownership::is_marked,
    rbac::{Identity, LEASE, ROLE},
};
use mczk_api::{MultiClusterZooKeeper, ZooKeeper, contract::operator_rights::NAMESPACE_ROLE};
use mczk_runtime::failure::is_not_found;

/// Time in which the API server must serve a new definition.
const ESTABLISHING: Duration = Duration::from_secs(30);
/// Time for which a busy API server is asked again.
const BUSY: Duration = Duration::from_secs(15);

/// Result for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It did not exist.
    Created,
    /// It existed and differed.
    Changed,
    /// It existed and was equal.
    Unchanged,
    /// It existed and is deleted, or being deleted.
    Removed,
    /// It did not exist and need not be deleted.
    Absent,
    /// It stays, for this reason.
    Left(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
            Self::Absent => "absent",
            Self::Left(why) => return write!(f, "left: {why}"),
        })
    }
}

/// Why the registration failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server is not Karmada's.
    #[error(
        "{0} does not serve {1}: it is not karmada-apiserver, but perhaps the API server of a member cluster, or of the \
             cluster in which Karmada runs. Name the kubeconfig with --kubeconfig, or its context with --context"
    )]
    NotKarmada(String, &'static str),
    /// The API server does not answer.
    #[error("cannot reach {0}: {1}; check --kubeconfig and --context, and that the server runs")]
    Unreachable(String, String),
    /// The user lacks a right.
    #[error("not allowed: {0}; use a kubeconfig with an administrator's rights")]
    Forbidden(String),
    /// The API server, or a webhook of Karmada, refused the object.
    #[error("{object}: {message}")]
    Refused {
        /// Kind and name.
        object: String,
        /// Message of the API server.
        message: String,
    },
    /// The API server does not serve a new definition.
    #[error("{0} is stored but not served after {seconds} s: see its conditions", seconds = ESTABLISHING.as_secs())]
    NotEstablished(String),
}

impl Error {
    fn of(object: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 || status.code == 401 => Self::Forbidden(status.message),
            kube::Error::Api(status) => Self::Refused { object: object.to_owned(), message: explained(*status) },
            error => Self::Unreachable("the API server".to_owned(), cause(&error)),
        }
    }
}

/// The message of a refusal, with what to do about it.
fn explained(status: Status) -> String {
    let lacks = status.details.map(|details| (details.kind, details.name)).unwrap_or_default();
    let mut message = status.message;
    if message.contains("failed calling webhook") {
        message.push_str("; karmada-webhook must run and be reachable from karmada-apiserver");
    }
    match (status.code, lacks.0.as_str(), lacks.1.as_str()) {
        (404, "namespaces", name) => format!(
            "the namespace {name} does not exist: create it (kubectl create namespace {name}), or correct --namespaces or \
             --host-namespace"
        ),
        (404, _, "") => "the API server does not serve this kind in this version: upgrade it".to_owned(),
        _ => message,
    }
}

/// The innermost error. The outer ones only name the layers of the client.
pub(crate) fn cause(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Repeats a request while the API server is busy. After every change of a definition it is busy for a moment, while it
/// sets up the storage of the kind. All requests here may be repeated.
async fn patiently<T>(ask: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let end = Instant::now() + BUSY;
    loop {
        match ask().await {
            Err(kube::Error::Api(status)) if matches!(status.code, 429 | 503) && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            answer => return answer,
        }
    }
}

fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

fn api_of(client: &Client, object: &Object) -> Api<DynamicObject> {
    api(client, &object.resource, object.body.metadata.namespace.as_deref())
}

fn name_of(object: &Object) -> &str {
    object.body.metadata.name.as_deref().unwrap_or_default()
}

fn failed(object: &Object, error: kube::Error) -> Error {
    Error::of(&format!("{} {}", object.resource.kind, object.name()), error)
}

/// The object as it is. `None` also if the API server does not serve its kind, or has no such namespace.
async fn live(client: &Client, object: &Object) -> Result<Option<DynamicObject>, Error> {
    let api = api_of(client, object);
    match patiently(async || api.get_opt(name_of(object)).await).await {
        Err(error) if is_not_found(&error) => Ok(None),
        other => other.map_err(|error| failed(object, error)),
    }
}

/// Takes over fields that others have written; leaves fields alone that the object does not name.
async fn patch(client: &Client, object: &Object, parameters: &PatchParams) -> kube::Result<DynamicObject> {
    let (api, patch) = (api_of(client, object), Patch::Apply(&object.body));
    patiently(async || api.patch(name_of(object), parameters, &patch).await).await
}

/// The metadata of all objects of a kind. None if the API server does not serve it.
async fn listed(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, Error> {
    let api = api(client, resource, namespace);
    match patiently(async || api.list_metadata(&ListParams::default()).await).await {
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        other => Ok(other.map_err(|error| Error::of(&resource.plural, error))?.items),
    }
}

/// Checks, before anything is written, that this is Karmada's control plane: any other API server would store the
/// definitions and rights too, without effect. `url` is for the message.
///
/// # Errors
/// If it is not, or does not answer.
pub async fn ensure_karmada(client: &Client, url: &str) -> Result<(), Error> {
    let groups = patiently(async || client.list_api_groups().await).await.map_err(|error| match error {
        kube::Error::Api(_) => Error::of("API groups", error),
        error => Error::Unreachable(url.to_owned(), cause(&error)),
    })?;
    for needed in ["policy.karmada.io", "config.karmada.io"] {
        if !groups.groups.iter().any(|group| group.name == needed) {
            return Err(Error::NotKarmada(url.to_owned(), needed));
        }
    }
    Ok(())
}

/// Creates the object or changes it.
///
/// # Errors
/// If the API server refuses.
pub async fn apply(client: &Client, object: &Object) -> Result<Change, Error> {
    let before = live(client, object).await?;
    let after = patch(client, object, &PatchParams::apply(FIELD_MANAGER).force()).await;
    let after = after.map_err(|error| failed(object, error))?;
    Ok(before.map_or(Change::Created, |before| change(&content(&before), &content(&after))))
}

/// An object without what the API server keeps for itself. After another client has written, the API server notes managers of
/// an applied object even if no field changes.
fn content(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    serde_json::to_value(object).unwrap_or_default()
}

fn change(before: &Value, after: &Value) -> Change {
    if before == after { Change::Unchanged } else { Change::Changed }
}

/// Tries the writes of a run without effect, in their order, before the first one. So a missing right or namespace, or an
/// object that is refused, leaves nothing half done.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    /// Plural and name of each object that the run writes.
    written: BTreeSet<(String, String)>,
}

impl Rehearsal {
    /// What [`apply`] would do: the change, and the object before and after it.
    ///
    /// # Errors
    /// As [`apply`], except for the lack of an object that the run writes before.
    pub(crate) async fn apply(
        &mut self,
        client: &Client,
        object: &Object,
    ) -> Result<(Change, Option<Value>, Value), Error> {
        // The write says what is missing.
        let before = live(client, object).await?.map(|before| content(&before));
        let after = match patch(client, object, &PatchParams::apply(FIELD_MANAGER).force().dry_run()).await {
            Err(error) if self.says_nothing(&error) => content(&object.body),
            other => content(&other.map_err(|error| failed(object, error))?),
        };
        self.written.insert((object.resource.plural.clone(), name_of(object).to_owned()));
        Ok((before.as_ref().map_or(Change::Created, |before| change(before, &after)), before, after))
    }

    /// True if a refusal is none of the write itself: the run writes before what it lacks, or an admission webhook of another
    /// program cannot be asked without effect.
    fn says_nothing(&self, error: &kube::Error) -> bool {
        let kube::Error::Api(status) = error else { return false };
        let lacks = status.details.as_ref().map(|details| (details.kind.clone(), details.name.clone()));
        let is_written = status.code == 404 && lacks.is_some_and(|lacks| self.written.contains(&lacks));
        is_written || status.message.contains("does not support dry run")
    }
}

/// Waits until the API server serves an applied definition.
///
/// # Errors
/// If it does not after 30 s.
pub async fn served(client: &Client, definition: &Object) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name();
    let end = Instant::now() + ESTABLISHING;
    loop {
        let found = patiently(async || api.get(&name).await).await.map_err(|error| Error::of(&name, error))?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Error::NotEstablished(name));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What [`remove`] would do. It deletes nothing. An object that is being deleted needs no other removal.
///
/// # Errors
/// If the API server refuses.
pub(crate) async fn would_remove(client: &Client, object: &Object) -> Result<Change, Error> {
    let stays = live(client, object).await?.is_some_and(|found| found.metadata.deletion_timestamp.is_none());
    Ok(if stays { Change::Removed } else { Change::Absent })
}

/// Deletes the object.
///
/// # Errors
/// If the API server refuses.
pub(crate) async fn remove(client: &Client, object: &Object) -> Result<Change, Error> {
    let Some(found) = live(client, object).await? else { return Ok(Change::Absent) };
    let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
    let (api, parameters) = (api_of(client, object), DeleteParams::default().preconditions(preconditions));
    match patiently(async || api.delete(name_of(object), &parameters).await).await {
        Ok(_) => Ok(Change::Removed),
        // Another client deleted it first.
        Err(error) if is_not_found(&error) => Ok(Change::Absent),
        Err(error) => Err(failed(object, error)),
    }
}

/// The Secrets of a namespace that `mczk install` made, without their content.
///
/// # Errors
/// If they cannot be listed.
pub(crate) async fn installed_secrets(client: &Client, namespace: &str) -> Result<Vec<Object>, Error> {
    installed(client, &ApiResource::erase::<Secret>(&()), namespace).await
}

/// The objects of a kind in a namespace that `mczk install` made, by their names and annotations alone.
///
/// # Errors
/// If they cannot be listed.
pub(crate) async fn installed(client: &Client, resource: &ApiResource, namespace: &str) -> Result<Vec<Object>, Error> {
    let items = listed(client, resource, Some(namespace)).await?.into_iter();
    let installed = items.filter(|item| is_marked(&item.metadata));
    Ok(installed.map(|item| named_object(resource, namespace, item)).collect())
}

/// An object by its name and annotations.
fn named_object(resource: &ApiResource, namespace: &str, item: PartialObjectMeta<DynamicObject>) -> Object {
    let mut body = DynamicObject::new(&item.metadata.name.unwrap_or_default(), resource).within(namespace);
    body.metadata.annotations = item.metadata.annotations;
    Object { resource: resource.clone(), body }
}

/// True if the object exists.
///
/// # Errors
/// If the API server refuses.
pub(crate) async fn exists(client: &Client, object: &Object) -> Result<bool, Error> {
    Ok(would_remove(client, object).await? == Change::Removed)
}

/// Namespaces of the ensembles in the control plane.
///
/// # Errors
/// If they cannot be listed.
pub(crate) async fn namespaces_of_ensembles(client: &Client) -> Result<BTreeSet<String>, Error> {
    let items = listed(client, &ApiResource::erase::<MultiClusterZooKeeper>(&()), None).await?;
    Ok(items.into_iter().filter_map(|item| item.metadata.namespace).collect())
}

/// The identity of a control plane: it changes if the control plane is built again.
///
/// # Errors
/// If the namespace kube-system cannot be read.
pub(crate) async fn control_plane(client: &Client) -> Result<String, Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let read = patiently(async || namespaces.get_metadata("kube-system").await).await;
    let namespace = read.map_err(|error| Error::of("the namespace kube-system", error))?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// The registration of the webhook; `None` before the first one.
///
/// # Errors
/// If it cannot be read.
pub(crate) async fn registration(client: &Client) -> Result<Option<DynamicObject>, Error> {
    let registrations = api(client, &interpreter::resource(), None);
    let found = patiently(async || registrations.get_opt(NAME).await).await;
    found.map_err(|error| Error::of("the registration of the webhook", error))
}

/// The identity that has the operator's rights; `None` before the first registration. If a user has deleted one of the
/// bindings, the other one names it.
///
/// # Errors
/// If a binding cannot be read.
pub(crate) async fn registered_identity(client: &Client) -> Result<Option<Identity>, Error> {
    let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
    let of_lease: Api<RoleBinding> = Api::namespaced(client.clone(), LEASE.0);
    let unread = |error| Error::of(&format!("the bindings {ROLE}"), error);
    let found = patiently(async || everywhere.get_opt(ROLE).await).await.map_err(unread)?;
    let mut subjects = found.and_then(|binding| binding.subjects).unwrap_or_default();
    let found = patiently(async || of_lease.get_opt(ROLE).await).await.map_err(unread)?;
    subjects.extend(found.and_then(|binding| binding.subjects).unwrap_or_default());
    Ok(subjects.into_iter().find_map(Identity::of_subject))
}

/// Namespaces in which the operator has rights.
///
/// # Errors
/// If the bindings cannot be listed.
pub(crate) async fn bound_namespaces(client: &Client) -> Result<BTreeSet<String>, Error> {
    let resource = ApiResource::erase::<RoleBinding>(&());
    let api = api(client, &resource, None);
    let named = ListParams::default().fields(&format!("metadata.name={ROLE}"));
    let list = patiently(async || api.list(&named).await).await;
    let list = list.map_err(|error| Error::of(&resource.plural, error))?;
    let is_ours =
        |item: &&DynamicObject| item.data.pointer("/roleRef/name").and_then(Value::as_str) == Some(NAMESPACE_ROLE);
    Ok(list.items.iter().filter(is_ours).filter_map(|item| item.metadata.namespace.clone()).collect())
}

/// Objects of both kinds in the control plane, each as `KIND NAMESPACE/NAME`.
///
/// # Errors
/// If they cannot be listed.
pub(crate) async fn ensembles(client: &Client) -> Result<Vec<String>, Error> {
    let mut found = vec![];
    for resource in [ApiResource::erase::<MultiClusterZooKeeper>(&()), ApiResource::erase::<ZooKeeper>(&())] {
        found.extend(
            listed(client, &resource, None)
                .await?
                .iter()
                .map(|item| format!("{} {}/{}", resource.kind, item.namespace().unwrap_or_default(), item.name_any())),
        );
    }
    Ok(found)
}

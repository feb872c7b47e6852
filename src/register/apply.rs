//! Brings objects into Karmada's control plane, and takes them out again.

use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client, Resource,
    api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions},
    core::ApiResource,
};

use super::{FIELD_MANAGER, Object};
use crate::{
    api::{MultiClusterZooKeeper, ZooKeeper},
    runtime::failure::is_not_found,
};

/// How long the API server may take to serve a new definition.
const ESTABLISHING: Duration = Duration::from_secs(30);
/// For how long it may say that it is busy.
const BUSY: Duration = Duration::from_secs(15);

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was there and differed.
    Changed,
    /// It was there as it should be.
    Unchanged,
    /// It was there and is gone, or goes.
    Removed,
    /// It was not there to be removed.
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

/// Why something was not done, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server is not one of Karmada's.
    #[error(
        "{0} knows nothing of {1}: is this karmada-apiserver, and not the API server of a member or of the cluster in \
             which Karmada runs? Name its kubeconfig with --kubeconfig, or its context with --context"
    )]
    NotKarmada(String, &'static str),
    /// The API server does not answer.
    #[error("cannot reach {0}: {1}; check --kubeconfig and --context, and that the server runs")]
    Unreachable(String, String),
    /// The user may not do this.
    #[error("not allowed: {0}; use a kubeconfig of karmada-apiserver with an administrator's rights")]
    Forbidden(String),
    /// The API server, or a webhook of Karmada's, refused the object.
    #[error("{object}: {message}")]
    Refused {
        /// Kind and name.
        object: String,
        /// What it said.
        message: String,
    },
    /// A new definition is not served.
    #[error("{0} is stored but not served after {seconds} s: see its conditions", seconds = ESTABLISHING.as_secs())]
    NotEstablished(String),
}

impl Error {
    fn of(object: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 || status.code == 401 => Self::Forbidden(status.message),
            kube::Error::Api(status) => {
                let mut message = status.message;
                if message.contains("failed calling webhook") {
                    message.push_str("; karmada-webhook must run and be reachable from karmada-apiserver");
                }
                Self::Refused { object: object.to_owned(), message }
            }
            error => Self::Unreachable("the API server".to_owned(), cause(&error)),
        }
    }
}

/// The innermost error: the outer ones only tell that a service or a client failed.
fn cause(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Asks again while the API server says that it is busy: for a moment it does after every change of a definition, when it
/// sets the kind's storage up anew. All that is asked here may be asked twice.
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

/// Makes sure, before anything is written, that this is Karmada's control plane: in any other cluster the definitions and
/// rights would be stored all the same, and do nothing. `url` is for the message.
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

/// Creates the object or changes it to what it should be. Fields that others have written are taken over; fields that this
/// object does not name are left alone.
///
/// # Errors
/// If the API server does not do it.
pub async fn apply(client: &Client, object: &Object) -> Result<Change, Error> {
    let (kind, name) = (&object.resource.kind, object.body.metadata.name.as_deref().unwrap_or_default());
    let failed = |error| Error::of(&format!("{kind} {}", object.name()), error);
    let api = api_of(client, object);
    let before = patiently(async || api.get_opt(name).await).await.map_err(failed)?;
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&object.body);
    let after = patiently(async || api.patch(name, &parameters, &patch).await).await.map_err(failed)?;
    Ok(match before {
        None => Change::Created,
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => Change::Unchanged,
        Some(_) => Change::Changed,
    })
}

/// Waits until the API server serves a definition that was applied.
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

/// Removes the object.
///
/// # Errors
/// If the API server does not do it.
pub async fn remove(client: &Client, object: &Object) -> Result<Change, Error> {
    let name = object.body.metadata.name.as_deref().unwrap_or_default();
    let failed = |error| Error::of(&format!("{} {}", object.resource.kind, object.name()), error);
    let api = api_of(client, object);
    let Some(found) = patiently(async || api.get_opt(name).await).await.map_err(failed)? else {
        return Ok(Change::Absent);
    };
    let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
    let parameters = DeleteParams::default().preconditions(preconditions);
    match patiently(async || api.delete(name, &parameters).await).await {
        Ok(_) => Ok(Change::Removed),
        // Somebody was faster.
        Err(error) if is_not_found(&error) => Ok(Change::Absent),
        Err(error) => Err(failed(error)),
    }
}

/// The objects of both kinds that the control plane holds, each as `KIND NAMESPACE/NAME`.
///
/// # Errors
/// If they cannot be listed.
pub async fn ensembles(client: &Client) -> Result<Vec<String>, Error> {
    let mut found = vec![];
    for resource in [ApiResource::erase::<MultiClusterZooKeeper>(&()), ApiResource::erase::<ZooKeeper>(&())] {
        let api = api(client, &resource, None);
        match patiently(async || api.list_metadata(&ListParams::default()).await).await {
            Ok(list) => found.extend(list.items.iter().map(|item| {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                format!("{} {}/{}", resource.kind, text(&item.meta().namespace), text(&item.meta().name))
            })),
            // No definition, no objects.
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(Error::of(&resource.plural, error)),
        }
    }
    Ok(found)
}

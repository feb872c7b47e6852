//! The operator's own objects: their metadata, and when a live one is current.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::ResourceExt;
use serde::Serialize;

use mczk_api::{
    API_VERSION, MultiClusterZooKeeper,
    contract::{
        canonical_json::short_hash,
        labels::{ABANDON_CLUSTERS, APPLIED_HASH, ENSEMBLE_LABEL},
    },
    karmada::{DELETION_PROTECTION, PROTECTION_ALWAYS},
};

/// Clusters that the user has abandoned.
#[must_use]
pub(super) fn abandoned(object: &MultiClusterZooKeeper) -> BTreeSet<&str> {
    let list = object.annotations().get(ABANDON_CLUSTERS);
    list.map(|list| list.split(',').map(str::trim).collect()).unwrap_or_default()
}

/// Metadata of an owned object: name, labels, owner reference, and the resource version of the live object that the operator
/// observed.
#[must_use]
pub(crate) fn metadata(object: &MultiClusterZooKeeper, name: String, live: Option<&ObjectMeta>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: object.namespace(),
        labels: Some(BTreeMap::from([
            (ENSEMBLE_LABEL.to_owned(), object.name_any()),
            (DELETION_PROTECTION.to_owned(), PROTECTION_ALWAYS.to_owned()),
        ])),
        annotations: Some(BTreeMap::new()),
        owner_references: Some(vec![OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: "MultiClusterZooKeeper".to_owned(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        resource_version: live.and_then(|m| m.resource_version.clone()),
        ..ObjectMeta::default()
    }
}

/// [`metadata`] with annotations, and with the hash of it and of the spec.
///
/// # Errors
/// As [`with_applied_hash`].
pub(super) fn hashed_metadata<'a, S: Serialize>(
    object: &MultiClusterZooKeeper,
    name: String,
    live: Option<&ObjectMeta>,
    annotations: impl Iterator<Item = (&'a str, String)>,
    spec: &S,
) -> serde_json::Result<ObjectMeta> {
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value)).collect();
    with_applied_hash(ObjectMeta { annotations: Some(annotations), ..metadata(object, name, live) }, spec)
}

/// True if an object has an owner reference to the MultiClusterZooKeeper. The operator never writes any other object.
#[must_use]
pub(crate) fn is_ours(meta: &ObjectMeta, object: &MultiClusterZooKeeper) -> bool {
    object.uid().is_some_and(|uid| {
        meta.owner_references.as_ref().is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid))
    })
}

/// Adds the hash of metadata and spec to the annotations.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::short_hash`].
pub fn with_applied_hash<S: Serialize>(mut meta: ObjectMeta, spec: &S) -> serde_json::Result<ObjectMeta> {
    let mut unversioned = meta.clone();
    unversioned.resource_version = None;
    let hash = short_hash(&(&unversioned, spec))?;
    meta.annotations.get_or_insert_default().insert(APPLIED_HASH.to_owned(), hash);
    Ok(meta)
}

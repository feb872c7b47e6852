//! Kinds that the controller reads and writes without their types.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use mczk_api::MultiClusterZooKeeper;

/// MultiClusterZooKeeper without its type: one object that does not parse must not stall the watch of all.
#[must_use]
pub fn multiclusterzookeeper() -> ApiResource {
    ApiResource::erase::<MultiClusterZooKeeper>(&())
}

/// The resource of a kind that the controller uses.
#[must_use]
pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The API of one kind in one namespace.
#[must_use]
pub fn api(client: &Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(api_version, kind))
}

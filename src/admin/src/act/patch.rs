//! Writes what a command requests into the MultiClusterZooKeeper.

use anyhow::{Context, anyhow};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use crate::terminal::error::Error;
use mczk_api::MultiClusterZooKeeper;
use mczk_runtime::failure::is_conflict;

/// A request of a command.
pub(super) struct Written<'a> {
    /// Name of the writer in `managedFields`.
    pub(super) manager: &'a str,
    /// Merge patch. It names the version of the object that the user has seen.
    pub(super) patch: &'a Value,
    /// What did not happen to anything, if the object has changed: "restarted".
    pub(super) verb: &'a str,
    /// What cannot be written, before the object's name: "the restart of".
    pub(super) what: &'a str,
}

/// Writes it, or with `dry_run` lets the API server check it.
///
/// # Errors
/// If the object has changed meanwhile, or the API server refuses or does not answer.
pub(super) async fn write(
    client: &Client,
    (namespace, name): (&str, &str),
    Written { manager, patch, verb, what }: &Written<'_>,
    dry_run: bool,
) -> Result<DynamicObject, Error> {
    let resource = ApiResource::erase::<MultiClusterZooKeeper>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let params = PatchParams { dry_run, field_manager: Some((*manager).to_owned()), ..PatchParams::default() };
    match api.patch(name, &params, &Patch::Merge(patch)).await {
        Err(error) if is_conflict(&error) => Err(Error::Failed(anyhow!(
            "{namespace}/{name} has changed meanwhile, and nothing is {verb}: run the command again"
        ))),
        other => Ok(other.with_context(|| format!("cannot write {what} {namespace}/{name}"))?),
    }
}

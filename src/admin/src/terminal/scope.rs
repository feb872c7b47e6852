//! The objects that a subcommand is about.

use anyhow::Context;
use clap::{Args, builder::NonEmptyStringValueParser};
use kube::{Client, api::DynamicObject};
use serde::Deserialize;

use super::error::Error;
use mczk_api::multiclusterzookeeper::MultiClusterZooKeeperStatus;
use mczk_reading::read_only;

/// The namespace of one object.
#[derive(Clone, Debug, Default, Args)]
pub struct Namespace {
    /// Namespace of the object [default: that of the context in the kubeconfig]
    #[arg(short, long, env = "MCZK_NAMESPACE", value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
}

impl Namespace {
    /// The namespace; without a flag that of the kubeconfig.
    #[must_use]
    pub fn name(&self, client: &Client) -> String {
        self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned())
    }
}

/// One object, those of a namespace, or all.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Scope {
    /// Name of a MultiClusterZooKeeper [default: all of the namespace]
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    /// Act on the objects of all namespaces
    #[arg(short = 'A', long, env = "MCZK_ALL_NAMESPACES", conflicts_with = "name")]
    pub(crate) all_namespaces: bool,
}

impl Scope {
    /// The namespace; `None` for all.
    pub(crate) fn namespace(&self, client: &Client) -> Option<String> {
        (!self.all_namespaces).then(|| self.namespace.name(client))
    }
}

/// One MultiClusterZooKeeper.
#[derive(Clone, Debug, Args)]
pub(crate) struct One {
    /// Name of the MultiClusterZooKeeper
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    #[command(flatten)]
    namespace: Namespace,
}

impl One {
    pub(crate) fn namespace(&self, client: &Client) -> String {
        self.namespace.name(client)
    }
}

/// No object of that name exists.
pub(crate) fn not_found(namespace: &str, name: &str) -> Error {
    Error::Failed(anyhow::anyhow!("no MultiClusterZooKeeper {name} in the namespace {namespace}"))
}

/// The MultiClusterZooKeeper of that name.
///
/// # Errors
/// If it does not exist, or the API server refuses or does not answer.
pub(crate) async fn existing(client: &Client, namespace: &str, name: &str) -> Result<DynamicObject, Error> {
    let object = read_only::ensemble(client, namespace, name).await.map_err(anyhow::Error::from)?;
    object.ok_or_else(|| not_found(namespace, name))
}

/// The status of a MultiClusterZooKeeper; empty if the operator has not written one.
///
/// # Errors
/// If another version wrote it, and this one cannot parse it.
pub(crate) fn status_of(object: &DynamicObject) -> anyhow::Result<MultiClusterZooKeeperStatus> {
    let status = object.data.get("status").map(MultiClusterZooKeeperStatus::deserialize).transpose();
    Ok(status.context("this version of mczk cannot parse the status")?.unwrap_or_default())
}

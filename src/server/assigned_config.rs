//! What the agent assigns to the server, in the files of a ConfigMap.

use std::path::Path;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

use crate::{
    api::zookeeper::Ensemble,
    contract::{
        control_api::ServerConfig,
        pod_layout::{SERVER_CONFIG_FILE, SERVER_LIST_FILE},
        server_list::with_hash,
    },
};

/// Configuration and server list of one server.
#[derive(Clone, Debug)]
pub(crate) struct AssignedConfig {
    /// Configuration of all servers of one role in this cluster.
    pub(crate) server: ServerConfig,
    /// Server list. `None` while the ensemble has none.
    pub(crate) list: Option<Ensemble>,
}

impl AssignedConfig {
    /// Reads the files in `folder`.
    ///
    /// # Errors
    /// If a file cannot be read or does not parse, or if the list does not match its hash.
    pub(crate) async fn read(folder: &Path) -> anyhow::Result<Self> {
        let server = read_json(&folder.join(SERVER_CONFIG_FILE)).await?;
        let path = folder.join(SERVER_LIST_FILE);
        let list: Ensemble = read_json(&path).await?;
        if list.hash.is_some() && with_hash(list.clone())? != list {
            bail!("{}: the hash of the server list does not match", path.display());
        }
        Ok(Self { server, list: (list.incarnation.is_some() && list.hash.is_some()).then_some(list) })
    }

    /// True if the list suspends the ensemble.
    #[must_use]
    pub(crate) fn is_suspended(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.phase.is_suspended())
    }

    /// Incarnation of the list. Empty without a list.
    #[must_use]
    pub(crate) fn incarnation(&self) -> String {
        self.list.as_ref().and_then(|list| list.incarnation.clone()).unwrap_or_default()
    }
}

async fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = tokio::fs::read(path).await.with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| format!("{} does not parse", path.display()))
}

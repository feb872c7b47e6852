//! What the agent assigns to the server, in the files of a ConfigMap.

use std::path::Path;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

use mczk_api::{
    contract::{
        control_api::ServerConfig,
        pod_layout::{SERVER_CONFIG_FILE, SERVER_LIST_FILE},
        server_list,
    },
    zookeeper::Ensemble,
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
        if list.hash.is_some() && !server_list::is_intact(&list) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::newer_list::of_newer_version;
    use mczk_api::contract::server_list::{hash_of, with_hash};

    fn list() -> Ensemble {
        let server = json!({ "id": 1, "cluster": "m1", "ordinal": 0, "host": "zk-0.m1", "role": "voter" });
        let list = json!({ "incarnation": "abc123", "epoch": 3, "servers": [server] });
        with_hash(serde_json::from_value(list).unwrap()).unwrap()
    }

    async fn assigned(name: &str, list: &Value) -> anyhow::Result<AssignedConfig> {
        let folder = std::env::temp_dir().join(format!("mczk-assigned-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = json!({
            "name": "zk", "cluster": "m1", "role": "voter", "revision": "r1", "quorumTls": false, "ofNewerVersion": 1,
        });
        std::fs::write(folder.join(SERVER_CONFIG_FILE), config.to_string()).unwrap();
        std::fs::write(folder.join(SERVER_LIST_FILE), list.to_string()).unwrap();
        let read = AssignedConfig::read(&folder).await;
        std::fs::remove_dir_all(&folder).unwrap();
        read
    }

    /// M4: a server that is older than the agent starts, also after the agent's upgrade.
    #[tokio::test]
    async fn a_list_of_a_newer_version_is_read() {
        let newer = of_newer_version(&list());
        let read = assigned("newer", &newer).await.unwrap().list.unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), newer);
        assert_eq!(read.servers.len(), 1);
    }

    /// M4: the server must start again with what is on its volume.
    #[tokio::test]
    async fn a_list_that_this_version_does_not_understand_is_read() {
        let mut newer = of_newer_version(&list());
        newer["phase"] = "Moving".into();
        newer["servers"][0]["role"] = "witness".into();
        newer["hash"] = hash_of(&newer).unwrap().into();
        let read = assigned("unknown", &newer).await.unwrap().list.unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), newer);
        assert_eq!((read.incarnation.as_deref(), read.epoch), (Some("abc123"), Some(3)));
    }

    #[tokio::test]
    async fn a_damaged_list_is_refused() {
        let mut newer = of_newer_version(&list());
        newer["witness"]["cluster"] = "m8".into();
        assert!(assigned("damaged", &newer).await.is_err());
    }
}

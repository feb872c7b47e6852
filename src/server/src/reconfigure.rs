//! Changes of the ensemble that agents request: reconfigurations and the server list.

use std::iter::{Once, once};
use std::time::Duration;

use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, EnsembleUpdate, Error as ZkError};

use crate::{
    admin_server, peers,
    refusal::PortRefusal,
    session::{Sessions, configuration, configuration_text, published_list, restart_lock, within},
    shared_znodes::ensure_folder,
    supervisor::Supervisor,
};
use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, Reconfiguration},
        pod_layout, server_list,
    },
    zookeeper::Ensemble,
};
use mczk_rules::server::{
    dynamic_configuration,
    permitted_step::{self, Committed, Leading},
};

/// Time limit of a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of the checks after a lost answer.
const AFTER_LOSS_POLL: Duration = Duration::from_millis(500);

impl Supervisor {
    /// What this server knows as the leader, if a change would take the vote of a listed server. It asks that server whether it takes
    /// part.
    pub(super) async fn leading(&self, change: &Reconfiguration) -> Option<Leading> {
        let (incarnation, list) = self.with_state(|state| (state.incarnation.clone(), state.list.clone()));
        let (id, list) = (change.remove?, list?);
        let listed = list.servers.iter().find(|server| server.id == id)?;
        let own = admin_server::ask(self.options.paths.own_address()).await;
        let synced = own.synced_voters.filter(|_| own.mode == Some(Mode::Leader))?;
        let tls = self.quorum_certificates.client_config();
        let answers = peers::takes_part((id, &listed.host), &incarnation, &self.resolver, tls).await;
        Some(Leading { synced: usize::try_from(synced).unwrap_or(0), short_for: self.short_for(), answers })
    }
}

impl Sessions {
    /// Adds or removes one server, and confirms the change by a write that a quorum commits.
    ///
    /// # Errors
    /// If the ensemble's server list does not ask for the change or is newer than the change assumes, if the configuration is
    /// another one, or if the change fails.
    pub(crate) async fn reconfigure(
        &self,
        change: &Reconfiguration,
        leading: impl Future<Output = Option<Leading>>,
    ) -> Result<Configuration, PortRefusal> {
        let _exclusive = self.change.lock().await;
        // Not before: another change may have taken long.
        let leads = leading.await;
        within(CHANGE_TIMEOUT, self.try_reconfigure(change, leads)).await
    }

    async fn try_reconfigure(
        &self,
        change: &Reconfiguration,
        leads: Option<Leading>,
    ) -> Result<Configuration, PortRefusal> {
        check_change(change)?;
        let client = self.client().await?;
        client.sync("/").await?;
        let current = configuration(&client).await?;
        self.check_published_list(&client, change, &current, leads).await?;
        if current.version != change.from_version {
            return Err(version_conflict(change, &current));
        }
        let joining = change.add.as_ref().map(|added| dynamic_configuration::line(added, self.client_address));
        let joining = joining.unwrap_or_default();
        let leaving = change.remove.map(|id| id.to_string()).unwrap_or_default();
        match client.update_ensemble(update(&joining, &leaving), Some(change.from_version)).await {
            Ok(_) => {}
            Err(ZkError::BadVersion) => return Err(version_conflict(change, &configuration(&client).await?)),
            // A leader that removes itself closes all connections. So does every server whose leader changes.
            Err(ZkError::ConnectionLoss | ZkError::NoHosts | ZkError::Timeout | ZkError::SessionExpired) => {
                return self.result_after_loss(change).await;
            }
            Err(error) => return Err(error.into()),
        }
        self.confirm(&client).await?;
        Ok(configuration(&client).await?)
    }

    /// Refuses a change that the ensemble's server list does not ask for, or that the restart lock forbids. If an agent stopped
    /// between writing a list and raising the configuration's version, this raises it: changes under older lists must fail first.
    async fn check_published_list(
        &self,
        client: &Client,
        change: &Reconfiguration,
        current: &Configuration,
        leads: Option<Leading>,
    ) -> Result<(), PortRefusal> {
        let published = published_list(client).await?;
        let committed = Committed {
            list: published.as_ref().map(|published| &published.list),
            voters: &current.voters().collect(),
            locked: restart_lock(client).await?.map(|lock| lock.server),
            leads,
        };
        permitted_step::check(change, committed).map_err(PortRefusal::Conflict)?;
        if published.is_some_and(|published| published.zxid > current.version) {
            self.raise_version(client).await?;
            return Err(PortRefusal::conflict(
                "version",
                "the server list was published, but the configuration's version was raised only now",
            ));
        }
        Ok(())
    }

    /// Result of a change whose answer was lost, as soon as the configuration is readable again.
    async fn result_after_loss(&self, change: &Reconfiguration) -> Result<Configuration, PortRefusal> {
        loop {
            sleep(AFTER_LOSS_POLL).await;
            let read = async {
                let client = self.client().await?;
                client.sync("/").await?;
                let current = configuration(&client).await?;
                Ok::<_, ZkError>((client, current))
            };
            let Ok((client, current)) = read.await else { continue };
            let added = change.add.as_ref().is_none_or(|added| current.servers.contains(added));
            let removed = change.remove.is_none_or(|id| current.servers.iter().all(|server| server.id != id));
            if current.version == change.from_version || !added || !removed {
                return Err(PortRefusal::unavailable("the connection broke, and the change did not take effect"));
            }
            self.confirm(&client).await?;
            return Ok(current);
        }
    }

    /// Publishes a newer server list in the ensemble. Every change under an older list then fails.
    ///
    /// # Errors
    /// If the list is of another incarnation, has a wrong hash or is not newer, or if the write fails.
    pub(crate) async fn publish(&self, list: &Ensemble, incarnation: &str) -> Result<Configuration, PortRefusal> {
        check_list(list, incarnation)?;
        let _exclusive = self.change.lock().await;
        within(CHANGE_TIMEOUT, self.try_publish(list)).await
    }

    async fn try_publish(&self, list: &Ensemble) -> Result<Configuration, PortRefusal> {
        let client = self.client().await?;
        client.sync("/").await?;
        let text = serde_json::to_vec(list).map_err(|error| PortRefusal::invalid("list", error.to_string()))?;
        let readable = CreateMode::Persistent.with_acls(Acls::anyone_read());
        match published_list(&client).await? {
            None => {
                ensure_folder(&client).await?;
                client.create(pod_layout::SERVER_LIST_ZNODE, &text, &readable).await.map_err(|error| match error {
                    ZkError::NodeExists => {
                        PortRefusal::conflict("version", "another server list was published meanwhile")
                    }
                    other => other.into(),
                })?;
            }
            Some(published) if published.list.epoch < list.epoch => {
                client.set_data(pod_layout::SERVER_LIST_ZNODE, &text, Some(published.version)).await?;
            }
            // A repeated request, perhaps after a lost answer: only the missing part follows.
            Some(published) if published.list == *list => {}
            Some(published) => {
                let epoch = published.list.epoch.unwrap_or_default();
                return Err(PortRefusal::conflict(
                    "epoch",
                    format!("the ensemble holds a server list of epoch {epoch}"),
                ));
            }
        }
        let current = configuration(&client).await?;
        let written = published_list(&client).await?.map_or(0, |published| published.zxid);
        if written < current.version {
            return Ok(current);
        }
        self.raise_version(&client).await?;
        Ok(configuration(&client).await?)
    }

    /// Corrects this server's client address in the configuration. It changes when TLS for clients becomes required, or is
    /// no longer required.
    ///
    /// # Errors
    /// If the change fails.
    pub(crate) async fn update_client_address(&self) -> Result<(), PortRefusal> {
        let _exclusive = self.change.lock().await;
        within(CHANGE_TIMEOUT, async {
            let client = self.client().await?;
            client.sync("/").await?;
            let (text, current) = configuration_text(&client).await?;
            if dynamic_configuration::with_client_address(&text, self.id, self.client_address).is_none() {
                return Ok(());
            }
            let Some(own) = current.servers.iter().find(|server| server.id == self.id) else { return Ok(()) };
            let own = dynamic_configuration::line(own, self.client_address);
            client.update_ensemble(update(&own, ""), Some(current.version)).await?;
            self.confirm(&client).await
        })
        .await
    }

    /// Reconfigures without a change except for the version. A server joins with its line exactly as it is, because
    /// `ZooKeeper` reopens the client port if the address differs.
    async fn raise_version(&self, client: &Client) -> Result<(), PortRefusal> {
        let (text, current) = configuration_text(client).await?;
        let voter =
            current.voters().next().ok_or_else(|| PortRefusal::unavailable("the configuration has no voter"))?;
        let prefix = format!("server.{voter}=");
        let unchanged = text.lines().map(str::trim).find(|line| line.starts_with(&prefix));
        let unchanged = unchanged.ok_or_else(|| PortRefusal::unavailable("the configuration does not parse"))?;
        client.update_ensemble(update(unchanged, ""), Some(current.version)).await?;
        self.confirm(client).await
    }

    /// Writes to a znode. A quorum commits the write.
    async fn confirm(&self, client: &Client) -> Result<(), PortRefusal> {
        ensure_folder(client).await?;
        client.set_data(pod_layout::ZNODE, format!("confirmed through {}", self.id).as_bytes(), None).await?;
        Ok(())
    }
}

fn check_list(list: &Ensemble, incarnation: &str) -> Result<(), PortRefusal> {
    if list.incarnation.as_deref() != Some(incarnation) {
        return Err(PortRefusal::invalid("ensemble", "the server list is of another ensemble or incarnation"));
    }
    if list.epoch.is_none() || !server_list::is_intact(list) {
        return Err(PortRefusal::invalid("hash", "the hash of the server list does not match"));
    }
    Ok(())
}

fn check_change(change: &Reconfiguration) -> Result<(), PortRefusal> {
    if change.add.is_some() == change.remove.is_some() {
        return Err(PortRefusal::invalid("reconfiguration", "a change adds one server or removes one, and not both"));
    }
    if let Some(added) = &change.add
        && (!(1..=254).contains(&added.id) || !is_host_name(&added.host))
    {
        return Err(PortRefusal::invalid("reconfiguration", "a server needs an id from 1 to 254 and a host name"));
    }
    Ok(())
}

fn is_host_name(host: &str) -> bool {
    (1..=253).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn update<'a>(joining: &'a str, leaving: &'a str) -> EnsembleUpdate<'a, Once<&'a str>> {
    EnsembleUpdate::Incremental { joinings: once(joining), leavings: once(leaving) }
}

fn version_conflict(change: &Reconfiguration, current: &Configuration) -> PortRefusal {
    let message = format!("the change assumes configuration {}, but it is {}", change.from_version, current.version);
    PortRefusal::conflict("version", message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::newer_list::of_newer_version;

    /// M4: an agent that is newer than the server publishes through it.
    #[test]
    fn a_list_of_a_newer_version_is_published() {
        let list = Ensemble { incarnation: Some("abc".into()), epoch: Some(2), ..Ensemble::default() };
        let mut list = serde_json::to_value(list).unwrap();
        list["servers"] = serde_json::json!([{ "id": 1, "cluster": "m1", "ordinal": 0, "host": "h", "role": "voter" }]);
        let newer = of_newer_version(&serde_json::from_value(list).unwrap());
        let received: Ensemble = serde_json::from_value(newer.clone()).unwrap();
        assert_eq!(check_list(&received, "abc"), Ok(()));
        assert_eq!(serde_json::to_value(&received).unwrap(), newer);
        let torn: Ensemble = {
            let mut torn = newer;
            torn["witness"] = "m1".into();
            serde_json::from_value(torn).unwrap()
        };
        assert!(check_list(&torn, "abc").is_err());
    }
}

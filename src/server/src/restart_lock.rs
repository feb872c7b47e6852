//! The restart lock that agents hold through this server.

use std::time::Instant;

use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode, Error as ZkError};

use crate::{
    refusal::PortRefusal,
    session::{HeldLock, Sessions, restart_lock, within},
    shared_znodes::ensure_folder,
};
use mczk_api::contract::{
    control_api::{LOCK, LOCK_LEASE, LOCK_SESSION, RestartLock},
    pod_layout,
};
use mczk_rules::server::zoo_cfg::OBSERVE_TIMEOUT;

impl Sessions {
    /// Acquires or renews the restart lock, by a write that a majority commits. The holder must renew it within [`LOCK_LEASE`].
    ///
    /// # Errors
    /// If another agent holds the lock, which the problem names, or if the request fails.
    pub(crate) async fn acquire_restart_lock(&self, lock: &RestartLock) -> Result<RestartLock, PortRefusal> {
        if lock.server == self.id {
            return Err(PortRefusal::invalid(
                "server",
                "the restart lock must be held through a server other than the one to restart",
            ));
        }
        within(OBSERVE_TIMEOUT + OBSERVE_TIMEOUT, self.try_acquire(lock)).await
    }

    async fn try_acquire(&self, lock: &RestartLock) -> Result<RestartLock, PortRefusal> {
        let mut slot = self.held_lock.lock().await;
        if let Some(held) = slot.as_mut() {
            if held.lock.holder != lock.holder && held.renewed.elapsed() < LOCK_LEASE {
                return Err(held_by(&held.lock));
            }
            if held.lock == *lock && held.renewed.elapsed() < LOCK_LEASE && confirm(held).await? {
                held.renewed = Instant::now();
                return Ok(lock.clone());
            }
            if let Some(old) = slot.take() {
                release(old).await;
            }
        }
        // A session is a write of the whole ensemble: an agent that only waits must not open one at each attempt.
        if let Some(other) = restart_lock(&self.client().await?).await? {
            return Err(held_by(&other));
        }
        let client = self.connect(LOCK_SESSION).await?;
        ensure_folder(&client).await?;
        let text = content(lock)?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_read());
        match client.create(pod_layout::RESTART_LOCK_ZNODE, &text, &ephemeral).await {
            Ok(_) => {
                *slot = Some(HeldLock { lock: lock.clone(), client, renewed: Instant::now() });
                Ok(lock.clone())
            }
            Err(ZkError::NodeExists) => Err(restart_lock(&client).await?.as_ref().map_or_else(
                || PortRefusal::conflict(LOCK, "another agent released the restart lock just now"),
                held_by,
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the restart lock.
    ///
    /// # Errors
    /// If this agent does not hold the lock through this server.
    pub(crate) async fn release_restart_lock(&self, lock: &RestartLock) -> Result<(), PortRefusal> {
        let mut slot = self.held_lock.lock().await;
        match slot.take() {
            Some(held) if held.lock.holder == lock.holder => {
                release(held).await;
                Ok(())
            }
            Some(other) => {
                let refusal = held_by(&other.lock);
                *slot = Some(other);
                Err(refusal)
            }
            None => Err(PortRefusal::conflict(LOCK, "no agent holds the restart lock through this server")),
        }
    }

    /// Releases a lock that its holder did not renew.
    pub(crate) async fn release_expired_restart_lock(&self) {
        let mut slot = self.held_lock.lock().await;
        if let Some(held) = slot.take_if(|held| held.renewed.elapsed() >= LOCK_LEASE) {
            tracing::warn!(holder = held.lock.holder, server = held.lock.server, "a restart lock expired");
            release(held).await;
        }
    }
}

/// Confirms by a write that the session still owns the znode of the lock. Returns false if it does not.
///
/// Only a write proves it: a majority commits it, and refuses a session that has ended. A leader that is cut off still answers
/// `sync` and reads, for up to `syncLimit`.
async fn confirm(held: &HeldLock) -> Result<bool, PortRefusal> {
    let text = content(&held.lock)?;
    match held.client.set_data(pod_layout::RESTART_LOCK_ZNODE, &text, None).await {
        Ok(stat) => Ok(stat.ephemeral_owner == held.client.session_id().0),
        Err(ZkError::NoNode | ZkError::SessionExpired) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn content(lock: &RestartLock) -> Result<Vec<u8>, PortRefusal> {
    serde_json::to_vec(lock).map_err(|error| PortRefusal::invalid(LOCK, error.to_string()))
}

fn held_by(lock: &RestartLock) -> PortRefusal {
    PortRefusal::conflict(LOCK, format!("{} holds the restart lock for server {}", lock.holder, lock.server))
}

async fn release(held: HeldLock) {
    // If this fails, the end of the session deletes the znode.
    let _ = timeout(OBSERVE_TIMEOUT, held.client.delete(pod_layout::RESTART_LOCK_ZNODE, None)).await;
}

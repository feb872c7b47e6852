//! Raises the generation of the volume while `ZooKeeper` serves: [`mczk_rules::server::volume_age`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::error;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::{
    admin_server,
    refusal::PortRefusal,
    session::{Sessions, if_node_exists, within},
    shared_znodes::ensure_folder,
    supervisor::Supervisor,
    transaction_log::Reader,
};
use mczk_api::contract::pod_layout;
use mczk_rules::server::zoo_cfg::OBSERVE_TIMEOUT;

/// Interval of generations. A copy of a volume that is younger is not recognized as old.
const INTERVAL: Duration = Duration::from_secs(15);
/// Time after which a transaction that `ZooKeeper` applied must be in its files. A follower applies a transaction that it has
/// not yet written, but the leader drops a follower that has not written it for `syncLimit`, which is 10 s.
const WRITTEN_AFTER: Duration = Duration::from_secs(60);
/// Time of failures after which the server reports them. A change of the leader takes less.
const REPORTED_AFTER: Duration = Duration::from_secs(60);
/// The part of a zxid that counts the transactions of an epoch. A new leader begins with 0, and writes that zxid to no file.
const COUNTER: i64 = 0xffff_ffff;

/// Raises the generation during one run of `ZooKeeper`.
#[derive(Default)]
pub(super) struct Generation {
    raised: Option<Instant>,
    /// Time since which the generation could not be raised.
    failing_since: Option<Instant>,
    /// Transactions that `ZooKeeper` had applied, with the time of the observation.
    applied: VecDeque<(Instant, i64)>,
    files: Arc<Mutex<Reader>>,
}

impl Generation {
    /// Raises the generation if it is time. Returns true if the ensemble knows a newer one: the volume is an old copy.
    pub(super) async fn raise(&mut self, server: &Supervisor, sessions: &Sessions) -> bool {
        let now = Instant::now();
        if self.raised.is_some_and(|raised| now.duration_since(raised) < INTERVAL) {
            return false;
        }
        let zxid = admin_server::ask(server.options.paths.own_address()).await.zxid;
        self.applied.extend(zxid.filter(|zxid| zxid & COUNTER != 0).map(|zxid| (now, zxid)));
        // A quorum has committed what `ZooKeeper` has applied.
        let applied = self.take_applied(now);
        let raised = async {
            let known = sessions.generations().await.map_err(|refusal| refusal.to_string())?;
            let published = known.get(&sessions.id).copied().unwrap_or_default();
            let (volume, files) = (server.volume.clone(), self.files.clone());
            // On the volume first: what the ensemble knows must never be newer than an intact volume.
            let stored = tokio::task::spawn_blocking(move || {
                let files = files.lock().read(&volume.transactions_folder())?;
                let held = files.held(&volume.generations()?.held, zxid, applied);
                volume.raise_generation(published, held, known)
            });
            let stored = stored.await;
            match stored.map_err(|error| error.to_string())?.map_err(|error| error.to_string())? {
                Some(own) => {
                    server.note_written(|mark| mark.generation = own);
                    sessions.publish_generation(own).await.map(|()| false).map_err(|refusal| refusal.to_string())
                }
                None => Ok(true),
            }
        };
        match raised.await {
            Ok(is_old) => {
                (self.raised, self.failing_since) = (Some(now), None);
                server.change_state(|state| state.unraised = None);
                is_old
            }
            Err(error) => {
                error!(error, "cannot raise the generation of the volume");
                if self.fails_for_long(now) {
                    // The first words stay: each change would be a write of the agent's status.
                    server.change_state(|state| state.unraised = state.unraised.take().or(Some(error)));
                }
                false
            }
        }
    }

    /// True if the generation could not be raised for a while.
    fn fails_for_long(&mut self, now: Instant) -> bool {
        now.duration_since(*self.failing_since.get_or_insert(now)) >= REPORTED_AFTER
    }

    /// Newest transaction that was applied [`WRITTEN_AFTER`] ago or earlier.
    fn take_applied(&mut self, now: Instant) -> i64 {
        let written = self.applied.iter().take_while(|(at, _)| now.duration_since(*at) >= WRITTEN_AFTER).count();
        self.applied.drain(..written).next_back().map_or(0, |(_, zxid)| zxid)
    }
}

impl Sessions {
    /// Generations that the ensemble knows, by the servers' ids.
    async fn generations(&self) -> Result<BTreeMap<i32, i64>, PortRefusal> {
        within(OBSERVE_TIMEOUT, async {
            let client = self.client().await?;
            let ids = if_node_exists(client.list_children(pod_layout::GENERATIONS_ZNODE).await)?.unwrap_or_default();
            let read = ids.iter().filter_map(|id| id.parse().ok()).map(|id| generation(&client, id));
            Ok(futures::future::try_join_all(read).await?.into_iter().collect())
        })
        .await
    }

    async fn publish_generation(&self, own: i64) -> Result<(), PortRefusal> {
        within(OBSERVE_TIMEOUT, async {
            let client = self.client().await?;
            let (path, text) = (znode(self.id), own.to_string());
            if if_node_exists(client.set_data(&path, text.as_bytes(), None).await)?.is_some() {
                return Ok(());
            }
            let readable = CreateMode::Persistent.with_acls(Acls::anyone_read());
            ensure_folder(&client).await?;
            for (path, text) in [(pod_layout::GENERATIONS_ZNODE, ""), (&path, &text)] {
                match client.create(path, text.as_bytes(), &readable).await {
                    Ok(_) | Err(ZkError::NodeExists) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
        .await
    }
}

fn znode(id: i32) -> String {
    format!("{}/{id}", pod_layout::GENERATIONS_ZNODE)
}

async fn generation(client: &Client, id: i32) -> Result<(i32, i64), ZkError> {
    let text = if_node_exists(client.get_data(&znode(id)).await)?.map(|(text, _)| text).unwrap_or_default();
    Ok((id, String::from_utf8_lossy(&text).trim().parse().unwrap_or_default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_counts_as_written_after_a_minute() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut generation = Generation::default();
        generation.applied.extend([(began, 5), (after(15), 8), (after(40), 9)]);
        let held: Vec<i64> = [59, 60, 80, 200].map(|seconds| generation.take_applied(after(seconds))).to_vec();
        assert_eq!(held, [0, 5, 8, 9]);
    }

    #[test]
    fn a_generation_that_is_not_raised_for_a_minute_is_reported() {
        let began = Instant::now();
        let mut generation = Generation::default();
        let reported = [0, 59, 60].map(|seconds| generation.fails_for_long(began + Duration::from_secs(seconds)));
        assert_eq!(reported, [false, false, true]);
    }
}

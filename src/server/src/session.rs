//! Sessions of the parent process with its own `ZooKeeper`, with the rights of a superuser.

use std::net::SocketAddr;

use std::time::{Duration, Instant};

use parking_lot::Mutex as StdMutex;
use tokio::{sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error as ZkError, SessionState};

use crate::{admin_server, refusal::PortRefusal, shared_znodes, superuser::Superuser};
use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, RestartLock},
        pod_layout,
    },
    zookeeper::Ensemble,
};
use mczk_rules::server::{
    dynamic_configuration::{self, ClientAddress},
    zoo_cfg::OBSERVE_TIMEOUT,
};

const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// State of the ensemble, read through a quorum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerObservation {
    /// `ZooKeeper`'s configuration.
    pub(crate) configuration: Configuration,
    /// True if the configuration has the right client address for this server, or does not name the server.
    pub(crate) client_address_current: bool,
    /// Server list in the ensemble.
    pub(crate) list: Option<Ensemble>,
    /// Restart lock, if an agent holds it.
    pub(crate) restart_lock: Option<RestartLock>,
}

/// The server list in the ensemble.
pub(super) struct PublishedList {
    pub(crate) list: Ensemble,
    /// Number of writes.
    pub(crate) version: i32,
    /// Id of the transaction of the last write.
    pub(crate) zxid: i64,
}

/// The restart lock that an agent holds through this server.
pub(super) struct HeldLock {
    pub(crate) lock: RestartLock,
    pub(crate) client: Client,
    pub(crate) renewed: Instant,
}

impl std::fmt::Debug for HeldLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HeldLock").field("lock", &self.lock).finish_non_exhaustive()
    }
}

/// Sessions with the own server, from its start to its exit.
#[derive(Debug)]
pub(crate) struct Sessions {
    address: SocketAddr,
    superuser: Superuser,
    pub(super) id: i32,
    pub(super) client_address: ClientAddress,
    shared: StdMutex<Option<Client>>,
    /// Held during a change. Of two simultaneous changes, the second one observes the result of the first.
    pub(super) change: Mutex<()>,
    pub(super) held_lock: Mutex<Option<HeldLock>>,
}

impl Sessions {
    /// Sessions with server `id` at `address`.
    #[must_use]
    pub(crate) fn new(address: SocketAddr, superuser: Superuser, id: i32, client_address: ClientAddress) -> Self {
        Self {
            address,
            superuser,
            id,
            client_address,
            shared: StdMutex::default(),
            change: Mutex::default(),
            held_lock: Mutex::default(),
        }
    }

    /// Observes the ensemble: a session, which a quorum must have committed, then a round trip to the leader, then reads.
    ///
    /// # Errors
    /// If `ZooKeeper` does not answer in time.
    pub(crate) async fn observe(&self) -> Result<ServerObservation, PortRefusal> {
        within(OBSERVE_TIMEOUT, async {
            let client = self.client().await?;
            client.sync("/").await?;
            let ((text, configuration), published, restart_lock) =
                futures::try_join!(configuration_text(&client), published_list(&client), restart_lock(&client))?;
            let client_address_current =
                dynamic_configuration::with_client_address(&text, self.id, self.client_address).is_none();
            let list = published.map(|published| published.list);
            Ok(ServerObservation { configuration, client_address_current, list, restart_lock })
        })
        .await
    }

    /// The session for observations and changes. After a loss of the connection the server opens a new session. A session is
    /// a write, so it proves that a quorum commits again.
    pub(super) async fn client(&self) -> Result<Client, ZkError> {
        let shared = self.shared.lock().clone();
        if let Some(client) = shared
            && client.state() == SessionState::SyncConnected
        {
            return Ok(client);
        }
        let client = self.connect(SESSION_TIMEOUT).await?;
        shared_znodes::protect(&client).await?;
        shared_znodes::show_configuration(&client, self.client_address != ClientAddress::Loopback).await?;
        *self.shared.lock() = Some(client.clone());
        Ok(client)
    }

    /// Opens a session, but not while the server has no part in a quorum: `ZooKeeper` would refuse it and log a stack trace
    /// for every refusal.
    pub(super) async fn connect(&self, session_timeout: Duration) -> Result<Client, ZkError> {
        if admin_server::ask(self.address.ip()).await.mode == Some(Mode::Looking) {
            return Err(ZkError::ConnectionLoss);
        }
        Client::connector()
            .with_session_timeout(session_timeout)
            .with_fail_eagerly()
            .with_auth("digest", self.superuser.credential().as_bytes())
            .connect(&self.address.to_string())
            .await
    }
}

/// Limits the time of `work`.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PortRefusal>>,
) -> Result<T, PortRefusal> {
    let late = || PortRefusal::unavailable(format!("ZooKeeper did not answer within {} s", limit.as_secs()));
    timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

pub(super) async fn configuration(client: &Client) -> Result<Configuration, ZkError> {
    configuration_text(client).await.map(|(_, configuration)| configuration)
}

/// The configuration, also as its unparsed text.
pub(super) async fn configuration_text(client: &Client) -> Result<(String, Configuration), ZkError> {
    let (text, _) = client.get_config().await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let unreadable = || ZkError::UnexpectedError("its configuration does not parse".to_owned());
    let configuration = dynamic_configuration::parse(&text).ok_or_else(unreadable)?;
    Ok((text, configuration))
}

pub(super) async fn published_list(client: &Client) -> Result<Option<PublishedList>, ZkError> {
    let Some((text, stat)) = if_node_exists(client.get_data(pod_layout::SERVER_LIST_ZNODE).await)? else {
        return Ok(None);
    };
    Ok(Some(PublishedList { list: Ensemble::from_text(&text), version: stat.version, zxid: stat.mzxid }))
}

pub(super) async fn restart_lock(client: &Client) -> Result<Option<RestartLock>, ZkError> {
    let node = if_node_exists(client.get_data(pod_layout::RESTART_LOCK_ZNODE).await)?;
    Ok(node.and_then(|(text, _)| serde_json::from_slice(&text).ok()))
}

/// Maps the error of a missing znode to `None`.
pub(super) fn if_node_exists<T>(read: Result<T, ZkError>) -> Result<Option<T>, ZkError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

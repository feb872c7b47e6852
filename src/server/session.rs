//! What is asked of the ensemble, and done in it, through the own server: with the rights of a superuser, which only this
//! process has, and only for this server.

use std::net::SocketAddr;
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use zookeeper_client::{Acls, Client, CreateMode, EnsembleUpdate, Error as ZkError, SessionState};

use crate::{
    api::zookeeper::Ensemble,
    contract::{
        control_api::{Configuration, LOCK_LEASE, LOCK_SESSION, Mode, Problem, Reconfiguration, RestartLock},
        pod_layout,
        server_list::with_hash,
    },
    server::{
        configuration::{self, Plain},
        four_letter_words,
    },
};

/// How long a session may take to begin, and a look to be answered.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a change may take.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_SESSION: Duration = Duration::from_secs(10);

/// The rights of a superuser, of one start of one server.
#[derive(Clone)]
pub struct Superuser {
    password: String,
}

impl std::fmt::Debug for Superuser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Superuser")
    }
}

impl Superuser {
    /// New ones, unknown to anybody else.
    #[must_use]
    pub fn generate() -> Self {
        Self { password: format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()) }
    }

    fn credential(&self) -> String {
        format!("super:{}", self.password)
    }

    /// What the server is told of it: it knows the credential by this, and cannot make it from this.
    #[must_use]
    pub fn digest(&self) -> String {
        use base64::Engine as _;
        // The algorithm is ZooKeeper's; another one would change what people's own digests mean.
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, self.credential().as_bytes());
        format!("super:{}", base64::engine::general_purpose::STANDARD.encode(sum))
    }

    /// What no line of a log may hold.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        vec![self.digest(), self.password.clone()]
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What was asked for makes no sense: asking again does not help.
    Invalid(Problem),
    /// The ensemble is in another state than whoever asked believes: look again, decide again.
    Conflict(Problem),
    /// It could not be tried, or nobody knows whether it was done: look again.
    Unavailable(Problem),
}

impl Refused {
    fn invalid(reason: &str, message: impl Into<String>) -> Self {
        Self::Invalid(Problem { reason: reason.to_owned(), message: message.into() })
    }

    fn conflict(reason: &str, message: impl Into<String>) -> Self {
        Self::Conflict(Problem { reason: reason.to_owned(), message: message.into() })
    }

    /// It could not be tried, or nobody knows whether it was done.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(Problem { reason: "unavailable".to_owned(), message: message.into() })
    }
}

impl From<ZkError> for Refused {
    fn from(error: ZkError) -> Self {
        // The codes that the client does not name: a majority of the new configuration is not connected, and another
        // reconfiguration has not ended.
        match error {
            ZkError::BadVersion => Self::conflict("version", "it changed meanwhile"),
            ZkError::UnexpectedErrorCode(-13) => {
                Self::conflict("noQuorum", "no majority of the new configuration is connected and synced")
            }
            ZkError::UnexpectedErrorCode(-14) => Self::conflict("inProgress", "another reconfiguration has not ended"),
            ZkError::BadArguments(_) => Self::invalid("arguments", error.to_string()),
            other => Self::unavailable(format!("ZooKeeper: {other}")),
        }
    }
}

/// What a look through a quorum shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// `ZooKeeper`'s configuration.
    pub configuration: Configuration,
    /// Whether that says of the own server where it takes plain connections, if it names it.
    pub addressed: bool,
    /// The list of servers that the ensemble keeps.
    pub list: Option<Ensemble>,
    /// Who holds the turn.
    pub turn: Option<RestartLock>,
}

/// The list as it lies in the ensemble.
struct ReplicaFloor {
    list: Ensemble,
    /// How often it was written, and by which transaction at last.
    version: i32,
    zxid: i64,
}

struct Held {
    turn: RestartLock,
    client: Client,
    renewed: Instant,
}

/// Sessions with the own server, from one start of it to its end.
#[derive(Debug)]
pub struct Sessions {
    address: SocketAddr,
    superuser: Superuser,
    id: i32,
    plain: Plain,
    look: StdMutex<Option<Client>>,
    /// Held while a change is made: of two that come at once the second sees what the first did.
    change: Mutex<()>,
    turn: Mutex<Option<Held>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Held").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Sessions {
    /// With the server `id` that listens at `address`.
    #[must_use]
    pub fn new(address: SocketAddr, superuser: Superuser, id: i32, plain: Plain) -> Self {
        Self {
            address,
            superuser,
            id,
            plain,
            look: StdMutex::default(),
            change: Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// Looks: a session, which a quorum must have committed, then a round trip to the leader and reads behind it.
    ///
    /// # Errors
    /// If it is not answered in time.
    pub async fn look(&self) -> Result<Seen, Refused> {
        within(PATIENCE, self.look_slowly()).await
    }

    async fn look_slowly(&self) -> Result<Seen, Refused> {
        let client = self.client().await?;
        client.sync("/").await?;
        let ((text, configuration), kept, turn) =
            futures::try_join!(configuration_text(&client), kept(&client), generation_of(&client))?;
        let addressed = configuration::readdressed(&text, self.id, self.plain).is_none();
        Ok(Seen { configuration, addressed, list: kept.map(|kept| kept.list), turn })
    }

    /// Makes one step of a reconfiguration, and confirms it by a write that a quorum commits.
    ///
    /// # Errors
    /// If the ensemble keeps a newer list than the step was decided on, if its configuration is another one, or if it
    /// cannot be done.
    pub async fn reconfigure(&self, step: &Reconfiguration) -> Result<Configuration, Refused> {
        let _alone = self.change.lock().await;
        within(CHANGE_PATIENCE, self.reconfigure_slowly(step)).await
    }

    async fn reconfigure_slowly(&self, step: &Reconfiguration) -> Result<Configuration, Refused> {
        if step.add.is_some() == step.remove.is_some() {
            return Err(Refused::invalid("step", "a step adds one server or removes one, and not both"));
        }
        if let Some(added) = &step.add
            && (!(1..=254).contains(&added.id) || !is_name(&added.host))
        {
            return Err(Refused::invalid("step", "a server has an id from 1 to 254 and the name of a host"));
        }
        let client = self.client().await?;
        client.sync("/").await?;
        let current = configuration(&client).await?;
        if let Some(kept) = kept(&client).await? {
            let epoch = kept.list.epoch.unwrap_or_default();
            if epoch > step.epoch {
                return Err(Refused::conflict(
                    "epoch",
                    format!("the step was decided on the list of epoch {}, and the ensemble keeps {epoch}", step.epoch),
                ));
            }
            if kept.zxid > current.version {
                // Whoever published it ended in between. Steps under older lists must fail first.
                self.fence(&client).await?;
                return Err(Refused::conflict(
                    "version",
                    "the list was published and the configuration raised only now",
                ));
            }
        }
        if current.version != step.from_version {
            return Err(other_version(step.from_version, &current));
        }
        let joining = step.add.as_ref().map(|added| configuration::line(added, self.plain)).unwrap_or_default();
        let leaving = step.remove.map(|id| id.to_string()).unwrap_or_default();
        let update = EnsembleUpdate::Incremental {
            joinings: std::iter::once(joining.as_str()),
            leavings: std::iter::once(leaving.as_str()),
        };
        match client.update_ensemble(update, Some(step.from_version)).await {
            Ok(_) => {}
            Err(ZkError::BadVersion) => return Err(other_version(step.from_version, &configuration(&client).await?)),
            // A leader that takes itself out closes all connections, and so does every server that changes its leader.
            Err(ZkError::ConnectionLoss | ZkError::NoHosts | ZkError::Timeout | ZkError::SessionExpired) => {
                return self.after_loss(step).await;
            }
            Err(error) => return Err(error.into()),
        }
        self.confirm(&client).await?;
        Ok(configuration(&client).await?)
    }

    /// Whether a step was made whose answer was lost, as soon as that can be read again.
    async fn after_loss(&self, step: &Reconfiguration) -> Result<Configuration, Refused> {
        loop {
            sleep(Duration::from_millis(500)).await;
            let read = async {
                let client = self.client().await?;
                client.sync("/").await?;
                let current = configuration(&client).await?;
                Ok::<_, ZkError>((client, current))
            };
            let Ok((client, current)) = read.await else { continue };
            let added = step.add.as_ref().is_none_or(|added| current.servers.contains(added));
            let removed = step.remove.is_none_or(|id| current.servers.iter().all(|server| server.id != id));
            if current.version == step.from_version || !added || !removed {
                return Err(Refused::unavailable("the connection broke, and the step was not made"));
            }
            self.confirm(&client).await?;
            return Ok(current);
        }
    }

    /// Publishes a list in the ensemble, if it is newer, and makes every step that was prepared under an older one fail.
    ///
    /// # Errors
    /// If it is of another ensemble, not whole, or not newer; or if it cannot be done.
    pub async fn publish(&self, list: &Ensemble, incarnation: &str) -> Result<Configuration, Refused> {
        if list.incarnation.as_deref() != Some(incarnation) {
            return Err(Refused::invalid("ensemble", "the list is of another ensemble, or of another life of it"));
        }
        if list.epoch.is_none() || with_hash(list.clone()).ok().as_ref() != Some(list) {
            return Err(Refused::invalid("hash", "the list does not fit its own hash"));
        }
        let _alone = self.change.lock().await;
        within(CHANGE_PATIENCE, self.publish_slowly(list)).await
    }

    async fn publish_slowly(&self, list: &Ensemble) -> Result<Configuration, Refused> {
        let client = self.client().await?;
        client.sync("/").await?;
        let text = serde_json::to_vec(list).map_err(|error| Refused::invalid("list", error.to_string()))?;
        let readable = CreateMode::Persistent.with_acls(Acls::anyone_read());
        match kept(&client).await? {
            None => {
                ensure_folder(&client).await?;
                client.create(pod_layout::SERVER_LIST_ZNODE, &text, &readable).await.map_err(|error| match error {
                    ZkError::NodeExists => Refused::conflict("version", "a list was published meanwhile"),
                    other => other.into(),
                })?;
            }
            Some(kept) if kept.list.epoch < list.epoch => {
                client.set_data(pod_layout::SERVER_LIST_ZNODE, &text, Some(kept.version)).await?;
            }
            // Again, perhaps because the answer was lost: only what may be missing is done.
            Some(kept) if kept.list == *list => {}
            Some(kept) => {
                let epoch = kept.list.epoch.unwrap_or_default();
                return Err(Refused::conflict("epoch", format!("the ensemble keeps a list of epoch {epoch}")));
            }
        }
        let current = configuration(&client).await?;
        let written = kept(&client).await?.map_or(0, |kept| kept.zxid);
        if written < current.version {
            return Ok(current);
        }
        self.fence(&client).await?;
        Ok(configuration(&client).await?)
    }

    /// Tells the ensemble where this server takes plain connections, if it says something else: encryption towards clients
    /// became required, or no longer is.
    ///
    /// # Errors
    /// If it cannot be done now.
    pub async fn readdress(&self) -> Result<(), Refused> {
        let _alone = self.change.lock().await;
        within(CHANGE_PATIENCE, async {
            let client = self.client().await?;
            client.sync("/").await?;
            let (text, current) = configuration_text(&client).await?;
            if configuration::readdressed(&text, self.id, self.plain).is_none() {
                return Ok(());
            }
            let Some(own) = current.servers.iter().find(|server| server.id == self.id) else { return Ok(()) };
            let own = configuration::line(own, self.plain);
            let update =
                EnsembleUpdate::Incremental { joinings: std::iter::once(own.as_str()), leavings: std::iter::once("") };
            client.update_ensemble(update, Some(current.version)).await?;
            self.confirm(&client).await
        })
        .await
    }

    /// A reconfiguration that changes nothing but the version: a server joins as it is, to the letter, since `ZooKeeper` opens
    /// its port for clients anew where that is said otherwise.
    async fn fence(&self, client: &Client) -> Result<(), Refused> {
        let (text, current) = configuration_text(client).await?;
        let voter = current.voters().next().ok_or_else(|| Refused::unavailable("the configuration has no voter"))?;
        let beginning = format!("server.{voter}=");
        let same = text.lines().map(str::trim).find(|line| line.starts_with(&beginning));
        let same = same.ok_or_else(|| Refused::unavailable("the configuration does not parse"))?;
        let update = EnsembleUpdate::Incremental { joinings: std::iter::once(same), leavings: std::iter::once("") };
        client.update_ensemble(update, Some(current.version)).await?;
        self.confirm(client).await
    }

    /// A write, which a quorum commits.
    async fn confirm(&self, client: &Client) -> Result<(), Refused> {
        ensure_folder(client).await?;
        client.set_data(pod_layout::ZNODE, format!("confirmed through {}", self.id).as_bytes(), None).await?;
        Ok(())
    }

    /// Takes the turn, or renews it: whoever has it asks again at least every [`LOCK_LEASE`], or loses it.
    ///
    /// # Errors
    /// If somebody has it, which the problem names, or if it cannot be taken.
    pub async fn take_turn(&self, turn: &RestartLock) -> Result<RestartLock, Refused> {
        if turn.server == self.id {
            return Err(Refused::invalid(
                "server",
                "the turn must be held through another server than the one that is to be taken out",
            ));
        }
        within(PATIENCE + PATIENCE, self.take_turn_slowly(turn)).await
    }

    async fn take_turn_slowly(&self, turn: &RestartLock) -> Result<RestartLock, Refused> {
        let mut held = self.turn.lock().await;
        if let Some(mine) = held.as_mut() {
            if mine.turn.holder != turn.holder && mine.renewed.elapsed() < LOCK_LEASE {
                return Err(taken(&mine.turn));
            }
            if mine.turn == *turn && mine.renewed.elapsed() < LOCK_LEASE {
                mine.client.sync("/").await?;
                let owner =
                    mine.client.check_stat(pod_layout::RESTART_LOCK_ZNODE).await?.map(|stat| stat.ephemeral_owner);
                if owner == Some(mine.client.session_id().0) {
                    mine.renewed = Instant::now();
                    return Ok(turn.clone());
                }
            }
            if let Some(old) = held.take() {
                give_back(old).await;
            }
        }
        // A session is a write of the whole ensemble: whoever only waits must not make one at each attempt.
        if let Some(other) = generation_of(&self.client().await?).await? {
            return Err(taken(&other));
        }
        let client = self.connect(LOCK_SESSION).await?;
        ensure_folder(&client).await?;
        let text = serde_json::to_vec(turn).map_err(|error| Refused::invalid("turn", error.to_string()))?;
        let mine = CreateMode::Ephemeral.with_acls(Acls::anyone_read());
        match client.create(pod_layout::RESTART_LOCK_ZNODE, &text, &mine).await {
            Ok(_) => {
                *held = Some(Held { turn: turn.clone(), client, renewed: Instant::now() });
                Ok(turn.clone())
            }
            Err(ZkError::NodeExists) => Err(generation_of(&client)
                .await?
                .as_ref()
                .map_or_else(|| Refused::conflict("turn", "somebody had the turn until just now"), taken)),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the turn back.
    ///
    /// # Errors
    /// If this server does not hold it for whoever asks.
    pub async fn give_turn_back(&self, turn: &RestartLock) -> Result<(), Refused> {
        let mut held = self.turn.lock().await;
        match held.take() {
            Some(mine) if mine.turn.holder == turn.holder => {
                give_back(mine).await;
                Ok(())
            }
            Some(other) => {
                let refused = taken(&other.turn);
                *held = Some(other);
                Err(refused)
            }
            None => Err(Refused::conflict("turn", "nobody holds the turn through this server")),
        }
    }

    /// Lets go of a turn whose holder asked no more.
    pub async fn end_abandoned_turn(&self) {
        let mut held = self.turn.lock().await;
        if let Some(mine) = held.take_if(|mine| mine.renewed.elapsed() >= LOCK_LEASE) {
            tracing::warn!(holder = mine.turn.holder, server = mine.turn.server, "a turn was abandoned");
            give_back(mine).await;
        }
    }

    /// The session for looks and changes. One that lost its connection is not used again: a new one is a write, and so the
    /// proof that a quorum commits after whatever happened.
    async fn client(&self) -> Result<Client, ZkError> {
        let known = self.look.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(client) = known
            && client.state() == SessionState::SyncConnected
        {
            return Ok(client);
        }
        let client = self.connect(LOOK_SESSION).await?;
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    /// Not while the server has no part in a quorum: it would refuse, and log every refusal with where in it that was.
    async fn connect(&self, session: Duration) -> Result<Client, ZkError> {
        if four_letter_words::ask(self.address).await.mode == Some(Mode::Looking) {
            return Err(ZkError::ConnectionLoss);
        }
        Client::connector()
            .with_session_timeout(session)
            .with_fail_eagerly()
            .with_auth("digest", self.superuser.credential().as_bytes())
            .connect(&self.address.to_string())
            .await
    }
}

fn is_name(host: &str) -> bool {
    (1..=253).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn other_version(from: i64, current: &Configuration) -> Refused {
    Refused::conflict("version", format!("the step was decided on configuration {from}, and it is {}", current.version))
}

fn taken(turn: &RestartLock) -> Refused {
    Refused::conflict("turn", format!("{} holds the turn for server {}", turn.holder, turn.server))
}

async fn within<T>(patience: Duration, work: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    let late = || Refused::unavailable(format!("ZooKeeper did not answer within {} s", patience.as_secs()));
    timeout(patience, work).await.unwrap_or_else(|_| Err(late()))
}

async fn give_back(held: Held) {
    // If this fails, the end of the session does it.
    let _ = timeout(PATIENCE, held.client.delete(pod_layout::RESTART_LOCK_ZNODE, None)).await;
}

async fn ensure_folder(client: &Client) -> Result<(), ZkError> {
    let readable = CreateMode::Persistent.with_acls(Acls::anyone_read());
    match client.create(pod_layout::ZNODE, b"", &readable).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn configuration(client: &Client) -> Result<Configuration, ZkError> {
    configuration_text(client).await.map(|(_, configuration)| configuration)
}

/// The configuration, also as it was read.
async fn configuration_text(client: &Client) -> Result<(String, Configuration), ZkError> {
    let (text, _) = client.get_config().await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let unreadable = || ZkError::UnexpectedError("its configuration does not parse".to_owned());
    let configuration = configuration::parse(&text).ok_or_else(unreadable)?;
    Ok((text, configuration))
}

async fn kept(client: &Client) -> Result<Option<ReplicaFloor>, ZkError> {
    let (text, stat) = match client.get_data(pod_layout::SERVER_LIST_ZNODE).await {
        Ok(read) => read,
        Err(ZkError::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    let list = serde_json::from_slice(&text)
        .map_err(|error| ZkError::UnexpectedError(format!("the list that it keeps does not parse: {error}")))?;
    Ok(Some(ReplicaFloor { list, version: stat.version, zxid: stat.mzxid }))
}

async fn generation_of(client: &Client) -> Result<Option<RestartLock>, ZkError> {
    match client.get_data(pod_layout::RESTART_LOCK_ZNODE).await {
        Ok((text, _)) => Ok(serde_json::from_slice(&text).ok()),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

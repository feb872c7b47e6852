//! The life of a server's process: it decides, starts `ZooKeeper`, waits for its end, and decides anew.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::{error, info, warn};

use crate::{
    api::zookeeper::Ensemble,
    contract::{
        control_api::{Configuration, Phase, SETTLED, ServerConfig, ServerReport, UNKNOWN_EPOCH},
        pod_layout,
        server_list::with_hash,
    },
    runtime::shutdown::Shutdown,
    server::{
        configuration::{self, Paths, Plain},
        four_letter_words,
        identity::{self, Identity},
        metrics::Metrics,
        peers,
        process::{Program, Running, class_path},
        resolver::Names,
        session::{Sessions, Superuser},
        start::{self, Decision, PodIdentity, Start, StartInputs},
        volume::{self, Volume},
    },
};

/// For how long the process stays when its `ZooKeeper` was ended with the pod. The pod's network is there as long: whoever
/// still calls is refused at once, where an address that nobody has any more lets it wait for seconds, in an election too.
const STAY: Duration = Duration::from_secs(2);
/// Between two decisions while it may not start.
const DECIDE_AGAIN: Duration = Duration::from_secs(2);
/// How long the port for clients of a server that has long run may be closed.
const CLOSED: Duration = Duration::from_secs(20);
/// Between two looks at the running server.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Pauses before it is started again: the first, in which the others have elected without it, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A run of this length ends a series of failures.
const LONG_RUN: Duration = Duration::from_secs(60);
/// For how long starts may fail until the process counts as not alive. Restarting it hardly helps, so this is long.
const DEAD_AFTER: Duration = Duration::from_secs(600);

/// What the process is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the pod, which ends with its number.
    pub pod: String,
    /// Folder with the assigned configuration and server list.
    pub config_dir: PathBuf,
    /// The data volume.
    pub data: PathBuf,
    /// Where things lie.
    pub places: Paths,
    /// Folder with the quorum's certificates.
    pub quorum_tls: PathBuf,
    /// Folder with the certificates that clients see.
    pub client_tls: PathBuf,
    /// The program `java`.
    pub java: PathBuf,
    /// Where `ZooKeeper` is installed.
    pub home: PathBuf,
    /// Folder of the image's own settings of the log.
    pub conf: Option<PathBuf>,
}

/// What it is told.
#[derive(Clone, Debug)]
struct AssignedConfig {
    instructions: ServerConfig,
    list: Option<Ensemble>,
}

impl AssignedConfig {
    fn parks(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.phase.is_suspended())
    }
}

/// How it stands.
#[derive(Clone, Debug)]
struct Now {
    phase: Phase,
    id: Option<i32>,
    incarnation: String,
    revision: String,
    lost: bool,
    list: Option<Ensemble>,
    sessions: Option<Arc<Sessions>>,
    /// Since when it has been seen to serve whenever it was looked at.
    serving: Option<Instant>,
    /// Since when starts have failed.
    failing: Option<Instant>,
}

/// A server's parent process.
#[derive(Debug)]
pub struct Server {
    options: Options,
    names: Names,
    volume: Volume,
    identity: Arc<Identity>,
    metrics: Metrics,
    now: Mutex<Now>,
}

impl Server {
    /// One that has not begun.
    #[must_use]
    pub fn new(options: Options, metrics: Metrics) -> Self {
        let places = &options.places;
        let identity = Identity::new(options.quorum_tls.clone(), places.quorum_identity(), places.quorum_trust());
        let now = Now {
            phase: Phase::Waiting { reason: "it has only just begun".to_owned() },
            id: None,
            incarnation: String::new(),
            revision: String::new(),
            lost: false,
            list: None,
            sessions: None,
            serving: None,
            failing: None,
        };
        Self {
            names: places.hosts.clone().map_or(Names::System, Names::File),
            volume: Volume::new(options.data.clone(), places.clone()),
            identity: Arc::new(identity),
            metrics,
            now: Mutex::new(now),
            options,
        }
    }

    /// The quorum's certificates.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.identity.clone()
    }

    /// Sessions with `ZooKeeper`, while it runs.
    #[must_use]
    pub fn sessions(&self) -> Option<Arc<Sessions>> {
        self.with(|now| now.sessions.clone())
    }

    /// The life of the ensemble that it is told of.
    #[must_use]
    pub fn incarnation(&self) -> String {
        self.with(|now| now.incarnation.clone())
    }

    /// Whether it is told that servers speak TLS with each other; waits until it is told anything.
    pub async fn quorum_tls(&self) -> bool {
        loop {
            if let Ok(told) = self.told().await {
                return told.instructions.quorum_tls;
            }
            sleep(DECIDE_AGAIN).await;
        }
    }

    /// Whether the process is of use.
    ///
    /// # Errors
    /// What is wrong, if `ZooKeeper` could not be started for long.
    pub fn alive(&self) -> Result<(), String> {
        self.with(|now| match (now.failing, &now.phase) {
            (Some(since), Phase::Exited { reason }) if since.elapsed() > DEAD_AFTER => Err(reason.clone()),
            _ => Ok(()),
        })
    }

    /// Whether a session is served.
    ///
    /// # Errors
    /// Why not.
    pub async fn ready(&self) -> Result<(), String> {
        let Some(sessions) = self.sessions() else {
            return Err(match self.with(|now| now.phase.clone()) {
                Phase::Waiting { reason } | Phase::Exited { reason } => reason,
                Phase::Suspended => "it is parked".to_owned(),
                Phase::Running => "ZooKeeper only begins".to_owned(),
            });
        };
        match sessions.look().await {
            Ok(_) => Ok(()),
            Err(refused) => Err(format!("no session is served: {refused:?}")),
        }
    }

    /// What it says of itself, looked at now.
    pub async fn view(&self) -> ServerReport {
        let now = self.with(Now::clone);
        let volume = self.volume.clone();
        let kept = tokio::task::spawn_blocking(move || (volume.identity(), volume.accepted_epoch())).await;
        let (volume, accepted_epoch) = match kept {
            Ok((identity, epoch)) => (identity.unwrap_or_default(), epoch),
            Err(_) => (String::new(), UNKNOWN_EPOCH),
        };
        let (said, seen) = match &now.sessions {
            None => (four_letter_words::Said::default(), None),
            Some(sessions) => {
                let (said, seen) = tokio::join!(four_letter_words::ask(self.client_address()), sessions.look());
                (said, seen.ok())
            }
        };
        let serving = seen.is_some();
        let addressed = seen.as_ref().is_none_or(|seen| seen.addressed);
        let (configuration, kept, turn) =
            seen.map_or((None, None, None), |seen| (Some(seen.configuration), seen.list, seen.turn));
        ServerReport {
            id: now.id,
            pod: self.options.pod.clone(),
            incarnation: now.incarnation,
            phase: now.phase,
            revision: now.revision,
            mode: said.mode,
            serving,
            // A round trip to the leader ends only when all that came before it has arrived here. Who has still to say where it
            // takes connections is not done: the next one must not be stopped while that is on its way.
            synced: serving && addressed,
            settled: serving && now.serving.is_some_and(|since| since.elapsed() >= SETTLED),
            zxid: said.zxid,
            synced_voters: said.synced_voters,
            configuration,
            accepted_epoch,
            volume,
            lost: now.lost,
            server_list: newer(kept, now.list),
            restart_lock: turn,
            loaded: self.identity.loaded(),
        }
    }

    /// Runs until it is time to end, and `ZooKeeper` has.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let end = shutdown.requested();
        tokio::pin!(end);
        let mut pause = FIRST_PAUSE;
        loop {
            let attempt = self.begin();
            let mut running = tokio::select! {
                () = &mut end => return,
                begun = attempt => match begun {
                    Ok(Some(running)) => running,
                    Ok(None) => {
                        tokio::select! { () = &mut end => return, () = sleep(DECIDE_AGAIN) => continue }
                    }
                    Err(error) => {
                        self.failed(format!("{error:#}"));
                        tokio::select! { () = &mut end => return, () = sleep(pause) => {} }
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        continue;
                    }
                },
            };
            let began = Instant::now();
            let ended = tokio::select! {
                ended = running.ended() => ended,
                why = self.look_on(began) => {
                    warn!(why, "ZooKeeper is asked to end, to begin anew");
                    self.change(|now| now.sessions = None);
                    running.terminate();
                    // However long it takes: two would have one volume.
                    tokio::select! { _ = running.ended() => continue, () = &mut end => {} }
                    let _ = running.ended().await;
                    return;
                }
                () = &mut end => {
                    // Its followers take over sooner from a leader that says that it goes. It is never killed: the kubelet
                    // does that when the grace period is over.
                    info!("ZooKeeper is asked to end");
                    self.change(|now| now.sessions = None);
                    running.terminate();
                    let _ = running.ended().await;
                    sleep(STAY).await;
                    return;
                }
            };
            let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            let lines = running.last_lines().await;
            warn!(status, "ZooKeeper ended by itself");
            if began.elapsed() > LONG_RUN {
                self.change(|now| now.failing = None);
                pause = FIRST_PAUSE;
            }
            let settings = self.told().await.map(|told| told.instructions.zoo_cfg).unwrap_or_default();
            let blamed =
                configuration::blamed(&settings, &lines).map_or_else(String::new, |of| format!("; look at {of}"));
            self.failed(format!("ZooKeeper ended: {status}{blamed}; its last lines:\n{lines}"));
            tokio::select! { () = &mut end => return, () = sleep(pause) => {} }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Decides, and starts `ZooKeeper` if that is the decision.
    async fn begin(&self) -> anyhow::Result<Option<Running>> {
        let told = match self.told().await {
            Ok(told) => told,
            Err(error) => {
                self.wait(format!("what it is told cannot be read: {error:#}"));
                return Ok(None);
            }
        };
        if !told.parks() {
            // From here on it may be started: it is not parked any more.
            self.change(|now| {
                if now.phase == Phase::Suspended {
                    now.phase = Phase::Waiting { reason: "it is not to be parked any more".to_owned() };
                }
            });
        }
        let places = &self.options.places;
        let (observed, incarnation) = self.observe(&told).await?;
        let start = start::decide(&observed);
        let list = newer(
            told.list.clone(),
            newer(
                newer(observed.stored.as_ref().and_then(|life| life.list.clone()), observed.peers.list),
                observed
                    .suspended
                    .filter(|parked| told.list.as_ref().is_some_and(|list| list.incarnation == parked.incarnation)),
            ),
        );
        let list = list.filter(|list| list.incarnation.as_deref() == Some(incarnation.as_str()));
        self.metrics.list_epoch.set(list.as_ref().and_then(|list| list.epoch).unwrap_or_default());
        self.change(|now| {
            now.id = start.id;
            now.lost = start.lost;
            now.incarnation.clone_from(&incarnation);
            now.revision.clone_from(&told.instructions.revision);
            now.list.clone_from(&list);
        });
        let Start { decision, id, set_aside, .. } = start;
        let (Some(id), true) = (
            id,
            matches!(decision, Decision::KeepOwn | Decision::SeedBootstrap { .. } | Decision::SeedAsObserver { .. }),
        ) else {
            match decision {
                Decision::Suspend => {
                    if let Some(list) = &list {
                        self.volume.remember_parked(list).context("the volume cannot be written")?;
                    }
                    self.metrics.running.set(0);
                    self.change(|now| {
                        now.phase = Phase::Suspended;
                        now.failing = None;
                    });
                }
                Decision::Wait(reason) | Decision::Refuse(reason) => self.wait(reason),
                _ => self.wait("it has no id".to_owned()),
            }
            return Ok(None);
        };
        // All that can be refused is looked at before anything is written.
        let flags = configuration::jvm_flags(places, &told.instructions)?;
        configuration::zoo_cfg(places, &told.instructions, &places.seed())?;
        let host =
            list.as_ref().and_then(|list| start::own(&observed.pod, list)).map(|own| own.host.clone()).or_else(|| {
                let dynamic = observed.stored.as_ref()?.dynamic.as_ref()?;
                dynamic.servers.iter().find(|server| server.id == id).map(|server| server.host.clone())
            });
        let Some(host) = host else {
            self.wait("nothing says under which name others reach it".to_owned());
            return Ok(None);
        };
        // A leader that could not resolve its own name when it started leads, and commits nothing.
        if let Err(error) = self.names.resolve(&host).await {
            self.wait(format!("its own name {host} does not resolve: {error}"));
            return Ok(None);
        }
        self.certificates(&told.instructions).await?;
        let plain = Plain::of(places, &told.instructions);
        self.prepare(&decision, id, set_aside, &incarnation, list.as_ref(), plain)?;
        let superuser = Superuser::generate();
        self.write(&told.instructions, &superuser)?;
        let program = Program {
            java: self.options.java.clone(),
            class_path: class_path(&self.options.home, self.options.conf.as_deref(), &places.scratch),
            flags,
            secret_flags: places.secret_flags(),
            configuration: places.zoo_cfg(),
            secrets: superuser.secrets(),
        };
        info!(id, host, decision = word(&decision), set_aside, "ZooKeeper starts");
        let running =
            Running::start(&program).with_context(|| format!("{} cannot be started", program.java.display()))?;
        self.metrics.starts.inc();
        self.metrics.running.set(1);
        let sessions = Arc::new(Sessions::new(self.client_address(), superuser, id, plain));
        self.change(|now| {
            now.phase = Phase::Running;
            now.serving = None;
            now.sessions = Some(sessions);
        });
        Ok(Some(running))
    }

    async fn observe(&self, told: &AssignedConfig) -> anyhow::Result<(StartInputs, String)> {
        let me = self.me(told)?;
        let volume = self.volume.clone();
        let kept = tokio::task::spawn_blocking(move || {
            volume.identity()?;
            std::io::Result::Ok((volume.life()?, volume.has_aside()?, volume.parked()?))
        });
        let (life, aside, parked) = kept.await?.context("the volume cannot be read")?;
        let incarnation = told.list.as_ref().and_then(|list| list.incarnation.clone()).unwrap_or_default();
        let peers = start::Peers::default();
        let mut observed = StartInputs {
            pod: me,
            assigned: told.list.clone(),
            stored: life,
            suspended: parked,
            has_set_aside: aside,
            peers,
        };
        // Whoever serves from its volume asks nobody: it must be able to start when all others are down too. Only one whose
        // place was given another id has to know whether it still has a vote.
        let alone = start::decide(&observed);
        let replaced = start::listed_id(&observed).is_some_and(|listed| Some(listed) != alone.id);
        if !matches!(alone.decision, Decision::KeepOwn | Decision::Suspend) || replaced {
            let life = observed.stored.as_ref();
            let lists = told.list.iter().chain(life.and_then(|life| life.list.as_ref()));
            let own = lists.clone().find_map(|list| start::own(&observed.pod, list)).map(|own| own.host.clone());
            let dynamic = life.and_then(|life| life.dynamic.as_ref()).into_iter().flat_map(|dynamic| &dynamic.servers);
            let mut hosts: BTreeSet<String> =
                lists.flat_map(Ensemble::all_servers).map(|server| server.host.clone()).collect();
            hosts.extend(dynamic.map(|server| server.host.clone()));
            if let Some(own) = own {
                hosts.remove(&own);
            }
            let tls = if told.instructions.quorum_tls { self.identity.client_config() } else { None };
            if told.instructions.quorum_tls && tls.is_none() {
                anyhow::bail!("there are no certificates of the quorum in {}", self.options.quorum_tls.display());
            }
            observed.peers = peers::ask(hosts, &incarnation, &self.names, tls).await;
        }
        Ok((observed, incarnation))
    }

    async fn certificates(&self, told: &ServerConfig) -> anyhow::Result<()> {
        if told.quorum_tls {
            self.identity.look().await?;
        }
        self.client_certificates(told)
    }

    fn client_certificates(&self, told: &ServerConfig) -> anyhow::Result<()> {
        if told.client_tls.is_some() {
            let places = &self.options.places;
            identity::join(&self.options.client_tls, &places.client_identity(), &places.client_trust())
                .with_context(|| format!("the certificates in {} cannot be used", self.options.client_tls.display()))?;
        }
        Ok(())
    }

    fn prepare(
        &self,
        decision: &Decision,
        id: i32,
        set_aside: bool,
        incarnation: &str,
        list: Option<&Ensemble>,
        plain: Plain,
    ) -> anyhow::Result<()> {
        if set_aside {
            let aside = self.volume.set_aside().context("what the volume holds cannot be set aside")?;
            warn!(aside = %aside.display(), "the volume held another ensemble's or another server's data, which is set aside");
        }
        let seed = match decision {
            Decision::SeedBootstrap { servers, initialize } => Some((servers, *initialize)),
            Decision::SeedAsObserver { servers } => Some((servers, false)),
            _ => None,
        };
        if let Some((servers, initialize)) = seed {
            self.volume.seed(incarnation, id, servers, plain, initialize).context("the volume cannot be written")?;
        }
        self.volume.readdress(id, plain).context("the volume cannot be written")?;
        if let Some(list) = list {
            self.volume.remember_list(list).context("the volume cannot be written")?;
        }
        Ok(())
    }

    /// Writes what `ZooKeeper` is started with, anew each time: people may have changed it.
    fn write(&self, told: &ServerConfig, superuser: &Superuser) -> anyhow::Result<()> {
        let places = &self.options.places;
        let (dynamic, _) = self.volume.dynamic()?.context("the volume holds no configuration")?;
        let secret = format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={}\n", superuser.digest());
        let files = [
            (places.zoo_cfg(), configuration::zoo_cfg(places, told, &dynamic)?, 0o644),
            (places.security_properties(), configuration::SECURITY_PROPERTIES.to_owned(), 0o644),
            (places.scratch.join("logback.xml"), configuration::LOGBACK.to_owned(), 0o644),
            (places.secret_flags(), secret, 0o600),
        ];
        for (path, text, mode) in files {
            volume::write(&path, text.as_bytes(), mode).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Looks at the running server from time to time. Returns if it is to end and be decided anew, and why.
    async fn look_on(&self, began: Instant) -> &'static str {
        let (mut refusal, mut unfit, mut closed) = (None, String::new(), None);
        loop {
            sleep(LOOK_AGAIN).await;
            let told = self.told().await.ok();
            // ZooKeeper reads them again when they change.
            match told.as_ref().map(|told| self.client_certificates(&told.instructions)) {
                None => {}
                Some(Ok(())) => unfit.clear(),
                Some(Err(error)) => {
                    let error = format!("{error:#}");
                    if error != unfit {
                        error!(error, "new certificates for clients are not taken; the old ones stay");
                        unfit = error;
                    }
                }
            }
            if told.as_ref().is_some_and(AssignedConfig::parks) && self.accepted_epoch().await == 0 {
                return "it is to be parked";
            }
            let Some(sessions) = self.sessions() else { continue };
            sessions.end_abandoned_turn().await;
            let seen = sessions.look().await;
            self.metrics.serving.set(i64::from(seen.is_ok()));
            self.change(|now| now.serving = seen.as_ref().ok().and(now.serving.or_else(|| Some(Instant::now()))));
            if began.elapsed() > LONG_RUN {
                self.change(|now| now.failing = None);
            }
            let Ok(seen) = seen else {
                // ZooKeeper loses its port where it is told of another address while the old one is open.
                closed = if self.is_closed().await { closed.or_else(|| Some(Instant::now())) } else { None };
                let long = closed.is_some_and(|since| since.elapsed() > CLOSED);
                if long && began.elapsed() > LONG_RUN {
                    return "its port for clients is closed";
                }
                continue;
            };
            closed = None;
            if !seen.addressed
                && let Err(refused) = sessions.readdress().await
                && refusal.as_ref() != Some(&refused)
            {
                warn!(?refused, "the ensemble was not told where clients connect; it will be");
                refusal = Some(refused);
            }
            self.change(|now| {
                now.failing = None;
                now.list = newer(seen.list.clone(), now.list.take());
            });
            if told.as_ref().is_some_and(|told| self.is_replaced(told, &seen.configuration)) {
                return "its place in the list has another id";
            }
            let (volume, list) = (self.volume.clone(), self.with(|now| now.list.clone()));
            self.metrics.list_epoch.set(list.as_ref().and_then(|list| list.epoch).unwrap_or_default());
            let written = tokio::task::spawn_blocking(move || {
                volume.remember_formed()?;
                list.map_or(Ok(()), |list| volume.remember_list(&list))
            });
            if let Ok(Err(error)) = written.await {
                error!(%error, "the volume cannot be written");
            }
        }
    }

    /// Accepted epoch on its volume, as [`Volume::accepted_epoch`].
    async fn accepted_epoch(&self) -> i64 {
        let volume = self.volume.clone();
        tokio::task::spawn_blocking(move || volume.accepted_epoch()).await.unwrap_or(UNKNOWN_EPOCH)
    }

    /// Whether nobody listens on the port for clients.
    async fn is_closed(&self) -> bool {
        let connection = timeout(LOOK_AGAIN, TcpStream::connect(self.client_address())).await;
        matches!(connection, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    fn is_replaced(&self, told: &AssignedConfig, living: &Configuration) -> bool {
        let Ok(me) = self.me(told) else { return false };
        let (id, list) = self.with(|now| (now.id, now.list.clone()));
        let own_life =
            |list: &Ensemble| list.incarnation == told.list.as_ref().and_then(|told| told.incarnation.clone());
        let list = newer(told.list.clone(), list.filter(own_life));
        id.zip(list).is_some_and(|(id, list)| start::is_replaced(id, &me, &list, living))
    }

    fn me(&self, told: &AssignedConfig) -> anyhow::Result<PodIdentity> {
        Ok(PodIdentity {
            cluster: told.instructions.cluster.clone(),
            role: told.instructions.role,
            ordinal: ordinal(&self.options.pod)
                .with_context(|| format!("the name of the pod, {}, does not end with its number", self.options.pod))?,
        })
    }

    async fn told(&self) -> anyhow::Result<AssignedConfig> {
        let read = async |name: &str| {
            let path = self.options.config_dir.join(name);
            let text = tokio::fs::read(&path).await.with_context(|| path.display().to_string())?;
            anyhow::Ok((path, text))
        };
        let (path, text) = read(pod_layout::SERVER_CONFIG_FILE).await?;
        let instructions =
            serde_json::from_slice(&text).with_context(|| format!("{} does not parse", path.display()))?;
        let (path, text) = read(pod_layout::SERVER_LIST_FILE).await?;
        let list: Ensemble =
            serde_json::from_slice(&text).with_context(|| format!("{} does not parse", path.display()))?;
        if list.hash.is_some() && with_hash(list.clone())? != list {
            anyhow::bail!("{}: the list of servers does not fit its own hash", path.display());
        }
        Ok(AssignedConfig { instructions, list: (list.incarnation.is_some() && list.hash.is_some()).then_some(list) })
    }

    fn client_address(&self) -> SocketAddr {
        SocketAddr::new(self.options.places.own_address(), pod_layout::CLIENT_PORT)
    }

    fn wait(&self, reason: String) {
        self.change(|now| {
            let phase = Phase::Waiting { reason };
            if now.phase != phase {
                if let Phase::Waiting { reason } = &phase {
                    info!(reason, "ZooKeeper is not started");
                }
                now.phase = phase;
            }
            // There is a reason to wait, so nothing is wrong with the process.
            now.failing = None;
        });
    }

    fn failed(&self, reason: String) {
        self.metrics.running.set(0);
        self.metrics.serving.set(0);
        self.change(|now| {
            warn!(reason, "ZooKeeper will be started again");
            now.phase = Phase::Exited { reason };
            now.sessions = None;
            now.failing.get_or_insert_with(Instant::now);
        });
    }

    fn with<T>(&self, read: impl FnOnce(&Now) -> T) -> T {
        read(&self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The newer of two lists; of equals the first.
fn newer(a: Option<Ensemble>, b: Option<Ensemble>) -> Option<Ensemble> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.epoch > a.epoch { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The number at the end of a pod's name.
fn ordinal(pod: &str) -> Option<i32> {
    pod.rsplit_once('-')?.1.parse().ok()
}

const fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::KeepOwn => "with its own configuration",
        Decision::SeedBootstrap { .. } => "as one of a new ensemble",
        Decision::SeedAsObserver { .. } => "as an observer that joins",
        Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => "not",
    }
}

/// Reads the certificates of the quorum until there are some.
pub async fn until_certificates(identity: &Identity) {
    let mut told = false;
    while let Err(error) = identity.look().await {
        if !told {
            warn!(%error, "no certificates of the quorum yet");
            told = true;
        }
        // Nobody is asked meanwhile, so a short pause costs nothing.
        let _ = timeout(DECIDE_AGAIN, std::future::pending::<()>()).await;
    }
}

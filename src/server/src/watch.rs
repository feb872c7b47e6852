//! Watches the running `ZooKeeper`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::{error, warn};

use crate::{
    admin_server,
    assigned_config::AssignedConfig,
    election_connections::forgotten,
    generation::Generation,
    output::{LastLines, Unreadable},
    refusal::PortRefusal,
    session::{ServerObservation, Sessions},
    supervisor::{Supervisor, TlsClients, newer},
    tls_clients,
};
use mczk_api::{
    contract::{
        control_api::{Configuration, Mode, ServerConfig},
        pod_layout::{ADMIN_PORT, SECURE_CLIENT_PORT},
    },
    tls::ClientCertificates,
    zookeeper::Ensemble,
};
use mczk_rules::server::{short_count::FollowerCount, start, zoo_cfg};

/// Interval of observations.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time after which the closed client port of a server is a failure, if the server has run for [`LONG_RUN`].
const CLOSED: Duration = Duration::from_secs(20);
/// Time after which a `ZooKeeper` hangs that neither answers nor closes any connection. Pauses of a Java virtual machine are
/// shorter, and the others have elected another leader long before.
const SILENT: Duration = Duration::from_secs(120);
/// Why a `ZooKeeper` that hangs is ended. Its parent proves that it serves no longer, and reports a failure: agents may then
/// restart it without the restart lock.
pub(super) const HANGS: &str = "ZooKeeper hangs: it has answered nothing for two minutes, on no port";
/// Interval of looks at the space on the volume and at the certificates.
const FILES_INTERVAL: Duration = Duration::from_secs(30);
/// Questions in a row that a port turns away before it counts as one that serves no client.
const REFUSALS: u32 = 3;
/// Interval of questions to a port that turns clients with TLS away. `ZooKeeper` logs a stack trace for each.
const GREETING_INTERVAL: Duration = Duration::from_secs(30);
/// A run of this length ends a series of failures.
pub(super) const LONG_RUN: Duration = Duration::from_secs(60);

/// The watch of one run of `ZooKeeper`.
struct Watch<'a> {
    server: &'a Supervisor,
    started: Instant,
    output: LastLines,
    /// Time since which the client port is closed.
    closed_since: Option<Instant>,
    /// Time since which `ZooKeeper` has answered nothing.
    silent_since: Option<Instant>,
    generation: Generation,
    /// Time of the last question to the port for clients with TLS that settled it.
    greeted: Option<Instant>,
    /// Questions in a row that it has turned away.
    turned_away: u32,
    /// Time of the last look at the space on the volume and at the certificates.
    looked: Option<Instant>,
    /// The configuration of the last observation, if the server served.
    living: Option<Configuration>,
    /// The last logged refusal of a new client address.
    logged_refusal: Option<PortRefusal>,
    /// The last logged error of the certificates for clients.
    logged_certificates: String,
}

impl Supervisor {
    /// Watches the running `ZooKeeper`. Returns the reason if `ZooKeeper` must stop, so that the server decides again.
    pub async fn watch(&self, started: Instant, output: LastLines) -> &'static str {
        let mut watch = Watch {
            server: self,
            started,
            output,
            closed_since: None,
            silent_since: None,
            generation: Generation::default(),
            greeted: None,
            turned_away: 0,
            looked: None,
            living: None,
            logged_refusal: None,
            logged_certificates: String::new(),
        };
        // Another run may have led.
        self.note_count(FollowerCount::NotLeading);
        loop {
            sleep(INTERVAL).await;
            if let Some(reason) = watch.observe().await {
                return reason;
            }
        }
    }
}

/// True if nothing listens on a port.
async fn is_closed(port: SocketAddr) -> bool {
    let connection = timeout(INTERVAL, TcpStream::connect(port)).await;
    matches!(connection, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused)
}

impl Watch<'_> {
    async fn observe(&mut self) -> Option<&'static str> {
        self.look_at_files().await;
        let config = self.server.assigned_config().await.ok();
        if let Some(config) = &config {
            self.update_client_certificates(config);
        }
        if config.as_ref().is_some_and(AssignedConfig::is_suspended) && self.server.accepted_epoch().await == 0 {
            return Some("the ensemble is suspended");
        }
        let sessions = self.server.sessions()?;
        sessions.release_expired_restart_lock().await;
        let observation = sessions.observe().await.ok();
        self.record_serving(observation.is_some());
        self.living = observation.as_ref().map(|observation| observation.configuration.clone());
        self.count_followers(observation.as_ref()).await;
        let Some(observation) = observation else {
            // ZooKeeper does not always exit: it may try to read its files for ever.
            let unreadable = self.server.unreadable(&self.output.text());
            self.server.change_state(|state| state.corrupt |= unreadable == Some(Unreadable::Damaged));
            if matches!(unreadable, Some(Unreadable::TooLong(_))) {
                return Some("ZooKeeper cannot read a long record");
            }
            return self.failure().await;
        };
        (self.closed_since, self.silent_since) = (None, None);
        self.ask_for_tls_clients(config.as_ref()).await;
        self.update_client_address(&sessions, &observation).await;
        self.server.change_state(|state| {
            state.failing_since = None;
            state.corrupt = false;
            state.list = newer(observation.list.clone(), state.list.take());
        });
        if config.is_some_and(|config| self.is_replaced(&config, &observation.configuration)) {
            return Some("the server list gives the pod another id");
        }
        self.store().await;
        if self.generation.raise(self.server, &sessions).await {
            // The next start asks the other servers, which know the newer generation.
            self.server.change_state(|state| state.written = None);
            return Some("the volume is an old copy");
        }
        None
    }

    /// Updates the metrics of the volume and the certificates, and makes room on the volume.
    async fn look_at_files(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < FILES_INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        self.server.metrics.set_certificates(&self.server.options.paths);
        let (volume, incarnation, living) =
            (self.server.volume.clone(), self.server.incarnation(), self.living.clone());
        let make_room = move || volume.make_room(&incarnation, living.as_ref()).and_then(|()| volume.disk());
        match tokio::task::spawn_blocking(make_room).await {
            Ok(Ok(disk)) => self.server.metrics.set_disk(&disk),
            Ok(Err(error)) => error!(%error, "the space on the volume cannot be read"),
            Err(_) => {}
        }
    }

    /// `ZooKeeper` reloads the files when they change.
    fn update_client_certificates(&mut self, config: &AssignedConfig) {
        match self.server.write_client_certificates(config) {
            Ok(()) => self.logged_certificates.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                if error != self.logged_certificates {
                    error!(error, "refused new certificates for clients; the former ones stay");
                    self.logged_certificates = error;
                }
            }
        }
    }

    fn record_serving(&self, serving: bool) {
        self.server.metrics.serving.set(i64::from(serving));
        let long_run = self.started.elapsed() > LONG_RUN;
        self.server.change_state(|state| {
            state.serving_since = if serving { state.serving_since.or_else(|| Some(Instant::now())) } else { None };
            if long_run {
                state.failing_since = None;
            }
        });
    }

    /// Measures for how long this server, while it leads, has missed voters.
    async fn count_followers(&self, observation: Option<&ServerObservation>) {
        let counted = match observation {
            None => FollowerCount::Unknown,
            Some(observation) => {
                let voters = observation.configuration.voters().count();
                admin_server::ask(self.server.options.paths.own_address()).await.follower_count(voters)
            }
        };
        self.server.note_count(counted);
    }

    /// Why a `ZooKeeper` must stop that does not serve.
    async fn failure(&mut self) -> Option<&'static str> {
        let own = self.server.options.paths.own_address();
        match admin_server::ask(own).await.mode {
            None if admin_server::is_silent(own).await => {
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                return (since.elapsed() > SILENT).then_some(HANGS);
            }
            Some(Mode::Looking) if self.is_cut_off().await => {
                return Some("the network drops the packets of an open election connection");
            }
            _ => self.silent_since = None,
        }
        self.closed_port().await
    }

    /// `ZooKeeper` loses its client port if its client address changes while the former address is still open. One whose admin port
    /// is closed too still reads its files, and opens both ports after them: no limit is right for that.
    async fn closed_port(&mut self) -> Option<&'static str> {
        let admin = SocketAddr::new(self.server.options.paths.own_address(), ADMIN_PORT);
        let is_closed = is_closed(self.server.client_address()).await && !is_closed(admin).await;
        self.closed_since = if is_closed { self.closed_since.or_else(|| Some(Instant::now())) } else { None };
        let failed = self.closed_since.is_some_and(|since| since.elapsed() > CLOSED);
        (failed && self.started.elapsed() > LONG_RUN).then_some("the client port is closed")
    }

    /// True if a server that looks for a leader sends in vain to a server that it could reach by a new connection.
    async fn is_cut_off(&self) -> bool {
        if self.started.elapsed() < LONG_RUN {
            return false;
        }
        let forgotten = forgotten().await;
        if let Some(server) = forgotten {
            warn!(%server, "a firewall may have forgotten an idle connection to the election port of this server");
        }
        forgotten.is_some()
    }

    /// Asks the port for clients with TLS until it has served one: settings change only with a restart.
    ///
    /// A server with a limit of connections or handshakes closes those above it too: that says nothing of its settings.
    async fn ask_for_tls_clients(&mut self, config: Option<&AssignedConfig>) {
        let is_open = self.server.with_state(|state| state.tls_clients != TlsClients::Served);
        let is_due = self.greeted.is_none_or(|greeted| greeted.elapsed() > GREETING_INTERVAL);
        let Some(config) = config.filter(|_| is_open && is_due) else { return };
        let port = SocketAddr::new(self.server.options.paths.own_address(), SECURE_CLIENT_PORT);
        let Ok(turned_away) = self.turned_away(port, &config.server).await else { return };
        let turned_away = turned_away.filter(|_| !zoo_cfg::limits_connections(&config.server.zoo_cfg));
        // One connection may be lost for another reason.
        self.turned_away = if turned_away.is_some() { self.turned_away + 1 } else { 0 };
        if (1..REFUSALS).contains(&self.turned_away) {
            return;
        }
        self.greeted = Some(Instant::now());
        if let Some(why) = &turned_away {
            error!(why, "the port for clients with TLS turns every client away");
        }
        let answered = turned_away.map_or(TlsClients::Served, TlsClients::TurnedAway);
        self.server.change_state(|state| state.tls_clients = answered);
    }

    /// Why a port turns every client away. Where clients need no certificate, or a rule of the user judges theirs, that of the server
    /// shows nothing of them.
    async fn turned_away(&mut self, port: SocketAddr, server: &ServerConfig) -> std::io::Result<Option<String>> {
        let turned_away = tls_clients::turned_away(port).await?;
        let certificates =
            server.client_tls.as_ref().map(|tls| tls.certificates.unwrap_or(ClientCertificates::Required));
        let are_required = certificates == Some(ClientCertificates::Required);
        if turned_away.is_some() || !are_required || zoo_cfg::judges_clients(&server.zoo_cfg) {
            return Ok(turned_away);
        }
        let paths = &self.server.options.paths;
        let refused = tls_clients::refuses_own(port, &paths.client_identity(), &paths.client_trust()).await;
        // ZooKeeper logs each question, and the port may never answer this one.
        if refused.is_err() {
            self.greeted = Some(Instant::now());
        }
        refused
    }

    async fn update_client_address(&mut self, sessions: &Sessions, observation: &ServerObservation) {
        if !observation.client_address_current
            && let Err(refusal) = sessions.update_client_address().await
            && self.logged_refusal.as_ref() != Some(&refusal)
        {
            warn!(%refusal, "cannot change the client address in the ensemble's configuration yet");
            self.logged_refusal = Some(refusal);
        }
    }

    fn is_replaced(&self, config: &AssignedConfig, living: &Configuration) -> bool {
        let Ok(pod) = self.server.pod_identity(config) else { return false };
        let (id, list) = self.server.with_state(|state| (state.id, state.list.clone()));
        let assigned = config.list.as_ref().and_then(|list| list.incarnation.clone());
        let same_incarnation = |list: &Ensemble| list.incarnation == assigned;
        let list = newer(config.list.clone(), list.filter(same_incarnation));
        id.zip(list).is_some_and(|(id, list)| start::is_replaced(id, &pod, &list, living))
    }

    /// Stores on the volume that a quorum formed, and the newest server list.
    async fn store(&self) {
        let (volume, list) = (self.server.volume.clone(), self.server.with_state(|state| state.list.clone()));
        self.server.metrics.list_epoch.set(list.as_ref().and_then(|list| list.epoch).unwrap_or_default());
        let written = tokio::task::spawn_blocking(move || {
            volume.store_formed()?;
            list.map_or(Ok(()), |list| volume.store_list(&list))
        });
        match written.await {
            Ok(Ok(())) => self.server.note_written(|mark| mark.formed = true),
            Ok(Err(error)) => error!(%error, "the volume cannot be written"),
            Err(_) => {}
        }
    }
}

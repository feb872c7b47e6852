//! The parent process of one `ZooKeeper`: its options, its parts and its state.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{
    assigned_config::AssignedConfig, client_certificates, metrics::Metrics, quorum_certificates::QuorumCertificates,
    resolver::Resolver, session::Sessions, shared_answer::SharedAnswer, volume::Volume,
};
use mczk_api::{
    contract::{
        control_api::{Phase, UNKNOWN_EPOCH},
        pod_layout,
    },
    zookeeper::{Ensemble, FirstStart},
};
use mczk_rules::server::{
    paths::Paths,
    short_count::{FollowerCount, ShortCount},
    start::{PodIdentity, Recorded},
    volume_age::VolumeMark,
};
use mczk_runtime::telemetry::LogFormat;

/// Interval of decisions while `ZooKeeper` may not start.
pub(super) const DECIDE_INTERVAL: Duration = Duration::from_secs(2);

/// Options of the process.
#[derive(Clone, Debug)]
pub struct SupervisorOptions {
    /// Name of the pod, which ends with its ordinal.
    pub pod: String,
    /// Folder of the assigned configuration and server list.
    pub config_dir: PathBuf,
    /// The data volume.
    pub data: PathBuf,
    /// Folders of the server and its address.
    pub paths: Paths,
    /// Folder of the quorum's certificates.
    pub quorum_tls: PathBuf,
    /// Folder of the certificates for clients.
    pub client_tls: PathBuf,
    /// The program `java`.
    pub java: PathBuf,
    /// Folder of the `ZooKeeper` installation.
    pub home: PathBuf,
    /// Format of the log.
    pub log_format: LogFormat,
}

/// State of the process.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) id: Option<i32>,
    pub(crate) incarnation: String,
    pub(crate) revision: String,
    pub(crate) lost: bool,
    /// True if `ZooKeeper` could not read its files at its last start.
    pub(crate) corrupt: bool,
    /// What this process has last written to the volume. `None` before it has run `ZooKeeper`.
    pub(crate) written: Option<VolumeMark>,
    /// Why the generation of the volume has not been raised for a while.
    pub(crate) unraised: Option<String>,
    /// What the port for clients with TLS has answered since the start of `ZooKeeper`.
    pub(crate) tls_clients: TlsClients,
    /// The first start that the agent must record.
    pub(crate) first_start: Option<FirstVolume>,
    pub(crate) list: Option<Ensemble>,
    pub(crate) sessions: Option<Arc<Sessions>>,
    /// Time since which every observation found the server serving.
    pub(crate) serving_since: Option<Instant>,
    /// Time since which starts have failed.
    pub(crate) failing_since: Option<Instant>,
    /// For how long this server, while it leads, has missed voters.
    short: ShortCount,
}

/// What the port for clients with TLS has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsClients {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It serves clients with TLS, or there are none.
    Served,
    /// It turns every client away, for this reason.
    TurnedAway(String),
}

/// The identity that a volume gets by its first start, and the one that the agent has recorded.
#[derive(Clone, Debug)]
pub(crate) struct FirstVolume {
    pub(crate) identity: String,
    pub(crate) recorded: Option<String>,
}

impl FirstVolume {
    #[must_use]
    pub(crate) fn record(&self) -> Recorded {
        match &self.recorded {
            None => Recorded::Unknown,
            Some(recorded) if *recorded == self.identity => Recorded::This,
            Some(_) => Recorded::Other,
        }
    }
}

/// The parent process of one `ZooKeeper`.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) options: SupervisorOptions,
    pub(crate) resolver: Resolver,
    pub(crate) volume: Volume,
    pub(crate) quorum_certificates: Arc<QuorumCertificates>,
    pub(crate) metrics: Metrics,
    /// Whether `ZooKeeper` serves, for everybody who asks the probe port.
    pub(crate) readiness: SharedAnswer,
    state: Mutex<State>,
    /// The start of this process.
    began: Instant,
}

impl Supervisor {
    /// A supervisor that has not started `ZooKeeper` yet.
    #[must_use]
    pub fn new(options: SupervisorOptions, metrics: Metrics) -> Self {
        let paths = &options.paths;
        let quorum_certificates =
            QuorumCertificates::new(options.quorum_tls.clone(), paths.quorum_identity(), paths.quorum_trust());
        let state = State {
            phase: Phase::Waiting { reason: "mczk server has just started".to_owned() },
            id: None,
            incarnation: String::new(),
            revision: String::new(),
            lost: false,
            corrupt: false,
            written: None,
            unraised: None,
            tls_clients: TlsClients::default(),
            first_start: None,
            list: None,
            sessions: None,
            serving_since: None,
            failing_since: None,
            short: ShortCount::default(),
        };
        Self {
            resolver: paths.hosts.clone().map_or(Resolver::System, Resolver::File),
            volume: Volume::new(options.data.clone(), paths.clone()),
            quorum_certificates: Arc::new(quorum_certificates),
            metrics,
            readiness: SharedAnswer::default(),
            state: Mutex::new(state),
            began: Instant::now(),
            options,
        }
    }

    /// The quorum's certificates.
    #[must_use]
    pub fn quorum_certificates(&self) -> Arc<QuorumCertificates> {
        self.quorum_certificates.clone()
    }

    /// Sessions with `ZooKeeper`, while it runs.
    #[must_use]
    pub(crate) fn sessions(&self) -> Option<Arc<Sessions>> {
        self.with_state(|state| state.sessions.clone())
    }

    /// Incarnation of the assigned server list.
    #[must_use]
    pub fn incarnation(&self) -> String {
        self.with_state(|state| state.incarnation.clone())
    }

    /// Takes the first start that the agent has recorded for this server.
    pub(super) fn take_first_start(&self, first: FirstStart) {
        self.change_state(|state| {
            let id = state.id;
            if let Some(volume) = state.first_start.as_mut().filter(|_| id == Some(first.id)) {
                volume.recorded = Some(first.volume);
            }
        });
    }

    /// True if servers speak TLS with each other. Waits for the assigned configuration.
    pub async fn quorum_tls(&self) -> bool {
        loop {
            if let Ok(config) = self.assigned_config().await {
                return config.server.quorum_tls;
            }
            sleep(DECIDE_INTERVAL).await;
        }
    }

    pub(super) async fn assigned_config(&self) -> anyhow::Result<AssignedConfig> {
        AssignedConfig::read(&self.options.config_dir).await
    }

    pub(super) fn pod_identity(&self, config: &AssignedConfig) -> anyhow::Result<PodIdentity> {
        let pod = &self.options.pod;
        Ok(PodIdentity {
            cluster: config.server.cluster.clone(),
            role: config.server.role,
            ordinal: ordinal(pod)
                .with_context(|| format!("the name of the pod, {pod}, does not end with an ordinal"))?,
        })
    }

    /// Accepted epoch on the volume, as [`Volume::accepted_epoch`].
    pub async fn accepted_epoch(&self) -> i64 {
        let volume = self.volume.clone();
        tokio::task::spawn_blocking(move || volume.accepted_epoch()).await.unwrap_or(UNKNOWN_EPOCH)
    }

    /// Writes the certificates for clients in `ZooKeeper`'s form, if clients use TLS.
    pub(super) fn write_client_certificates(&self, config: &AssignedConfig) -> anyhow::Result<()> {
        if config.server.client_tls.is_some() {
            let SupervisorOptions { paths, client_tls, .. } = &self.options;
            client_certificates::join(client_tls, &paths.client_identity(), &paths.client_trust())
                .with_context(|| format!("the certificates in {} cannot be used", client_tls.display()))?;
        }
        Ok(())
    }

    /// Address of the own server for clients in plain text.
    pub(super) fn client_address(&self) -> SocketAddr {
        SocketAddr::new(self.options.paths.own_address(), pod_layout::CLIENT_PORT)
    }

    /// Records that `ZooKeeper` cannot start yet. That is no failure, so a series of failures ends.
    pub(super) fn record_wait(&self, reason: String) {
        self.change_state(|state| {
            let phase = Phase::Waiting { reason };
            if state.phase != phase {
                if let Phase::Waiting { reason } = &phase {
                    info!(reason, "ZooKeeper does not start yet");
                }
                state.phase = phase;
            }
            state.failing_since = None;
        });
    }

    /// Records that `ZooKeeper` exited or could not be started.
    pub(super) fn record_failure(&self, reason: String) {
        self.metrics.running.set(0);
        self.metrics.serving.set(0);
        self.change_state(|state| {
            warn!(reason, "ZooKeeper will be started again");
            state.phase = Phase::Exited { reason };
            state.sessions = None;
            state.failing_since.get_or_insert_with(Instant::now);
        });
    }

    /// Notes what the server counts now.
    pub(super) fn note_count(&self, counted: FollowerCount) {
        let now = self.began.elapsed();
        self.change_state(|state| state.short = state.short.after(counted, now));
    }

    /// For how long the server, while it leads, has missed voters.
    pub(super) fn short_for(&self) -> Duration {
        self.with_state(|state| state.short).lasts(self.began.elapsed())
    }

    /// Changes what the process remembers of its volume, after it has written the same there.
    pub(super) fn note_written(&self, change: impl FnOnce(&mut VolumeMark)) {
        self.change_state(|state| state.written.as_mut().map_or((), change));
    }

    pub(crate) fn with_state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock())
    }

    pub(super) fn change_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }
}

/// The newer of two lists. Of equal epochs, the first.
pub(super) fn newer(a: Option<Ensemble>, b: Option<Ensemble>) -> Option<Ensemble> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.epoch > a.epoch { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn ordinal(pod: &str) -> Option<i32> {
    pod.rsplit_once('-')?.1.parse().ok()
}

//! `mczk operator`: the interpreter webhook, and beside it the controller, as one process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{
    ArgAction, Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::{Id, JoinError, JoinSet},
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{Error, connection::Connection, log::Log, run_service};
use crate::{
    controller, interpreter,
    runtime::{
        http_server::{self, Transport},
        probe,
        readiness::{Gate, Gates},
        shutdown::{self, Shutdown},
        tls,
    },
};

/// How long reconciles may go on when it is time to end. What answers takes far less. While the API server does not,
/// kube's controller ends only when a request does, and before its first list never; cutting it loses nothing, since a
/// reconcile may break off after any write and be taken up again.
const RECONCILES_END: Duration = Duration::from_secs(2);

/// Serves the interpreter webhook and drives the rollout of every MultiClusterZooKeeper.
#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM or SIGINT ends it: first it is no longer ready, then it answers what was asked. A second \
                        signal ends it at once."
)]
pub struct Operator {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    controller: ControllerFlags,
    #[command(flatten)]
    webhook: WebhookFlags,
    #[command(flatten)]
    process: ProcessFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Controller")]
struct ControllerFlags {
    /// Whether the controller runs; --controller=false serves the webhook alone and needs no API server
    #[arg(long, env = "MCZK_CONTROLLER", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_value_t = true, default_missing_value = "true")]
    controller: bool,
    /// Image of mczk itself, from which members take the servers' parent process
    #[arg(long, env = "MCZK_SERVER_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(),
          default_value = concat!("mczk:", env!("CARGO_PKG_VERSION")))]
    server_image: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhook")]
struct WebhookFlags {
    /// Address and port of the webhook, HTTPS
    #[arg(long, env = "MCZK_WEBHOOK_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    webhook_address: SocketAddr,
    /// Path of the webhook
    #[arg(long, env = "MCZK_WEBHOOK_PATH", value_name = "PATH", default_value = "/interpreter", value_parser = path)]
    webhook_path: String,
    /// PEM file with the webhook's certificate and those that lead to its authority
    #[arg(long, env = "MCZK_TLS_CERT_FILE", value_name = "FILE", default_value = "/etc/mczk/tls/tls.crt")]
    tls_cert_file: PathBuf,
    /// PEM file with the certificate's private key
    #[arg(long, env = "MCZK_TLS_PRIVATE_KEY_FILE", value_name = "FILE", default_value = "/etc/mczk/tls/tls.key")]
    tls_private_key_file: PathBuf,
    /// Seconds between two looks whether the certificate's files have changed
    #[arg(long, env = "MCZK_CERTIFICATE_POLL_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    certificate_poll_seconds: u64,
    /// Bytes that a request's body may have; Karmada sends one status for each cluster: allow at least 7 MiB
    #[arg(long, env = "MCZK_MAX_BODY_BYTES", value_name = "BYTES", default_value_t = 8 << 20,
          value_parser = RangedU64ValueParser::<usize>::new().range(1024..=1 << 30))]
    max_body_bytes: usize,
    /// Requests that are read or answered at a time; further ones are told to try again after 1 second
    #[arg(long, env = "MCZK_CONCURRENCY", value_name = "NUMBER", default_value_t = 64,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    concurrency: usize,
    /// Connections at a time; further ones wait to be accepted
    #[arg(long, env = "MCZK_MAX_CONNECTIONS", value_name = "NUMBER", default_value_t = 1024,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    max_connections: usize,
    /// Seconds that a TLS handshake may take
    #[arg(long, env = "MCZK_HANDSHAKE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    handshake_timeout_seconds: u64,
    /// Seconds that a request's head may take, and that an answer may wait to be taken
    #[arg(long, env = "MCZK_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    header_timeout_seconds: u64,
    /// Seconds that a request's body may take
    #[arg(long, env = "MCZK_BODY_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    body_timeout_seconds: u64,
    /// Seconds for which a connection may be idle; above the 90 seconds after which Karmada closes its side
    #[arg(long, env = "MCZK_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 120, value_parser = seconds())]
    idle_timeout_seconds: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Process")]
struct ProcessFlags {
    /// Address and port of /livez, /readyz and /metrics, plain HTTP
    #[arg(long, env = "MCZK_PROBE_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    probe_address: SocketAddr,
    /// Seconds from the signal to end, when it is no longer ready, until no new connection is accepted
    #[arg(long, env = "MCZK_SHUTDOWN_DELAY_SECONDS", value_name = "SECONDS", default_value_t = 3,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=600))]
    shutdown_delay_seconds: u64,
    /// Seconds after that for requests that are still being answered; reconciles have 2, since the next start takes up
    /// what they leave
    #[arg(long, env = "MCZK_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 20,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=600))]
    drain_seconds: u64,
    #[command(flatten)]
    log: Log,
}

fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=3600)
}

/// A path that is one path and no pattern.
fn path(text: &str) -> Result<String, String> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/-_.~".contains(character);
    if text.starts_with('/') && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Err("a path begins with / and has only letters, digits and /-_.~ in it".to_owned())
}

impl Operator {
    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the configuration cannot work; [`Error::Failed`] if a task ended that should not have, or a
    /// second signal came.
    pub fn run(self) -> Result<(), Error> {
        self.process.log.start()?;
        run_service(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let mut signals = Signals::new()?;
        let Self { connection, controller: driver, webhook, process } = self;
        let mut registry = Registry::default();
        let request_metrics = interpreter::Metrics::new(&mut registry);
        let connection_metrics = http_server::Metrics::new(&mut registry);
        let certificates = webhook.certificates(tls::Metrics::new(&mut registry)).await?;
        let controller = if driver.controller {
            Some((connection.client().await?, controller::Metrics::new(&mut registry)))
        } else {
            None
        };
        let webhook_listener = listen("--webhook-address", webhook.webhook_address).await?;
        let probe_listener = listen("--probe-address", process.probe_address).await?;

        // Nothing is logged before: a wrong configuration is one line and no more.
        for (flag, listener) in [("--webhook-address", &webhook_listener), ("--probe-address", &probe_listener)] {
            info!(flag, address = %listener.local_addr().context("a listener has no address")?, "listening");
        }
        info!(not_after = %certificates.not_after(), "serving certificate");
        if let Some(((_, url), _)) = &controller {
            info!(url, "the controller talks to karmada-apiserver");
        }

        let gates = Gates::new();
        let running = gates.gate("the process is not ending");
        let listening = gates.gate("the webhook listens");
        let (trigger, shutdown) = shutdown::channel();
        let (probe_trigger, probe_shutdown) = shutdown::channel();

        let mut tasks = Tasks::default();
        if let Some(((client, _), metrics)) = controller {
            let options = controller::Options { server_image: driver.server_image };
            let watching = gates.gate("the controller has listed its objects");
            let end = shutdown.clone().requested();
            let run = controller::run(client, options, metrics, move || watching.open(), end);
            tasks.spawn("the controller", until_cut(run, shutdown.clone()));
        }
        let limits = webhook.server_limits(process.drain_seconds);
        let router = interpreter::router(&webhook.webhook_path, webhook.limits(), request_metrics);
        let follow =
            certificates.clone().follow(Duration::from_secs(webhook.certificate_poll_seconds), shutdown.clone());
        tasks.spawn("the look at certificates", async {
            follow.await;
            Ok(())
        });
        let serve = http_server::serve(
            webhook_listener,
            Transport::Tls(certificates),
            router,
            limits,
            connection_metrics,
            shutdown,
        );
        tasks.spawn("the webhook", async {
            match serve.await.cut {
                0 => info!("all connections ended"),
                cut => warn!(cut, "connections were cut when the time to drain was over"),
            }
            Ok(())
        });
        listening.open();
        let mut probes = Tasks::default();
        probes.spawn("the probes", probe(probe_listener, probe::router(gates, registry), probe_shutdown));
        running.open();

        let delay = Duration::from_secs(process.shutdown_delay_seconds);
        let result = tasks.until_signal(&mut probes, &mut signals, &running, delay).await;
        trigger.pull();
        // Each task bounds its own end; the margin is for them to come first.
        let patience = limits.drain.max(RECONCILES_END) + Duration::from_secs(1);
        let ended = match result {
            Ok(()) => tokio::select! {
                ended = timeout(patience, tasks.all()) => ended.unwrap_or_else(|_| {
                    warn!("not everything ended in time");
                    Ok(())
                }),
                () = signals.next() => Err(anyhow!("a second signal came: ended at once")),
            },
            failed => failed,
        };
        probe_trigger.pull();
        Ok(ended?)
    }
}

impl WebhookFlags {
    async fn certificates(&self, metrics: tls::Metrics) -> Result<Arc<tls::Certificates>, Error> {
        let files = tls::Files { certificate: self.tls_cert_file.clone(), key: self.tls_private_key_file.clone() };
        let certificates = tls::Certificates::load(files, metrics).await.map_err(|error| {
            Error::Usage(format!(
                "{error}: name a certificate with --tls-cert-file and its key with --tls-private-key-file; `mczk certs` makes them"
            ))
        })?;
        Ok(Arc::new(certificates))
    }

    const fn limits(&self) -> interpreter::Limits {
        interpreter::Limits {
            max_body_bytes: self.max_body_bytes,
            body_timeout: Duration::from_secs(self.body_timeout_seconds),
            concurrency: self.concurrency,
        }
    }

    const fn server_limits(&self, drain_seconds: u64) -> http_server::Limits {
        http_server::Limits {
            max_connections: self.max_connections,
            handshake_timeout: Duration::from_secs(self.handshake_timeout_seconds),
            header_timeout: Duration::from_secs(self.header_timeout_seconds),
            idle_timeout: Duration::from_secs(self.idle_timeout_seconds),
            drain: Duration::from_secs(drain_seconds),
        }
    }
}

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::Usage(format!("cannot listen on {address}: {error}: choose another address with {flag}"))
    })
}

/// Serves the probes. Whoever asks is the kubelet or Prometheus, so there are few.
async fn probe(listener: TcpListener, router: axum::Router, shutdown: Shutdown) -> anyhow::Result<()> {
    let limits =
        http_server::Limits { max_connections: 64, drain: Duration::from_secs(1), ..http_server::Limits::default() };
    http_server::serve(listener, Transport::Plain, router, limits, http_server::Metrics::default(), shutdown).await;
    Ok(())
}

/// Runs the controller until it has ended, or its time to end is over.
async fn until_cut(run: impl Future<Output = Result<(), controller::Error>>, shutdown: Shutdown) -> anyhow::Result<()> {
    let over = async {
        shutdown.requested().await;
        sleep(RECONCILES_END).await;
    };
    tokio::select! {
        ended = run => Ok(ended?),
        () = over => {
            info!("the controller was cut: karmada-apiserver does not answer; the next start takes up what it leaves");
            Ok(())
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// The tasks of the process. None is left alone: one that ends before its time, or panics, ends the process, which would
/// otherwise look alive without it.
#[derive(Default)]
struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// The next task that ends, and how; waits for ever if there is none.
    async fn next(&mut self) -> (&'static str, anyhow::Result<()>) {
        let Some(ended) = self.set.join_next_with_id().await else { return std::future::pending().await };
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(panicked(&error))),
        };
        let name = self.names.remove(&id).unwrap_or("a task");
        (name, result.with_context(|| name.to_owned()))
    }

    /// Until all have ended.
    async fn all(&mut self) -> anyhow::Result<()> {
        let mut first = Ok(());
        while !self.set.is_empty() {
            let (name, result) = self.next().await;
            info!(task = name, "ended");
            first = first.and(result);
        }
        first
    }

    /// Until a signal came, readiness is closed and `delay` is over; or a task ended.
    async fn until_signal(
        &mut self,
        probes: &mut Self,
        signals: &mut Signals,
        running: &Gate,
        delay: Duration,
    ) -> anyhow::Result<()> {
        let ended = |(name, result): (&'static str, anyhow::Result<()>)| {
            result.and_then(|()| Err(anyhow!("{name} ended, though nobody asked it to")))
        };
        tokio::select! {
            task = self.next() => return ended(task),
            task = probes.next() => return ended(task),
            () = signals.next() => {}
        }
        info!(delay_seconds = delay.as_secs(), "ending: not ready from now on");
        running.close();
        tokio::select! {
            task = self.next() => ended(task),
            task = probes.next() => ended(task),
            () = signals.next() => Err(anyhow!("a second signal came: ended at once")),
            () = sleep(delay) => Ok(()),
        }
    }
}

fn panicked(error: &JoinError) -> anyhow::Error {
    if error.is_panic() { anyhow!("it panicked, which is a defect") } else { anyhow!("it was cut off") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_pattern() {
        assert_eq!(path("/interpreter/v1"), Ok("/interpreter/v1".to_owned()));
        for wrong in ["", "interpreter", "/{a}", "/a b", "/a?b", "/a%20"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_task_that_panics_is_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("the webhook", async { panic!("no") });
        let (name, result) = tasks.next().await;
        assert_eq!(name, "the webhook");
        assert_eq!(format!("{:#}", result.unwrap_err()), "the webhook: it panicked, which is a defect");
    }
}

//! `mczk operator`: the interpreter webhook and the controller, in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use clap::{
    ArgAction, Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, time::timeout};
use tracing::{info, warn};

use super::{election::ElectionFlags, log::LogFlags, operator_dashboard::DashboardFlags, traces::TracesFlags};
use mczk_admin::{
    register::{
        self, credential,
        expiry_notice::{EventTarget, ExpiryNotice},
        renewal::Renewal,
    },
    terminal::{connection::Connection, error::Error, run::run_service},
};
use mczk_api::contract::naming::namespaced;
use mczk_operator::{controller, interpreter};
use mczk_runtime::{
    api_requests,
    closing::closing,
    election::{Candidate, Leadership},
    http_server::{self, Limits, Transport},
    probe,
    process::{Process, ProcessEnding, ends_in_time, listen},
    readiness::{Gate, Gates},
    shutdown::{self, Shutdown},
    tls,
};

/// Time in which reconciles end after the request to shut down: an answer takes far less. If the API server does not answer,
/// kube's controller ends only with a request, and before its first list never. Stopping it earlier loses nothing: a
/// reconcile may stop after any write, and the next one continues.
const RECONCILES_END: Duration = Duration::from_secs(2);

/// Time in which the lease is released.
const RELEASE: Duration = Duration::from_secs(2);

/// Time in which a client that has just connected sends its request: it cannot know that the webhook ends.
const LINGER: Duration = Duration::from_millis(300);

const CERTIFICATE: &str = "The certificate of the webhook";
const RENEW_CERTIFICATE: &str =
    "Renew it, for example with `mczk install` or `mczk certs`: Karmada refuses an expired one";
const TOKEN: &str = "The operator's token";
const RENEW_TOKEN: &str = "The operator cannot renew it: read its log, or run `mczk install`, which renews it too";

/// Runs the operator: serves the interpreter webhook and reconciles every MultiClusterZooKeeper
///
/// The webhook answers Karmada's questions about ZooKeeper objects. The controller places ensembles on member clusters and
/// rolls changes out, one cluster after another. Run it for each Karmada control plane, after `mczk register`: two replicas with --lease,
/// so that one acts and the other takes over.
#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM or SIGINT ends the operator: /readyz fails first, then open requests are answered. A second \
                        signal ends it at once."
)]
pub(crate) struct Operator {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    controller: ControllerFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    webhook: WebhookArguments,
    #[command(flatten)]
    dashboard: DashboardFlags,
    #[command(flatten)]
    process: ProcessFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Controller")]
struct ControllerFlags {
    /// True to run the controller; --controller=false serves only the webhook, without an API server
    #[arg(long, env = "MCZK_CONTROLLER", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_value_t = true, default_missing_value = "true")]
    controller: bool,
    /// Image of mczk for member clusters: each ZooKeeper pod takes its parent process from it
    #[arg(long, env = "MCZK_SERVER_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new(),
          default_value = controller::DEFAULT_SERVER_IMAGE)]
    server_image: String,
    /// Secret of the cluster of this pod, with the kubeconfig from `mczk install`: the operator renews the token in it
    /// [default: none]
    #[arg(long, env = "MCZK_KUBECONFIG_SECRET", value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    kubeconfig_secret: Option<(String, String)>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhook")]
struct WebhookArguments {
    /// Address and port of the webhook, HTTPS; [::] means IPv6 and IPv4
    #[arg(long, env = "MCZK_WEBHOOK_ADDRESS", value_name = "ADDRESS", default_value = "[::]:8443")]
    webhook_address: SocketAddr,
    /// Path of the webhook, as in the URL that Karmada calls
    #[arg(long, env = "MCZK_WEBHOOK_PATH", value_name = "PATH", default_value = "/interpreter", value_parser = path)]
    webhook_path: String,
    /// PEM file with the webhook's certificate, followed by intermediate certificates
    #[arg(long, env = "MCZK_TLS_CERT_FILE", value_name = "FILE", default_value = "/etc/mczk/tls/tls.crt")]
    tls_cert_file: PathBuf,
    /// PEM file with the private key of the webhook's certificate
    #[arg(long, env = "MCZK_TLS_PRIVATE_KEY_FILE", value_name = "FILE", default_value = "/etc/mczk/tls/tls.key")]
    tls_private_key_file: PathBuf,
    /// Seconds between two reads of the certificate files; a changed pair is served without a restart
    #[arg(long, env = "MCZK_CERTIFICATE_POLL_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    certificate_poll_seconds: u64,
    /// Largest request body in bytes; Karmada sends one status for each cluster, so allow at least 7 MiB
    #[arg(long, env = "MCZK_MAX_BODY_BYTES", value_name = "BYTES",
          default_value_t = interpreter::RequestLimits::default().max_body_bytes,
          value_parser = RangedU64ValueParser::<usize>::new().range(1024..=1 << 30))]
    max_body_bytes: usize,
    /// Largest number of bodies that are read at once; a further one ends the slowest, with 429 and Retry-After of 1 second
    #[arg(long, env = "MCZK_CONCURRENCY", value_name = "NUMBER",
          default_value_t = interpreter::RequestLimits::default().concurrency,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    concurrency: usize,
    /// Largest number of connections; a further one ends that of the slowest client
    #[arg(long, env = "MCZK_MAX_CONNECTIONS", value_name = "NUMBER",
          default_value_t = Limits::default().max_connections,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    max_connections: usize,
    /// Largest number of connections from one address; a further one ends another one of this address
    #[arg(long, env = "MCZK_MAX_CONNECTIONS_PER_ADDRESS", value_name = "NUMBER",
          default_value_t = Limits::default().max_per_address,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    max_connections_per_address: usize,
    /// Seconds for a TLS handshake
    #[arg(long, env = "MCZK_HANDSHAKE_TIMEOUT_SECONDS", value_name = "SECONDS",
          default_value_t = Limits::default().handshake_timeout.as_secs(),
          value_parser = seconds())]
    handshake_timeout_seconds: u64,
    /// Seconds for the head of a request, and for a client that does not read its answer
    #[arg(long, env = "MCZK_HEADER_TIMEOUT_SECONDS", value_name = "SECONDS",
          default_value_t = Limits::default().header_timeout.as_secs(),
          value_parser = seconds())]
    header_timeout_seconds: u64,
    /// Seconds for the body of a request
    #[arg(long, env = "MCZK_BODY_TIMEOUT_SECONDS", value_name = "SECONDS",
          default_value_t = interpreter::RequestLimits::default().body_timeout.as_secs(),
          value_parser = seconds())]
    body_timeout_seconds: u64,
    /// Seconds until an idle connection is closed; keep it above the 90 seconds after which Karmada closes its side
    #[arg(long, env = "MCZK_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS",
          default_value_t = Limits::default().idle_timeout.as_secs(),
          value_parser = seconds())]
    idle_timeout_seconds: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Process")]
struct ProcessFlags {
    /// Address and port of /livez, /readyz and /metrics, plain HTTP; [::] means IPv6 and IPv4
    #[arg(long, env = "MCZK_PROBE_ADDRESS", value_name = "ADDRESS", default_value = "[::]:8080")]
    probe_address: SocketAddr,
    /// Seconds between the signal, when /readyz begins to fail, and the close of the listening port
    #[arg(long, env = "MCZK_SHUTDOWN_DELAY_SECONDS", value_name = "SECONDS", default_value_t = 3,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=600))]
    shutdown_delay_seconds: u64,
    /// Seconds after that for open requests; reconciles have 2 seconds, and the next start continues them
    #[arg(long, env = "MCZK_DRAIN_SECONDS", value_name = "SECONDS",
          default_value_t = Limits::default().drain.as_secs(),
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=600))]
    drain_seconds: u64,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    traces: TracesFlags,
}

fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=3600)
}

/// A literal path, not a pattern of the router.
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
    /// [`Error::Usage`] if the configuration is wrong; [`Error::Failed`] if a task ended early, or a second signal came.
    pub(crate) fn run(self) -> Result<(), Error> {
        let (log, traces) = (self.process.log.clone(), self.process.traces.clone());
        traces.run(&log, "mczk-operator", || run_service(self.serve()))
    }

    async fn serve(self) -> Result<(), Error> {
        let mut process = Process::new()?;
        let Self { connection, controller, election, webhook, dashboard, process: flags } = self;
        let mut registry = Registry::default();
        let drain = Duration::from_secs(flags.drain_seconds);
        let webhook = webhook.prepare(drain, &mut registry).await?;
        let controller = controller.prepare(&connection, &election, &mut registry).await?;
        let dashboard = dashboard.prepare(&connection, drain).await?;
        let probes = listen("--probe-address", flags.probe_address)?;

        // Nothing is logged before: a wrong configuration is exactly one line.
        let listeners = [("--webhook-address", &webhook.listener), ("--probe-address", &probes)];
        let page = dashboard.iter().map(|dashboard| ("--dashboard-address", &dashboard.listener));
        for (flag, listener) in listeners.into_iter().chain(page) {
            info!(flag, address = %listener.local_addr().context("a listener has no address")?, "Listening");
        }
        info!(not_after = %webhook.certificates.not_after(), "Certificate of the webhook");
        if let Some(controller) = &controller {
            info!(url = controller.url, "Karmada control plane");
        }

        let gates = Gates::new();
        let running = gates.gate("the process is shutting down");
        let listening = gates.gate("the webhook does not listen yet");
        // Unlike the webhook, the controller ends at once: another operator waits for its lease.
        let (stop, stopped) = shutdown::channel();
        let target = controller.as_ref().map(Controller::event_target);
        if let Some(controller) = controller {
            controller.spawn(&mut process, stopped.clone(), gates.gate("the controller has not listed its objects"));
        }
        if let Some(dashboard) = dashboard {
            dashboard.spawn(&mut process, webhook.certificates.clone());
        }
        webhook.spawn(&mut process, target, stopped);
        listening.open();
        let last = process.last_shutdown();
        process.spawn_last("the probes", probe::serve(probes, probe::router(gates, registry), last));
        running.open();
        process
            .run(ProcessEnding {
                begin: || {
                    running.close();
                    stop.request_shutdown();
                },
                delay: Duration::from_secs(flags.shutdown_delay_seconds),
                // Each task limits its own end. The margin lets it finish first.
                limit: Some(drain.max(RECONCILES_END + RELEASE) + Duration::from_secs(1)),
            })
            .await?;
        Ok(())
    }
}

/// The controller before its start.
struct Controller {
    client: Client,
    url: String,
    candidate: Option<Candidate>,
    leadership: Leadership,
    renewal: Option<Renewal>,
    options: controller::Options,
    metrics: controller::Metrics,
}

impl ControllerFlags {
    async fn prepare(
        self,
        connection: &Connection,
        election: &ElectionFlags,
        registry: &mut Registry,
    ) -> Result<Option<Controller>, Error> {
        if !self.controller {
            return Ok(None);
        }
        // Unlike the name of a pod, it changes with every start.
        let identity = format!("{}-{:08x}", std::env::var("HOSTNAME").unwrap_or_default(), rand::random::<u32>());
        let connection = &connection.of_process(&identity);
        let (client, url) = connection.client().await?;
        let candidate = election.candidate(&client, &identity, registry, "mczk")?;
        let leadership = candidate.as_ref().map_or_else(Leadership::without_election, Candidate::leadership);
        let renewal = self.kubeconfig_secret.map(|secret| {
            let host = Config::incluster().context("--kubeconfig-secret needs a pod with a service account")?;
            let (karmada, host) = (client.clone(), Client::try_from(host).context("cannot use the service account")?);
            let target = EventTarget::new(client.clone(), credential::account(), leadership.clone());
            let notice = ExpiryNotice::new(TOKEN, RENEW_TOKEN, Some(target));
            let folder = connection.kubeconfig.as_ref().and_then(|file| file.parent());
            let token_file = folder.map(|folder| folder.join(credential::TOKEN));
            anyhow::Ok(Renewal {
                karmada,
                host,
                secret,
                leadership: leadership.clone(),
                notice,
                token_file,
                known: None,
            })
        });
        let client =
            connection.client_of_holder(leadership.clone(), &api_requests::Metrics::new(registry, "mczk")).await?;
        let options = controller::Options { server_image: self.server_image };
        let (renewal, metrics) = (renewal.transpose()?, controller::Metrics::new(registry));
        Ok(Some(Controller { client, url, candidate, leadership, renewal, options, metrics }))
    }
}

impl Controller {
    /// Where events about the webhook's certificate go.
    fn event_target(&self) -> EventTarget {
        EventTarget::new(self.client.clone(), register::interpreter::reference(), self.leadership.clone())
    }

    fn spawn(self, process: &mut Process, stopped: Shutdown, listed: Gate) {
        let Self { client, candidate, leadership, renewal, options, metrics, .. } = self;
        let shutdown = process.shutdown();
        if let Some(renewal) = renewal {
            let shutdown = shutdown.clone();
            process.spawn("the renewal of the token", async move {
                tokio::select! {
                    () = renewal.run() => {}
                    () = shutdown.requested() => {}
                }
                Ok(())
            });
        }
        let run =
            controller::run(client, leadership, options, metrics, move || listed.open(), stopped.clone().requested());
        process.spawn("the controller", async move {
            if !ends_in_time(run, stopped, RECONCILES_END).await {
                warn!("The controller was stopped: the API server does not answer. The next start continues its work");
            }
            if let Some(candidate) = candidate {
                let _ = timeout(RELEASE, candidate.release()).await;
            }
            shutdown.requested().await;
            Ok(())
        });
    }
}

/// The webhook before its start.
struct WebhookServer {
    listener: TcpListener,
    certificates: Arc<tls::Certificates>,
    certificate_poll: Duration,
    router: Router,
    limits: Limits,
    metrics: http_server::Metrics,
}

impl WebhookArguments {
    async fn prepare(&self, drain: Duration, registry: &mut Registry) -> Result<WebhookServer, Error> {
        let metrics = http_server::Metrics::new(registry);
        let requests = interpreter::Metrics::new(registry);
        Ok(WebhookServer {
            certificates: self.certificates(tls::Metrics::new(registry)).await?,
            certificate_poll: Duration::from_secs(self.certificate_poll_seconds),
            router: interpreter::router(&self.webhook_path, self.request_limits(), requests),
            limits: self.connection_limits(drain),
            metrics,
            listener: listen("--webhook-address", self.webhook_address)?,
        })
    }

    async fn certificates(&self, metrics: tls::Metrics) -> Result<Arc<tls::Certificates>, Error> {
        let files =
            tls::CertificateFiles { certificate: self.tls_cert_file.clone(), key: self.tls_private_key_file.clone() };
        let certificates = tls::Certificates::load(files, metrics).await.map_err(|error| {
            Error::Usage(format!(
                "{error}: name a certificate with --tls-cert-file and its key with --tls-private-key-file; `mczk certs` makes them"
            ))
        })?;
        Ok(Arc::new(certificates))
    }

    const fn request_limits(&self) -> interpreter::RequestLimits {
        interpreter::RequestLimits {
            max_body_bytes: self.max_body_bytes,
            body_timeout: Duration::from_secs(self.body_timeout_seconds),
            concurrency: self.concurrency,
        }
    }

    const fn connection_limits(&self, drain: Duration) -> Limits {
        Limits {
            max_connections: self.max_connections,
            max_per_address: self.max_connections_per_address,
            handshake_timeout: Duration::from_secs(self.handshake_timeout_seconds),
            header_timeout: Duration::from_secs(self.header_timeout_seconds),
            idle_timeout: Duration::from_secs(self.idle_timeout_seconds),
            linger: LINGER,
            drain,
        }
    }
}

impl WebhookServer {
    fn spawn(self, process: &mut Process, target: Option<EventTarget>, leaving: Shutdown) {
        let Self { listener, certificates, certificate_poll, router, limits, metrics } = self;
        let (current, shutdown) = (certificates.clone(), process.shutdown());
        process.spawn("the watch of the certificate's end", async move {
            let notice = ExpiryNotice::new(CERTIFICATE, RENEW_CERTIFICATE, target);
            notice.watch(move || current.validity(), shutdown).await;
            Ok(())
        });
        let follow = certificates.clone().follow(certificate_poll, process.shutdown());
        process.spawn("the poll of the certificate files", async {
            follow.await;
            Ok(())
        });
        let transport = Transport::Tls(certificates);
        let router = closing(router, leaving);
        let serve = http_server::serve(listener, transport, router, limits, metrics, process.shutdown());
        process.spawn("the webhook", async {
            match serve.await.cut {
                0 => info!("All connections ended"),
                cut => warn!(cut, "Connections were cut at the end of --drain-seconds"),
            }
            Ok(())
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_a_pattern() {
        assert_eq!(path("/interpreter/v1"), Ok("/interpreter/v1".to_owned()));
        for wrong in ["", "interpreter", "/{a}", "/a b", "/a?b", "/a%20"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}

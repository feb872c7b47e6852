//! `mczk agent`: the agent of a member cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tracing::{info, warn};

use super::{Error, connection::Connection, log::Log, run_service};
use crate::{
    agent,
    runtime::{
        http_server::{self, Transport},
        lease::{Candidate, Named},
        probe,
        readiness::Gates,
        shutdown,
    },
};

/// How long looks may go on when it is time to end. The next start takes up what they leave.
const LOOKS_END: Duration = Duration::from_secs(5);

/// Turns this member cluster's ZooKeeper objects into servers, changes membership, and reports.
#[derive(Debug, Args)]
#[command(after_help = "SIGTERM or SIGINT ends it. What it was at is taken up by the next one; servers run on.")]
pub struct Agent {
    /// Karmada's name of this cluster, where Karmada's annotation work.karmada.io/namespace does not tell it; what was
    /// learnt once of an object stays
    #[arg(long, env = "MCZK_CLUSTER", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    cluster: Option<String>,
    /// Kubeconfig of this member cluster [default: $KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, env = "MCZK_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig [default: its current one]
    #[arg(long, env = "MCZK_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// Seconds between two looks at servers while nothing happens
    #[arg(long, env = "MCZK_POLL_SECONDS", value_name = "SECONDS", default_value_t = 3,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    poll_seconds: u64,
    /// Milliseconds between two looks at servers while something is on its way
    #[arg(long, env = "MCZK_BUSY_POLL_MILLISECONDS", value_name = "MILLISECONDS", default_value_t = 1000,
          value_parser = RangedU64ValueParser::<u64>::new().range(100..=60_000))]
    busy_poll_milliseconds: u64,
    /// Lease of this cluster for which several agents ask: one acts, the others wait [default: none, this one acts]
    #[arg(long, env = "MCZK_LEASE", value_name = "NAMESPACE/NAME")]
    lease: Option<Named>,
    /// Address and port of /livez, /readyz and /metrics, plain HTTP
    #[arg(long, env = "MCZK_PROBE_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    probe_address: SocketAddr,
    #[command(flatten)]
    log: Log,
}

impl Agent {
    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the configuration cannot work; [`Error::Failed`] if the agent ended though nobody asked it to.
    pub fn run(self) -> Result<(), Error> {
        self.log.start()?;
        run_service(self.serve())
    }

    async fn client(&self) -> Result<(Client, String), Error> {
        if self.kubeconfig.is_some() || self.context.is_some() {
            let connection = Connection { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
            return connection.client().await;
        }
        let usage = |error: String| Error::Usage(format!("no way to this cluster: name its --kubeconfig ({error})"));
        let mut config = Config::infer().await.map_err(|error| usage(error.to_string()))?;
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        Ok((Client::try_from(config).map_err(|error| usage(error.to_string()))?, url))
    }

    async fn serve(self) -> Result<(), Error> {
        let signals = |kind| signal(kind).context("cannot listen to signals");
        let (mut term, mut int) = (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
        let (client, url) = self.client().await?;
        let address = self.probe_address;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Error::Usage(format!("cannot listen on {address}: {error}: choose another address with --probe-address"))
        })?;
        let mut registry = Registry::default();
        let metrics = agent::Metrics::new(&mut registry);
        let gates = Gates::new();
        let listed = gates.gate("the agent has listed its objects, or waits for its turn to act");
        let (trigger, shutdown) = shutdown::channel();
        info!(url, address = %listener.local_addr().context("a listener has no address")?, "the agent starts");
        let options = agent::Options {
            cluster: self.cluster,
            at_rest: Duration::from_secs(self.poll_seconds),
            while_busy: Duration::from_millis(self.busy_poll_milliseconds),
            ..agent::Options::default()
        };
        let limits = http_server::Limits {
            max_connections: 64,
            drain: Duration::from_secs(1),
            ..http_server::Limits::default()
        };
        let router = probe::router(gates, registry);
        let probes = http_server::serve(
            listener,
            Transport::Plain,
            router,
            limits,
            http_server::Metrics::default(),
            shutdown.clone(),
        );
        let probes = tokio::spawn(probes);
        let mut candidate = match &self.lease {
            None => None,
            Some(lease) => Some(Candidate::new(client.clone(), lease, &options.instance).await?),
        };
        if let Some(candidate) = &mut candidate {
            info!("waiting for the lease");
            listed.open();
            tokio::select! {
                elected = candidate.elected() => elected?,
                _ = term.recv() => return Ok(()),
                _ = int.recv() => return Ok(()),
            }
            listed.close();
            info!("this agent acts");
        }
        let end = shutdown.requested();
        let mut looks = tokio::spawn(agent::run(client, options, metrics, move || listed.open(), end));
        let lost = async {
            match &mut candidate {
                Some(candidate) => candidate.lost().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            result = &mut looks => Some(result),
            () = lost => return Err(anyhow!("the lease was lost: another agent may act").into()),
            _ = term.recv() => None,
            _ = int.recv() => None,
        };
        trigger.pull();
        if let Some(result) = ended {
            result.context("the agent panicked, which is a defect")?;
            return Err(anyhow!("the agent ended, though nobody asked it to").into());
        }
        info!("ending");
        if timeout(LOOKS_END, looks).await.is_err() {
            warn!("looks were cut: the API server or a server does not answer");
        }
        if let Some(candidate) = candidate {
            let _ = timeout(LOOKS_END, candidate.release()).await;
        }
        let _ = timeout(LOOKS_END, probes).await;
        Ok(())
    }
}

//! `mczk agent`: the agent of a member cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use http::header::USER_AGENT;
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{election::ElectionFlags, log::LogFlags, traces::TracesFlags};
use mczk_admin::terminal::{
    connection::{Connection, client_of_holder, counted_client},
    error::Error,
    run::run_service,
};
use mczk_api::contract::naming::is_label;
use mczk_runtime::{
    api_requests,
    election::{Candidate, Leadership},
    probe,
    process::{Process, ProcessEnding, ends_in_time, listen},
    readiness::Gates,
    shutdown::Shutdown,
    user_agent::user_agent,
};

/// Time in which reconciles end after the request to shut down. The next start continues them.
const RECONCILES_END: Duration = Duration::from_secs(5);
/// Time in which the lease is released.
const RELEASE: Duration = Duration::from_secs(5);

/// Runs the agent of a member cluster: turns its ZooKeeper objects into ZooKeeper servers
///
/// The agent creates StatefulSets, Services and further objects, adds servers to the ensemble and removes them, restarts them
/// one at a time, and reports in the status of the ZooKeeper object. Run it in every member cluster: two replicas with
/// --lease, so that one acts and the other takes over.
#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM or SIGINT ends the agent, a second signal at once. ZooKeeper servers keep running, and the \
                        next agent continues."
)]
pub(crate) struct Agent {
    /// Karmada's name of this cluster, if Karmada's annotation work.karmada.io/namespace does not contain it. The agent
    /// stores the name in each object; a stored name does not change
    #[arg(long, env = "MCZK_CLUSTER", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    cluster: Option<String>,
    /// Namespaces whose ZooKeeper objects the agent handles, separated by commas. In others it only reports that it does
    /// not [default: all namespaces]
    #[arg(long, env = "MCZK_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace)]
    namespaces: Vec<String>,
    /// Kubeconfig of this member cluster [default: $KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, env = "MCZK_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig [default: its current one]
    #[arg(long, env = "MCZK_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// Seconds between two polls of the servers while nothing changes
    #[arg(long, env = "MCZK_POLL_SECONDS", value_name = "SECONDS", default_value_t = 3,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    poll_seconds: u64,
    /// Milliseconds between two polls of the servers during a change
    #[arg(long, env = "MCZK_BUSY_POLL_MILLISECONDS", value_name = "MILLISECONDS", default_value_t = 1000,
          value_parser = RangedU64ValueParser::<u64>::new().range(100..=60_000))]
    busy_poll_milliseconds: u64,
    #[command(flatten)]
    election: ElectionFlags,
    /// Address and port of /livez, /readyz and /metrics, plain HTTP; [::] means IPv6 and IPv4
    #[arg(long, env = "MCZK_PROBE_ADDRESS", value_name = "ADDRESS", default_value = "[::]:8080")]
    probe_address: SocketAddr,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    traces: TracesFlags,
}

impl Agent {
    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the configuration is wrong; [`Error::Failed`] if a task ended early, the lease was lost, or a
    /// second signal came.
    pub(crate) fn run(self) -> Result<(), Error> {
        let (log, traces) = (self.log.clone(), self.traces.clone());
        traces.run(&log, "mczk-agent", || run_service(self.serve()))
    }

    async fn config(&self, identity: &str) -> Result<Config, Error> {
        if self.kubeconfig.is_some() || self.context.is_some() {
            let (kubeconfig, context) = (self.kubeconfig.clone(), self.context.clone());
            return Connection { kubeconfig, context, identity: Some(identity.to_owned()) }.config().await;
        }
        let mut config = Config::infer().await.map_err(|error| {
            Error::Usage(format!("no kubeconfig of this cluster: name it with --kubeconfig ({error})"))
        })?;
        config.default_retry = false;
        config.headers.push((USER_AGENT, user_agent(Some(identity))));
        Ok(config)
    }

    /// The client of the agent, which writes only while this process may act, and the candidacy for the lease, if the flags
    /// name one.
    fn client(
        &self,
        config: Config,
        identity: &str,
        registry: &mut Registry,
    ) -> Result<(Client, Option<Candidate>), Error> {
        let metrics = api_requests::Metrics::new(registry, "mczk_agent");
        // A candidate writes the lease before it may act.
        let any_time = counted_client(config.clone(), &metrics)?;
        let candidate = self.election.candidate(&any_time, identity, registry, "mczk_agent")?;
        let leadership = candidate.as_ref().map_or_else(Leadership::without_election, Candidate::leadership);
        Ok((client_of_holder(config, leadership, &metrics)?, candidate))
    }

    async fn serve(self) -> Result<(), Error> {
        let mut process = Process::new()?;
        let mut registry = Registry::default();
        let options = self.options();
        let config = self.config(&options.instance).await?;
        let (url, listener) = (config.cluster_url.to_string(), listen("--probe-address", self.probe_address)?);
        info!(url, address = %listener.local_addr().context("a listener has no address")?, "Starting the agent");
        let (client, candidacy) = self.client(config, &options.instance, &mut registry)?;
        let metrics = mczk_agent::Metrics::new(&mut registry);
        let gates = Gates::new();
        let ready = gates.gate("the agent has not listed its objects");
        let last = process.last_shutdown();
        process.spawn_last("the probes", probe::serve(listener, probe::router(gates, registry), last));

        let mut candidate = None;
        if let Some(candidacy) = candidacy {
            info!("Waiting for the lease");
            ready.open();
            let Some(term) = process.unless_signalled(candidacy.leadership().begins(None)).await? else {
                return Ok(());
            };
            ready.close();
            candidate = Some((candidacy, term));
        }
        let shutdown = process.shutdown();
        let run = mczk_agent::run(client, options, metrics, move || ready.open(), shutdown.clone().requested());
        process.spawn("the agent", run_as_holder(run, candidate, shutdown));
        let limit = RECONCILES_END + RELEASE + Duration::from_secs(1);
        process.run(ProcessEnding { begin: || {}, delay: Duration::ZERO, limit: Some(limit) }).await?;
        Ok(())
    }

    fn options(&self) -> mczk_agent::AgentOptions {
        mczk_agent::AgentOptions {
            cluster: self.cluster.clone(),
            namespaces: self.namespaces.iter().cloned().collect(),
            at_rest: Duration::from_secs(self.poll_seconds),
            while_busy: Duration::from_millis(self.busy_poll_milliseconds),
            ..mczk_agent::AgentOptions::default()
        }
    }
}

/// A name of a namespace: an agent would wait for others without end.
fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) { Ok(text.to_owned()) } else { Err("write names of namespaces as a,b".to_owned()) }
}

/// Runs the agent, and releases the lease after it. An agent that loses the lease ends at once: another one may act.
async fn run_as_holder(
    run: impl Future<Output = ()>,
    candidate: Option<(Candidate, i32)>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let lost = async {
        match &candidate {
            Some((candidate, term)) => candidate.leadership().ended(*term).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        in_time = ends_in_time(run, shutdown, RECONCILES_END) => if !in_time {
            warn!("Reconciles were stopped: the API server or a server does not answer. The next start continues them");
        },
        () = lost => bail!("the lease was lost: another agent may act"),
    }
    if let Some((candidate, _)) = candidate {
        let _ = timeout(RELEASE, candidate.release()).await;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;
    use http::Request;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct ParsedAgent {
        #[command(flatten)]
        agent: Agent,
    }

    /// No API server answers, so the process with a lease never holds it.
    #[rstest]
    #[case::of_two_agents(&["mczk", "--lease", "mczk-system/mczk-agent"], true)]
    #[case::the_only_agent(&["mczk"], false)]
    #[tokio::test]
    async fn an_agent_without_its_lease_writes_nothing(#[case] flags: &[&str], #[case] refused: bool) {
        let agent = ParsedAgent::parse_from(flags).agent;
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let (client, _candidate) = agent.client(config, "one", &mut Registry::default()).unwrap();
        let is_fenced = async |method| {
            let request = Request::builder().method(method).uri("/api").body(Vec::new()).unwrap();
            format!("{:?}", client.request_text(request).await.unwrap_err()).contains("NotHolder")
        };
        assert_eq!([is_fenced("DELETE").await, is_fenced("GET").await], [refused, false]);
    }

    #[rstest]
    #[case("zk", true)]
    #[case("team-1", true)]
    #[case("", false)]
    #[case("-a", false)]
    #[case("Team", false)]
    #[case("a b", false)]
    fn namespaces_have_valid_names(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(namespace(text).is_ok(), valid);
    }
}

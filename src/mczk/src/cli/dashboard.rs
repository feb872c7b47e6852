//! `mczk dashboard`: a read-only web page of ensembles, for the user of this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, builder::RangedU64ValueParser};

use super::log::LogFlags;
use mczk_admin::terminal::{connection::Connection, error::Error, output::print, run::run_service, scope::Namespace};
use mczk_operator::dashboard::{access::Access, poll::Poll, router::router, source::PollSource, steps::OpenSteps};
use mczk_runtime::{
    http_server::{self, Limits, Transport},
    process::{Process, ProcessEnding, listen},
};

/// Largest number of connections: one user has some tabs.
const MAX_CONNECTIONS: usize = 128;

/// Serves a read-only web page of ensembles on this machine: clusters, servers, the rollout, and what waits
///
/// It prints a URL with a random token, which is valid until the command ends. The page reads what `mczk status` and
/// `mczk why` read, with the rights of your kubeconfig. It listens on 127.0.0.1 alone.
#[derive(Debug, Args)]
#[command(after_help = "SIGTERM or SIGINT ends the command.")]
pub(crate) struct Dashboard {
    #[command(flatten)]
    namespace: Namespace,
    /// Show the objects of all namespaces
    #[arg(short = 'A', long, env = "MCZK_ALL_NAMESPACES")]
    all_namespaces: bool,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(
        short,
        long,
        env = "MCZK_DASHBOARD_PORT",
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Seconds between two reads; nothing is read while no page is open
    #[arg(long, env = "MCZK_DASHBOARD_POLL_SECONDS", value_name = "SECONDS", default_value_t = 2,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    poll_seconds: u64,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    log: LogFlags,
}

impl Dashboard {
    /// Serves the page until a signal ends the process.
    ///
    /// # Errors
    /// [`Error::Usage`] if the kubeconfig is wrong or the port is in use.
    pub(crate) fn run(self) -> Result<(), Error> {
        self.log.start()?;
        run_service(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let mut process = Process::new()?;
        let (client, _) = self.connection.client().await?;
        let listener = listen("--port", SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))?;
        let port = listener.local_addr().context("the listener has no address")?.port();
        let token = token();
        let namespace = (!self.all_namespaces).then(|| self.namespace.name(&client));
        let poll = Poll::every(Duration::from_secs(self.poll_seconds));
        let source = PollSource { client, namespace, shows_errors: true };
        let steps = OpenSteps::of(source.clone());
        let router = router(Access::local(&token, port), poll.clone(), steps, process.shutdown());
        let limits = Limits { max_connections: MAX_CONNECTIONS, drain: Duration::from_secs(1), ..Limits::default() };
        let (metrics, shutdown) = (http_server::Metrics::default(), process.shutdown());
        process.spawn("the dashboard", async move {
            http_server::serve(listener, Transport::Plain, router, limits, metrics, shutdown).await;
            Ok(())
        });
        let shutdown = process.shutdown();
        process.spawn("the poll of the dashboard", async move {
            poll.run(source, shutdown).await;
            Ok(())
        });
        print(&format!("http://127.0.0.1:{port}/#token={token}\n"))?;
        let limit = Some(Duration::from_secs(3));
        process.run(ProcessEnding { begin: || {}, delay: Duration::ZERO, limit }).await?;
        Ok(())
    }
}

/// 256 random bits as text.
fn token() -> String {
    let bits: [u64; 4] = rand::random();
    bits.map(|part| format!("{part:016x}")).concat()
}

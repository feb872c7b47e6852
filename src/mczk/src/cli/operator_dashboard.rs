//! The web page that the operator serves, if a flag names its address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use clap::{Args, builder::RangedU64ValueParser};
use kube::Client;
use tokio::net::TcpListener;

use mczk_admin::terminal::{connection::Connection, error::Error};
use mczk_operator::dashboard::{access::Access, poll::Poll, router::router, source::PollSource, steps::OpenSteps};
use mczk_runtime::{
    http_server::{self, Limits, Transport},
    process::{Process, listen},
    tls,
};

/// Largest number of connections.
const MAX_CONNECTIONS: usize = 256;

#[derive(Debug, Args)]
#[command(next_help_heading = "Dashboard")]
pub(super) struct DashboardFlags {
    /// Address and port of the read-only web page, HTTPS with the webhook's certificate. Users log in with a token of
    /// karmada-apiserver; the operator needs the rights of `mczk register --dashboard` [default: no page]
    #[arg(long, env = "MCZK_DASHBOARD_ADDRESS", value_name = "ADDRESS")]
    dashboard_address: Option<SocketAddr>,
    /// Seconds between two reads for the page; nothing is read while no page is open
    #[arg(long, env = "MCZK_DASHBOARD_POLL_SECONDS", value_name = "SECONDS", default_value_t = 5,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    dashboard_poll_seconds: u64,
}

/// The page before its start.
pub(super) struct OperatorDashboard {
    pub(super) listener: TcpListener,
    client: Client,
    poll: Poll,
    drain: Duration,
}

impl DashboardFlags {
    /// The page, if it has an address.
    ///
    /// # Errors
    /// [`Error::Usage`] if the kubeconfig is wrong or the address is in use.
    pub(super) async fn prepare(
        &self,
        connection: &Connection,
        drain: Duration,
    ) -> Result<Option<OperatorDashboard>, Error> {
        let Some(address) = self.dashboard_address else { return Ok(None) };
        // Every replica serves the page, so this client does not wait for the lease.
        let (client, _) = connection.client().await?;
        let listener = listen("--dashboard-address", address)?;
        let poll = Poll::every(Duration::from_secs(self.dashboard_poll_seconds));
        Ok(Some(OperatorDashboard { listener, client, poll, drain }))
    }
}

impl OperatorDashboard {
    /// Starts the server and the poll.
    pub(super) fn spawn(self, process: &mut Process, certificates: Arc<tls::Certificates>) {
        let Self { listener, client, poll, drain } = self;
        let source = PollSource { client: client.clone(), namespace: None, shows_errors: false };
        let steps = OpenSteps::of(source.clone());
        let router: Router = router(Access::cluster(client), poll.clone(), steps, process.shutdown());
        let limits = Limits { max_connections: MAX_CONNECTIONS, drain, ..Limits::default() };
        let (metrics, shutdown) = (http_server::Metrics::default(), process.shutdown());
        process.spawn("the dashboard", async move {
            http_server::serve(listener, Transport::Tls(certificates), router, limits, metrics, shutdown).await;
            Ok(())
        });
        let shutdown = process.shutdown();
        process.spawn("the poll of the dashboard", async move {
            poll.run(source, shutdown).await;
            Ok(())
        });
    }
}

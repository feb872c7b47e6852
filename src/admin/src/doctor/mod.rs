//! `mczk doctor`: examines the installation, and names a remedy for each finding.

mod examine;
mod finding;
#[cfg(test)]
mod healthy;
mod image;
mod observed;
mod read;
mod text;

use std::time::Duration;

use anyhow::Context;
use clap::{Args, builder::RangedU64ValueParser};
use jiff::Timestamp;
use kube::Client;

use crate::{
    register::apply,
    terminal::{
        connection::Connection,
        error::Error,
        host_connection::HostConnection,
        output::{Exit, Format, is_coloured, print},
        run::block_on,
    },
};
use read::BoundedReader;

/// Examines the installation: Karmada, the webhook, the operator, the agents and the member clusters
///
/// It reads karmada-apiserver, member clusters through Karmada's proxy, and the cluster of the operator if --host-kubeconfig
/// or --host-context names it. It changes nothing. Each finding comes with a remedy, and each area without one is listed.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 without a fault, also with warnings, 1 for a failure, 2 for a wrong command line, 3 for a \
                        fault."
)]
pub struct Doctor {
    /// Format of the output [default: a table]
    #[arg(short, long, env = "MCZK_DOCTOR_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// Seconds to wait for each answer
    #[arg(long, env = "MCZK_DOCTOR_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 5,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=60))]
    timeout_seconds: u64,
    #[command(flatten)]
    host: HostConnection,
    #[command(flatten)]
    connection: Connection,
}

impl Doctor {
    /// Prints what it finds.
    ///
    /// # Errors
    /// If a kubeconfig cannot be used, or karmada-apiserver does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let limit = Duration::from_secs(self.timeout_seconds);
            let mut config = self.connection.config().await?;
            config.connect_timeout = Some(limit);
            let host = self.host.client_if_any(&self.connection).await?;
            let client = Client::try_from(config.clone()).context("cannot use the kubeconfig")?;
            apply::ensure_karmada(&client, &config.cluster_url.to_string()).await?;
            let reader = BoundedReader::new(limit);
            let observed = reader
                .run(Box::pin(read::observe(
                    &config,
                    &client,
                    host.map(|host| (host, self.host.namespace.clone())),
                    &reader,
                )))
                .await;
            let report = examine::examine(&observed, Timestamp::now());
            print(&match self.output {
                Some(format) => format.text(&report)?,
                None => text::text(&report, is_coloured()),
            })?;
            Ok(Exit::waits(report.faults > 0))
        })
    }
}

//! Flags of the election by a Lease.

use std::time::Duration;

use clap::{Args, builder::RangedU64ValueParser};
use kube::Client;
use prometheus_client::registry::Registry;

use mczk_admin::terminal::error::Error;
use mczk_runtime::election::{Candidate, LeaseName, Metrics, rule::Timing};

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct ElectionFlags {
    /// Lease by which several such processes elect the one that acts [default: none, this process acts]
    #[arg(long, env = "MCZK_LEASE", value_name = "NAMESPACE/NAME")]
    lease: Option<LeaseName>,
    /// Seconds after the last renewal of the lease until another process takes it over
    #[arg(long, env = "MCZK_LEASE_DURATION_SECONDS", value_name = "SECONDS", default_value_t = 15, value_parser = seconds())]
    lease_duration_seconds: u64,
    /// Seconds after its last renewal until the holder stops to act; fewer than the duration
    #[arg(long, env = "MCZK_LEASE_RENEW_DEADLINE_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = seconds())]
    lease_renew_deadline_seconds: u64,
    /// Seconds between two attempts to acquire or renew the lease; at most half of the deadline
    #[arg(long, env = "MCZK_LEASE_RETRY_PERIOD_SECONDS", value_name = "SECONDS", default_value_t = 2,
          value_parser = seconds())]
    lease_retry_period_seconds: u64,
}

fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=3600)
}

impl ElectionFlags {
    /// The times of the election.
    ///
    /// # Errors
    /// [`Error::Usage`] if they break a rule of the election.
    fn timing(&self) -> Result<Timing, Error> {
        let timing = Timing {
            duration: Duration::from_secs(self.lease_duration_seconds),
            renew_deadline: Duration::from_secs(self.lease_renew_deadline_seconds),
            retry_period: Duration::from_secs(self.lease_retry_period_seconds),
        };
        timing.check().map_err(|rule| Error::Usage(format!("--lease-*-seconds: {rule}")))?;
        Ok(timing)
    }

    /// Begins to request the Lease, if the flags name one. Only then the metrics of the election exist, with this prefix:
    /// without an election, an alert on the absence of a leader would fire.
    ///
    /// # Errors
    /// As [`Self::timing`].
    pub(crate) fn candidate(
        &self,
        client: &Client,
        identity: &str,
        registry: &mut Registry,
        prefix: &str,
    ) -> Result<Option<Candidate>, Error> {
        let timing = self.timing()?;
        Ok(self.lease.clone().map(|lease| {
            let metrics = Metrics::new(registry, prefix);
            Candidate::new(client.clone(), lease, identity, timing, metrics)
        }))
    }
}

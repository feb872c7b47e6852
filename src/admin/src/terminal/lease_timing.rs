//! Flags of the times of an election by a Lease: of a process that takes part, and of `mczk install`, which passes them on.

use std::time::Duration;

use clap::{Args, builder::RangedU64ValueParser};

use super::error::Error;
use mczk_runtime::election::rule::Timing;

/// The times of an election.
#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_field_names)] // the names of the flags
#[command(next_help_heading = "Leader election")]
pub struct LeaseTiming {
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

impl LeaseTiming {
    /// The times.
    ///
    /// # Errors
    /// [`Error::Usage`] if they break a rule of the election.
    pub fn timing(&self) -> Result<Timing, Error> {
        let timing = Timing {
            duration: Duration::from_secs(self.lease_duration_seconds),
            renew_deadline: Duration::from_secs(self.lease_renew_deadline_seconds),
            retry_period: Duration::from_secs(self.lease_retry_period_seconds),
        };
        timing.check().map_err(|rule| Error::Usage(format!("--lease-*-seconds: {rule}")))?;
        Ok(timing)
    }
}

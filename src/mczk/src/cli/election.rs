//! Flags of the election by a Lease.

use clap::Args;
use kube::Client;
use prometheus_client::registry::Registry;

use mczk_admin::terminal::{error::Error, lease_timing::LeaseTiming};
use mczk_runtime::election::{Candidate, LeaseName, Metrics};

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct ElectionFlags {
    /// Lease by which several such processes elect the one that acts [default: none, this process acts]
    #[arg(long, env = "MCZK_LEASE", value_name = "NAMESPACE/NAME")]
    lease: Option<LeaseName>,
    #[command(flatten)]
    timing: LeaseTiming,
}

impl ElectionFlags {
    /// Begins to request the Lease, if the flags name one. Only then the metrics of the election exist, with this prefix:
    /// without an election, an alert on the absence of a leader would fire.
    ///
    /// # Errors
    /// As [`LeaseTiming::timing`].
    pub(crate) fn candidate(
        &self,
        client: &Client,
        identity: &str,
        registry: &mut Registry,
        prefix: &str,
    ) -> Result<Option<Candidate>, Error> {
        let timing = self.timing.timing()?;
        Ok(self.lease.clone().map(|lease| {
            let metrics = Metrics::new(registry, prefix);
            Candidate::new(client.clone(), lease, identity, timing, metrics)
        }))
    }
}

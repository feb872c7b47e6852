//! Leader election by a Lease: only its holder acts. If the holder ends or stops renewing it, another process takes
//! over about [`DURATION`] seconds later.
//!
//! No safety rule depends on it. Two holders may act at once, as for a moment after one was disconnected; preconditions
//! on their writes keep them apart.

use std::str::FromStr;

use anyhow::Context as _;
use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use tokio::{sync::watch, task::JoinHandle};

/// Seconds for which a holder keeps the lease without renewing it.
const DURATION: u64 = 15;
/// Seconds before its end at which the lease is renewed.
const GRACE: u64 = 5;

/// Namespace and name of a Lease, as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace of the Lease.
    namespace: String,
    /// Name of the Lease.
    name: String,
}

impl FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("write it as NAMESPACE/NAME".to_owned()),
        }
    }
}

/// A candidate for the lease.
pub struct Candidate {
    held: watch::Receiver<bool>,
    task: JoinHandle<kube_lease_manager::Result<LeaseManager>>,
}

impl Candidate {
    /// Begins to request the lease, under an identity that no other process has. Creates the Lease if it does not
    /// exist.
    ///
    /// # Errors
    /// If the API server refuses: the rights to get, create and patch it are needed.
    pub async fn new(client: Client, lease: &LeaseName, identity: &str) -> anyhow::Result<Self> {
        let manager = LeaseManagerBuilder::new(client, &lease.name)
            .with_namespace(&lease.namespace)
            .with_identity(identity)
            .with_duration(DURATION)
            .with_grace(GRACE)
            .build()
            .await
            .with_context(|| format!("Lease {}/{} cannot be read or created", lease.namespace, lease.name))?;
        let (held, task) = manager.watch().await;
        Ok(Self { held, task })
    }

    /// Waits until the candidate holds the lease.
    ///
    /// # Errors
    /// If the task that requests the lease has ended, which is a defect.
    pub async fn elected(&mut self) -> anyhow::Result<()> {
        self.held.wait_for(|held| *held).await.context("the request for the lease has ended")?;
        Ok(())
    }

    /// Waits until the candidate does not hold the lease any more.
    pub async fn lost(&mut self) {
        // An error means that the task has ended, and renews no more.
        let _ = self.held.wait_for(|held| !*held).await;
    }

    /// Releases the lease, so that another candidate need not wait for its end.
    pub async fn release(self) {
        drop(self.held);
        if let Ok(Err(error)) = self.task.await {
            tracing::debug!(%error, "Cannot release the lease: it expires");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("mczk-system/mczk-agent", true)]
    #[case("mczk-agent", false)]
    #[case("/mczk-agent", false)]
    #[case("mczk-system/", false)]
    #[case("a/b/c", false)]
    fn a_lease_is_named_by_namespace_and_name(#[case] text: &str, #[case] fine: bool) {
        assert_eq!(text.parse::<LeaseName>().is_ok(), fine);
    }
}

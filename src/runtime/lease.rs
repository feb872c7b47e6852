//! Which of several processes acts: the one that holds a Lease. The others wait, and one of them goes on not much later than
//! [`DURATION`] seconds after the holder ended or fell silent.
//!
//! No safety rests on it: two that act at once, as for a moment after a holder was cut off, are kept apart by what they write.

use std::str::FromStr;

use anyhow::Context as _;
use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use tokio::{sync::watch, task::JoinHandle};

/// For how long a holder that is silent keeps it, in seconds.
const DURATION: u64 = 15;
/// So long before its end it is renewed, in seconds.
const GRACE: u64 = 5;

/// A Lease by its namespace and name, as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl FromStr for Named {
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

/// A place among those that want the lease.
pub struct Candidate {
    held: watch::Receiver<bool>,
    task: JoinHandle<kube_lease_manager::Result<LeaseManager>>,
}

impl Candidate {
    /// Begins to ask for it, under a name that no other process has. The Lease is made if there is none.
    ///
    /// # Errors
    /// If the API server refuses: the rights to get, create and patch it are needed.
    pub async fn new(client: Client, lease: &Named, identity: &str) -> anyhow::Result<Self> {
        let manager = LeaseManagerBuilder::new(client, &lease.name)
            .with_namespace(&lease.namespace)
            .with_identity(identity)
            .with_duration(DURATION)
            .with_grace(GRACE)
            .build()
            .await
            .with_context(|| format!("Lease {}/{} cannot be read or made", lease.namespace, lease.name))?;
        let (held, task) = manager.watch().await;
        Ok(Self { held, task })
    }

    /// Waits until it is held.
    ///
    /// # Errors
    /// If nobody asks for it any more, which is a defect.
    pub async fn elected(&mut self) -> anyhow::Result<()> {
        self.held.wait_for(|held| *held).await.context("the lease is no longer asked for")?;
        Ok(())
    }

    /// Waits until it is held no more.
    pub async fn lost(&mut self) {
        // That nobody asks any more means that nobody renews it.
        let _ = self.held.wait_for(|held| !*held).await;
    }

    /// Gives it back: whoever comes next need not wait for its end.
    pub async fn release(self) {
        drop(self.held);
        if let Ok(Err(error)) = self.task.await {
            tracing::debug!(%error, "the lease ends by itself");
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
        assert_eq!(text.parse::<Named>().is_ok(), fine);
    }
}

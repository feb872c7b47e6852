//! Leader election by a Lease: of several processes, only the holder acts. [`rule`] decides; this file makes the requests.

mod holder_only;
mod leadership;
mod metrics;
pub mod rule;

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource as _,
    api::{ObjectMeta, PostParams},
    runtime::events::{Event, Reporter},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

pub use self::holder_only::HolderOnly;
pub use self::leadership::Leadership;
pub(crate) use self::leadership::Term;
pub use self::metrics::Metrics;
use self::rule::{Candidacy, Request, Stored, Timing, Write};
use crate::{
    event_queue::{self, Publisher, Queue},
    failure::{is_conflict, is_not_found},
    jitter::jittered,
    shutdown::{self, Shutdown, Trigger},
};
use mczk_api::{
    contract::{event_reasons::Severity, naming::namespaced},
    term,
};

/// Reason of the event about a Lease that names its next holder: that of Kubernetes' own components.
const REASON: &str = "LeaderElection";

/// Namespace and name of a Lease, as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    namespace: String,
    name: String,
}

impl FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        namespaced(text).map(|(namespace, name)| Self { namespace, name })
    }
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A candidate for the Lease.
pub struct Candidate {
    leadership: Leadership,
    stop: Trigger,
    task: JoinHandle<()>,
}

impl Candidate {
    /// Begins to request the Lease, under an identity that no other process has. Creates the Lease if it does not exist.
    #[must_use]
    pub fn new(client: Client, lease: LeaseName, identity: &str, timing: Timing, metrics: Metrics) -> Self {
        let (sender, term) = watch::channel(None);
        let above = watch::Sender::new(0);
        let (stop, stopped) = shutdown::channel();
        let reporter = Reporter { controller: lease.name.clone(), instance: Some(identity.to_owned()) };
        let election = Election {
            events: event_queue::start(client.clone(), reporter),
            api: Api::namespaced(client, &lease.namespace),
            lease,
            timing,
            candidacy: Candidacy::new(identity.to_owned(), timing),
            acquired: None,
            term: sender,
            above: above.subscribe(),
            fails: false,
            metrics,
        };
        Self { leadership: Leadership::new(term, above), stop, task: tokio::spawn(election.run(stopped)) }
    }

    /// Whether this process acts.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Stops to act and releases the Lease, so that another candidate need not wait for its end.
    ///
    /// # Errors
    /// If the task of the election has ended, which is a defect.
    pub async fn release(self) -> anyhow::Result<()> {
        self.stop.request_shutdown();
        self.task.await.context("the election has ended")
    }
}

/// The task of an election.
struct Election {
    api: Api<Lease>,
    lease: LeaseName,
    timing: Timing,
    candidacy: Candidacy,
    /// The last term that this candidate wrote, and when it wrote it first.
    acquired: Option<(i32, MicroTime)>,
    /// No election waits until an event is stored.
    events: (Queue, Publisher),
    term: watch::Sender<Option<Term>>,
    above: watch::Receiver<i32>,
    /// True if the last attempt failed.
    fails: bool,
    metrics: Metrics,
}

impl Election {
    async fn run(mut self, stopped: Shutdown) {
        let mut stopped = Box::pin(stopped.requested());
        loop {
            // It is short, and a write whose answer is not awaited could not be released.
            self.attempt().await;
            self.publish();
            tokio::select! {
                () = &mut stopped => break,
                () = sleep(jittered(self.timing.retry_period)) => {}
                _ = self.above.changed() => {}
            }
        }
        self.term.send_replace(None);
        self.metrics.show(None);
        if let Some(release) = self.candidacy.release() {
            match timeout(self.timing.attempt_limit(), self.write(&release)).await {
                Ok(Ok(_)) => info!(lease = %self.lease, "Lease released"),
                Ok(Err(error)) => debug!(lease = %self.lease, %error, "Cannot release the lease: it expires"),
                Err(_) => debug!(lease = %self.lease, "Cannot release the lease in time: it expires"),
            }
        }
    }

    /// One attempt to acquire or renew: at most two requests.
    async fn attempt(&mut self) {
        let above = *self.above.borrow_and_update();
        self.candidacy.rise_above(above);
        let mut request = self.candidacy.begin(Instant::now());
        self.publish();
        if request == Request::Read {
            request = match timeout(self.timing.attempt_limit(), self.api.get_opt(&self.lease.name)).await {
                Ok(Ok(found)) => {
                    let found = found.as_ref().map(stored);
                    let next = self.candidacy.read(found.as_ref(), Instant::now());
                    self.report_lost_count(found.as_ref(), &next);
                    next
                }
                Ok(Err(error)) => return self.failed(&error.to_string()),
                Err(_) => return self.failed("the API server does not answer"),
            };
        }
        if let Request::Write(write) = request {
            let sent = Instant::now();
            match timeout(self.timing.attempt_limit(), self.write(&write)).await {
                Ok(Ok(version)) => self.candidacy.wrote(&write, version, sent, Instant::now()),
                Ok(Err(error)) if is_not_found(&error) && write.replaces.is_none() => {
                    let namespace = &self.lease.namespace;
                    let error = format!("its namespace {namespace} does not exist: create it, or use another one");
                    return self.failed(&error);
                }
                // Another client was faster. The next attempt reads its Lease.
                Ok(Err(error)) if is_conflict(&error) || is_not_found(&error) => self.candidacy.failed(),
                Ok(Err(error)) => return self.failed(&error.to_string()),
                Err(_) => return self.failed("the API server does not answer"),
            }
        }
        if std::mem::take(&mut self.fails) {
            info!(lease = %self.lease, "The lease can be read and written again");
        }
    }

    /// Warns if this attempt replaces a number of terms that no leader wrote. The write repairs it.
    fn report_lost_count(&self, found: Option<&Stored>, next: &Request) {
        let (Some(found), Request::Write(write)) = (found, next) else { return };
        // A new Lease counts from 0.
        if found.term != 0 && term::counted(found.term) == 0 {
            let (lease, shown, term) = (&self.lease, found.term, write.term);
            warn!(%lease, shown, term, "Another client has changed leaseTransitions of the lease: counting again");
            self.metrics.lost_count();
        }
    }

    fn failed(&mut self, error: &str) {
        self.metrics.failed();
        self.candidacy.failed();
        // Every other attempt would only repeat it.
        if !std::mem::replace(&mut self.fails, true) {
            warn!(lease = %self.lease, error, "Cannot read or write the lease");
        }
    }

    /// Shows the current term.
    fn publish(&self) {
        let now = self.candidacy.term(Instant::now()).map(|(number, end)| Term { number, end: Some(end) });
        self.metrics.show(now.map(|term| term.number));
        self.term.send_if_modified(|before| {
            let (was, is) = (before.map(|term| term.number), now.map(|term| term.number));
            if was != is {
                if let Some(term) = is {
                    info!(lease = %self.lease, term, "This process holds the lease and acts");
                } else {
                    info!(lease = %self.lease, "This process does not hold the lease");
                }
            }
            std::mem::replace(before, now) != now
        });
    }

    /// Writes the Lease; returns its new version.
    async fn write(&mut self, write: &Write) -> kube::Result<String> {
        // For people, as `renewTime`. No candidate reads them.
        let now = MicroTime(Timestamp::now());
        let before = self.acquired.clone().filter(|(term, _)| *term == write.term);
        let (_, acquired) = before.clone().unwrap_or((write.term, now.clone()));
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.lease.name.clone()),
                resource_version: write.replaces.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(write.holder.clone().unwrap_or_default()),
                lease_duration_seconds: Some(in_seconds(self.timing.duration)),
                acquire_time: Some(acquired.clone()),
                renew_time: Some(now),
                lease_transitions: Some(write.term),
                ..LeaseSpec::default()
            }),
        };
        let params = PostParams::default();
        let written = match &write.replaces {
            Some(_) => self.api.replace(&self.lease.name, &params, &lease).await?,
            None => self.api.create(&params, &lease).await?,
        };
        self.acquired = Some((write.term, acquired));
        if let Some(holder) = write.holder.as_ref().filter(|_| before.is_none()) {
            let event = event_queue::event(Severity::Normal, REASON, &format!("{holder} became leader"));
            self.events.0.put(Event { action: "Acquire".to_owned(), ..event }, written.object_ref(&()));
        }
        Ok(written.metadata.resource_version.unwrap_or_default())
    }
}

/// Whole seconds, rounded up.
fn in_seconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

fn stored(lease: &Lease) -> Stored {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Stored {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        term: spec.lease_transitions.unwrap_or(0),
        duration: Duration::from_secs(seconds),
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

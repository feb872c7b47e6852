//! What every step of a reconcile needs, and what the controller remembers between reconciles.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;

use super::{
    changes::{Changes, Sighting, Version},
    clusters::{ClusterChange, Clusters},
    metrics::Metrics,
};
use crate::{
    rollout::cluster_interest::ClusterInterest,
    runtime::{election::Leadership, event_queue::Queue, reconcile::ObjectKey},
};

/// Field manager of everything that the controller writes.
pub(super) const FIELD_MANAGER: &str = "mczk";

/// Image of mczk for member clusters, if the user names none.
pub(crate) const DEFAULT_SERVER_IMAGE: &str = concat!("mczk:", env!("CARGO_PKG_VERSION"));

/// Configuration of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Image of mczk, for the status.
    pub(crate) server_image: String,
}

/// Client, configuration, and memory between reconciles. No decision but the rate of requests needs the memory.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) leadership: Leadership,
    pub(super) options: Options,
    pub(super) metrics: Metrics,
    pub(super) events: Queue,
    pub(super) clusters: Clusters,
    memory: Mutex<HashMap<ObjectKey, Memory>>,
}

/// What the controller remembers of one object: the reports of agents, as the watch of bindings saw them, and its own last
/// request.
#[derive(Debug, Default)]
struct Memory {
    /// Arrival of the oldest report that no decision covers yet.
    oldest: Option<Instant>,
    /// Version of the binding in the newest watch event.
    newest: Option<u64>,
    /// When the controller last asked Karmada to schedule again.
    asked: Option<Instant>,
    /// What changed since the last read.
    changes: Changes,
    /// The clusters that matter; `None` before the first read.
    interest: Option<ClusterInterest>,
}

impl Memory {
    fn arrived(&mut self, version: Option<u64>) {
        self.oldest.get_or_insert_with(Instant::now);
        self.newest = version.or(self.newest);
    }

    /// True if a report arrived that this version of the binding does not hold yet.
    fn overtake(&self, read: Option<u64>) -> bool {
        self.oldest.is_some() && self.newest > read
    }
}

impl Context {
    pub(super) fn new(
        client: Client,
        leadership: Leadership,
        options: Options,
        metrics: Metrics,
        events: Queue,
    ) -> Self {
        Self { client, leadership, options, metrics, events, clusters: Clusters::default(), memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<ObjectKey, Memory>> {
        // A panic while the lock was held leaves counters behind and nothing that could be half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of objects that the controller knows.
    pub(super) fn objects(&self) -> usize {
        self.memory().len()
    }

    /// Notes an event of an object around this one. True if the controller must read again.
    pub(super) fn saw(&self, key: &ObjectKey, version: Version, sighting: Sighting) -> bool {
        self.memory().get_mut(key).is_none_or(|memory| memory.changes.saw(version, sighting))
    }

    /// Notes a change without a version around an object.
    pub(super) fn invalidate(&self, key: &ObjectKey) {
        if let Some(memory) = self.memory().get_mut(key) {
            memory.changes.invalidate();
        }
    }

    /// Notes the change of a member cluster, and returns the objects to which it matters.
    pub(super) fn cluster_changed(&self, change: &ClusterChange) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        for (key, memory) in self.memory().iter_mut() {
            let matters = |interest: &ClusterInterest| interest.includes(change.before.as_ref(), change.after.as_ref());
            if memory.interest.as_ref().is_none_or(matters) {
                memory.changes.invalidate();
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Begins to read an object, whose watch has seen this version. If nothing has changed, the error is the time until the
    /// next read.
    pub(super) fn begin_read(
        &self,
        key: &ObjectKey,
        version: Version,
        term: Option<i32>,
    ) -> Result<(), Option<Duration>> {
        let (mut all, now) = (self.memory(), Instant::now());
        let changes = &mut all.entry(key.clone()).or_default().changes;
        if !changes.requires_read(version, term, now) {
            return Err(changes.time_left(now));
        }
        changes.begin_read(term);
        Ok(())
    }

    /// Ends a reconcile that has read and written these versions, and comes again after this time.
    pub(super) fn end_read(
        &self,
        key: &ObjectKey,
        versions: impl IntoIterator<Item = Version>,
        interest: ClusterInterest,
        again: Duration,
    ) {
        if let Some(memory) = self.memory().get_mut(key) {
            memory.changes.hold(versions);
            memory.changes.read_again_in(again, Instant::now());
            memory.interest = Some(interest);
        }
    }

    /// Notes a report about an object that the controller knows.
    pub(super) fn report_arrived(&self, key: &ObjectKey, version: Option<u64>) {
        if let Some(reports) = self.memory().get_mut(key) {
            reports.arrived(version);
        }
    }

    /// Arrival of the oldest report that no decision covers yet. The caller's decision covers it.
    pub(super) fn take_reported(&self, key: &ObjectKey) -> Option<Instant> {
        self.memory().entry(key.clone()).or_default().oldest.take()
    }

    /// Gives back a report that no decision covered after all: its age counts on.
    pub(super) fn restore_reported(&self, key: &ObjectKey, reported: Option<Instant>) {
        if let Some(reports) = self.memory().get_mut(key) {
            reports.oldest = reports.oldest.into_iter().chain(reported).min();
        }
    }

    /// True if a binding of version `read` holds the newest report. Then `reported` is the arrival of the oldest report that
    /// the decision covers.
    pub(super) fn holds_newest(&self, key: &ObjectKey, read: Option<u64>, reported: &mut Option<Instant>) -> bool {
        match self.memory().get_mut(key) {
            Some(reports) if reports.overtake(read) => false,
            Some(reports) => {
                *reported = reports.oldest.take().into_iter().chain(*reported).min();
                true
            }
            None => true,
        }
    }

    /// Notes that the controller has asked Karmada to schedule an object again.
    pub(super) fn asked(&self, key: &ObjectKey) {
        self.memory().entry(key.clone()).or_default().asked = Some(Instant::now());
    }

    /// Time since the controller last asked Karmada to schedule an object again.
    pub(super) fn since_asked(&self, key: &ObjectKey) -> Option<Duration> {
        self.memory().get(key)?.asked.as_ref().map(Instant::elapsed)
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.memory().remove(key);
        self.metrics.ensembles.forget(key);
    }
}

/// The resource version as a number. Versions of one kind rise.
pub(super) fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_arrives_during_a_read_overtakes_it() {
        let mut reports = Memory::default();
        assert!(!reports.overtake(None) && !reports.overtake(Some(7)), "nothing was reported");
        reports.arrived(Some(8));
        assert!(reports.overtake(Some(7)));
        assert!(!reports.overtake(Some(8)) && !reports.overtake(Some(9)));
        // The binding was deleted: the read may still hold it.
        assert!(reports.overtake(None));
        // Another binding, of an API server that counts from the start, or does not count.
        reports.arrived(Some(3));
        assert!(!reports.overtake(Some(4)));
        reports.arrived(None);
        assert!(!reports.overtake(Some(4)));
        reports.oldest = None;
        assert!(!reports.overtake(Some(1)), "a decision covers it");
    }
}

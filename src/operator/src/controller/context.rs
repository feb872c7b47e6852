//! What every step of a reconcile needs, and what the controller remembers between reconciles.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::OnceLock,
    time::{Duration, Instant},
};

use kube::{
    Client,
    api::DynamicObject,
    runtime::{controller::Action, reflector::Store},
};
use parking_lot::Mutex;
use serde_json::json;

use super::{changes::Changes, metrics::Metrics, pause::Routine};
use mczk_reading::{
    clusters::{ClusterChange, Clusters},
    versions::{Id, ObjectVersion, Sighting},
};
use mczk_rules::rollout::{cluster_interest::ClusterInterest, plan::Observed, services::has_spares};
use mczk_runtime::{election::Leadership, event_queue::Queue, reconcile::ObjectKey};

/// The shortest time between two reports of failed reads of one object.
const FAILURE_INTERVAL: Duration = Duration::from_secs(60);

/// The most writes in a minute of one object that another writer has changed each time before.
pub(super) const MOST_WRITES: usize = 40;
const MINUTE: Duration = Duration::from_secs(60);

/// Configuration of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Image of mczk, for the status.
    pub server_image: String,
}

/// Client, configuration, and memory between reconciles. No decision but the rate of requests needs the memory.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) leadership: Leadership,
    pub(super) options: Options,
    pub(super) metrics: Metrics,
    pub(super) events: Queue,
    pub(super) clusters: Clusters,
    pub(super) routine: Routine,
    /// All objects as the watch saw them last, set once.
    pub(super) objects: OnceLock<Store<DynamicObject>>,
    memory: Mutex<HashMap<ObjectKey, EnsembleMemory>>,
}

/// What the controller remembers of one object: the reports of agents, as the watch of bindings saw them, and its own last
/// request.
#[derive(Debug, Default)]
struct EnsembleMemory {
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
    /// The incarnation at the last read, and whether a quorum had formed in it.
    incarnation: Option<(Box<str>, bool)>,
    /// True if it had spares at the last read.
    has_spares: bool,
    /// When the controller last reported a failed read.
    reported_failure: Option<Instant>,
    /// Its writes of each object.
    writes: HashMap<String, Corrections>,
    /// True while it is read.
    in_read: bool,
    /// True if a read together with others found that it needs more.
    needs_own_read: bool,
}

/// The writes of one object.
#[derive(Debug, Default)]
struct Corrections {
    /// The version that the last one made.
    made: Option<String>,
    /// True if the API server stored something else than it was sent: an admission webhook changes each write.
    altered: bool,
    /// Those of the last minute, each of an object that another writer had changed since the one before.
    recent: VecDeque<Instant>,
}

impl Corrections {
    /// Notes a write of an object that has this version now. False if there were too many.
    fn may_correct(&mut self, live: Option<&str>, now: Instant) -> bool {
        if !self.altered && self.made.as_deref().is_none_or(|made| live == Some(made)) {
            return true;
        }
        self.recent.retain(|at| now.saturating_duration_since(*at) < MINUTE);
        let may = self.recent.len() < MOST_WRITES;
        if may {
            self.recent.push_back(now);
        }
        may
    }
}

impl EnsembleMemory {
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
        let (clusters, routine) = (Clusters::default(), Routine::default());
        let (objects, memory) = (OnceLock::new(), Mutex::default());
        Self { client, leadership, options, metrics, events, clusters, routine, objects, memory }
    }

    /// Number of objects that the controller has read.
    pub(super) fn number(&self) -> usize {
        self.memory.lock().len()
    }

    /// Notes an event of an object around this one. True if the controller must read again.
    pub(super) fn saw(&self, key: &ObjectKey, version: ObjectVersion, sighting: Sighting) -> bool {
        self.memory.lock().get_mut(key).is_none_or(|memory| memory.changes.saw(version, sighting))
    }

    /// Notes a change without a version around an object.
    pub(super) fn invalidate(&self, key: &ObjectKey) {
        if let Some(memory) = self.memory.lock().get_mut(key) {
            memory.changes.invalidate();
        }
    }

    /// Notes the change of a member cluster, and returns the objects to which it matters.
    pub(super) fn cluster_changed(&self, change: &ClusterChange) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        for (key, memory) in self.memory.lock().iter_mut() {
            let matters = |interest: &ClusterInterest| interest.includes(change.before.as_ref(), change.after.as_ref());
            if memory.interest.as_ref().is_none_or(matters) {
                memory.changes.invalidate();
                keys.push(key.clone());
            }
        }
        keys
    }

    /// When an object is due, whose watch has seen this version.
    pub(super) fn due(&self, key: &ObjectKey, version: ObjectVersion, term: Option<i32>) -> Due {
        let (mut all, now) = (self.memory.lock(), Instant::now());
        let Some(memory) = all.get_mut(key) else { return Due::Now };
        if memory.changes.requires_read(version, term, now) {
            return Due::Now;
        }
        memory.changes.time_left(now).map_or(Due::OnChange, Due::In)
    }

    /// True if an object may be read together with others. No event around it is known that its last read does not hold, and
    /// no report. `own` is the object.
    pub(super) fn is_routine(&self, key: &ObjectKey, own: Id, term: Option<i32>) -> bool {
        let is_routine = |memory: &EnsembleMemory| {
            !memory.needs_own_read && memory.oldest.is_none() && memory.changes.is_routine(own, term)
        };
        self.memory.lock().get(key).is_none_or(is_routine)
    }

    /// True while an object is read.
    pub(super) fn in_read(&self, key: &ObjectKey) -> bool {
        self.memory.lock().get(key).is_some_and(|memory| memory.in_read)
    }

    /// Begins to read objects. Each read ends with [`Context::end_read`], or with the returned value.
    pub(super) fn begin_read(&self, keys: impl IntoIterator<Item = ObjectKey>, term: Option<i32>) -> Reading<'_> {
        let mut all = self.memory.lock();
        let open: BTreeSet<ObjectKey> = keys.into_iter().collect();
        for key in &open {
            let memory = all.entry(key.clone()).or_default();
            memory.changes.begin_read(term);
            memory.in_read = true;
        }
        Reading { context: self, open, needs_own_read: false }
    }

    /// True if the controller may now report a failed read of an object: once a minute.
    pub(super) fn may_report_failure(&self, key: &ObjectKey) -> bool {
        let mut all = self.memory.lock();
        let reported = &mut all.entry(key.clone()).or_default().reported_failure;
        let may = reported.is_none_or(|at| at.elapsed() >= FAILURE_INTERVAL);
        if may {
            *reported = Some(Instant::now());
        }
        may
    }

    /// An object as the watch saw it, with what the last read found that says what to read beside it.
    pub(super) fn last_read(&self, key: &ObjectKey, object: &DynamicObject) -> DynamicObject {
        let all = self.memory.lock();
        let memory = all.get(key);
        let mut object = object.clone();
        if let Some((incarnation, formed)) = memory.and_then(|memory| memory.incarnation.as_ref()) {
            let ensemble = json!({ "incarnation": incarnation, "formed": formed });
            // Which ones matters to nothing that is read.
            let spares = if memory.is_some_and(|memory| memory.has_spares) { json!(["any"]) } else { json!([]) };
            object.data = json!({ "status": { "ensemble": ensemble }, "spec": { "failover": { "spares": spares } } });
        }
        object
    }

    /// Ends a reconcile that has read and written these versions, and comes again after this time.
    pub(super) fn end_read(
        &self,
        key: &ObjectKey,
        versions: impl IntoIterator<Item = ObjectVersion>,
        observed: &Observed,
        again: Duration,
    ) {
        let interest = ClusterInterest::of(&observed.object, observed.binding.as_ref(), observed.overrides.as_deref());
        let ensemble = observed.object.status.as_ref().and_then(|status| status.ensemble.as_ref());
        let incarnation = ensemble.map(|ensemble| (ensemble.incarnation.as_str().into(), ensemble.formed));
        if let Some(memory) = self.memory.lock().get_mut(key) {
            memory.changes.hold(versions);
            memory.changes.read_again_in(again, Instant::now());
            memory.interest = Some(interest);
            memory.incarnation = incarnation;
            memory.has_spares = has_spares(&observed.object);
            memory.needs_own_read = false;
        }
    }

    /// Notes a report about an object that the controller knows.
    pub(super) fn report_arrived(&self, key: &ObjectKey, version: Option<u64>) {
        if let Some(reports) = self.memory.lock().get_mut(key) {
            reports.arrived(version);
        }
    }

    /// Arrival of the oldest report that no decision covers yet. The caller's decision covers it.
    pub(super) fn take_reported(&self, key: &ObjectKey) -> Option<Instant> {
        self.memory.lock().entry(key.clone()).or_default().oldest.take()
    }

    /// Gives back a report that no decision covered after all: its age counts on.
    pub(super) fn restore_reported(&self, key: &ObjectKey, reported: Option<Instant>) {
        if let Some(reports) = self.memory.lock().get_mut(key) {
            reports.oldest = reports.oldest.into_iter().chain(reported).min();
        }
    }

    /// True if a binding of version `read` holds the newest report. Then `reported` is the arrival of the oldest report that
    /// the decision covers.
    pub(super) fn holds_newest(&self, key: &ObjectKey, read: Option<u64>, reported: &mut Option<Instant>) -> bool {
        match self.memory.lock().get_mut(key) {
            Some(reports) if reports.overtake(read) => false,
            Some(reports) => {
                *reported = reports.oldest.take().into_iter().chain(*reported).min();
                true
            }
            None => true,
        }
    }

    /// Notes that the controller is about to write an object, whose version is `live`. False if another writer has changed it too
    /// often.
    pub(super) fn may_write(&self, key: &ObjectKey, object: &str, live: Option<&str>) -> bool {
        let mut all = self.memory.lock();
        let writes = all.entry(key.clone()).or_default().writes.entry(object.to_owned()).or_default();
        writes.may_correct(live, Instant::now())
    }

    /// Notes the version that a write has made, and whether the API server stored something else than it was sent.
    pub(super) fn wrote(&self, key: &ObjectKey, object: String, version: Option<String>, altered: bool) {
        let mut all = self.memory.lock();
        let writes = all.entry(key.clone()).or_default().writes.entry(object).or_default();
        (writes.made, writes.altered) = (version, altered);
    }

    /// True if the API server stored something else than the last write of an object.
    pub(super) fn is_altered(&self, key: &ObjectKey, object: &str) -> bool {
        self.memory.lock().get(key).and_then(|memory| memory.writes.get(object)).is_some_and(|writes| writes.altered)
    }

    /// Notes that the controller has asked Karmada to schedule an object again.
    pub(super) fn asked(&self, key: &ObjectKey) {
        self.memory.lock().entry(key.clone()).or_default().asked = Some(Instant::now());
    }

    /// Time since the controller last asked Karmada to schedule an object again.
    pub(super) fn since_asked(&self, key: &ObjectKey) -> Option<Duration> {
        self.memory.lock().get(key)?.asked.as_ref().map(Instant::elapsed)
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.memory.lock().remove(key);
        self.metrics.ensembles.forget(key);
    }
}

/// When the controller reads an object next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Something around it has changed.
    Now,
    /// After this time, if nothing changes.
    In(Duration),
    /// When something changes.
    OnChange,
}

impl Due {
    /// What an attempt returns for an object that is not due.
    pub(super) fn action(self) -> Option<Action> {
        match self {
            Self::Now => None,
            Self::In(left) => Some(Action::requeue(left)),
            Self::OnChange => Some(Action::await_change()),
        }
    }
}

/// Objects that are being read. Those whose read did not end must be read again.
pub(super) struct Reading<'a> {
    context: &'a Context,
    open: BTreeSet<ObjectKey>,
    /// True if those left must be read alone.
    needs_own_read: bool,
}

impl Reading<'_> {
    /// The read of an object has ended with [`Context::end_read`].
    pub(super) fn ended(&mut self, key: &ObjectKey) {
        if self.open.remove(key)
            && let Some(memory) = self.context.memory.lock().get_mut(key)
        {
            memory.in_read = false;
        }
    }

    /// Those left need more than a read together with others.
    pub(super) fn need_own_reads(&mut self) {
        self.needs_own_read = true;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut all = self.context.memory.lock();
        for key in &self.open {
            if let Some(memory) = all.get_mut(key) {
                memory.changes.invalidate();
                memory.in_read = false;
                memory.needs_own_read |= self.needs_own_read;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn corrections_of_one_object_are_bounded() {
        let begin = Instant::now();
        let allowed = |writes: &mut Corrections, live: &str, seconds| {
            let at = begin + Duration::from_secs(seconds);
            (0..100).filter(|_| writes.may_correct(Some(live), at)).count()
        };
        let mut writes = Corrections::default();
        assert_eq!(allowed(&mut writes, "1", 0), 100, "the operator has written nothing yet");
        writes.made = Some("2".to_owned());
        assert_eq!(allowed(&mut writes, "2", 0), 100, "no other client has written");
        assert_eq!(allowed(&mut writes, "3", 0), MOST_WRITES);
        assert_eq!((allowed(&mut writes, "3", 59), allowed(&mut writes, "2", 59)), (0, 100));
        assert_eq!(allowed(&mut writes, "3", 60), MOST_WRITES);
        writes.altered = true;
        assert_eq!(
            allowed(&mut writes, "2", 120),
            MOST_WRITES,
            "the operator's own write is another one as soon as it is stored"
        );
    }

    #[test]
    fn a_report_that_arrives_during_a_read_overtakes_it() {
        let mut reports = EnsembleMemory::default();
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

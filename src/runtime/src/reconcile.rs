//! The reconcile shell of operator and agent: it calls a [`Reconciler`] for every object of one kind.
//!
//! Each attempt is bounded in time, and a panic in it does not affect other objects. After failures in a row, the time until
//! the next attempt doubles up to a limit, for each object separately.

mod metrics;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        controller::{Action, Config, Controller},
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event},
    },
};
use parking_lot::Mutex;
use tracing::{Instrument as _, debug, error, field, info, info_span, warn};

pub use self::metrics::Metrics;
use crate::{election::Leadership, failure::Error, jitter::jittered, panics::caught, traces::SPANS, watch};

/// The shortest and the longest time between two attempts after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// The longest time until the next attempt after a conflict.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
/// The longest time until the next attempt while a renewal of the Lease is late.
const AFTER_LAPSE: Duration = Duration::from_secs(1);
/// How long conflicts are no failure: each of them shows that another client writes. One of them must end.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(10);
/// How long an overloaded API server is no failure of an object: each report would be one more write, and another one would
/// remove it.
const OVERLOAD_PATIENCE: Duration = Duration::from_secs(60);
/// Longest text of a failure, in characters.
const MAX_FAILURE: usize = 500;

/// Namespace and name of an object.
pub type ObjectKey = (String, String);

/// One attempt to reconcile an object.
pub struct Attempt<'a> {
    /// The object as [`Reconciler::watch`] saw it last.
    pub object: &'a DynamicObject,
    /// Namespace and name of the object.
    pub key: &'a ObjectKey,
    /// Message of the last failure. Present after at least two failures in a row: the attempt after a single one may
    /// succeed. If the API server is overloaded, absent for the first minute.
    pub failure: Option<String>,
    /// True if the last attempt failed.
    pub retried: bool,
    /// How long all attempts have failed.
    pub failing_for: Duration,
    /// Number of the term in which this process acts; `None` without an election.
    pub term: Option<i32>,
}

/// Reconciles the objects of one kind.
pub trait Reconciler: Send + Sync + 'static {
    /// A longer attempt is cancelled and tried again.
    const ATTEMPT_TIMEOUT: Duration;
    /// Objects that are reconciled at once.
    const CONCURRENCY: u16 = 8;

    /// The kind, without its type: one object that does not parse must not stall the watch of all.
    fn resource() -> ApiResource;

    /// Watches all objects. What it yields stays in memory.
    #[must_use]
    fn watch(client: Client) -> BoxStream<'static, Event<DynamicObject>> {
        watch::events(Api::all_with(client, &Self::resource()), watcher::Config::default())
    }

    /// Counters of the shell.
    fn metrics(&self) -> &Metrics;

    /// Reconciles one object.
    fn reconcile(&self, attempt: Attempt<'_>) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// Failures in a row of one object.
#[derive(Debug)]
struct Failures {
    /// Without the conflicts that are none yet.
    count: u32,
    last: String,
    since: Instant,
    /// Since when there have been only conflicts.
    only_conflicts_since: Option<Instant>,
    /// True if the API server was overloaded in the last one.
    overload: bool,
}

impl Failures {
    fn none() -> Self {
        Self { count: 0, last: String::new(), since: Instant::now(), only_conflicts_since: None, overload: false }
    }

    /// Adds a failure. False if it is none: a conflict, unless there have been only conflicts for a while.
    fn put(&mut self, error: &Error, now: Instant) -> bool {
        if error.is_conflict() {
            let since = *self.only_conflicts_since.get_or_insert(now);
            if now.saturating_duration_since(since) < CONFLICT_PATIENCE {
                return false;
            }
        } else if !error.is_overload() {
            // A busy API server answers late, and between two such answers another client may write.
            self.only_conflicts_since = None;
        }
        self.count = self.count.saturating_add(1);
        self.last = error.to_string().chars().take(MAX_FAILURE).collect();
        self.overload = error.is_overload();
        true
    }

    /// Message for the user.
    fn message(&self, now: Instant) -> Option<&str> {
        let lasts = !self.overload || now.saturating_duration_since(self.since) >= OVERLOAD_PATIENCE;
        (self.count > 1 && lasts).then_some(&self.last)
    }
}

struct Shell<R> {
    reconciler: Arc<R>,
    leadership: Leadership,
    failures: Mutex<HashMap<ObjectKey, Failures>>,
}

impl<R: Reconciler> Shell<R> {
    /// Message of the last failure for the user, and since when there have been failures.
    fn failure(&self, key: &ObjectKey) -> (Option<String>, Option<Instant>) {
        let all = self.failures.lock();
        let failures = all.get(key).filter(|failures| failures.count > 0);
        let message = failures.and_then(|failures| failures.message(Instant::now())).map(str::to_owned);
        (message, failures.map(|failures| failures.since))
    }
}

/// Time until the next attempt if a failure is over but the status still reports it.
#[must_use]
pub fn shortly() -> Duration {
    backoff(0)
}

/// Reconciles every object of the reconciler's kind until `shutdown` resolves. `triggers` makes a stream of further objects
/// to reconcile, from the store of all objects. `ready` is called once all objects are listed. A process that may not act
/// watches alike, and reconciles nothing: when its term begins, it reconciles every object.
///
/// Failures are retried, each object for itself.
pub async fn run<R: Reconciler, T: Stream<Item = ObjectRef<DynamicObject>> + Send + 'static>(
    client: Client,
    reconciler: Arc<R>,
    leadership: Leadership,
    triggers: impl FnOnce(Store<DynamicObject>) -> T,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let writer = reflector::store::Writer::new(R::resource());
    let store = writer.as_reader();
    let changed = R::watch(client).map(Ok::<_, watcher::Error>).reflect(writer).applied_objects();
    let controller = Controller::for_stream_with(changed, store.clone(), R::resource());
    let triggers = futures::stream::select(
        triggers(store.clone()),
        at_begin_of_term(leadership.clone(), store.clone(), R::resource()),
    );
    let listed = async move {
        if store.wait_until_ready().await.is_ok() {
            info!(kind = R::resource().kind, "All objects are listed");
            ready();
        }
    };
    let running = controller
        .with_config(Config::default().concurrency(R::CONCURRENCY))
        .reconcile_on(triggers)
        .graceful_shutdown_on(shutdown)
        .run(attempt::<R>, after_failure::<R>, Arc::new(Shell { reconciler, leadership, failures: Mutex::default() }))
        .for_each(|result| async move {
            if let Err(error) = result {
                debug!(%error, "Attempt failed, or its object is gone");
            }
        });
    // The listing ends by itself; the service ends with the reconciles.
    let mut listed = Box::pin(listed.fuse());
    let mut running = Box::pin(running.fuse());
    futures::select! {
        () = listed => running.await,
        () = running => {}
    }
}

/// Every object, each time a term of this process begins.
fn at_begin_of_term(
    leadership: Leadership,
    store: Store<DynamicObject>,
    resource: ApiResource,
) -> impl Stream<Item = ObjectRef<DynamicObject>> + Send {
    let terms = futures::stream::unfold((leadership, None), |(leadership, before)| async move {
        let term = leadership.begins(before).await;
        Some(((), (leadership, Some(term))))
    });
    terms.flat_map(move |()| {
        let objects = store.state();
        let resource = resource.clone();
        futures::stream::iter(objects.into_iter().map(move |o| ObjectRef::from_obj_with(o.as_ref(), resource.clone())))
    })
}

/// Namespace and name of an object.
#[must_use]
pub fn key(object: &DynamicObject) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

async fn attempt<R: Reconciler>(object: Arc<DynamicObject>, shell: Arc<Shell<R>>) -> Result<Action, Error> {
    let key = key(&object);
    let Some(term) = shell.leadership.term() else { return Ok(later(&shell.leadership)) };
    let ((failure, since), begin) = (shell.failure(&key), Instant::now());
    let (retried, failing_for) = (since.is_some(), since.map_or(Duration::ZERO, |since| begin.duration_since(since)));
    let term_number = shell.leadership.is_elected().then_some(term);
    let attempt = Attempt { object: &object, key: &key, failure, retried, failing_for, term: term_number };
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let span = info_span!(
        target: SPANS, parent: None, "reconcile", kind = R::resource().kind, namespace, name, result = field::Empty,
        otel.status_code = field::Empty
    );
    let result = tokio::select! {
        biased;
        () = shell.leadership.ended(term) => return Ok(later(&shell.leadership)),
        result = bounded(R::ATTEMPT_TIMEOUT, shell.reconciler.reconcile(attempt)).instrument(span.clone()) => result,
    };
    let label = match &result {
        Ok(_) => "ok",
        Err(error) => error.category(),
    };
    span.record("result", label).record("otel.status_code", if result.is_ok() { "OK" } else { "ERROR" });
    shell.reconciler.metrics().reconciled(label, begin.elapsed());
    if result.is_ok() {
        shell.failures.lock().remove(&key);
    }
    result
}

/// When to try again what this process may not do now. The begin of another term reconciles every object, and the same term may
/// continue without one.
fn later(leadership: &Leadership) -> Action {
    if leadership.may_continue() { Action::requeue(jittered(AFTER_LAPSE)) } else { Action::await_change() }
}

#[allow(clippy::needless_pass_by_value)] // kube's signature
fn after_failure<R: Reconciler>(object: Arc<DynamicObject>, error: &Error, shell: Arc<Shell<R>>) -> Action {
    let key = key(&object);
    let (namespace, name) = (&key.0, &key.1);
    let mut all = shell.failures.lock();
    let failures = all.entry(key.clone()).or_insert_with(Failures::none);
    if !failures.put(error, Instant::now()) {
        // Another client wrote first: the next attempt reads its change.
        debug!(namespace, name, %error, "Reconcile met a conflict");
        return Action::requeue(if failures.count == 0 { jittered(AFTER_CONFLICT) } else { backoff(1) });
    }
    if matches!(error, Error::Panic(_)) {
        error!(namespace, name, %error, "Reconcile panicked");
    } else {
        warn!(namespace, name, %error, attempts = failures.count, "Reconcile failed");
    }
    Action::requeue(backoff(failures.count))
}

/// Runs an attempt for at most this long, and catches its panic.
async fn bounded<T>(limit: Duration, attempt: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match Box::pin(tokio::time::timeout(limit, caught(attempt))).await {
        Err(_) => Err(Error::Timeout(limit)),
        Ok(Err(panic)) => Err(Error::Panic(panic)),
        Ok(Ok(result)) => result,
    }
}

/// Time until the next attempt after this number of failures in a row: it doubles each time, within [`BACKOFF`], with
/// jitter.
fn backoff(failures: u32) -> Duration {
    let (shortest, longest) = BACKOFF;
    jittered(shortest.saturating_mul(1 << failures.min(10)).min(longest))
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attempt_is_bounded_and_its_panic_reported() {
        let long = Duration::from_secs(60);
        assert!(matches!(bounded(long, async { Ok(7) }).await, Ok(7)));
        let endless = bounded(Duration::from_millis(1), std::future::pending::<Result<(), Error>>());
        assert!(matches!(endless.await, Err(Error::Timeout(_))));
        let reported = |result: Result<(), Error>, expected: &str| {
            assert!(matches!(&result, Err(Error::Panic(text)) if text == expected), "{result:?}");
        };
        reported(bounded(long, async { panic!("a defect") }).await, "a defect");
        reported(bounded(long, async { panic!("defect {}", 7) }).await, "defect 7");
    }

    #[test]
    fn an_overloaded_api_server_is_reported_after_a_minute() {
        let mut failures = Failures::none();
        let timeout = Error::Timeout(Duration::from_secs(60));
        let now = Instant::now();
        failures.put(&timeout, now);
        failures.put(&timeout, now);
        assert_eq!(failures.message(now), None);
        assert!(failures.message(now + OVERLOAD_PATIENCE).is_some());
        failures.put(&Error::Panic("a defect".to_owned()), now);
        assert_eq!(failures.message(now), Some("a defect: a defect"));
    }

    struct Nothing(Metrics);

    impl Reconciler for Nothing {
        const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

        fn resource() -> ApiResource {
            ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&())
        }

        fn metrics(&self) -> &Metrics {
            &self.0
        }

        async fn reconcile(&self, _: Attempt<'_>) -> Result<Action, Error> {
            Ok(Action::requeue(Duration::from_secs(300)))
        }
    }

    /// The API server accepted a renewal in time, and answered late. The term goes on, so no other one begins: without another
    /// attempt an ensemble stood still, and nothing said why.
    #[tokio::test]
    async fn an_object_is_tried_again_if_a_renewal_is_late() {
        let (published, term) = tokio::sync::watch::channel(None);
        let leadership = Leadership::new(term, tokio::sync::watch::Sender::new(0));
        let reconciler = Arc::new(Nothing(Metrics::new(&mut prometheus_client::registry::Registry::default(), "x")));
        let shell = Arc::new(Shell { reconciler, leadership, failures: Mutex::default() });
        let object = || Arc::new(DynamicObject::new("zk", &Nothing::resource()).within("n"));
        let action = || async { attempt(object(), Arc::clone(&shell)).await.ok() };
        assert_eq!(action().await, Some(Action::await_change()), "another process holds the Lease");
        let until = |end| Some(crate::election::Term { number: 1, end: Some(end) });
        published.send_replace(until(Instant::now()));
        let again = action().await;
        assert!(again.is_some() && again != Some(Action::await_change()), "{again:?}");
        published.send_replace(until(Instant::now() + Duration::from_secs(60)));
        assert_eq!(action().await, Some(Action::requeue(Duration::from_secs(300))));
    }

    fn conflict() -> Error {
        let status = kube::core::Status { code: 409, message: "already exists".to_owned(), ..Default::default() };
        let source = kube::Error::Api(Box::new(status));
        Error::Api { action: "creating Secret x".to_owned(), source }
    }

    /// A refusal that lasts stays in the status while other clients write. The time until the next attempt does not grow by
    /// them.
    #[test]
    fn a_conflict_after_an_hour_of_refusals_is_no_failure() {
        let mut failures = Failures::none();
        let refusal = Error::Other { category: "refused", message: "no more of these".to_owned() };
        let late = failures.since + Duration::from_secs(3600);
        for _ in 0..3 {
            assert!(failures.put(&refusal, late));
            assert!(!failures.put(&conflict(), late));
        }
        assert_eq!((failures.count, failures.message(late)), (3, Some("no more of these")));
    }

    /// An object that exists, and that no list shows, is a conflict each time.
    #[test]
    fn conflicts_without_an_end_are_reported() {
        let conflict = conflict();
        let mut failures = Failures::none();
        let begin = failures.since;
        for milliseconds in [0, 50, 9_900] {
            assert!(!failures.put(&conflict, begin + Duration::from_millis(milliseconds)), "the next attempt reads");
            assert_eq!(failures.message(begin), None);
        }
        let late = begin + CONFLICT_PATIENCE;
        assert!(failures.put(&conflict, late) && failures.put(&conflict, late));
        assert!(
            failures
                .message(late)
                .is_some_and(|message| message.contains("creating Secret x: ApiError: already exists"))
        );
    }

    #[test]
    fn the_time_between_attempts_doubles_up_to_a_limit() {
        for (failures, longest) in [(0, 200), (1, 400), (3, 1600), (9, 60_000), (u32::MAX, 60_000)] {
            let longest = Duration::from_millis(longest);
            let wait = backoff(failures);
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?} after {failures}");
        }
    }
}

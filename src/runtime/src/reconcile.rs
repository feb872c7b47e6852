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

/// Objects that are reconciled at once.
const CONCURRENCY: u16 = 8;
/// The shortest and the longest time between two attempts after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// The longest time until the next attempt after a conflict.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
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
    /// Number of the term in which this process acts; `None` without an election.
    pub term: Option<i32>,
}

/// Reconciles the objects of one kind.
pub trait Reconciler: Send + Sync + 'static {
    /// A longer attempt is cancelled and tried again.
    const ATTEMPT_TIMEOUT: Duration;

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
    count: u32,
    last: String,
    since: Instant,
    /// True if the API server was overloaded in the last one.
    overload: bool,
}

impl Failures {
    fn none() -> Self {
        Self { count: 0, last: String::new(), since: Instant::now(), overload: false }
    }

    fn put(&mut self, error: &Error) {
        self.count = self.count.saturating_add(1);
        self.last = error.to_string().chars().take(MAX_FAILURE).collect();
        self.overload = error.is_overload();
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
    /// Message of the last failure for the user, and whether there was one.
    fn failure(&self, key: &ObjectKey) -> (Option<String>, bool) {
        let all = self.failures.lock();
        let failures = all.get(key);
        (failures.and_then(|failures| failures.message(Instant::now())).map(str::to_owned), failures.is_some())
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
        .with_config(Config::default().concurrency(CONCURRENCY))
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
    let Some(term) = shell.leadership.term() else { return Ok(Action::await_change()) };
    let ((failure, retried), begin) = (shell.failure(&key), Instant::now());
    let term_number = shell.leadership.is_elected().then_some(term);
    let attempt = Attempt { object: &object, key: &key, failure, retried, term: term_number };
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let span = info_span!(
        target: SPANS, parent: None, "reconcile", kind = R::resource().kind, namespace, name, result = field::Empty,
        otel.status_code = field::Empty
    );
    let result = tokio::select! {
        biased;
        // Its begin reconciles every object.
        () = shell.leadership.ended(term) => return Ok(Action::await_change()),
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

#[allow(clippy::needless_pass_by_value)] // kube's signature
fn after_failure<R: Reconciler>(object: Arc<DynamicObject>, error: &Error, shell: Arc<Shell<R>>) -> Action {
    let key = key(&object);
    let (namespace, name) = (&key.0, &key.1);
    if error.is_conflict() {
        // Another client wrote first. This is not a failure: the next attempt reads its change.
        debug!(namespace, name, %error, "Reconcile met a conflict");
        return Action::requeue(jittered(AFTER_CONFLICT));
    }
    let mut all = shell.failures.lock();
    let failures = all.entry(key.clone()).or_insert_with(Failures::none);
    failures.put(error);
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
        failures.put(&timeout);
        failures.put(&timeout);
        let now = Instant::now();
        assert_eq!(failures.message(now), None);
        assert!(failures.message(now + OVERLOAD_PATIENCE).is_some());
        failures.put(&Error::Panic("a defect".to_owned()));
        assert_eq!(failures.message(now), Some("a defect: a defect"));
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

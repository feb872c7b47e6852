//! The shell around [`crate::rollout`]: it observes, asks for a plan, applies it and reports.
//!
//! [`watches`] tells which object to look at, [`observe`] reads everything that a decision rests on, live, and never from a
//! cache; [`apply`] writes what differs, [`report`] the status; [`events`] publishes what people hear. The rules are in
//! [`crate::rollout::plan`].

mod apply;
mod certificates;
mod events;
mod observe;
mod report;
mod watches;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        controller::{Action, Config, Controller},
        events::Reporter,
        reflector::ObjectRef,
        watcher,
    },
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tracing::{debug, error, info, warn};

use crate::{
    api::MultiClusterZooKeeper,
    rollout::plan::{self, Finalizer},
    runtime::reconcile::{self, Cut, jittered},
};

/// Field manager of everything that the controller writes.
pub const FIELD_MANAGER: &str = "mczk";
/// Objects that are reconciled at once.
const CONCURRENCY: u16 = 8;
/// Seconds between two attempts, while an object is being deleted: Karmada's Works are not watched.
const TEARDOWN_PACE: Duration = Duration::from_secs(1);
/// How often an object is looked at when nothing happens. It costs reads only.
const PACE_AT_REST: Duration = Duration::from_secs(300);
/// The shortest and the longest time between two attempts after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// A reconcile that takes longer is given up and tried again.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the API server keeps a watch, in seconds: below the idle time-outs that proxies are known for.
const WATCH_TIMEOUT_SECONDS: u32 = 200;

/// What the controller needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Image of mczk itself, for reports.
    pub server_image: String,
}

/// Why a reconcile did not end well. [`Error::category`] is the bounded label for metrics.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("{action}: {source}")]
    Api {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// Something that was read or is to be written has no JSON.
    #[error("{action}: {source}")]
    Json {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: serde_json::Error,
    },
    /// A Secret with certificates cannot be made.
    #[error("{action}: {source}")]
    Certificate {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: crate::runtime::pki::Error,
    },
    /// The attempt took too long.
    #[error("the attempt took longer than {} s", ATTEMPT_TIMEOUT.as_secs())]
    Timeout,
    /// A defect: the attempt panicked. Other objects go on.
    #[error("a defect: {0}")]
    Panic(String),
}

impl Error {
    /// A word out of a few, for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if reconcile::is_conflict(source) => "conflict",
            Self::Api { source: kube::Error::Api(_), .. } => "api",
            Self::Api { .. } => "connection",
            Self::Json { .. } => "json",
            Self::Certificate { .. } => "certificate",
            Self::Timeout => "timeout",
            Self::Panic(_) => "panic",
        }
    }

    fn is_conflict(&self) -> bool {
        self.category() == "conflict"
    }
}

/// Turns the client's errors into ours, with what was tried.
trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for kube::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Api { action: action(), source })
    }
}

impl<T> During<T> for serde_json::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Json { action: action(), source })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    kind: &'static str,
    verb: &'static str,
}

/// What the controller counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ResultLabel, Counter>,
    writes: Family<WriteLabel, Counter>,
    transition: Histogram,
}

impl Metrics {
    /// Registers everything that the controller counts.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            writes: Family::default(),
            transition: Histogram::new([
                0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
            ]),
        };
        registry.register("mczk_reconciles", "Reconciles by result", metrics.reconciles.clone());
        registry.register("mczk_writes", "Objects written, by kind and verb", metrics.writes.clone());
        registry.register_with_unit(
            "mczk_cluster_transition",
            "From the watch event of a member's report to the answer of the API server to the OverridePolicy that begins the next cluster",
            Unit::Seconds,
            metrics.transition.clone(),
        );
        metrics
    }

    fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { kind, verb }).inc();
    }
}

type Key = ObjectRef<DynamicObject>;

/// What is remembered between reconciles: nothing that a decision needs.
struct Context {
    client: Client,
    options: Options,
    metrics: Metrics,
    events: events::Queue,
    clusters: watches::Clusters,
    memory: Mutex<HashMap<(String, String), Memory>>,
}

/// What is remembered of one object.
#[derive(Debug, Default)]
struct Memory {
    /// Attempts that failed in a row.
    failures: u32,
    /// What the last failure said, for the status.
    failure: Option<String>,
    /// When the oldest report came that was not looked at yet.
    reported: Option<Instant>,
    /// Version of the binding that the watch saw last.
    newest: Option<u64>,
}

impl Memory {
    /// A report came.
    fn report(&mut self, version: Option<u64>) {
        self.reported.get_or_insert_with(Instant::now);
        self.newest = version.or(self.newest);
    }

    /// Whether a report came that this version of the binding does not hold yet.
    fn overtakes(&self, read: Option<u64>) -> bool {
        self.reported.is_some() && self.newest > read
    }
}

impl Context {
    fn memory(&self) -> MutexGuard<'_, HashMap<(String, String), Memory>> {
        // A panic while it was held leaves counters behind and nothing that could be half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was read holds the newest report that the watch told of. Then `reported` is the time of the oldest
    /// report that is decided upon.
    fn holds_newest(&self, key: &(String, String), read: &observe::Outcome, reported: &mut Option<Instant>) -> bool {
        let observe::Outcome::Observed(observed) = read else { return true };
        let version = observed.binding.as_ref().and_then(|b| watches::version(&b.metadata));
        match self.memory().get_mut(key) {
            Some(memory) if memory.overtakes(version) => false,
            Some(memory) => {
                *reported = memory.reported.take().into_iter().chain(*reported).min();
                true
            }
            None => true,
        }
    }
}

/// How the custom kind is reached without its type: one object that does not parse must not stall the watch of all.
fn resource() -> ApiResource {
    ApiResource::erase::<MultiClusterZooKeeper>(&())
}

fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS)
}

/// Reconciles every MultiClusterZooKeeper until `shutdown` resolves. `ready` is called once all of them were listed.
///
/// # Errors
/// Never while it runs: failures are retried, each object for itself. An error means that it cannot run at all.
pub async fn run(
    client: Client,
    options: Options,
    metrics: Metrics,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) -> Result<(), Error> {
    let reporter = Reporter { controller: "mczk".to_owned(), instance: std::env::var("HOSTNAME").ok() };
    let (events, publishing) = events::start(client.clone(), reporter);
    let context = Arc::new(Context {
        events,
        clusters: watches::Clusters::default(),
        memory: Mutex::default(),
        client: client.clone(),
        options,
        metrics,
    });
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let controller = Controller::new_with(api, watch_config(), resource());
    let store = controller.store();
    let triggers = watches::triggers(&client, &context, store.clone());
    let listed = async move {
        if store.wait_until_ready().await.is_ok() {
            info!("controller is ready");
            ready();
        }
    };
    let reconciles = controller
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(triggers)
        .graceful_shutdown_on(shutdown)
        .run(attempt, after_failure, Arc::clone(&context))
        .for_each(|result| async move {
            if let Err(error) = result {
                debug!(%error, "watch");
            }
        });
    // The listing ends by itself; only the reconciles' end is the end.
    let mut listed = Box::pin(listed.fuse());
    let mut reconciles = Box::pin(reconciles.fuse());
    futures::select! {
        () = listed => reconciles.await,
        () = reconciles => {}
    }
    context.events.end(publishing).await;
    Ok(())
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// One attempt, with its panics caught and its time bounded.
async fn attempt(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let key = key(&object);
    let result = match reconcile::bounded(ATTEMPT_TIMEOUT, reconcile(&object, &key.0, &key.1, &context)).await {
        Err(Cut::Timeout) => Err(Error::Timeout),
        Err(Cut::Panic(message)) => Err(Error::Panic(message)),
        Ok(result) => result,
    };
    let label = match &result {
        Ok(_) => "ok",
        Err(error) => error.category(),
    };
    context.metrics.reconciles.get_or_create(&ResultLabel { result: label }).inc();
    if result.is_ok()
        && let Some(memory) = context.memory().get_mut(&key)
    {
        memory.failures = 0;
        memory.failure = None;
    }
    result
}

#[allow(clippy::needless_pass_by_value)] // kube's signature
fn after_failure(object: Arc<DynamicObject>, error: &Error, context: Arc<Context>) -> Action {
    let key = key(&object);
    let mut all = context.memory();
    let memory = all.entry(key.clone()).or_default();
    if error.is_conflict() {
        // Somebody else wrote meanwhile: look again at once, it is no failure.
        debug!(namespace = key.0, name = key.1, %error, "changed meanwhile");
        return Action::requeue(jittered(Duration::from_millis(50)));
    }
    memory.failures = memory.failures.saturating_add(1);
    memory.failure = Some(error.to_string().chars().take(500).collect());
    let wait = reconcile::backoff(BACKOFF, memory.failures);
    if matches!(error, Error::Panic(_)) {
        error!(namespace = key.0, name = key.1, %error, "reconcile");
    } else {
        warn!(namespace = key.0, name = key.1, %error, attempts = memory.failures, "reconcile");
    }
    Action::requeue(wait)
}

/// The loop: observe, plan, report, apply.
async fn reconcile(seen: &DynamicObject, namespace: &str, name: &str, context: &Context) -> Result<Action, Error> {
    context.clusters.listed().await;
    let key = (namespace.to_owned(), name.to_owned());
    let (mut reported, failure) = {
        let mut all = context.memory();
        let memory = all.entry(key.clone()).or_default();
        // One failure is no news: the next attempt may find everything as it should be.
        (memory.reported.take(), memory.failure.clone().filter(|_| memory.failures > 1))
    };
    let told = failure.is_some();
    match Box::pin(decide_and_do(seen, namespace, name, failure, &mut reported, context)).await {
        // A failure that was just told is over: look again, so that it is not told for ever.
        Ok(_) if told => Ok(Action::requeue(jittered(BACKOFF.0))),
        Ok(action) => Ok(action),
        Err(error) => {
            if let Some(memory) = context.memory().get_mut(&key) {
                // The report was not acted upon: its age goes on counting.
                memory.reported = match (memory.reported, reported) {
                    (Some(newer), Some(older)) => Some(newer.min(older)),
                    (newer, older) => older.or(newer),
                };
            }
            Err(error)
        }
    }
}

/// Reads everything, and once more if a report came meanwhile: what an older one leads to would only be in its way. No
/// oftener, so that one that reports without end does not keep us from deciding.
async fn look(
    seen: &DynamicObject,
    key: &(String, String),
    failure: Option<String>,
    reported: &mut Option<Instant>,
    context: &Context,
) -> Result<observe::Outcome, Error> {
    let mut outcome = observe::observe(seen, &key.0, &key.1, context, failure.clone()).await?;
    if !context.holds_newest(key, &outcome, reported) {
        outcome = observe::observe(seen, &key.0, &key.1, context, failure).await?;
        context.holds_newest(key, &outcome, reported);
    }
    Ok(outcome)
}

async fn decide_and_do(
    seen: &DynamicObject,
    namespace: &str,
    name: &str,
    failure: Option<String>,
    reported: &mut Option<Instant>,
    context: &Context,
) -> Result<Action, Error> {
    let begun = Instant::now();
    let key = (namespace.to_owned(), name.to_owned());
    let observed = match look(seen, &key, failure, reported, context).await? {
        observe::Outcome::Gone => {
            context.memory().remove(&key);
            return Ok(Action::await_change());
        }
        observe::Outcome::Unreadable(object, error) => {
            report::unreadable(&object, &error, context).await?;
            return Ok(Action::await_change());
        }
        observe::Outcome::Observed(observed) => observed,
    };
    let read = Instant::now();
    let plan = plan::plan(&observed, Timestamp::now());
    if apply::finalizer(&observed, plan.finalizer, context).await? {
        if plan.finalizer == Finalizer::Remove {
            context.memory().remove(&key);
        }
        return Ok(Action::await_change());
    }
    let planned = Instant::now();
    // The status first: what a record says has begun is remembered before it begins.
    report::status(&observed, &plan, context).await?;
    let told = Instant::now();
    apply::apply(&observed, &plan, *reported, context).await?;
    debug!(
        namespace,
        name,
        waited = ?reported.map(|at| begun.saturating_duration_since(at)),
        observe = ?(read - begun),
        plan = ?(planned - read),
        status = ?(told - planned),
        apply = ?told.elapsed(),
        "reconciled"
    );
    report::events(&observed, &plan, context);
    Ok(if observed.object.metadata.deletion_timestamp.is_some() {
        Action::requeue(TEARDOWN_PACE)
    } else {
        // A watch may miss what was deleted while it was away: look now and then.
        Action::requeue(plan.requeue_after.unwrap_or_else(|| jittered(PACE_AT_REST)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_comes_while_others_are_read_overtakes_them() {
        let mut memory = Memory::default();
        assert!(!memory.overtakes(None) && !memory.overtakes(Some(7)), "nothing was reported");
        memory.report(Some(8));
        assert!(memory.overtakes(Some(7)));
        assert!(!memory.overtakes(Some(8)) && !memory.overtakes(Some(9)));
        // The binding went: what was read may have it still.
        assert!(memory.overtakes(None));
        // Another one, of an API server that counts anew, or does not count.
        memory.report(Some(3));
        assert!(!memory.overtakes(Some(4)));
        memory.report(None);
        assert!(!memory.overtakes(Some(4)));
        memory.reported = None;
        assert!(!memory.overtakes(Some(1)), "it was decided upon");
    }
}

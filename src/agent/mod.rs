//! The shell around [`super::decide`]: it observes, asks for a decision, applies it, reports, and acts on servers.
//!
//! [`observe`] reads everything that a decision rests on, live; [`apply`] writes what differs and removes what is over;
//! [`act`] asks servers for steps and takes pods out; [`report`] writes the status. What is remembered between two looks
//! is when something began, and nothing that a decision could go wrong by.

mod act;
mod apply;
mod certificates;
pub mod control_client;
pub mod decide;
mod observe;
pub mod render;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        controller::{Action, Config, Controller},
        reflector::ObjectRef,
        watcher,
    },
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tracing::{debug, error, info, warn};

use crate::{
    agent::{control_client::Dial, render::Kind},
    api::{ZooKeeper, tls::EnsembleTls},
    contract::{
        labels::{ENSEMBLE_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL},
        pod_layout,
    },
    runtime::{
        reconcile::{self, Cut, is_conflict, jittered},
        telemetry::register_family,
    },
};

/// Field manager of everything that the agent writes.
pub const FIELD_MANAGER: &str = "mczk-agent";
/// Objects that are looked at at once.
const CONCURRENCY: u16 = 8;
/// The shortest and the longest time between two attempts after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// A look that takes longer is given up and tried again.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the API server keeps a watch, in seconds: below the idle time-outs that proxies are known for.
const WATCH_TIMEOUT_SECONDS: u32 = 200;

/// What the agent needs to know.
#[derive(Clone)]
pub struct Options {
    /// Karmada's name of this cluster, where Karmada's own annotation does not tell it.
    pub cluster: Option<String>,
    /// This very process, among all agents: two that share a name would share the turn.
    pub instance: String,
    /// How servers are reached.
    pub dial: Dial,
    /// How often servers are asked while nothing happens.
    pub at_rest: Duration,
    /// How often servers are asked while something is on its way.
    pub while_busy: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: None,
            instance: format!("{:08x}", rand::random::<u32>()),
            dial: control_client::dial(pod_layout::CONTROL_PORT),
            at_rest: Duration::from_secs(3),
            while_busy: Duration::from_secs(1),
        }
    }
}

/// Why a look did not end well. [`Error::category`] is the bounded label for metrics.
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
    /// A server could not be asked.
    #[error(transparent)]
    Server(#[from] control_client::Error),
    /// What the spec says cannot be rendered.
    #[error(transparent)]
    Render(#[from] render::Refused),
    /// The look took too long.
    #[error("the look took longer than {} s", ATTEMPT_TIMEOUT.as_secs())]
    Timeout,
    /// A defect: the look panicked. Other objects go on.
    #[error("a defect: {0}")]
    Panic(String),
}

impl Error {
    /// A word out of a few, for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if is_conflict(source) => "conflict",
            Self::Api { source: kube::Error::Api(_), .. } => "api",
            Self::Api { .. } => "connection",
            Self::Json { .. } => "json",
            Self::Server(_) => "server",
            Self::Render(_) => "render",
            Self::Timeout => "timeout",
            Self::Panic(_) => "panic",
        }
    }
}

/// Turns errors of libraries into ours, with what was tried.
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

/// What the agent counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    looks: Family<ResultLabel, Counter>,
    writes: Family<WriteLabel, Counter>,
    steps: Family<WriteLabel, Counter>,
}

impl Metrics {
    /// Registers everything that the agent counts.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { looks: Family::default(), writes: Family::default(), steps: Family::default() };
        register_family(registry, "mczk_agent_reconciles", "Looks at objects by result", metrics.looks.clone());
        register_family(registry, "mczk_agent_writes", "Objects written, by kind and verb", metrics.writes.clone());
        register_family(
            registry,
            "mczk_agent_steps",
            "What servers were asked to do, by kind and result",
            metrics.steps.clone(),
        );
        metrics
    }

    fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { kind, verb }).inc();
    }

    fn asked<T>(&self, kind: &'static str, result: &Result<T, control_client::Error>) {
        let verb = if result.is_ok() { "done" } else { "failed" };
        self.steps.get_or_create(&WriteLabel { kind, verb }).inc();
    }
}

struct Context {
    client: Client,
    options: Options,
    metrics: Metrics,
    memory: Mutex<HashMap<(String, String), Memory>>,
}

/// What is remembered of one object.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// The object: another one of that name has another memory.
    uid: String,
    /// Attempts that failed in a row.
    failures: u32,
    /// The newest epoch that the ensemble was seen to take from here, with the life of the ensemble.
    published: Option<(String, i64)>,
    /// Which step has been due, and since when.
    due: Option<(decide::membership::Action, Instant)>,
    /// Whether the last step was taken from here.
    stepped: bool,
    /// Since when the turn has been ours.
    turn: Option<Instant>,
    /// The server through which the turn was taken: it is confirmed and given back there.
    through: Option<String>,
    /// Since when servers have not served, by the pod's uid.
    silent: BTreeMap<String, Instant>,
    /// What stands where an object of ours should be.
    foreign: BTreeSet<String>,
    /// The certificates before which none is left here.
    cleared: Option<EnsembleTls>,
}

impl Context {
    fn all(&self) -> MutexGuard<'_, HashMap<(String, String), Memory>> {
        // A panic while it was held leaves counters behind and nothing that could be half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of this very object.
    fn memory(&self, key: &(String, String), uid: &str) -> Memory {
        let mut all = self.all();
        let memory = all.entry(key.clone()).or_default();
        if memory.uid != uid {
            *memory = Memory { uid: uid.to_owned(), failures: memory.failures, ..Memory::default() };
        }
        memory.clone()
    }

    fn remember(&self, key: &(String, String), change: impl FnOnce(&mut Memory)) {
        if let Some(memory) = self.all().get_mut(key) {
            change(memory);
        }
    }
}

/// How the kind is reached without its type: one object that does not parse must not stall the watch of all.
fn resource() -> ApiResource {
    ApiResource::erase::<ZooKeeper>(&())
}

/// An API of one kind in one namespace.
fn api(context: &Context, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.name()), kind.plural());
    Api::namespaced_with(context.client.clone(), namespace, &resource)
}

fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS)
}

/// Tends every ZooKeeper object of this cluster until `shutdown` resolves. `ready` is called once all of them were listed.
pub async fn run(
    client: Client,
    options: Options,
    metrics: Metrics,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let context = Arc::new(Context { client: client.clone(), options, metrics, memory: Mutex::default() });
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let controller = Controller::new_with(api, watch_config(), resource());
    let store = controller.store();
    let listed = async move {
        if store.wait_until_ready().await.is_ok() {
            info!("the agent is ready");
            ready();
        }
    };
    let triggers = futures::stream::select_all([
        owned(&client, &GroupVersionKind::gvk("", "v1", "Pod"), "pods"),
        owned(&client, &GroupVersionKind::gvk("apps", "v1", "StatefulSet"), "statefulsets"),
    ]);
    let looks = controller
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(triggers)
        .graceful_shutdown_on(shutdown)
        .run(attempt, after_failure, Arc::clone(&context))
        .for_each(|result| async move {
            if let Err(error) = result {
                debug!(%error, "watch");
            }
        });
    let mut listed = Box::pin(listed.fuse());
    let mut looks = Box::pin(looks.fuse());
    futures::select! {
        () = listed => looks.await,
        () = looks => {}
    }
}

/// What we wrote, as metadata only, as a stream of the objects to look at.
fn owned(
    client: &Client,
    kind: &GroupVersionKind,
    plural: &'static str,
) -> BoxStream<'static, ObjectRef<DynamicObject>> {
    let resource = ApiResource::from_gvk_with_plural(kind, plural);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
    watcher::watcher(api, watch_config().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}")))
        .default_backoff()
        .touched_objects()
        .filter_map(move |item| {
            let key = match item {
                Ok(object) => owner(&object),
                Err(error) => {
                    warn!(plural, %error, "watch");
                    None
                }
            };
            async move { key }
        })
        .boxed()
}

fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<ObjectRef<DynamicObject>> {
    let name = object.labels().get(ENSEMBLE_LABEL)?;
    Some(ObjectRef::new_with(name, resource()).within(&object.namespace()?))
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// One attempt, with its panics caught and its time bounded.
async fn attempt(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let key = key(&object);
    let result = match reconcile::bounded(ATTEMPT_TIMEOUT, look(&key, &context)).await {
        Err(Cut::Timeout) => Err(Error::Timeout),
        Err(Cut::Panic(message)) => Err(Error::Panic(message)),
        Ok(result) => result,
    };
    let label = match &result {
        Ok(_) => "ok",
        Err(error) => error.category(),
    };
    context.metrics.looks.get_or_create(&ResultLabel { result: label }).inc();
    if result.is_ok() {
        context.remember(&key, |memory| memory.failures = 0);
    }
    result
}

#[allow(clippy::needless_pass_by_value)] // kube's signature
fn after_failure(object: Arc<DynamicObject>, error: &Error, context: Arc<Context>) -> Action {
    let (namespace, name) = key(&object);
    if error.category() == "conflict" {
        debug!(namespace, name, %error, "changed meanwhile");
        return Action::requeue(jittered(Duration::from_millis(50)));
    }
    let mut all = context.all();
    let memory = all.entry((namespace.clone(), name.clone())).or_default();
    memory.failures = memory.failures.saturating_add(1);
    let wait = reconcile::backoff(BACKOFF, memory.failures);
    if matches!(error, Error::Panic(_)) {
        error!(namespace, name, %error, "look");
    } else {
        warn!(namespace, name, %error, attempts = memory.failures, "look");
    }
    Action::requeue(wait)
}

/// Observe, decide, apply, report, act.
async fn look(key: &(String, String), context: &Context) -> Result<Action, Error> {
    let seen = match observe::observe(key, context).await? {
        observe::Outcome::Gone => {
            context.all().remove(key);
            return Ok(Action::await_change());
        }
        observe::Outcome::Unreadable(object, why) => {
            report::unreadable(&object, &why, context).await?;
            return Ok(Action::await_change());
        }
        observe::Outcome::Seen(seen) => seen,
    };
    let decision = decide::decide(&seen.observed, Timestamp::now());
    context.remember(key, |memory| seen.note(memory, &decision));
    // The finalizer before the first server: an object must not go while it has some.
    if apply::finalizer(&seen, &decision, context).await? {
        return Ok(Action::requeue(Duration::ZERO));
    }
    let wrote = apply::apply(key, &seen, &decision, context).await?;
    let removed = apply::remove(&seen, &decision.remove, context).await?;
    if decision.remove_object {
        apply::remove_certificates(&seen, &decision, context).await?;
        apply::remove_object(&seen, context).await?;
        return Ok(Action::await_change());
    }
    report::status(&seen, &decision, context).await?;
    apply::remove_former(key, &seen, &decision, context).await?;
    let acted = act::act(key, &seen, &decision, context).await?;
    Ok(Action::requeue(jittered(if acted || wrote || removed {
        context.options.while_busy.min(Duration::from_millis(500))
    } else if decision.pace == decide::Requeue::Busy {
        context.options.while_busy
    } else {
        context.options.at_rest
    })))
}

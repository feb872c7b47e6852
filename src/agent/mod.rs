//! The agent of a member cluster: it reconciles every ZooKeeper object of its cluster.
//!
//! One reconcile runs three steps. [`observe`] reads everything that a decision depends on, live. [`decide`] decides; it
//! is pure. [`apply`] writes what differs, reports the status, asks servers for steps and deletes pods.

mod apply;
mod context;
pub mod control_client;
pub mod decide;
mod error;
mod metrics;
mod observe;
pub mod render;

use std::{sync::Arc, time::Duration};

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
use tracing::{debug, error, info, warn};

pub use context::Options;
pub use error::Error;
pub use metrics::Metrics;

use crate::{
    agent::{
        apply::{act, certificates, finalizer, objects, removal, status},
        context::{Context, resource},
        error::ATTEMPT_TIMEOUT,
    },
    contract::labels::{ENSEMBLE_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL},
    runtime::reconcile::{self, Cut, jittered},
};

/// Objects that are reconciled at once.
const CONCURRENCY: u16 = 8;
/// The shortest and the longest time between two attempts after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// The longest time until the next reconcile after the agent wrote anything.
const AFTER_WRITE: Duration = Duration::from_millis(500);
/// How long the API server keeps a watch, in seconds: shorter than the idle timeouts of common proxies.
const WATCH_TIMEOUT_SECONDS: u32 = 200;

fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS)
}

/// Reconciles every ZooKeeper object of this cluster until `shutdown` resolves. Calls `ready` after all were listed.
pub async fn run(
    client: Client,
    options: Options,
    metrics: Metrics,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let context = Arc::new(Context::new(client.clone(), options, metrics));
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
    let mut listed = Box::pin(listed.fuse());
    let mut reconciles = Box::pin(reconciles.fuse());
    futures::select! {
        () = listed => reconciles.await,
        () = reconciles => {}
    }
}

/// Changes of the agent's own objects, read as metadata only, as a stream of the objects to reconcile.
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

/// One reconcile, with its panics caught and its time bounded.
async fn attempt(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let key = key(&object);
    let result = match reconcile::bounded(ATTEMPT_TIMEOUT, reconcile(&key, &context)).await {
        Err(Cut::Timeout) => Err(Error::Timeout),
        Err(Cut::Panic(message)) => Err(Error::Panic(message)),
        Ok(result) => result,
    };
    let label = match &result {
        Ok(_) => "ok",
        Err(error) => error.category(),
    };
    context.metrics.reconciled(label);
    if result.is_ok() {
        context.remember(&key, |memory| memory.failures = 0);
    }
    result
}

#[allow(clippy::needless_pass_by_value)] // kube's signature
fn after_failure(object: Arc<DynamicObject>, error: &Error, context: Arc<Context>) -> Action {
    let (namespace, name) = key(&object);
    if error.category() == "conflict" {
        debug!(namespace, name, %error, "an object has changed since it was read");
        return Action::requeue(jittered(Duration::from_millis(50)));
    }
    let mut all = context.all();
    let memory = all.entry((namespace.clone(), name.clone())).or_default();
    memory.failures = memory.failures.saturating_add(1);
    let wait = reconcile::backoff(BACKOFF, memory.failures);
    if matches!(error, Error::Panic(_)) {
        error!(namespace, name, %error, "reconcile");
    } else {
        warn!(namespace, name, %error, attempts = memory.failures, "reconcile");
    }
    Action::requeue(wait)
}

/// Observe, decide, apply.
async fn reconcile(key: &(String, String), context: &Context) -> Result<Action, Error> {
    let snapshot = match observe::observe(key, context).await? {
        observe::Outcome::Gone => {
            context.all().remove(key);
            return Ok(Action::await_change());
        }
        observe::Outcome::Unreadable(object, why) => {
            status::write_unreadable(&object, &why, context).await?;
            return Ok(Action::await_change());
        }
        observe::Outcome::Observed(snapshot) => snapshot,
    };
    let decision = decide::decide(&snapshot.observation, Timestamp::now());
    context.remember(key, |memory| snapshot.record(memory, &decision));
    // The finalizer before the first server: an object with servers must not be deleted.
    if finalizer::write(&snapshot, &decision, context).await? {
        return Ok(Action::requeue(Duration::ZERO));
    }
    let wrote = objects::apply(key, &snapshot, &decision, context).await?;
    let removed = removal::remove(&snapshot, &decision.remove, context).await?;
    if decision.remove_object {
        certificates::remove_all(&snapshot, &decision, context).await?;
        finalizer::remove_object(&snapshot, context).await?;
        return Ok(Action::await_change());
    }
    status::write(&snapshot, &decision, context).await?;
    certificates::remove_former(key, &snapshot, &decision, context).await?;
    let acted = act::act(key, &snapshot, &decision, context).await?;
    Ok(Action::requeue(jittered(if acted || wrote || removed {
        context.options.while_busy.min(AFTER_WRITE)
    } else if decision.requeue == decide::Requeue::Busy {
        context.options.while_busy
    } else {
        context.options.at_rest
    })))
}

//! The agent of a member cluster: it reconciles every ZooKeeper object of its cluster.
//!
//! One reconcile runs three steps. [`observe`] reads everything that a decision depends on, live. [`mczk_rules::agent`]
//! decides, and builds the objects. [`apply`] writes what differs, reports the status, asks servers for steps and deletes pods.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

mod apply;
mod context;
pub mod control_client;
mod metrics;
mod observe;
mod write_history;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::{
        controller::Action,
        events::Reporter,
        reflector::ObjectRef,
        watcher::{self, Event},
    },
};
use tracing::warn;

pub use context::AgentOptions;
pub use metrics::Metrics;

use crate::{
    apply::{act, certificates, events, finalizer, objects, preflight, removal, status},
    context::{AgentContext, FIELD_MANAGER, resource},
    observe::{snapshot::MemberSnapshot, spare::REFUSED_ASKED_AGAIN},
};
use mczk_api::contract::labels::{ENSEMBLE_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL};
use mczk_rules::agent::decide::{Decision, Requeue, decide};
use mczk_runtime::{
    election::Leadership,
    event_queue,
    failure::Error,
    jitter::jittered,
    reconcile::{self, Attempt, ObjectKey, Reconciler},
    watch,
};

/// The longest time until the next reconcile after the agent wrote anything.
const AFTER_WRITE: Duration = Duration::from_millis(500);
/// How long the agent is refused what it needs before its status says so. Rights are missing for a moment while they change, and an
/// API server that elects a leader refuses too.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Reconciles every ZooKeeper object of this cluster until `shutdown` resolves. Calls `ready` after all were listed.
pub async fn run(
    client: Client,
    options: AgentOptions,
    metrics: Metrics,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let namespaces: Vec<Option<&str>> = match &options.namespaces {
        all if all.is_empty() => vec![None],
        some => some.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    let triggers = futures::stream::select_all(namespaces.into_iter().flat_map(|namespace| {
        [
            owned(&client, &GroupVersionKind::gvk("", "v1", "Pod"), "pods", namespace),
            owned(&client, &GroupVersionKind::gvk("apps", "v1", "StatefulSet"), "statefulsets", namespace),
        ]
    }));
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(options.instance.clone()) };
    let (events, publisher) = event_queue::start(client.clone(), reporter);
    let context = Arc::new(AgentContext::new(client.clone(), options, metrics, events));
    // An agent that loses its lease ends.
    let leadership = Leadership::without_election();
    reconcile::run(client, Arc::clone(&context), leadership, |_| triggers, ready, shutdown).await;
    context.events.end(publisher).await;
}

/// Changes of the agent's own objects in one namespace or in all, read as metadata only, as a stream of the objects to
/// reconcile.
fn owned(
    client: &Client,
    kind: &GroupVersionKind,
    plural: &'static str,
    namespace: Option<&str>,
) -> BoxStream<'static, ObjectRef<DynamicObject>> {
    let resource = ApiResource::from_gvk_with_plural(kind, plural);
    let api: Api<PartialObjectMeta<DynamicObject>> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    watch::events(api, watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}")))
        .filter_map(|event| {
            let key = match event {
                Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => owner(&object),
                Event::Init | Event::InitDone => None,
            };
            std::future::ready(key)
        })
        .boxed()
}

fn owner(object: &PartialObjectMeta<DynamicObject>) -> Option<ObjectRef<DynamicObject>> {
    let name = object.labels().get(ENSEMBLE_LABEL)?;
    Some(ObjectRef::new_with(name, resource()).within(&object.namespace()?))
}

impl Reconciler for AgentContext {
    const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(120);
    // While a cluster is lost, each attempt waits seconds for its servers. Those of other ensembles must not wait for it.
    const CONCURRENCY: u16 = 64;

    fn resource() -> ApiResource {
        resource()
    }

    fn metrics(&self) -> &reconcile::Metrics {
        &self.metrics.shell
    }

    async fn reconcile(&self, attempt: Attempt<'_>) -> Result<Action, Error> {
        reconcile_object(&attempt, self).await
    }
}

/// Observe, decide, apply.
async fn reconcile_object(attempt: &Attempt<'_>, context: &AgentContext) -> Result<Action, Error> {
    let key = attempt.key;
    if !context.options.handles(&key.0) {
        status::write_not_handled(key, context).await?;
        return Ok(Action::await_change());
    }
    let reported = report(key, context).await;
    // A refusal that lasts. Nothing else would say that the status is old.
    if let Err(error) = &reported
        && attempt.failing_for >= REFUSED_FOR
        && let Err(error) = status::write_halted(key, error, context).await
    {
        warn!(namespace = key.0, name = key.1, %error, "a refusal is not reported");
    }
    let Reported { snapshot, decision, wrote } = match reported? {
        ControlFlow::Continue(reported) => reported,
        ControlFlow::Break(action) => return Ok(action),
    };
    certificates::remove_former(key, &snapshot, &decision, context).await?;
    let acted = act::act(key, &snapshot, &decision, context).await?;
    context.remember(key, |memory| memory.writes.end_pass());
    Ok(Action::requeue(jittered(if acted || wrote {
        context.options.while_busy.min(AFTER_WRITE)
    } else if decision.requeue == Requeue::Busy {
        context.options.while_busy
    } else if snapshot.observation.object.spec.spare_of.is_some() {
        context.options.at_rest.max(REFUSED_ASKED_AGAIN)
    } else {
        context.options.at_rest
    })))
}

/// What the agent has observed, decided and reported.
struct Reported {
    snapshot: Box<MemberSnapshot>,
    decision: Decision,
    /// True if the agent wrote or removed an object.
    wrote: bool,
}

/// Observes, decides, writes objects and then the status. Breaks if nothing is left to do in this pass.
async fn report(key: &ObjectKey, context: &AgentContext) -> Result<ControlFlow<Action, Reported>, Error> {
    context.remember(key, |memory| memory.spent = Duration::ZERO);
    let mut snapshot = match observe::observe(key, context).await? {
        observe::Outcome::Gone => {
            context.memory.lock().remove(key);
            return Ok(ControlFlow::Break(Action::await_change()));
        }
        observe::Outcome::Unreadable(object, why) => {
            status::write_unreadable(&object, &why, context).await?;
            return Ok(ControlFlow::Break(Action::await_change()));
        }
        observe::Outcome::Observed(snapshot) => snapshot,
    };
    let decision = decide(&snapshot.observation, Timestamp::now());
    context.remember(key, |memory| snapshot.record(memory, &decision));
    // The finalizer before the first server: an object with servers must not be deleted.
    let finalizer = finalizer::write(&snapshot, &decision, context).await?;
    if finalizer == Some(true) {
        return Ok(ControlFlow::Break(Action::requeue(Duration::ZERO)));
    }
    // The probe goes before the first server comes: both have one name.
    let probed = if finalizer.is_some() { preflight::apply(key, &snapshot, &decision, context).await? } else { None };
    let wrote = probed.is_some() && objects::apply(key, &snapshot, &decision, context).await?;
    let removed = removal::remove(&snapshot, &decision, context).await?;
    if decision.remove_object {
        certificates::remove_all(&snapshot, &decision, context).await?;
        if finalizer::remove_object(&snapshot, context).await? {
            return Ok(ControlFlow::Break(Action::await_change()));
        }
    }
    // The decision does not know yet what was refused or foreign just now: it may report a change as complete.
    let memory = context.memory(key, &snapshot.memory.uid);
    let (refusals, foreign) = (memory.writes.refusals(), memory.foreign);
    let observation = &mut snapshot.observation;
    let is_same = refusals == observation.refusals && foreign == observation.foreign;
    (observation.refusals, observation.foreign) = (refusals, foreign);
    let decision = if is_same { decision } else { decide(&snapshot.observation, Timestamp::now()) };
    if status::write(&snapshot, &decision, context).await? {
        events::queue(key, &snapshot, &decision, context);
    }
    let wrote = wrote || removed || probed == Some(true);
    Ok(ControlFlow::Continue(Reported { snapshot, decision, wrote }))
}

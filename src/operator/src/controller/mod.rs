//! The operator's controller: it reconciles every MultiClusterZooKeeper of the control plane.
//!
//! [`watches`] names the objects to reconcile. [`mczk_reading::observe`] reads everything that a decision depends on, live and
//! never from a cache. [`mczk_rules::rollout`] decides. [`status`] writes the status, [`apply`] the objects that differ, and
//! [`events`] publishes what changed.

mod apply;
mod certificates;
mod changes;
mod context;
mod ensemble_metrics;
mod events;
mod lists;
mod metrics;
mod next_read;
mod pause;
mod routine;
mod status;
mod watches;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, stream::BoxStream};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    api::{ApiResource, DynamicObject},
    runtime::{controller::Action, events::Reporter, reflector::Store, watcher::Event},
};
use tokio::sync::oneshot;
use tracing::debug;

pub use context::Options;
pub use mczk_reading::operator_identity::DEFAULT_SERVER_IMAGE;
pub use metrics::Metrics;

use crate::controller::{context::Context, next_read::next_read};
use mczk_api::contract::conditions::Reason;
use mczk_reading::{
    observe::{ReadOutcome, Sources, own_version},
    versions::version,
};
use mczk_rules::rollout::{
    object_change::writes,
    plan::{self, Finalizer, Observed, Plan},
};
use mczk_runtime::{
    election::Leadership,
    event_queue,
    failure::Error,
    reconcile::{self, Attempt, ObjectKey, Reconciler, shortly},
};

/// Reconciles every MultiClusterZooKeeper until `shutdown` resolves. `ready` is called once all of them and all member
/// clusters are listed, whether this process acts or not.
///
/// Failures are retried, each object for itself.
pub async fn run(
    client: Client,
    leadership: Leadership,
    options: Options,
    metrics: Metrics,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let reporter = Reporter { controller: "mczk".to_owned(), instance: std::env::var("HOSTNAME").ok() };
    let (events, publisher) = event_queue::start(client.clone(), reporter);
    let context = Arc::new(Context::new(client.clone(), leadership.clone(), options, metrics, events));
    let (objects_listed, listed) = oneshot::channel();
    let triggers = {
        let (client, context, leadership) = (client.clone(), Arc::clone(&context), leadership.clone());
        move |store: Store<DynamicObject>| {
            context.metrics.ensembles.limit_to(store.clone(), leadership);
            // It is set once.
            let _ = context.objects.set(store);
            watches::triggers(&client, &context)
        }
    };
    let objects_listed = move || {
        // No task listens once the controller ends.
        let _ = objects_listed.send(());
    };
    let running = reconcile::run(client, Arc::clone(&context), leadership, triggers, objects_listed, shutdown);
    let all_listed = async {
        if listed.await.is_ok() {
            context.clusters.listed().await;
            ready();
        }
    };
    let (mut running, mut all_listed) = (Box::pin(running.fuse()), Box::pin(all_listed.fuse()));
    // The lists end by themselves; the controller ends with the reconciles.
    futures::select! {
        () = all_listed => running.await,
        () = running => {}
    }
    drop(all_listed);
    context.events.end(publisher).await;
}

impl Reconciler for Context {
    // Two writes may each wait 34 s for webhooks that do not answer: then the pass ends with their words.
    const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(120);

    fn resource() -> ApiResource {
        mczk_reading::kinds::multiclusterzookeeper()
    }

    fn metrics(&self) -> &reconcile::Metrics {
        &self.metrics.shell
    }

    fn watch(client: Client) -> BoxStream<'static, Event<DynamicObject>> {
        watches::ensembles(client)
    }

    async fn reconcile(&self, attempt: Attempt<'_>) -> Result<Action, Error> {
        let Attempt { object, key, term, .. } = attempt;
        if let Err(error) = self.clusters.listed_in_time().await {
            self.report_failure(&attempt, &error).await;
            return Err(error);
        }
        let version = routine::own(object);
        if let Some(action) = self.due(key, version, term).action() {
            return Ok(action);
        }
        // A read of several objects may hold this one. Then this attempt waits for its end.
        if (self.is_routine(key, version.0, term) && !attempt.retried || self.in_read(key))
            && let Some(action) = Box::pin(self.read_routinely(&attempt, version)).await?
        {
            return Ok(action);
        }
        let mut reading = self.begin_read([key.clone()], term);
        let result = Box::pin(self.read_and_act(attempt)).await;
        if result.is_ok() {
            reading.ended(key);
        }
        result
    }
}

impl Context {
    async fn read_and_act(&self, attempt: Attempt<'_>) -> Result<Action, Error> {
        let key = attempt.key;
        let mut reported = self.take_reported(key);
        let reports_failure = attempt.failure.is_some();
        let outcome = match Box::pin(observe_newest(&attempt, &mut reported, self)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.restore_reported(key, reported);
                self.report_failure(&attempt, &error).await;
                return Err(error);
            }
        };
        match Box::pin(decide_and_apply(outcome, key, reported, self)).await {
            // The status now holds a failure that is over: reconcile again to remove it.
            Ok(_) if reports_failure => {
                self.invalidate(key);
                Ok(Action::requeue(shortly()))
            }
            Ok(action) => Ok(action),
            Err(error) => {
                self.restore_reported(key, reported);
                Err(error)
            }
        }
    }
}

impl Context {
    /// Reports a failed read, after several. Without observations no plan writes this condition.
    async fn report_failure(&self, Attempt { key, failure, .. }: &Attempt<'_>, error: &Error) {
        if failure.is_some() {
            self.metrics.ensembles.fail(key, Reason::ApplyFailed);
            status::write_unobserved(key, &error.to_string(), self).await;
        }
    }
}

/// Plan, write the status, apply, publish events.
async fn decide_and_apply(
    outcome: ReadOutcome,
    key: &ObjectKey,
    reported: Option<Instant>,
    context: &Context,
) -> Result<Action, Error> {
    let read = Instant::now();
    let observed = match outcome {
        ReadOutcome::Gone => {
            context.forget(key);
            return Ok(Action::await_change());
        }
        ReadOutcome::Unreadable(object, error) => {
            context.metrics.ensembles.fail(key, Reason::UnsupportedSpec);
            status::write_unreadable(&object, &error, context).await?;
            return Ok(Action::await_change());
        }
        ReadOutcome::Observed(observed) => observed,
    };
    let plan = plan::plan(&observed, Timestamp::now());
    if let Some(term) = plan.later_term {
        // Either another operator leads, or the Lease was deleted and counts terms from 1 again.
        context.leadership.rise_above(term);
        context.invalidate(key);
        return Ok(Action::await_change());
    }
    let fails_again = observed.failure.is_some();
    if let Some(claim) = &plan.claim {
        report_refusal(apply::claim(&observed, claim, context).await, fails_again, key, context).await?;
        context.invalidate(key);
        return Ok(Action::requeue(Duration::ZERO));
    }
    let finalizer = apply::finalizer(&observed, plan.finalizer, context).await;
    if report_refusal(finalizer, fails_again, key, context).await? {
        if plan.finalizer == Finalizer::Remove {
            context.forget(key);
        }
        return Ok(Action::await_change());
    }
    context.metrics.show(&key.0, &key.1, plan.measures.clone());
    let planned = Instant::now();
    // The status first: it must hold what a record has begun before that begins.
    let written = status::write(&observed, &plan, context).await;
    let written = report_refusal(written, fails_again, key, context).await?;
    let status_written = Instant::now();
    // Their causes are in the status now, so no later plan would repeat them.
    events::queue(&observed, &plan, context);
    apply::apply(&observed, &plan, reported, context).await?;
    debug!(
        namespace = key.0,
        name = key.1,
        observed_after = ?reported.map(|at| read.saturating_duration_since(at)),
        plan = ?(planned - read),
        status = ?(status_written - planned),
        apply = ?status_written.elapsed(),
        "Reconciled"
    );
    let again = next_read(&observed, &plan, context.number());
    let own = written.filter(|_| is_settled(&observed, &plan)).map(|meta| own_version(&observed, &meta));
    context.end_read(key, mczk_reading::observe::versions(&observed).into_iter().chain(own), &observed, again);
    Ok(Action::requeue(again))
}

/// The result of a write up to the status, whose failure no written plan can hold. A lasting one is reported here by a patch
/// of the conditions. The API server may take that if it refuses the whole status. A write without an answer counts once
/// reconciles have failed for a while: the API server may only be overloaded.
async fn report_refusal<T>(
    result: Result<T, Error>,
    fails_again: bool,
    key: &ObjectKey,
    context: &Context,
) -> Result<T, Error> {
    let counts = |error: &&Error| apply::lasts(error) && (fails_again || !apply::hangs(error));
    if let Some(refused) = result.as_ref().err().filter(counts) {
        context.metrics.ensembles.fail(key, Reason::ApplyFailed);
        status::write_unobserved(key, &refused.to_string(), context).await;
    }
    result
}

/// True if the status that was just written changes no decision, so that its event needs no reconcile.
fn is_settled(observed: &Observed, plan: &Plan) -> bool {
    let mut next = observed.clone();
    next.object.status = Some(plan.status.clone());
    let next_plan = plan::plan(&next, Timestamp::now());
    let same_writes =
        || writes(observed, plan).ok().is_some_and(|same| writes(&next, &next_plan).is_ok_and(|next| next == same));
    next_plan.status == plan.status && same_writes()
}

/// Observes, and once more if a report arrived meanwhile: a decision on the older report would only delay the next one. At
/// most once more, so that an agent that reports without end does not prevent decisions.
async fn observe_newest(
    Attempt { object, key, failure, retried, term, .. }: &Attempt<'_>,
    reported: &mut Option<Instant>,
    context: &Context,
) -> Result<ReadOutcome, Error> {
    let mut holds_newest = |outcome: &ReadOutcome| match outcome {
        ReadOutcome::Observed(observed) => {
            let version = observed.binding.as_ref().and_then(|binding| version(&binding.metadata));
            context.holds_newest(key, version, reported)
        }
        ReadOutcome::Gone | ReadOutcome::Unreadable(..) => true,
    };
    let sources = || Sources {
        client: &context.client,
        clusters: &context.clusters,
        server_image: &context.options.server_image,
        asked: context.since_asked(key),
        term: *term,
        failure: failure.clone(),
        retried: *retried,
        needs_secrets: false,
    };
    let object = context.last_read(key, object);
    let mut outcome = Box::pin(mczk_reading::observe::observe(&object, key, sources())).await?;
    if !holds_newest(&outcome) {
        outcome = Box::pin(mczk_reading::observe::observe(&object, key, sources())).await?;
        holds_newest(&outcome);
    }
    Ok(outcome)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::{Arc, Mutex},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_api::{MultiClusterZooKeeper, contract::labels::OPERATOR_FINALIZER};
    use mczk_runtime::failure::During as _;

    /// An object around which there is nothing yet.
    pub(super) fn alone(object: MultiClusterZooKeeper) -> Observed {
        Observed {
            object,
            template: None,
            policy: None,
            overrides: None,
            services: BTreeMap::new(),
            binding: None,
            spares: None,
            works: Vec::new(),
            clusters: Vec::new(),
            certificates: Vec::new(),
            tombstones: BTreeSet::new(),
            server_image: String::new(),
            asked: None,
            term: None,
            failure: None,
        }
    }

    /// An API server that refuses a whole status, and the bodies of all writes that it got.
    fn context() -> (Context, Arc<Mutex<Vec<String>>>) {
        let writes = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&writes);
        let service = service_fn(move |request: Request<Body>| {
            let all = Arc::clone(&all);
            async move {
                let method = request.method().clone();
                if method != "GET" {
                    let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                    all.lock().unwrap().push(String::from_utf8(body.to_vec())?);
                }
                let object = json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
                    "metadata": { "name": "zk", "namespace": "n" } });
                let refused = json!({ "status": "Failure", "message": "no status here", "reason": "", "code": 422 });
                let (code, answer): (u16, _) = if method == "PUT" { (422, refused) } else { (200, object) };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(answer)?)
            }
        });
        let client = Client::new(service, "n");
        let (events, _publisher) =
            event_queue::start(client.clone(), Reporter { controller: "test".into(), instance: None });
        let options = Options { server_image: String::new() };
        let metrics = Metrics::new(&mut Registry::default());
        (Context::new(client, Leadership::without_election(), options, metrics, events), writes)
    }

    /// No plan can hold it: the operator writes the finalizer before the status.
    #[tokio::test]
    async fn a_refused_finalizer_stands_in_the_status() {
        let (context, writes) = context();
        let answer = |code, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            Err::<(), _>(kube::Error::Api(Box::new(status))).during(|| "writing the finalizer".to_owned())
        };
        let key = ("n".to_owned(), "zk".to_owned());
        assert!(report_refusal(answer(409, "the object has been modified"), true, &key, &context).await.is_err());
        assert!(report_refusal(answer(504, "timeout"), false, &key, &context).await.is_err());
        assert_eq!(writes.lock().unwrap().len(), 0, "another client changed the object first, or the load is high");
        let another = ("n".to_owned(), "another".to_owned());
        assert!(report_refusal(answer(504, "no answer"), true, &another, &context).await.is_err());
        assert!(writes.lock().unwrap().concat().contains("no answer"), "it has failed for a while");
        assert!(report_refusal(answer(403, "no finalizers here"), false, &key, &context).await.is_err());
        let writes = writes.lock().unwrap();
        assert!(
            writes.concat().contains("ApplyFailed") && writes.concat().contains("no finalizers here"),
            "{writes:?}"
        );
    }

    /// The status remembers a record before the operator acts on it. So nothing else is written.
    #[tokio::test]
    async fn a_refused_status_stands_in_its_conditions_and_ends_the_pass() {
        let (context, writes) = context();
        let observed = alone(multi_cluster_zookeeper(json!({ "metadata": { "finalizers": [OPERATOR_FINALIZER] } })));
        let key = ("n".to_owned(), "zk".to_owned());
        let outcome = ReadOutcome::Observed(Box::new(observed));
        assert!(decide_and_apply(outcome, &key, None, &context).await.is_err());
        let writes = writes.lock().unwrap();
        let [status, condition] = writes.as_slice() else { panic!("{writes:?}") };
        assert!(!status.contains("no status here"), "{status}");
        assert!(condition.contains("ApplyFailed") && condition.contains("no status here"), "{condition}");
        assert!(condition.contains("writing the status of MultiClusterZooKeeper n/zk"), "{condition}");
    }
}

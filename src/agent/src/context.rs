//! What every step of a reconcile needs: the client, the options, the metrics and the memory of each object.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    sync::OnceLock,
    time::{Duration, Instant},
};

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::{
    control_client::{self, Dial},
    metrics::Metrics,
    observe::pod_failure::PodFailure,
    write_history::{ObjectVerb, WriteHistory, WrittenObject},
};
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, pod_layout},
    tls::EnsembleTls,
};
use mczk_rules::agent::{
    decide::{membership, missing::MissingVoters, observation::RefusedDeletion, warnings::Sent},
    render::Kind,
};
use mczk_runtime::{
    event_queue::Queue,
    failure::{During, Error, is_not_found},
};

/// Field manager of everything that the agent writes.
pub(super) const FIELD_MANAGER: &str = "mczk-agent";

/// The kind by which refused writes of the status are remembered.
pub(super) const STATUS: &str = "The status of ZooKeeper";
/// How long the refused changes and the questions of one pass may take together. An admission webhook can hold each one for half a
/// minute, and an attempt that takes too long ends before it reports anything. A slow change that succeeds is not repeated.
const CHANGES_OF_A_PASS: Duration = Duration::from_secs(40);
/// The same for a change that was refused before: those that were never tried come first, and those that wait long.
const REPEATS_OF_A_PASS: Duration = Duration::from_secs(5);

/// Configuration of the agent.
#[derive(Clone)]
pub struct AgentOptions {
    /// Karmada's name of this cluster, if Karmada's own annotation does not hold it.
    pub cluster: Option<String>,
    /// Name of this process, unique among all agents: two agents with one name would share the restart lock.
    pub instance: String,
    /// Namespaces whose objects the agent handles. Empty: all.
    pub namespaces: BTreeSet<String>,
    /// Connects to servers.
    pub dial: Dial,
    /// Time between two polls of the servers while nothing happens.
    pub at_rest: Duration,
    /// Time between two polls of the servers during a change.
    pub while_busy: Duration,
}

impl AgentOptions {
    /// True if the agent handles the objects of a namespace.
    #[must_use]
    pub(super) fn handles(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            cluster: None,
            namespaces: BTreeSet::new(),
            instance: format!("{:08x}", rand::random::<u32>()),
            dial: control_client::dial(pod_layout::CONTROL_PORT),
            at_rest: Duration::from_secs(3),
            while_busy: Duration::from_secs(1),
        }
    }
}

pub(super) struct AgentContext {
    pub(super) client: Client,
    pub(super) options: AgentOptions,
    pub(super) metrics: Metrics,
    pub(super) events: Queue,
    pub(super) memory: Mutex<HashMap<(String, String), Memory>>,
    /// The start of the agent.
    pub(super) began: Instant,
    /// Id of this cluster, once it was read; `None` if the agent may not read it.
    pub(super) cluster_id: OnceLock<String>,
}

/// What the agent remembers of one object between two reconciles: only when something began, and nothing that could make
/// a decision wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Uid of the object: another object of that name has another memory.
    pub(super) uid: String,
    /// The voters that are missing, and since when by the agent's clock.
    pub(super) missing_voters: MissingVoters,
    /// The newest epoch that the ensemble accepted through this agent, with the incarnation.
    pub(super) published: Option<(String, i64)>,
    /// The membership step that is due, and since when.
    pub(super) due: Option<(membership::MembershipStep, Instant)>,
    /// True if this agent took the last step.
    pub(super) stepped: bool,
    /// Since when this agent has held the restart lock.
    pub(super) locked_since: Option<Instant>,
    /// The server through which the restart lock was taken. It is confirmed and released there.
    pub(super) lock_host: Option<String>,
    /// Why no server gave the restart lock when the agent last asked, if no other agent holds it.
    pub(super) lock_failure: Option<String>,
    /// Since when servers have not served, by the pod's uid.
    pub(super) unready_since: BTreeMap<String, Instant>,
    /// Kinds and names of objects of others that have the name of one of ours.
    pub(super) foreign: BTreeSet<(String, String)>,
    /// The newest writes of objects: those that the API server refuses, and those that another writer undoes.
    pub(super) writes: WriteHistory,
    /// Why deletions failed when they were last tried, and when, by the object's uid.
    pub(super) refused: BTreeMap<String, (String, Instant)>,
    /// How long the refused changes and the questions of this pass have taken together.
    pub(super) spent: Duration,
    /// True if the controller of a missing pod has to be woken, because the API server accepts the pod again.
    pub(super) must_wake: bool,
    /// Since when a pod has been missing that a StatefulSet must create.
    pub(super) pod_missing_since: Option<Instant>,
    /// Why pods do not start, by their names, and since when in these words.
    pub(super) pod_failures: BTreeMap<String, (PodFailure, Instant)>,
    /// The warnings that were sent.
    pub(super) warned: Sent,
    /// Since when a Secret has been missing that the server list names.
    pub(super) missing_since: Option<Instant>,
    /// The certificates whose predecessors are all removed from this cluster.
    pub(super) cleared: Option<EnsembleTls>,
    /// What the API server answered for a spare: for which generation of the object, and when.
    pub(super) spare: Option<(Option<i64>, Instant, Option<Cause>)>,
}

impl Memory {
    pub(super) fn refused_deletions(&self) -> Vec<RefusedDeletion> {
        let refused = |(uid, (why, since)): (&String, &(String, Instant))| RefusedDeletion {
            uid: uid.clone(),
            why: why.clone(),
            ago: since.elapsed(),
        };
        self.refused.iter().map(refused).collect()
    }
}

impl AgentContext {
    pub(super) fn new(client: Client, options: AgentOptions, metrics: Metrics, events: Queue) -> Self {
        Self {
            client,
            options,
            metrics,
            events,
            memory: Mutex::default(),
            began: Instant::now(),
            cluster_id: OnceLock::new(),
        }
    }

    /// What is remembered of this very object.
    pub(super) fn memory(&self, key: &(String, String), uid: &str) -> Memory {
        let mut all = self.memory.lock();
        let memory = all.entry(key.clone()).or_default();
        if memory.uid != uid {
            *memory = Memory { uid: uid.to_owned(), ..Memory::default() };
        }
        memory.clone()
    }

    /// Remembers that the API server did not delete an object.
    pub(super) fn refused_deletion(&self, key: &(String, String), uid: &str, why: &str) {
        let why = format!("the API server does not delete {why}");
        warn!(namespace = key.0, name = key.1, "{why}");
        self.remember(key, |memory| drop(memory.refused.insert(uid.to_owned(), (why, Instant::now()))));
    }

    /// True unless the same change of an object was refused or undone just now.
    pub(super) fn may_write(&self, key: &(String, String), object: &WrittenObject, content: &str) -> bool {
        let mut may = true;
        self.remember(key, |memory| may = memory.writes.may_write(object, content, Instant::now()));
        may
    }

    /// Does this to the object of this kind and name, unless the same change was refused or undone just now. `None` if it was, or if
    /// the API server refuses it: the agent remembers its words, which the next decision reports, and the reconcile goes on.
    /// `None` too if slow changes have used up the time of this pass: the next one goes on with the others. Until then this one counts as
    /// refused.
    /// `content` is what the change makes of the object.
    pub(super) async fn attempt<T>(
        &self,
        key: &(String, String),
        (kind, name, verb): (&'static str, &str, ObjectVerb),
        content: &str,
        change: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        let object = (kind, name.to_owned(), verb);
        let mut is_late = false;
        self.remember(key, |memory| {
            let repeats = memory.writes.repeats(&object, Instant::now());
            let limit = if repeats { REPEATS_OF_A_PASS } else { CHANGES_OF_A_PASS };
            is_late = kind != STATUS && memory.spent >= limit;
            if is_late {
                memory.writes.postpone(&object, content, Instant::now());
            }
        });
        if is_late || !self.may_write(key, &object, content) {
            return Ok(None);
        }
        let began = Instant::now();
        let result = change.await;
        let refused = result.as_ref().err().and_then(Error::write_refusal);
        if refused.is_some() || verb == ObjectVerb::Ask {
            self.remember(key, |memory| memory.spent += began.elapsed());
        }
        if let Some(why) = refused {
            warn!(namespace = key.0, ensemble = key.1, kind, name, why, "the API server refuses a change of an object");
        } else if result.is_err() {
            return result.map(Some);
        }
        self.remember(key, |memory| memory.writes.wrote(object, content, refused, Instant::now()));
        Ok(result.ok())
    }

    /// Deletes an object. False if the API server refuses, as in [`Self::attempt`].
    pub(super) async fn delete<K: Clone + Debug + DeserializeOwned>(
        &self,
        key: &(String, String),
        api: &Api<K>,
        (kind, name): (&'static str, &str),
        params: &DeleteParams,
    ) -> Result<bool, Error> {
        let delete = async {
            match api.delete(name, params).await {
                Err(error) if is_not_found(&error) => return Ok(()),
                other => drop(other.during(|| format!("deleting {kind} {name}"))?),
            }
            info!(kind, name, namespace = key.0, "object deleted");
            self.metrics.wrote(kind, "delete");
            Ok(())
        };
        Ok(self.attempt(key, (kind, name, ObjectVerb::Delete), "", delete).await?.is_some())
    }

    pub(super) fn remember(&self, key: &(String, String), change: impl FnOnce(&mut Memory)) {
        if let Some(memory) = self.memory.lock().get_mut(key) {
            change(memory);
        }
    }

    /// The API of ZooKeeper objects in one namespace.
    pub(super) fn zookeepers(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource())
    }

    /// The API of one rendered kind in one namespace.
    pub(super) fn api(&self, namespace: &str, kind: Kind) -> Api<DynamicObject> {
        let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
        let gvk = GroupVersionKind::gvk(group, version, kind.name());
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&gvk))
    }
}

/// ZooKeeper objects without their type: one object that does not parse must not stall the watch of all.
pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<ZooKeeper>(&())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use hyper::{Method, Request, Response};
    use kube::{client::Body, runtime::events::Reporter};
    use prometheus_client::registry::Registry;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use mczk_runtime::event_queue;

    /// The context of an agent whose requests are all refused, and counted.
    pub(crate) fn refusing(requests: &Arc<AtomicUsize>) -> AgentContext {
        answering(requests, |method| {
            let message = format!("no {method}");
            (403, json!({ "status": "Failure", "reason": "Forbidden", "code": 403, "message": message }))
        })
    }

    /// The context of an agent whose requests all get this answer, and are counted.
    pub(crate) fn answering(
        requests: &Arc<AtomicUsize>,
        answer: impl Fn(&Method) -> (u16, Value) + Send + 'static,
    ) -> AgentContext {
        let requests = requests.clone();
        let service = service_fn(move |request: Request<Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let (code, answer) = answer(request.method());
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?) }
        });
        with_client(Client::new(service, "n"))
    }

    /// The context of an agent with this client.
    pub(crate) fn with_client(client: Client) -> AgentContext {
        let (events, _publisher) =
            event_queue::start(client.clone(), Reporter { controller: "test".into(), instance: None });
        let metrics = Metrics::new(&mut Registry::default());
        AgentContext::new(client, AgentOptions::default(), metrics, events)
    }

    /// Each replaced what was known of the other, so that both were tried in every pass, and one was reported.
    #[rstest]
    #[case::refused(403)]
    #[case::webhooks_hang(504)]
    #[tokio::test]
    async fn a_refused_write_and_a_refused_deletion_of_one_object_are_remembered_apart(#[case] code: u16) {
        let requests = Arc::default();
        let context = answering(&requests, move |method| {
            let message = format!("no {method}");
            (code, json!({ "status": "Failure", "reason": "", "code": code, "message": message }))
        });
        let (key, api) = (("n".to_owned(), "zk".to_owned()), context.zookeepers("n"));
        context.memory(&key, "u");
        for _ in 0..3 {
            let write = async { api.get("zk").await.during(|| "writing".to_owned()) };
            let object = ("ZooKeeper", "zk", ObjectVerb::Write);
            assert!(context.attempt(&key, object, "without finalizer", write).await.unwrap().is_none());
            assert!(!context.delete(&key, &api, ("ZooKeeper", "zk"), &DeleteParams::default()).await.unwrap());
        }
        let refusals = context.memory(&key, "u").writes.refusals();
        assert_eq!(refusals.iter().map(|refusal| &refusal.why).collect::<Vec<_>>(), ["no GET", "no DELETE"]);
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    /// Its words would go, and come again in the next pass.
    #[tokio::test]
    async fn a_refused_question_that_waits_keeps_its_words() {
        let context = refusing(&Arc::default());
        let key = ("n".to_owned(), "zk".to_owned());
        context.memory(&key, "u");
        let question = ("Pod", "zk", ObjectVerb::Ask);
        context.remember(&key, |memory| {
            memory.writes.wrote(("Pod", "zk".to_owned(), ObjectVerb::Ask), "", Some("exceeded quota"), Instant::now());
            memory.writes.end_pass();
            memory.spent = CHANGES_OF_A_PASS;
        });
        assert!(context.attempt(&key, question, "", std::future::ready(Ok(()))).await.unwrap().is_none());
        context.remember(&key, |memory| memory.writes.end_pass());
        assert_eq!(context.memory(&key, "u").writes.refusals().len(), 1, "its words stay until it is asked again");
    }

    /// The status is written in each pass. Without the limit, ten slow writes end it before.
    #[tokio::test]
    async fn slow_changes_leave_time_for_the_status() {
        let context = refusing(&Arc::default());
        let key = ("n".to_owned(), "zk".to_owned());
        context.memory(&key, "u");
        context.remember(&key, |memory| memory.spent = CHANGES_OF_A_PASS);
        let write = async |kind| {
            let object = (kind, "zk", ObjectVerb::Write);
            context.attempt(&key, object, "", async { Ok(()) }).await.unwrap().is_some()
        };
        assert!(!write("Service").await && write(STATUS).await);
        context.remember(&key, |memory| memory.spent = Duration::ZERO);
        let slow = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(())
        };
        context.attempt(&key, ("ConfigMap", "zk", ObjectVerb::Write), "", slow).await.unwrap();
        assert_eq!(context.memory(&key, "u").spent, Duration::ZERO, "a slow change that succeeds is not repeated");
        context.attempt(&key, ("ConfigMap", "zk", ObjectVerb::Ask), "", std::future::ready(Ok(()))).await.unwrap();
        assert!(context.memory(&key, "u").spent > Duration::ZERO, "a question is");
        context.remember(&key, |memory| memory.spent = CHANGES_OF_A_PASS);
        let words =
            |context: &AgentContext| context.memory(&key, "u").writes.refusals().pop().map(|refusal| refusal.why);
        assert!(words(&context).unwrap().contains("took too long"), "no cluster is complete before it is written");
        // The next pass tries it although a known refusal took half a minute.
        context.remember(&key, |memory| memory.spent = Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert!(write("Service").await);
        assert_eq!(words(&context), None);
    }
}

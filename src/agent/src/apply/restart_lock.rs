//! The restart lock, and what an agent does once more while it holds it.

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::Api;
use tracing::debug;

use crate::{
    context::AgentContext,
    control_client,
    observe::{pods, servers, snapshot::MemberSnapshot, volumes},
};
use mczk_api::{
    contract::control_api::{LOCK, Mode, RestartLock},
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::{self, Decision};
use mczk_runtime::failure::{During, Error};

/// Serving servers other than this one, through which the agent may hold the restart lock for it: the last one used, then
/// the leader, then the rest.
fn other_hosts(snapshot: &MemberSnapshot, server: i32) -> Vec<String> {
    let views = snapshot.observation.views.iter();
    let mut others: Vec<_> = views.filter(|view| view.serving && view.id.is_some_and(|id| id != server)).collect();
    others.sort_by_key(|view| view.mode != Some(Mode::Leader));
    let mut hosts: Vec<String> = others.iter().filter_map(|view| snapshot.hosts.get(&view.id?)).cloned().collect();
    hosts.sort_by_key(|host| Some(host) != snapshot.memory.lock_host.as_ref());
    hosts
}

/// Acquires or confirms the restart lock. Returns true if this agent holds it now. A lock that is held already is held
/// through one server, and all others refuse.
pub(super) async fn acquire_lock(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    lock: &RestartLock,
    held: bool,
    context: &AgentContext,
) -> bool {
    let Some(client) = &snapshot.client else { return false };
    let mut failure = None;
    for host in other_hosts(snapshot, lock.server) {
        let result = client.acquire_lock(&host, lock).await;
        context.metrics.requested("restart-lock", &result);
        match result {
            Ok(()) => {
                context.remember(key, |memory| (memory.lock_host, memory.lock_failure) = (Some(host), None));
                return true;
            }
            Err(error) => {
                debug!(%error, "the restart lock was not acquired");
                // The lock is another agent's, whichever server says so. One without a session may only lack it.
                let is_of_another =
                    matches!(&error, control_client::Error::Refused { problem, .. } if problem.reason == LOCK);
                if !held && is_of_another {
                    failure = None;
                    break;
                }
                failure.get_or_insert(error.to_string());
            }
        }
    }
    context.remember(key, |memory| memory.lock_failure = failure);
    false
}

/// Releases the restart lock. Returns true if a server did.
pub(super) async fn release_lock(snapshot: &MemberSnapshot, lock: &RestartLock, context: &AgentContext) -> bool {
    let Some(client) = &snapshot.client else { return false };
    for host in other_hosts(snapshot, 0) {
        let result = client.release_lock(&host, lock).await;
        context.metrics.requested("restart-lock-release", &result);
        if result.is_ok() {
            return true;
        }
    }
    false
}

/// Reads pods and claims, polls all servers and decides again, right before the agent deletes a pod or a claim. A user may have
/// deleted another claim meanwhile, which then is no copy of the data any more, and a container may have started.
pub(super) async fn decide_again(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    list: &Ensemble,
    context: &AgentContext,
) -> Result<Decision, Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let pods = pods.list(&pods::of_agent()).await.during(|| "reading pods".to_owned())?.items;
    let mut observation = snapshot.observation.clone();
    observation.views.clear();
    observation.claims = volumes::read(context, key).await?.iter().filter_map(volumes::claim).collect();
    observation.servers.iter_mut().for_each(|(_, server)| server.view = None);
    pods::refresh(&mut observation, &pods);
    let mut fresh = MemberSnapshot {
        observation,
        live: std::collections::BTreeMap::new(),
        hosts: std::collections::BTreeMap::new(),
        client: snapshot.client.clone(),
        memory: snapshot.memory.clone(),
    };
    servers::poll(&mut fresh, list, &pods::addresses(&pods)).await;
    Ok(decide::decide(&fresh.observation, Timestamp::now()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::{FutureExt, future::BoxFuture};
    use hyper::{Request, Response};
    use kube::{Client, client::Body};
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::{
        context::tests::with_client,
        control_client::Servers,
        observe::{Outcome, observe},
    };
    use mczk_api::{
        contract::control_api::{Configuration, Phase, Problem, Reconfiguration, ServerReport, UNAVAILABLE},
        zookeeper::FirstStart,
    };

    /// An API server with the object `zk`, and with these claims at the moment of a request.
    fn served(claims: Arc<Mutex<Vec<Value>>>) -> Client {
        let object = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "metadata": { "name": "zk", "namespace": "n", "uid": "u" },
            "spec": {
                "replicas": 0, "template": { "image": "zookeeper:3.9.4", "storage": { "size": "1Gi" } }, "renderVersion": 1,
                "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r1", "ensemble": {},
            },
        });
        let service = service_fn(move |request: Request<Body>| {
            let is_list = request.uri().query().is_some_and(|query| query.contains("labelSelector"));
            let items = |items: Value| (200, json!({ "metadata": {}, "items": items }));
            let (status, body) = match request.uri().path() {
                path if path.ends_with("/zookeepers/zk") => (200, object.clone()),
                path if path.ends_with("/persistentvolumeclaims") => items(json!(*claims.lock().unwrap())),
                _ if is_list => items(json!([])),
                path => (404, json!({ "status": "Failure", "reason": "NotFound", "code": 404, "message": path })),
            };
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, tower::BoxError>(Response::builder().status(status).body(body)?) }
        });
        Client::new(service, "n")
    }

    /// A claim that a user deletes while the agent acquires the lock is no copy of the data any more.
    #[tokio::test]
    async fn the_second_decision_rests_on_the_claims_of_its_own_time() {
        let claim = |name: &str| {
            let labels = json!({ "mczk.io/incarnation": "abc" });
            json!({ "metadata": { "name": name, "uid": name, "labels": labels } })
        };
        let claims = Arc::new(Mutex::new(vec![claim("first"), claim("second")]));
        let context = with_client(served(Arc::clone(&claims)));
        let key = ("n".to_owned(), "zk".to_owned());
        let Outcome::Observed(snapshot) = observe(&key, &context).await.unwrap() else { panic!("no snapshot") };
        claims.lock().unwrap().pop();
        let again = decide_again(&key, &snapshot, &Ensemble::default(), &context).await.unwrap();
        let before = decide::decide(&snapshot.observation, Timestamp::now());
        assert_eq!(before.status.volumes, ["first", "second"]);
        assert_eq!(again.status.volumes, ["first"]);
    }

    /// Servers that give the lock, or refuse it for these reasons, and the ids of those that were asked.
    struct Locks(Vec<Option<&'static str>>, Mutex<Vec<usize>>);

    impl Locks {
        fn unasked<T>() -> BoxFuture<'static, Result<T, control_client::Error>> {
            async { Err(control_client::Error::Certificates(String::new())) }.boxed()
        }
    }

    impl Servers for Locks {
        fn view<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ServerReport, control_client::Error>> {
            Self::unasked()
        }

        fn reconfigure<'a>(
            &'a self,
            _: &'a str,
            _: &'a Reconfiguration,
        ) -> BoxFuture<'a, Result<Configuration, control_client::Error>> {
            Self::unasked()
        }

        fn publish<'a>(
            &'a self,
            _: &'a str,
            _: &'a Ensemble,
        ) -> BoxFuture<'a, Result<Configuration, control_client::Error>> {
            Self::unasked()
        }

        fn record_first_start<'a>(
            &'a self,
            _: &'a str,
            _: &'a FirstStart,
        ) -> BoxFuture<'a, Result<(), control_client::Error>> {
            Self::unasked()
        }

        fn acquire_lock<'a>(
            &'a self,
            host: &'a str,
            _: &'a RestartLock,
        ) -> BoxFuture<'a, Result<(), control_client::Error>> {
            let server: usize = host.parse().unwrap();
            self.1.lock().unwrap().push(server);
            let problem = |reason: &str| Problem { reason: reason.to_owned(), message: "no".to_owned() };
            let refused = |reason| control_client::Error::Refused { server: host.to_owned(), problem: problem(reason) };
            let answer = self.0[server - 1].map_or(Ok(()), |reason| Err(refused(reason)));
            async { answer }.boxed()
        }

        fn release_lock<'a>(
            &'a self,
            _: &'a str,
            _: &'a RestartLock,
        ) -> BoxFuture<'a, Result<(), control_client::Error>> {
            Self::unasked()
        }
    }

    /// A server without a session, or with too many requests, may only lack the lock. The third server is the one to restart.
    #[rstest]
    #[case::the_first(vec![None, None], false, true, &[1], None)]
    #[case::no_session(vec![Some(UNAVAILABLE), None], false, true, &[1, 2], None)]
    #[case::busy(vec![Some("busy"), None], false, true, &[1, 2], None)]
    #[case::of_another_agent(vec![Some(LOCK), None], false, false, &[1], None)]
    #[case::of_another_agent_behind_one_without_a_session(vec![Some(UNAVAILABLE), Some(LOCK)], false, false, &[1, 2], None)]
    #[case::held_through_the_second(vec![Some(LOCK), None], true, true, &[1, 2], None)]
    #[case::no_server(vec![Some(UNAVAILABLE), Some("busy")], false, false, &[1, 2], Some("1 refuses (unavailable): no"))]
    #[tokio::test]
    async fn a_lock_comes_from_any_server(
        #[case] answers: Vec<Option<&'static str>>,
        #[case] held: bool,
        #[case] acquired: bool,
        #[case] asked: &[usize],
        #[case] failure: Option<&str>,
    ) {
        let context = with_client(served(Arc::default()));
        let key = ("n".to_owned(), "zk".to_owned());
        let Outcome::Observed(mut snapshot) = observe(&key, &context).await.unwrap() else { panic!("no snapshot") };
        let view = |id: i32| -> ServerReport {
            serde_json::from_value(json!({
                "id": id, "pod": "", "incarnation": "abc", "phase": Phase::Running, "revision": "", "serving": true,
                "synced": true, "acceptedEpoch": 1, "lost": false, "volume": "",
            }))
            .unwrap()
        };
        snapshot.observation.views = vec![view(1), view(2), view(3)];
        snapshot.hosts = [1, 2, 3].map(|id| (id, id.to_string())).into();
        let locks = Arc::new(Locks(answers, Mutex::default()));
        snapshot.client = Some(locks.clone());
        let lock = RestartLock { holder: "m1".to_owned(), server: 3 };
        assert_eq!(acquire_lock(&key, &snapshot, &lock, held, &context).await, acquired);
        assert_eq!(*locks.1.lock().unwrap(), asked);
        assert_eq!(context.memory(&key, "u").lock_failure.as_deref(), failure);
    }
}

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
    contract::control_api::{Mode, RestartLock},
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
    for host in other_hosts(snapshot, lock.server) {
        let result = client.acquire_lock(&host, lock).await;
        context.metrics.requested("restart-lock", &result);
        match result {
            Ok(()) => {
                context.remember(key, |memory| memory.lock_host = Some(host));
                return true;
            }
            Err(error) => {
                debug!(%error, "the restart lock was not acquired");
                if !held && matches!(error, control_client::Error::Refused { .. }) {
                    return false;
                }
            }
        }
    }
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
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::{Request, Response};
    use kube::{Client, client::Body, runtime::events::Reporter};
    use mczk_runtime::event_queue;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::{
        context::AgentOptions,
        metrics::Metrics,
        observe::{Outcome, observe},
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
        let client = served(Arc::clone(&claims));
        let (events, _publisher) =
            event_queue::start(client.clone(), Reporter { controller: "test".into(), instance: None });
        let metrics = Metrics::new(&mut Registry::default());
        let context = AgentContext::new(client, AgentOptions::default(), metrics, events);
        let key = ("n".to_owned(), "zk".to_owned());
        let Outcome::Observed(snapshot) = observe(&key, &context).await.unwrap() else { panic!("no snapshot") };
        claims.lock().unwrap().pop();
        let again = decide_again(&key, &snapshot, &Ensemble::default(), &context).await.unwrap();
        let before = decide::decide(&snapshot.observation, Timestamp::now());
        assert_eq!(before.status.volumes, ["first", "second"]);
        assert_eq!(again.status.volumes, ["first"]);
    }
}

//! The restart lock, and what an agent does once more while it holds it.

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::Api;
use tracing::debug;

use crate::{
    context::AgentContext,
    control_client,
    observe::{pods, servers, snapshot::MemberSnapshot},
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

/// Polls all servers and decides again, right before the agent deletes a pod.
pub(super) async fn decide_again(
    snapshot: &MemberSnapshot,
    list: &Ensemble,
    context: &AgentContext,
) -> Result<Decision, Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let pods = pods.list(&pods::of_agent()).await.during(|| "reading pods".to_owned())?.items;
    let mut observation = snapshot.observation.clone();
    observation.views.clear();
    observation.servers.iter_mut().for_each(|(_, server)| server.view = None);
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

//! Asks servers for the membership step that is due, replaces volumes, and restarts servers by deleting their pods.

use std::time::Instant;

use tracing::{debug, info};

use crate::{
    apply::{
        pod::delete_pod,
        replace::replace,
        restart_lock::{acquire_lock, decide_again, release_lock},
    },
    context::AgentContext,
    observe::{next_pod, snapshot::MemberSnapshot},
};
use mczk_api::{
    contract::control_api::{LOCK_CONFIRMED, RestartLock},
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::{
    Decision, membership::MembershipStep, quorum::Quorum, replace::ReplaceStep, restart::RestartStep,
};
use mczk_runtime::failure::Error;

/// How a pod goes, and for what: not by force, and its volume stays.
const TO_RESTART: (bool, &str) = (false, "to restart its server");

/// Does what is due. Returns true if it did anything.
pub(crate) async fn act(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<bool, Error> {
    let Some(list) = &decision.list else { return Ok(false) };
    answer_first_starts(snapshot, decision, context).await;
    let changed = decision.takes_step && take_step(key, snapshot, decision, list, context).await;
    if let Some(pod) = leaving(decision)
        && !next_pod::is_accepted(key, snapshot, pod, context).await?
    {
        // The server stays, so other agents may restart theirs.
        if let Some(lock) = own_lock(snapshot) {
            release_lock(snapshot, lock, context).await;
        }
        return Ok(changed);
    }
    let changed = replace(key, snapshot, decision, list, context).await? || changed;
    Ok(restart(key, snapshot, decision, list, context).await? || changed)
}

/// The pod that goes next, so that another one follows. With force it goes in any case: its node is gone.
fn leaving(decision: &Decision) -> Option<&str> {
    match (&decision.replace, &decision.restart) {
        (ReplaceStep::Delete(deletion), _) => (!deletion.force).then_some(&deletion.pod),
        (_, RestartStep::Restart { pod, .. } | RestartStep::RestartServing { pod, .. }) => Some(pod),
        _ => None,
    }
}

/// The restart lock, if this agent holds it.
fn own_lock(snapshot: &MemberSnapshot) -> Option<&RestartLock> {
    let mut locks = snapshot.observation.views.iter().filter_map(|view| view.restart_lock.as_ref());
    locks.find(|lock| lock.holder == snapshot.observation.holder)
}

/// Names to the servers that wait for their first start the volume that is recorded.
async fn answer_first_starts(snapshot: &MemberSnapshot, decision: &Decision, context: &AgentContext) {
    let Some(client) = &snapshot.client else { return };
    for first in &decision.first_starts {
        let Some(host) = snapshot.hosts.get(&first.id) else { continue };
        let result = client.record_first_start(host, first).await;
        context.metrics.requested("first-start", &result);
        if let Err(error) = result {
            debug!(%error, "a server does not take its first start");
        }
    }
}

/// A serving server of this cluster, preferably the leader. The agent takes membership steps through it.
fn local_host(snapshot: &MemberSnapshot) -> Option<&str> {
    let mut serving: Vec<_> =
        snapshot.observation.servers.iter().map(|(_, server)| server).filter(|server| server.serving()).collect();
    serving.sort_by_key(|server| !server.leads());
    serving.iter().find_map(|server| snapshot.hosts.get(&server.view.as_ref()?.id?)).map(String::as_str)
}

/// True if a listed server loses its vote by a step. Only the server that leads takes such a step.
fn takes_a_vote(step: &MembershipStep, list: &Ensemble) -> bool {
    let MembershipStep::Reconfigure(step) = step else { return false };
    step.remove.is_some_and(|id| list.servers.iter().any(|server| server.id == id))
}

/// The server that leads, in whichever cluster it is.
fn leaders_host(snapshot: &MemberSnapshot) -> Option<&str> {
    let leader = Quorum::of(&snapshot.observation.views)?.leader?;
    snapshot.hosts.get(&leader).map(String::as_str)
}

async fn take_step(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    list: &Ensemble,
    context: &AgentContext,
) -> bool {
    let host = if takes_a_vote(&decision.membership, list) { leaders_host(snapshot) } else { local_host(snapshot) };
    let (Some(client), Some(host)) = (&snapshot.client, host) else { return false };
    let (kind, result) = match &decision.membership {
        MembershipStep::Done | MembershipStep::Wait(_) => return false,
        MembershipStep::Publish => ("server-list", client.publish(host, list).await),
        MembershipStep::Reconfigure(step) => {
            info!(?step, namespace = key.0, name = key.1, "reconfiguring the ensemble");
            ("reconfigure", client.reconfigure(host, step).await)
        }
    };
    context.metrics.requested(kind, &result);
    match result {
        Ok(_) => {
            context.remember(key, |memory| {
                memory.stepped = true;
                if decision.membership == MembershipStep::Publish {
                    memory.published = list.incarnation.clone().zip(list.epoch);
                }
            });
            true
        }
        // Another agent was first, or the quorum is lost: the next reconcile shows which. If the ensemble lost the list that
        // this agent published, only publishing it again helps.
        Err(error) => {
            info!(%error, namespace = key.0, name = key.1, "the membership step failed");
            if error.is_unlisted() {
                context.metrics.requested("server-list", &client.publish(host, list).await);
            }
            false
        }
    }
}

async fn restart(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    list: &Ensemble,
    context: &AgentContext,
) -> Result<bool, Error> {
    match &decision.restart {
        RestartStep::Nothing | RestartStep::Wait(_) => {
            // The lock expires unless it is confirmed, and the restarted server is not back yet.
            if let Some(lock) = own_lock(snapshot) {
                acquire_lock(key, snapshot, lock, true, context).await;
            }
            Ok(false)
        }
        // No lock: the server does not serve, or has no vote. What was decided must still hold after the other polls.
        RestartStep::Restart { pod, uid } => {
            if decide_again(key, snapshot, list, context).await?.restart != decision.restart {
                return Ok(true);
            }
            delete_pod(key, snapshot, (pod, uid), TO_RESTART, context).await?;
            Ok(true)
        }
        RestartStep::Release(lock) => Ok(release_lock(snapshot, lock, context).await),
        RestartStep::RestartServing { pod, uid, server, held } => {
            // The only server of an ensemble has no other server to hold the lock through.
            let is_only_server = snapshot.observation.views.iter().filter_map(|view| view.id).all(|id| id == *server);
            if is_only_server && list.servers.len() == 1 {
                delete_pod(key, snapshot, (pod, uid), TO_RESTART, context).await?;
                return Ok(true);
            }
            // Polling takes time. If this agent lost the lock meanwhile and acquires it again now, the holder in between
            // has released it, with all servers serving.
            let unchanged = *held && decide_again(key, snapshot, list, context).await?.restart == decision.restart;
            let requested = Instant::now();
            let lock = RestartLock { holder: snapshot.observation.holder.clone(), server: *server };
            if !acquire_lock(key, snapshot, &lock, *held, context).await {
                return Ok(false);
            }
            if unchanged && requested.elapsed() < LOCK_CONFIRMED {
                delete_pod(key, snapshot, (pod, uid), TO_RESTART, context).await?;
            } else if unchanged {
                debug!(pod, waited = ?requested.elapsed(), "the confirmation of the restart lock is too old");
            }
            Ok(true)
        }
    }
}

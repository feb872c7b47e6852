//! Asks servers for steps of the membership, and takes pods out.

use std::time::Instant;

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use tracing::{debug, info};

use crate::{
    agent::{
        Context, During, Error, control_client,
        decide::{self, Decision, membership::Action, restart::Next},
        observe::{self, Seen},
    },
    api::zookeeper::Ensemble,
    contract::{
        control_api::{LOCK_CONFIRMED, Mode, RestartLock},
        labels::{MANAGED_BY_AGENT, MANAGED_BY_LABEL},
    },
    runtime::reconcile::{is_conflict, is_gone},
};

/// Does what is due; tells whether it did anything.
pub(super) async fn act(
    key: &(String, String),
    seen: &Seen,
    decision: &Decision,
    context: &Context,
) -> Result<bool, Error> {
    let Some(list) = &decision.list else { return Ok(false) };
    let membership = decision.ours && membership(key, seen, decision, list, context).await;
    Ok(turn(key, seen, decision, list, context).await? || membership)
}

/// A server of this cluster that serves, the leader first: through it a step is taken.
fn own_server(seen: &Seen) -> Option<&str> {
    let mut own: Vec<_> = seen.observed.own.iter().map(|(_, own)| own).filter(|own| own.serving()).collect();
    own.sort_by_key(|own| !own.leads());
    own.iter().find_map(|own| seen.hosts.get(&own.view.as_ref()?.id?)).map(String::as_str)
}

async fn membership(
    key: &(String, String),
    seen: &Seen,
    decision: &Decision,
    list: &Ensemble,
    context: &Context,
) -> bool {
    let (Some(servers), Some(host)) = (&seen.servers, own_server(seen)) else { return false };
    let (kind, result) = match &decision.membership {
        Action::Done | Action::Wait(_) => return false,
        Action::Publish => ("list", servers.publish(host, list).await),
        Action::Reconfigure(step) => {
            info!(?step, namespace = key.0, name = key.1, "a step of the membership");
            ("reconfigure", servers.reconfigure(host, step).await)
        }
    };
    context.metrics.asked(kind, &result);
    match result {
        Ok(_) => {
            context.remember(key, |memory| {
                memory.stepped = true;
                if decision.membership == Action::Publish {
                    memory.published = list.incarnation.clone().zip(list.epoch);
                }
            });
            true
        }
        // Somebody else was first, or the quorum went: the next look tells.
        Err(error) => {
            info!(%error, namespace = key.0, name = key.1, "a step of the membership was not taken");
            false
        }
    }
}

/// Servers through which the turn for a server may be held: where it was held last, the leader, and all others that serve,
/// but that one.
fn other_servers(seen: &Seen, server: i32) -> Vec<String> {
    let mut others: Vec<_> =
        seen.observed.views.iter().filter(|view| view.serving && view.id.is_some_and(|id| id != server)).collect();
    others.sort_by_key(|view| view.mode != Some(Mode::Leader));
    let hosts = others.iter().filter_map(|view| seen.hosts.get(&view.id?)).cloned();
    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort_by_key(|host| Some(host) != seen.memory.through.as_ref());
    hosts
}

/// Takes the turn or confirms it; tells whether it is ours now. A turn that is held already is held through one server, and
/// all others refuse.
async fn take_turn(key: &(String, String), seen: &Seen, turn: &RestartLock, held: bool, context: &Context) -> bool {
    let Some(servers) = &seen.servers else { return false };
    for host in other_servers(seen, turn.server) {
        let result = servers.take_turn(&host, turn).await;
        context.metrics.asked("turn", &result);
        match result {
            Ok(()) => {
                context.remember(key, |memory| memory.through = Some(host));
                return true;
            }
            Err(error) => {
                debug!(%error, "no turn");
                if !held && matches!(error, control_client::Error::Refused { .. }) {
                    return false;
                }
            }
        }
    }
    false
}

async fn turn(
    key: &(String, String),
    seen: &Seen,
    decision: &Decision,
    list: &Ensemble,
    context: &Context,
) -> Result<bool, Error> {
    let holder = &seen.observed.holder;
    match &decision.turn {
        Next::Nothing | Next::Wait(_) => {
            // It ends if nobody asks for it again, and the server that went is not back yet.
            let turns = seen.observed.views.iter().filter_map(|view| view.restart_lock.as_ref());
            if let Some(turn) = turns.into_iter().find(|turn| turn.holder == *holder) {
                take_turn(key, seen, turn, true, context).await;
            }
            Ok(false)
        }
        // One that does not serve goes without the turn: it must not have come back while others were asked.
        Next::Take { pod, uid } => {
            if again(seen, list, context).await? != decision.turn {
                return Ok(true);
            }
            take(seen, pod, uid, context).await
        }
        Next::Release(turn) => {
            let Some(servers) = &seen.servers else { return Ok(false) };
            for host in other_servers(seen, 0) {
                let result = servers.give_turn(&host, turn).await;
                context.metrics.asked("release", &result);
                if result.is_ok() {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Next::TakeServing { pod, uid, server, held } => {
            // Where it is the only server, there is no other to ask, and nobody else to wait for.
            let alone = seen.observed.views.iter().filter_map(|view| view.id).all(|id| id == *server);
            if alone && list.servers.len() == 1 {
                return take(seen, pod, uid, context).await;
            }
            // Looking may take its time. If the turn was lost since, and taken again by this very request, then whoever had it
            // in between has given it back, with all servers serving.
            let as_before = *held && again(seen, list, context).await? == decision.turn;
            let asked = Instant::now();
            let turn = RestartLock { holder: holder.clone(), server: *server };
            if !take_turn(key, seen, &turn, *held, context).await {
                return Ok(false);
            }
            if as_before {
                if asked.elapsed() < LOCK_CONFIRMED {
                    return take(seen, pod, uid, context).await;
                }
                debug!(pod, waited = ?asked.elapsed(), "the turn was confirmed too long ago to act upon it");
            }
            Ok(true)
        }
    }
}

/// Looks at all servers again, right before one is taken out.
async fn again(seen: &Seen, list: &Ensemble, context: &Context) -> Result<Next, Error> {
    let selector = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"));
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &seen.namespace());
    let pods = pods.list(&selector).await.during(|| "reading pods".to_owned())?.items;
    let mut observed = seen.observed.clone();
    observed.views.clear();
    observed.own.iter_mut().for_each(|(_, own)| own.view = None);
    let mut fresh = Seen {
        observed,
        live: std::collections::BTreeMap::new(),
        hosts: std::collections::BTreeMap::new(),
        servers: seen.servers.clone(),
        memory: seen.memory.clone(),
    };
    observe::views(&mut fresh, list, &observe::addresses(&pods)).await;
    Ok(decide::decide(&fresh.observed, Timestamp::now()).turn)
}

/// Deletes this very pod: its StatefulSet makes the new one.
async fn take(seen: &Seen, pod: &str, uid: &str, context: &Context) -> Result<bool, Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &seen.namespace());
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(pod, &params).await {
        Err(error) if is_gone(&error) || is_conflict(&error) => return Ok(true),
        other => drop(other.during(|| format!("deleting pod {pod}"))?),
    }
    info!(pod, namespace = seen.namespace(), "taken out, to come back as declared");
    context.metrics.wrote("Pod", "delete");
    Ok(true)
}

//! Step: how the servers of this cluster progress.

use crate::agent::decide::{
    drain::Stay,
    first_start, growth,
    local_ensemble::LocalEnsemble,
    local_server::LocalServer,
    quorum::NO_SESSION,
    replicas::Replicas,
    restart::{RestartStep, WAITING_FOR_SETS},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, control_api::Phase},
    zookeeper::Role,
};

/// True if every server is as declared: started, with a volume of that size, and serving if a quorum has ever formed.
pub(super) fn is_as_declared(ensemble: &LocalEnsemble<'_>) -> bool {
    let spec = &ensemble.observation.object.spec;
    let count = |role: Role| ensemble.servers.iter().filter(|server| server.role == role).count();
    let wanted = |number: i32| usize::try_from(number).unwrap_or(0);
    ensemble.sets_are_current()
        && growth::is_done(ensemble)
        && ensemble.live(Role::Voter) == spec.replicas
        && count(Role::Voter) == wanted(spec.replicas)
        && count(Role::Observer) == wanted(spec.observers.unwrap_or(0))
        && ensemble.servers.iter().all(|server| {
            server.started() && !server.outdated(&spec.revision) && (!ensemble.formed || server.serving())
        })
        && turning_away(ensemble).is_none()
}

/// Which server has to leave a node that is being drained, and what it waits for. A server that stays comes first: it needs
/// the user. An agent that may not read nodes says so.
pub(super) fn draining(ensemble: &LocalEnsemble<'_>, restart: &RestartStep) -> Option<Cause> {
    let drained = || ensemble.servers.iter().filter_map(|server| Some((&server.pod, server.drain.as_ref()?)));
    let staying = drained().find_map(|(pod, drain)| Some((pod, &drain.node, drain.stays.as_ref()?)));
    if let Some((pod, node, stay)) = staying {
        let cause = match stay {
            Stay::NoOtherNode(why) => why.as_str(),
            Stay::TooFewVoters => "the server list names fewer than three voters",
        };
        let message = format!("{pod} stays on node {node}, which is being drained: {cause}");
        return Some(Cause { reason: Reason::ServerStays, message });
    }
    if let Some(why) = &ensemble.observation.unread_nodes {
        let message = format!(
            "The agent may not read nodes: {why}. So no server leaves a node that is being drained, and a server whose \
             node is gone counts as one that may run"
        );
        return Some(Cause { reason: Reason::NodesUnread, message });
    }
    let (pod, drain) = drained().next()?;
    let cause = match restart {
        RestartStep::Wait(why) => format!(": {why}"),
        _ => String::new(),
    };
    let message = format!("{pod} has to leave node {}, which is being drained{cause}", drain.node);
    Some(Cause { reason: Reason::NodeDrained, message })
}

/// What the servers lack. While the agent does not act, only a server that does not start.
pub(super) fn lacks(
    ensemble: &LocalEnsemble<'_>,
    replicas: &Replicas,
    restart: &RestartStep,
    acts: bool,
) -> Option<Cause> {
    if acts {
        return Some(describe(ensemble, replicas, restart));
    }
    if ensemble.over { leaving(ensemble) } else { failed(ensemble) }
}

/// A pod that takes long to end. Kubernetes keeps one whose node does not answer, or that has finalizers.
fn leaving(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let server = ensemble.servers.iter().find(|server| server.overdue)?;
    let message = format!(
        "{} is being stopped, and does not end: see its node and its finalizers. If the node is lost for good, delete the Node, \
         or give it the taint node.kubernetes.io/out-of-service",
        server.pod
    );
    Some(Cause { reason: Reason::Waiting, message })
}

/// The first thing that keeps the servers from being as declared.
fn describe(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, restart: &RestartStep) -> Cause {
    failed_pod(ensemble)
        .or_else(|| missing_certificates(ensemble))
        .or_else(|| {
            let waits = replicas.voters.waits.as_ref().or(replicas.observers.waits.as_ref())?;
            Some(Cause::new(Reason::Waiting, waits))
        })
        .or_else(|| ended_server(ensemble).or_else(|| turning_away(ensemble)))
        .or_else(|| starting_server(ensemble))
        .or_else(|| growth::describe(ensemble, restart))
        .unwrap_or_else(|| restarting(ensemble, restart))
}

/// A server that does not start, whatever spec the agent follows.
fn failed(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    failed_pod(ensemble).or_else(|| ended_server(ensemble)).or_else(|| turning_away(ensemble))
}

fn failed_pod(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let mut pending = ensemble.servers.iter().filter(|server| !server.started());
    let (server, failure) = pending.find_map(|server| Some((server, server.failure.as_ref()?)))?;
    Some(Cause::new(Reason::ServerFailed, format!("{} does not start: {failure}", server.pod)))
}

fn missing_certificates(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let spec = &ensemble.observation.object.spec;
    if spec.tls.quorum && ensemble.observation.quorum_certificates.is_none() {
        let message = "Servers wait for certificates of the quorum: the server list names none that are in this cluster. \
                       Wait for the operator and Karmada";
        return Some(Cause::new(Reason::WaitingForCertificates, message));
    }
    let client = spec.tls.client.as_ref().filter(|_| ensemble.lacks_client_certificates())?;
    let message = format!(
        "Servers wait for certificates for clients: Secret {} has not reached this cluster. Check that the control plane \
         has it",
        client.secret_name
    );
    Some(Cause::new(Reason::WaitingForCertificates, message))
}

/// The parent process restarts `ZooKeeper`, but most likely the spec is the cause of its exit. So the next spec is accepted.
fn ended_server(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    ensemble.servers.iter().find_map(|server| match &server.view.as_ref()?.phase {
        Phase::Exited { reason } => {
            Some(Cause::new(Reason::ServerFailed, format!("{} does not start: {reason}", server.pod)))
        }
        Phase::Waiting { .. } | Phase::Suspended | Phase::Running | Phase::Unknown => None,
    })
}

/// A server with the current spec that turns away every client with TLS. It serves, so nothing else would keep the change from
/// reaching the next cluster.
fn turning_away(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let mut current =
        ensemble.servers.iter().filter(|server| !server.outdated(&ensemble.observation.object.spec.revision));
    let (pod, why) = current.find_map(|server| Some((&server.pod, server.turns_away()?)))?;
    let message = format!(
        "{pod} serves, but turns away clients with TLS: {why}. Correct the settings ssl.* in template.zooCfg, or the \
         certificate of tls.client"
    );
    Some(Cause { reason: Reason::ServerFailed, message })
}

fn starting_server(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let message = ensemble.servers.iter().find_map(|server| match &server.view.as_ref()?.phase {
        Phase::Waiting { reason } => Some(format!("{} waits: {reason}", server.pod)),
        Phase::Suspended => Some(format!("{} is suspended", server.pod)),
        Phase::Running | Phase::Exited { .. } | Phase::Unknown => None,
    })?;
    let before = ensemble.observation.object.status.as_ref();
    let waits_for_voters = |server: &LocalServer| {
        let known = before.zip(server.view.as_ref());
        known.is_some_and(|(before, view)| first_start::waits_for_voters(before, ensemble.list, view))
    };
    let by_others = ensemble.servers.iter().all(|server| server.started() || waits_for_voters(server));
    Some(Cause::new(if by_others { Reason::WaitingForVoters } else { Reason::Starting }, message))
}

fn restarting(ensemble: &LocalEnsemble<'_>, restart: &RestartStep) -> Cause {
    if let (RestartStep::RestartServing { pod, held: false, .. }, Some(why)) =
        (restart, &ensemble.observation.lock_failure)
    {
        let message = format!("{pod} restarts once a server gives the agent the restart lock: {why}");
        return Cause::new(Reason::Waiting, message);
    }
    let idle = ensemble.servers.iter().find(|server| ensemble.formed && !server.serving());
    let is_outdated = |server: &LocalServer| server.outdated(&ensemble.observation.object.spec.revision);
    match (restart, idle) {
        (RestartStep::Restart { pod, .. } | RestartStep::RestartServing { pod, .. }, _) => {
            Cause::new(Reason::Restarting, format!("{pod} is being restarted"))
        }
        (RestartStep::Wait(why), idle) if idle.is_none() || ensemble.servers.iter().any(is_outdated) => {
            Cause::new(Reason::Waiting, why)
        }
        (_, Some(server)) => {
            let message = match server.doubt() {
                Some(doubt) => format!("{} may serve: {doubt}", server.pod),
                None if server.takes_part() => format!("{} {NO_SESSION}", server.pod),
                None => format!("{} does not serve yet", server.pod),
            };
            Cause::new(Reason::Starting, message)
        }
        (_, None) if !ensemble.sets_are_current() => Cause::new(Reason::Waiting, WAITING_FOR_SETS),
        (_, None) => Cause::new(Reason::Starting, "Servers are being started"),
    }
}

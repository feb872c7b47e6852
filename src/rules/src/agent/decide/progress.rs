//! Step: how the servers of this cluster progress.

use crate::agent::decide::{
    drain::Stay, growth, local_ensemble::LocalEnsemble, quorum::NO_SESSION, replicas::Replicas, restart::RestartStep,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, control_api::Phase},
    zookeeper::Role,
};

/// True if every server is as declared: started, with a volume of that size, and serving if a quorum has ever formed.
pub(super) fn is_complete(ensemble: &LocalEnsemble<'_>, restart: &RestartStep) -> bool {
    let spec = &ensemble.observation.object.spec;
    let count = |role: Role| ensemble.servers.iter().filter(|server| server.role == role).count();
    let wanted = |number: i32| usize::try_from(number).unwrap_or(0);
    *restart == RestartStep::Nothing
        && ensemble.sets_are_current()
        && growth::is_done(ensemble)
        && ensemble.live(Role::Voter) == spec.replicas
        && count(Role::Voter) == wanted(spec.replicas)
        && count(Role::Observer) == wanted(spec.observers.unwrap_or(0))
        && ensemble.servers.iter().all(|server| {
            server.started() && !server.outdated(&spec.revision) && (!ensemble.formed || server.serving())
        })
}

/// Which server has to leave a node that is being drained, and what it waits for. A server that stays comes first: it needs
/// the user.
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
    let (pod, drain) = drained().next()?;
    let cause = match restart {
        RestartStep::Wait(why) => format!(": {why}"),
        _ => String::new(),
    };
    let message = format!("{pod} has to leave node {}, which is being drained{cause}", drain.node);
    Some(Cause { reason: Reason::NodeDrained, message })
}

/// The first thing that keeps the servers from being complete.
pub(super) fn describe(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, restart: &RestartStep) -> Cause {
    failed_pod(ensemble)
        .or_else(|| missing_certificates(ensemble))
        .or_else(|| {
            let waits = replicas.voters.waits.as_ref().or(replicas.observers.waits.as_ref())?;
            Some(Cause::new(Reason::Waiting, waits))
        })
        .or_else(|| ended_server(ensemble))
        .or_else(|| starting_server(ensemble))
        .or_else(|| growth::describe(ensemble, restart))
        .unwrap_or_else(|| restarting(ensemble, restart))
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

fn starting_server(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let message = ensemble.servers.iter().find_map(|server| match &server.view.as_ref()?.phase {
        Phase::Waiting { reason } => Some(format!("{} waits: {reason}", server.pod)),
        Phase::Suspended => Some(format!("{} is suspended", server.pod)),
        Phase::Running | Phase::Exited { .. } | Phase::Unknown => None,
    })?;
    Some(Cause::new(Reason::Starting, message))
}

fn restarting(ensemble: &LocalEnsemble<'_>, restart: &RestartStep) -> Cause {
    match restart {
        RestartStep::Wait(why) => Cause::new(Reason::Waiting, why),
        RestartStep::Restart { pod, .. } | RestartStep::RestartServing { pod, .. } => {
            Cause::new(Reason::Restarting, format!("{pod} is being restarted"))
        }
        RestartStep::Release(_) | RestartStep::Nothing => {
            let idle = ensemble.servers.iter().find(|server| ensemble.formed && !server.serving());
            let message = idle.map(|server| match server.doubt() {
                Some(doubt) => format!("{} may serve: {doubt}", server.pod),
                None if server.takes_part() => format!("{} {NO_SESSION}", server.pod),
                None => format!("{} does not serve yet", server.pod),
            });
            Cause::new(Reason::Starting, message.unwrap_or_else(|| "Servers are being started".to_owned()))
        }
    }
}

//! All decisions about one object. Everything here is pure.
//!
//! [`decide`] is a list of steps, each in its own file with its own result:
//!
//! | rule | file |
//! |---|---|
//! | spec and server list that the agent accepts | [`accept`], `without_list` |
//! | servers of this cluster, the quorum that the agent sees, voters that are missing | [`local_server`], `local_ensemble`, [`quorum`], [`missing`] |
//! | whether a server may restart, and which one next | [`restart`]: its `rule` |
//! | whether a volume may be replaced | [`replace`]: its `rule` |
//! | steps of the membership | [`membership`] |
//! | number of servers, the fewest that must run | `replicas`, [`replica_floor`] |
//! | nodes that are drained | [`drain`] |
//! | first starts of a bootstrap | [`first_start`] |
//! | network check, its probes | `preflight`, [`probe`] |
//! | volumes: growth, problems, those without a server | [`growth`], `volume_problems`, `unused_claims` |
//! | certificates: for clients, loaded, expiring | [`client_certificates`], `client_problem`, `loaded`, `certificate_expiry` |
//! | other incarnations, removal, deletion | `other_incarnations`, `removal`, `deletion` |
//! | what holds up: refusals, obstacles, progress | [`refused`], `obstacle`, `progress` |
//! | report, events, warnings | [`status`], [`events`], [`warnings`] |

pub mod accept;
mod certificate_expiry;
pub mod client_certificates;
mod client_problem;
mod decision;
mod deletion;
pub mod drain;
pub mod events;
pub mod first_start;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod fixtures;
pub mod growth;
pub mod lifetimes;
mod loaded;
mod local_ensemble;
pub mod local_server;
pub mod membership;
pub mod missing;
pub mod observation;
mod obstacle;
mod other_incarnations;
pub(crate) mod preflight;
pub mod probe;
mod progress;
pub mod quorum;
pub mod refused;
mod removal;
pub mod replace;
pub mod replica_floor;
mod replicas;
pub mod restart;
pub mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
pub mod unused_claims;
mod volume_problems;
pub mod volume_size;
pub mod warnings;
mod without_list;

use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt;

pub use decision::Decision;
pub use decision::Requeue;

use crate::agent::decide::{
    accept::Acceptance, local_ensemble::LocalEnsemble, observation::Observation, obstacle::ObstacleInputs,
    preflight::ProbePlan, replace::ReplaceStep, replicas::Replicas, restart::RestartStep, status::AgentStatusInputs,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, tombstone},
    zookeeper::Ensemble,
};

/// Decides what the agent does next.
#[must_use]
pub fn decide(observation: &Observation, now: Timestamp) -> Decision {
    let object = &observation.object;
    let acceptance = observation.acceptance();
    let delivered = accept::delivered_lists(object, &observation.stored, &acceptance);
    let Some(list) = accept::newest(delivered, &observation.views).cloned() else {
        return without_list::decide(observation, &acceptance, now);
    };
    let probes = preflight::plan(observation);
    let ensemble = LocalEnsemble::new(observation, &list, &acceptance);
    let removal = removal::plan(&ensemble, &probes);
    let acts = ensemble.governed && !removal.departed;
    let (replicas, deletion) = (replicas::plan(&ensemble), deletion::classify(&ensemble, &removal, now));
    let client = client_problem::find(&ensemble, acts);
    let others = removal::describe(&object.name_any(), &removal.others);
    let obstacle = obstacle::first(&ObstacleInputs {
        acceptance: &acceptance,
        acts,
        observed: &observed_obstacles(&ensemble, &list),
        replicas: &replicas,
        others: others.as_ref(),
        deletion,
        refused: refused::of_servers(observation, acts).or_else(|| declared_over(&ensemble, &acceptance)),
        certificates: client.message.as_ref().filter(|_| client.blocks),
    });
    let membership = membership::plan(&ensemble, removal.departed);
    let replace = replace::plan(&ensemble, &replicas, acts);
    let restart = restart_beside(&replace, &ensemble, &replicas, acts);
    let as_declared = acts && progress::is_as_declared(&ensemble);
    let completed = as_declared && obstacle.is_none() && restart == RestartStep::Nothing;
    let run = acts.then_some((replicas.voters.replicas, replicas.observers.replicas));
    let has_servers = ensemble.remains() || run.is_some_and(|(voters, observers)| voters + observers > 0);
    let is_gone = observation.incarnations().is_empty() && !ensemble.is_being_deleted();
    let idle = membership.rests && restart == RestartStep::Nothing && replace == ReplaceStep::Nothing;
    let before = &object.status.clone().unwrap_or_default();
    let status = status::report(&AgentStatusInputs {
        generation: object.metadata.generation,
        cluster_id: observation.cluster_id.as_deref(),
        before,
        spec_hash: object.spec.spec_hash.as_deref().filter(|_| acceptance == Acceptance::Accepted),
        completed,
        as_declared,
        list: Some(&list),
        servers: &ensemble.servers,
        views: &observation.views,
        decommissioned: removal.decommissioned,
        progress: progress::lacks(&ensemble, &replicas, &restart, acts),
        obstacle,
        draining: progress::draining(&ensemble, &restart).filter(|_| acts),
        replacing: replace::describe(observation, &replace),
        undone: refused::undone(observation).or_else(|| refused::needless(observation).filter(|_| acts)),
        others: (removal.others.clone(), others),
        certificates: client.message,
        expiry: certificate_expiry::find(&ensemble, now).filter(|_| acts),
        published: membership.published,
        loaded: loaded::by_all(&ensemble),
        missing_secrets: loaded::missing(observation),
        preflight: probes.report.clone(),
        first_starts: first_start::record(before, &list, ensemble.local()),
        unused_claims: unused_claims::list(observation, (!removal.decommissioned).then_some(ensemble.incarnation)),
        smallest_volume: growth::smallest(&ensemble),
        missing_voters: observation.missing_voters.reported(missing::REPORTED_AFTER),
        spare: None,
        now,
    });
    Decision {
        takes_step: membership.is_ours,
        membership: membership.step,
        first_starts: first_start::answers(before, &list, &ensemble.servers),
        replicas: run,
        finalizer: deletion::needs_finalizer(observation, deletion, has_servers || probes.incarnation.is_some()),
        remove_object: is_gone && (removal.departed || ensemble.over && !ensemble.is_managed()),
        requeue: requeue(idle && (completed || !acts) && !removal.pending && probes == ProbePlan::default()),
        replace,
        restart,
        keeps_clients: other_incarnations::keep_clients(observation, &removal.others),
        remove: removal.incarnations,
        reclaim: removal.reclaim,
        status,
        probes,
        list: Some(list),
    }
}

/// Obstacles that no rule about servers finds.
fn observed_obstacles(ensemble: &LocalEnsemble<'_>, list: &Ensemble) -> Vec<Cause> {
    let observation = ensemble.observation;
    let newer_list = accept::newer_list(list, &observation.views);
    // Only the probe is a pod that the agent writes, and servers do not need it.
    let observed = newer_list.into_iter().chain(refused::foreign(observation, |kind, _| kind != "Pod"));
    let observed = observed.chain(observation.obstacles.iter().cloned());
    observed.chain(growth::refused(ensemble)).chain(growth::failure(ensemble)).collect()
}

/// A tombstone ends servers that an accepted spec declares: the object is being deleted, or the control plane was restored from a
/// copy that is older than the tombstone.
fn declared_over(ensemble: &LocalEnsemble<'_>, acceptance: &Acceptance) -> Option<Cause> {
    let (observation, id) = (ensemble.observation, ensemble.incarnation);
    let is_declared = *acceptance == Acceptance::Accepted && ensemble.is_managed() && !ensemble.is_being_deleted();
    let is_over = observation.tombstones.contains(id) && !ensemble.list.phase.is_ending();
    (is_over && is_declared).then(|| {
        let secret = tombstone::secret_name(&observation.object.name_any(), id);
        let message = format!(
            "Secret {secret} says that incarnation {id} is over, so its servers stop, and the control plane still declares it. If \
             the ensemble is being deleted, wait. If the control plane was restored from an older copy, and the ensemble shall go on, \
             delete that Secret in this cluster"
        );
        Cause { reason: Reason::DeclaredOver, message }
    })
}

const fn requeue(at_rest: bool) -> Requeue {
    if at_rest { Requeue::AtRest } else { Requeue::Busy }
}

/// The next restart. While a volume is being replaced, no server of this cluster restarts, and the agent keeps the restart
/// lock.
fn restart_beside(replace: &ReplaceStep, ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> RestartStep {
    match replace {
        ReplaceStep::Delete(deletion) => RestartStep::Wait(format!("The volume of {} is being replaced", deletion.pod)),
        ReplaceStep::Nothing | ReplaceStep::Wait(_) => restart::plan(ensemble, replicas, acts),
    }
}

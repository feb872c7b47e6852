//! Step: which restart is due, as far as StatefulSets, certificates and the deadline allow it.

mod rule;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

pub(super) use rule::check_restart;
pub(crate) use rule::next_suspended;
pub use rule::{RestartInputs, RestartStep, SILENCE, next_step};

use crate::agent::decide::{local_ensemble::LocalEnsemble, replicas::Replicas};
use mczk_api::{contract::control_api::Mode, zookeeper::Role};

/// How long the agent holds the restart lock for a server that does not come back.
const LOCK_LIMIT: Duration = Duration::from_secs(600);

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> RestartStep {
    if !acts {
        return RestartStep::Nothing;
    }
    let ending = ensemble.ending_volumes();
    if ensemble.list.phase.is_suspended() {
        return match next_suspended(&ensemble.revision(), &ensemble.servers, &ending) {
            RestartStep::Restart { .. } if !ensemble.sets_are_current() => wait_for_sets(),
            step => unless_refused(ensemble, step),
        };
    }
    let observation = ensemble.observation;
    let inputs = inputs(ensemble, replicas, &ending);
    let lock = inputs.lock;
    match unless_refused(ensemble, next_step(inputs)) {
        RestartStep::RestartServing { held: true, .. } if ensemble.lacks_client_certificates() => {
            lock.cloned().map_or(RestartStep::Nothing, RestartStep::Release)
        }
        RestartStep::Restart { .. } | RestartStep::RestartServing { .. } if ensemble.lacks_client_certificates() => {
            RestartStep::Wait("Waiting for certificates for clients".to_owned())
        }
        RestartStep::Restart { .. } | RestartStep::RestartServing { .. } if !ensemble.sets_are_current() => {
            wait_for_sets()
        }
        RestartStep::Wait(why) => match lock.filter(|lock| lock.holder == observation.holder) {
            // The server does not come back: other agents may restart theirs.
            Some(lock) if observation.locked_for >= LOCK_LIMIT => RestartStep::Release(lock.clone()),
            _ => RestartStep::Wait(why),
        },
        step => step,
    }
}

/// What the next restart depends on.
pub(super) fn inputs<'a>(
    ensemble: &'a LocalEnsemble<'_>,
    replicas: &Replicas,
    ending: &'a BTreeSet<&'a str>,
) -> RestartInputs<'a> {
    let observation = ensemble.observation;
    let serving = || observation.views.iter().filter(|view| view.serving);
    let leaders = serving().filter(|view| view.mode == Some(Mode::Leader));
    let expected = replicas.voters.replicas.saturating_add(replicas.observers.replicas);
    RestartInputs {
        revision: &observation.object.spec.revision,
        servers: &ensemble.servers,
        expected: usize::try_from(expected).unwrap_or(0),
        listed: ensemble.list.servers.iter().filter(|server| server.role == Role::Voter).count(),
        quorum: ensemble.quorum.as_ref(),
        formed: ensemble.formed,
        synced_voters: leaders.max_by_key(|view| view.zxid).and_then(|view| view.synced_voters),
        ending,
        lock: serving().find_map(|view| view.restart_lock.as_ref()),
        holder: &observation.holder,
    }
}

/// The step, or what follows if the API server refused to delete that pod or its volume: the agent waits, and other agents may
/// restart their servers.
fn unless_refused(ensemble: &LocalEnsemble<'_>, step: RestartStep) -> RestartStep {
    let Some((refused, why)) = ensemble.refused_deletion() else { return step };
    let server = ensemble.servers.iter().find(|server| server.pod == refused);
    let held = ensemble.observation.views.iter().filter_map(|view| view.restart_lock.as_ref()).find(|lock| {
        lock.holder == ensemble.observation.holder && server.is_some_and(|server| server.id == Some(lock.server))
    });
    match (step, held) {
        (step @ RestartStep::Release(_), _) => step,
        (_, Some(held)) => RestartStep::Release(held.clone()),
        (RestartStep::Restart { pod, .. } | RestartStep::RestartServing { pod, .. }, None) if pod == refused => {
            RestartStep::Wait(format!("{pod} is not restarted: {why}"))
        }
        (step, None) => step,
    }
}

fn wait_for_sets() -> RestartStep {
    RestartStep::Wait("Waiting for the StatefulSet controller".to_owned())
}

//! Step: which restart is due. It waits for StatefulSets and mounts, and ends a lock that is held for `LOCK_LIMIT`.

mod rule;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

pub(crate) use rule::next_suspended;
pub(super) use rule::{NO_COUNT, may_stop};
pub use rule::{RestartInputs, RestartStep, SILENCE, next_step};

use crate::{
    agent::decide::{local_ensemble::LocalEnsemble, replicas::Replicas},
    server::zoo_cfg::copy_limit,
};
use mczk_api::contract::control_api::{Mode, RestartLock};

/// How long the agent holds the restart lock for a server that does not come back.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(600);

/// A pod that is deleted before its controller has seen the newest StatefulSet comes back unchanged.
pub(super) const WAITING_FOR_SETS: &str = "Waiting for the StatefulSet controller";

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, replicas: &Replicas, acts: bool) -> RestartStep {
    let observation = ensemble.observation;
    let kept = ensemble.kept_pods();
    let inputs = inputs(ensemble, replicas, &kept);
    let lock = inputs.lock.filter(|lock| lock.holder == observation.holder);
    if !acts {
        return lock.map_or(RestartStep::Nothing, |lock| hand_back(ensemble, lock));
    }
    if ensemble.list.phase.is_suspended() {
        return match next_suspended(&ensemble.revision(), &ensemble.servers, &kept) {
            RestartStep::Restart { .. } if !ensemble.sets_are_current() => wait_for_sets(),
            step => step,
        };
    }
    let step = match (next_step(inputs), ensemble.missing_mount()) {
        (RestartStep::RestartServing { held: true, .. }, Some(_)) => {
            lock.cloned().map_or(RestartStep::Nothing, RestartStep::Release)
        }
        (RestartStep::Restart { .. } | RestartStep::RestartServing { .. }, Some(mount)) => {
            RestartStep::Wait(format!("Waiting for {mount}"))
        }
        (RestartStep::Restart { .. } | RestartStep::RestartServing { .. }, None) if !ensemble.sets_are_current() => {
            wait_for_sets()
        }
        // Its deletion was refused: other agents may restart theirs.
        (RestartStep::Wait(why), _) => match lock {
            Some(lock) if ensemble.is_refused(lock.server) => RestartStep::Release(lock.clone()),
            _ => RestartStep::Wait(why),
        },
        (step, _) => step,
    };
    // Whatever it waits for: other agents may restart theirs.
    let waits = matches!(step, RestartStep::Wait(_) | RestartStep::RestartServing { held: true, .. });
    match lock.filter(|_| waits && observation.locked_for >= LOCK_LIMIT) {
        Some(lock) => RestartStep::Release(lock.clone()),
        None => step,
    }
}

/// What becomes of the lock of an agent that restarts nothing any more: its server comes back, leaves, or takes too long.
fn hand_back(ensemble: &LocalEnsemble<'_>, lock: &RestartLock) -> RestartStep {
    let server = ensemble.servers.iter().find(|server| server.id == Some(lock.server));
    let is_back = server.is_some_and(|server| server.serving() && server.view.iter().any(|view| view.synced));
    let is_listed = ensemble.listed_voters.contains(&lock.server);
    let has_left = !is_listed && ensemble.quorum.as_ref().is_some_and(|quorum| !quorum.voters().contains(&lock.server));
    if is_back || has_left || ensemble.observation.locked_for >= LOCK_LIMIT {
        RestartStep::Release(lock.clone())
    } else {
        RestartStep::Wait(format!("Server {} is being started", lock.server))
    }
}

/// What the next restart depends on.
pub(super) fn inputs<'a>(
    ensemble: &'a LocalEnsemble<'_>,
    replicas: &Replicas,
    kept: &'a BTreeMap<&'a str, &'a str>,
) -> RestartInputs<'a> {
    let observation = ensemble.observation;
    let serving = || observation.views.iter().filter(|view| view.serving);
    let leaders = serving().filter(|view| view.mode == Some(Mode::Leader));
    let expected = replicas.voters.replicas.saturating_add(replicas.observers.replicas);
    RestartInputs {
        revision: &observation.object.spec.revision,
        servers: &ensemble.servers,
        expected_servers: usize::try_from(expected).unwrap_or(0),
        listed: &ensemble.listed_voters,
        quorum: ensemble.quorum.as_ref(),
        formed: ensemble.formed,
        synced_voters: leaders.max_by_key(|view| view.zxid).and_then(|view| view.synced_voters),
        pods_that_stay: kept,
        election: Duration::from_secs_f64(copy_limit(&observation.object.spec.template.zoo_cfg).clamp(0.0, 600.0)),
        lock: serving().find_map(|view| view.restart_lock.as_ref()),
        holder: &observation.holder,
    }
}

fn wait_for_sets() -> RestartStep {
    RestartStep::Wait(WAITING_FOR_SETS.to_owned())
}

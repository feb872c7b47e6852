//! Step: how many voters and observers run.

use crate::agent::decide::{local_ensemble::LocalEnsemble, replica_floor::ReplicaFloor};
use mczk_api::zookeeper::Role;

/// Voters and observers to run.
pub(super) struct Replicas {
    pub(super) voters: ReplicaFloor,
    pub(super) observers: ReplicaFloor,
}

pub(super) fn plan(ensemble: &LocalEnsemble<'_>) -> Replicas {
    let spec = &ensemble.observation.object.spec;
    let voters = ensemble.voters();
    let (wanted, live) = (spec.observers.unwrap_or(0), ensemble.live(Role::Observer));
    Replicas {
        voters: voters.min_replicas(spec.replicas, ensemble.live(Role::Voter), |ordinal| ensemble.id_of(ordinal)),
        // Observers count in no majority: they stop as soon as they are not wanted.
        observers: voters.raise(Role::Observer, wanted, live.min(wanted)),
    }
}

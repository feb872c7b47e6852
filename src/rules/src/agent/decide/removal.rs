//! Step: which incarnations are removed from this cluster, and which remain unexplained.

use std::collections::BTreeSet;

use crate::agent::decide::{
    local_ensemble::LocalEnsemble,
    preflight::{self, ProbePlan},
    replica_floor::Voters,
};
use mczk_api::{contract::labels::INCARNATION_LABEL, pod::Reclaim, zookeeper::Role};

/// What is removed from this cluster.
pub(super) struct Removal {
    /// Incarnations whose servers stop and whose objects are removed.
    pub(super) incarnations: BTreeSet<String>,
    /// What becomes of their volumes.
    pub(super) reclaim: Reclaim,
    /// True if this cluster has left the ensemble.
    pub(super) departed: bool,
    /// True if the incarnation is over and nothing of it remains here.
    pub(super) decommissioned: bool,
    /// True if anything to be removed remains.
    pub(super) pending: bool,
    /// Former incarnations that remain and that nothing declares over. They keep running, and the agent reports them.
    pub(super) unexplained: Option<String>,
}

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, probes: &ProbePlan) -> Removal {
    let departed = has_departed(ensemble);
    let incarnations =
        &removed(ensemble, departed) | &preflight::leftovers(ensemble.observation, Some(ensemble.incarnation), probes);
    let remaining = ensemble.observation.incarnations();
    // If only this cluster has left, the ensemble runs on in other clusters, and this one may come back.
    let reclaim = ensemble.observation.object.spec.template.storage.reclaim.filter(|_| !departed).unwrap_or_default();
    Removal {
        reclaim,
        departed,
        decommissioned: ensemble.over && !ensemble.remains(),
        pending: incarnations.iter().any(|incarnation| remaining.contains(incarnation.as_str())),
        unexplained: unexplained(ensemble, &incarnations, probes),
        incarnations,
    }
}

/// Incarnations that are over: former ones, those with a tombstone, and this one if it ends or this cluster has left it.
fn removed(ensemble: &LocalEnsemble<'_>, departed: bool) -> BTreeSet<String> {
    let current = ensemble.incarnation;
    let former = ensemble.list.former_incarnations.iter().filter(|incarnation| *incarnation != current).cloned();
    let ends = (ensemble.over || departed).then(|| current.to_owned());
    former.chain(ensemble.observation.tombstones.iter().cloned()).chain(ends).collect()
}

fn unexplained(ensemble: &LocalEnsemble<'_>, removed: &BTreeSet<String>, probes: &ProbePlan) -> Option<String> {
    let remaining = ensemble.observation.incarnations().into_iter();
    let awaited = preflight::awaited(ensemble.observation).filter(|id| !ensemble.observation.has_had_servers(id));
    let is_known =
        |id: &str| id == ensemble.incarnation || probes.incarnation.as_deref() == Some(id) || awaited == Some(id);
    let unknown: Vec<&str> = remaining.filter(|id| !is_known(id) && !removed.contains(*id)).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "Servers of former incarnations remain here, and no server list or tombstone declares these over: {}. If \
             you do not need them, remove the objects with these values of the label {INCARNATION_LABEL}",
            unknown.join(", ")
        )
    })
}

/// True if Karmada no longer manages the object and, by a configuration that a server read through a quorum, no server of
/// this cluster votes.
fn has_departed(ensemble: &LocalEnsemble<'_>) -> bool {
    let object = &ensemble.observation.object;
    let accepted_before = object.status.as_ref().is_some_and(|status| status.observed_spec_hash.is_some());
    let managed = ensemble.is_managed();
    if !accepted_before || ensemble.is_listed() || ensemble.over {
        return false;
    }
    let Some(quorum) = ensemble.quorum.as_ref().filter(|quorum| quorum.holds()) else {
        // Without a server here there is nothing to lose.
        return !ensemble.remains() && !managed;
    };
    let votes = |ordinal: i32| {
        let id = ensemble.id_of(ordinal);
        let voters = Voters { quorum: Some(quorum), ..ensemble.voters() };
        voters.min_replicas(ordinal, ordinal + 1, |_| id).replicas > ordinal
    };
    let voting = (0..ensemble.live(Role::Voter)).any(votes);
    (!managed || ensemble.is_being_deleted()) && !voting
}

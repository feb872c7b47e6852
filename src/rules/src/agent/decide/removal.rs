//! Step: which incarnations are removed from this cluster, and which live on without a list that names them.

use std::collections::BTreeSet;

use crate::agent::decide::{
    local_ensemble::LocalEnsemble,
    other_incarnations,
    preflight::{self, ProbePlan},
    quorum::Quorum,
};
use mczk_api::{
    pod::Reclaim,
    zookeeper::{OtherIncarnation, Role},
};

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
    /// Other incarnations that live here, and that nothing declares over. They keep running, and the agent reports them.
    pub(super) others: Vec<OtherIncarnation>,
}

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, probes: &ProbePlan) -> Removal {
    let departed = has_departed(ensemble);
    let incarnations =
        &removed(ensemble, departed) | &preflight::leftovers(ensemble.observation, Some(ensemble.incarnation), probes);
    let remaining = ensemble.observation.incarnations();
    Removal {
        reclaim: reclaim(ensemble, departed),
        departed,
        decommissioned: ensemble.over && !ensemble.remains(),
        pending: incarnations.iter().any(|incarnation| remaining.contains(incarnation.as_str())),
        others: other_incarnations::living(ensemble.observation, Some(ensemble.incarnation), &incarnations, probes),
        incarnations,
    }
}

/// What becomes of the volumes of the incarnation of the list. Those of any other one stay: the object that is here may not be
/// the one that made them, and a user who declares them over may still need the data.
fn reclaim(ensemble: &LocalEnsemble<'_>, departed: bool) -> Reclaim {
    let spec = &ensemble.observation.object.spec;
    let is_its_own = spec.ensemble.incarnation.as_deref() == Some(ensemble.incarnation);
    // If only this cluster has left, the ensemble runs on in other clusters, and this one may come back.
    spec.template.storage.reclaim.filter(|_| !departed && is_its_own).unwrap_or_default()
}

/// Incarnations that are over: former ones, those with a tombstone, and this one if it ends or this cluster has left it.
fn removed(ensemble: &LocalEnsemble<'_>, departed: bool) -> BTreeSet<String> {
    let current = ensemble.incarnation;
    let former = ensemble.list.former_incarnations.iter().filter(|incarnation| *incarnation != current).cloned();
    let ends = (ensemble.over || departed).then(|| current.to_owned());
    former.chain(ensemble.observation.tombstones.iter().cloned()).chain(ends).collect()
}

/// What users read of other incarnations that live beside the one of the list.
pub(super) fn describe(name: &str, others: &[OtherIncarnation]) -> Option<String> {
    let ids: Vec<&str> = others.iter().map(|other| other.incarnation.as_str()).collect();
    (!ids.is_empty()).then(|| {
        format!(
            "Servers or volumes of other incarnations of {name} are here, and no server list or tombstone declares these \
             over: {}. Its servers run on, and clients of this cluster reach them. If the ensemble does not need their data \
             any more, run `mczk declare-over {name} {}`, which deletes no volume",
            ids.join(", "),
            ids.join(" ")
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
    if !ensemble.quorum.as_ref().is_some_and(Quorum::holds) {
        // Without a server here there is nothing to lose.
        return !ensemble.remains() && !managed;
    }
    let votes = |ordinal: i32| ensemble.voters().votes(ordinal, ensemble.id_of(ordinal)) != Some(false);
    let voting = (0..ensemble.live(Role::Voter)).any(votes);
    (!managed || ensemble.is_being_deleted()) && !voting
}

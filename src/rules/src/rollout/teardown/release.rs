//! The second step: Karmada may delete the objects in the member clusters, and tombstones name the clusters that are left.

use std::collections::BTreeSet;

use super::deletion::TeardownReport;
use crate::rollout::{
    known::{Ending, Known},
    outcome::{ObjectWrite, Objects, Propagation},
};
use mczk_api::{
    contract::{conditions::Reason, tombstone::Tombstone},
    mutation::broken,
};

/// Turns preservation off, and waits until every Work shows it: only then Karmada deletes the objects in the member clusters.
/// `None` once all do.
pub(super) fn release(known: &Known<'_>, ending: &Ending) -> Option<TeardownReport> {
    if !ending.released {
        let message = "The operator releases the objects in the member clusters for deletion";
        let policy = ObjectWrite::Apply(Propagation { selection: ending.selection.clone(), releases: true });
        return Some(TeardownReport {
            objects: Objects { policy, ..Objects::default() },
            // The tombstone comes before the deletion of the objects that record its clusters.
            tombstone: tombstone(known, ending),
            ..TeardownReport::waits(Reason::Releasing, message)
        });
    }
    let preserves = |preserve: Option<bool>| preserve == Some(true);
    let left = known.works.iter().filter(|work| preserves(work.spec.preserve_resources_on_deletion)).count();
    if left > 0 && !broken!(DeleteBeforeReleased) {
        let message = format!("Waiting for Karmada to release {left} objects in member clusters for deletion");
        return Some(TeardownReport::waits(Reason::Releasing, message));
    }
    None
}

/// The tombstone for the clusters that may have servers and have not reported their end: those that the user has abandoned,
/// and those that left the ensemble while Karmada did not reach them.
fn tombstone(known: &Known<'_>, ending: &Ending) -> Option<Tombstone> {
    if !known.incarnation.recorded {
        return None;
    }
    let clusters: BTreeSet<String> = known
        .reports
        .iter()
        .filter(|(name, report)| {
            let status = report.status.as_ref();
            let may_hold = ending.concerned.contains(*name) || status.is_some_and(|s| s.observed_spec_hash.is_some());
            let is_done = report.has_decommissioned(&known.overrides.ensemble);
            may_hold && !is_done && (!report.reachable || known.abandoned.contains(name.as_str()))
        })
        .map(|(name, _)| name.clone())
        .collect();
    (!clusters.is_empty()).then(|| Tombstone {
        namespace: known.namespace.clone(),
        name: known.name.clone(),
        incarnation: known.incarnation.id.clone(),
        clusters,
    })
}

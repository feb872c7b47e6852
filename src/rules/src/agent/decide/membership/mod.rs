//! Step: which membership step is due, and which agent takes it.

mod rule;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

pub use rule::{MembershipStep, step};

use crate::agent::decide::local_ensemble::LocalEnsemble;
use mczk_api::zookeeper::{Ensemble, EnsemblePhase, ZooKeeperStatus};

/// How long other agents wait for the agent of the leader's cluster before they take the step.
const PATIENCE: Duration = Duration::from_secs(30);

/// The membership step that is due.
pub(super) struct MembershipPlan {
    pub(super) step: MembershipStep,
    /// True if this agent takes the step.
    pub(super) is_ours: bool,
    /// The newest epoch that the ensemble accepted from this cluster.
    pub(super) published: Option<i64>,
    /// True if nothing is due. While voters are missing, the agent polls often: a vote is taken soon after its time has come.
    pub(super) rests: bool,
}

pub(super) fn plan(ensemble: &LocalEnsemble<'_>, departed: bool) -> MembershipPlan {
    let published = published(ensemble);
    let step = if ensemble.follows && !departed && !ensemble.list.phase.is_suspended() {
        step(ensemble.list, &ensemble.observation.views, published, &lapsed(ensemble))
    } else {
        MembershipStep::Done
    };
    let is_ours = is_ours(ensemble.cluster, leaders_cluster(ensemble), ensemble.observation.due_for);
    let is_missing = ensemble.list.demote_after_seconds.is_some() && !ensemble.observation.missing_voters.is_empty();
    let awaits_time = is_missing && lapsed(ensemble).is_empty();
    MembershipPlan { rests: step == MembershipStep::Done && !awaits_time, step, is_ours, published }
}

/// The voters that have been missing for [`Ensemble::demote_after_seconds`].
fn lapsed(ensemble: &LocalEnsemble<'_>) -> BTreeSet<i32> {
    let observation = ensemble.observation;
    let declared = ensemble.list.demote_after_seconds.filter(|_| ensemble.list.phase == EnsemblePhase::Running);
    let Some(seconds) = declared.and_then(|seconds| u64::try_from(seconds).ok()) else { return BTreeSet::new() };
    observation.missing_voters.lasting(Duration::from_secs(seconds))
}

/// The newest epoch that this incarnation is known to have accepted: what the agent remembers, or reported before.
fn published(ensemble: &LocalEnsemble<'_>) -> Option<i64> {
    let incarnation = &ensemble.list.incarnation;
    let remembered = ensemble.observation.published.as_ref();
    let remembered = remembered.filter(|(of, _)| Some(of) == incarnation.as_ref()).map(|(_, epoch)| *epoch);
    let is_same = |list: &Ensemble| list.incarnation.is_some() && list.incarnation == *incarnation;
    let is_of_incarnation = |status: &&ZooKeeperStatus| status.ensemble.as_ref().is_some_and(is_same);
    let status = ensemble.observation.object.status.as_ref().filter(is_of_incarnation);
    remembered.max(status.and_then(|status| status.published_epoch))
}

fn leaders_cluster<'a>(ensemble: &LocalEnsemble<'a>) -> Option<&'a str> {
    let id = ensemble.quorum.as_ref()?.leader?;
    if ensemble.servers.iter().any(|server| server.id == Some(id)) {
        return Some(ensemble.cluster);
    }
    ensemble.list.servers.iter().find(|server| server.id == id).map(|server| server.cluster.as_str())
}

/// True if an agent takes a step that is due: that of the leader's cluster at once, others after [`PATIENCE`]. Two agents that
/// take it do no harm, since every step is conditional.
fn is_ours(cluster: &str, leader: Option<&str>, due_for: Duration) -> bool {
    leader == Some(cluster) || due_for >= PATIENCE
}

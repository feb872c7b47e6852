//! What the agent does next.

use std::collections::BTreeSet;

use crate::agent::decide::{
    membership::MembershipStep, preflight::ProbePlan, replace::ReplaceStep, restart::RestartStep,
};
use mczk_api::{
    mutation::broken,
    pod::Reclaim,
    zookeeper::{Ensemble, FirstStart, ZooKeeperStatus},
};

/// What the agent does next.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Decision {
    /// The accepted server list.
    pub list: Option<Ensemble>,
    /// Voters and observers to run, if the agent writes objects.
    pub replicas: Option<(i32, i32)>,
    /// Incarnations whose servers stop and whose objects are removed.
    pub remove: BTreeSet<String>,
    /// What becomes of the volumes of the list's own incarnation: see [`Self::reclaim_of`].
    pub reclaim: Reclaim,
    /// True if another incarnation keeps the Service and the ConfigMap for clients.
    pub keeps_clients: bool,
    /// What becomes of probes, before anything else is written.
    pub probes: ProbePlan,
    /// The membership step that is due.
    pub membership: MembershipStep,
    /// True if this agent takes that step.
    pub takes_step: bool,
    /// Recorded first starts of servers that wait for them.
    pub first_starts: Vec<FirstStart>,
    /// The volume that a user wants replaced.
    pub replace: ReplaceStep,
    /// The restart that is due.
    pub restart: RestartStep,
    /// The status to report.
    pub status: ZooKeeperStatus,
    /// True if the object carries the agent's finalizer.
    pub finalizer: bool,
    /// True if the agent deletes the object.
    pub remove_object: bool,
    /// When the agent reconciles again.
    pub requeue: Requeue,
}

impl Decision {
    /// What becomes of the volumes of an incarnation that is removed. Only the spec of the ensemble that made volumes may
    /// delete them.
    #[must_use]
    pub fn reclaim_of(&self, incarnation: &str) -> Reclaim {
        let own = self.list.as_ref().and_then(|list| list.incarnation.as_deref());
        if own == Some(incarnation) || broken!(ReclaimDeclared) { self.reclaim } else { Reclaim::Retain }
    }
}

/// When the agent reconciles again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Soon, because something is changing.
    Busy,
    /// At the interval for steady ensembles.
    AtRest,
}

//! What the agent read of one object, with what it needs to act on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use kube::ResourceExt;

use crate::{context::Memory, control_client::Servers, observe::objects::LiveObjects};
use mczk_api::contract::control_api::ServerReport;
use mczk_rules::agent::decide::{Decision, membership::MembershipStep, observation::Observation};

pub(crate) struct MemberSnapshot {
    pub(crate) observation: Observation,
    /// The agent's own objects, of every incarnation.
    pub(crate) live: LiveObjects,
    /// Host of each server, by id: the pod's address in this cluster, the listed name in others.
    pub(crate) hosts: BTreeMap<i32, String>,
    /// The client for the servers of this ensemble; absent without usable certificates.
    pub(crate) client: Option<Arc<dyn Servers>>,
    /// What the agent remembered at the time of the observation.
    pub(crate) memory: Memory,
}

impl MemberSnapshot {
    pub(crate) fn namespace(&self) -> String {
        self.observation.object.namespace().unwrap_or_default()
    }

    /// Namespace and name of the object.
    pub(crate) fn key(&self) -> (String, String) {
        (self.namespace(), self.observation.object.name_any())
    }

    /// Stores when something began.
    pub(crate) fn record(&self, memory: &mut Memory, decision: &Decision) {
        let due = matches!(decision.membership, MembershipStep::Publish | MembershipStep::Reconfigure(_));
        // The agent that took the step before this one continues: it has waited for the others already.
        let continues = |step: &MembershipStep| *step == decision.membership || memory.stepped;
        let since = memory.due.take().filter(|(step, _)| continues(step)).map(|(_, since)| since);
        memory.stepped &= due;
        memory.missing_voters.clone_from(&self.observation.missing_voters);
        memory.due = due.then(|| (decision.membership.clone(), since.unwrap_or_else(Instant::now)));
        let misses = !self.observation.missing_secrets.is_empty();
        memory.missing_since = begin(misses, memory.missing_since);
        let holder = &self.observation.holder;
        let locked = |view: &ServerReport| view.restart_lock.as_ref().is_some_and(|lock| lock.holder == *holder);
        let held = self.observation.views.iter().any(locked);
        memory.locked_since = begin(held, memory.locked_since);
        let claims = self.observation.claims.iter().map(|claim| &claim.uid);
        let uids: BTreeSet<&String> =
            claims.chain(self.observation.servers.iter().map(|(_, server)| &server.uid)).collect();
        memory.refused.retain(|uid, _| uids.contains(uid));
        let unready = self.observation.servers.iter().map(|(_, server)| server).filter(|server| !server.may_serve());
        let since = |uid: &String| memory.unready_since.get(uid).copied().unwrap_or_else(Instant::now);
        memory.unready_since = unready.map(|server| (server.uid.clone(), since(&server.uid))).collect();
    }
}

/// When a state began that holds now, or not.
fn begin(holds: bool, before: Option<Instant>) -> Option<Instant> {
    holds.then(|| before.unwrap_or_else(Instant::now))
}

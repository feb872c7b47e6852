//! The observations of a teardown, and the plan that waits.

use std::collections::BTreeSet;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::ResourceExt;

use crate::{
    api::{
        karmada::policy::{OverridePolicy, PropagationPolicy},
        zookeeper::{Ensemble, ZooKeeperStatus},
    },
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::RELEASED,
    },
    mutation::broken,
    rollout::{
        blocker::Blocker,
        cluster_selection::ClusterSelection,
        desired,
        events::{Event, EventReason},
        incarnation, name_conflict, objects,
        observed::Observed,
        outcome::{Findings, Plan},
        override_rules::{self, Overrides},
        placement, report, status,
    },
};

pub(super) struct Teardown<'a> {
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
}

impl<'a> Teardown<'a> {
    pub(super) fn is_ours(&self, meta: &ObjectMeta) -> bool {
        objects::is_ours(meta, &self.observed.object) || broken!(AdoptForeign)
    }

    pub(super) fn policy(&self) -> Option<&'a PropagationPolicy> {
        self.observed.policy.as_deref().filter(|policy| self.is_ours(&policy.metadata))
    }

    pub(super) fn overrides(&self) -> Option<&'a OverridePolicy> {
        self.observed.overrides.as_deref().filter(|policy| self.is_ours(&policy.metadata))
    }

    /// The content of the OverridePolicy.
    pub(super) fn current(&self) -> Overrides {
        self.overrides().map(|policy| override_rules::read(&policy.spec)).unwrap_or_default()
    }

    /// True once the operator has let Karmada delete the objects in the member clusters. A hand may do so earlier, while
    /// servers run.
    pub(super) fn is_released(&self) -> bool {
        self.policy().is_some_and(|policy| {
            let by_operator = policy.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(RELEASED));
            policy.spec.preserve_resources_on_deletion == Some(false) && (by_operator || broken!(BelieveReleased))
        })
    }

    /// An object of another owner with one of the names through which the operator ends servers that may run. Once those are
    /// decommissioned and released, the operator leaves it alone.
    pub(super) fn name_conflict(&self) -> Option<Blocker> {
        let abandoned = objects::abandoned(&self.observed.object);
        if self.is_released() || self.concerned().iter().all(|cluster| abandoned.contains(cluster.as_str())) {
            return None;
        }
        name_conflict::conflict(self.observed, &name_conflict::foreign(self.observed))
    }

    /// Every cluster that may have servers, or an object that names them.
    pub(super) fn concerned(&self) -> BTreeSet<String> {
        let current = self.current();
        let recorded = self.observed.object.status.as_ref().map_or(&[][..], |status| status.clusters.as_slice());
        let recorded = recorded.iter().filter(|cluster| !cluster.voters.is_empty() || cluster.desired > 0);
        current
            .cluster_specs
            .keys()
            .cloned()
            .chain(current.ensemble.servers.iter().map(|server| server.cluster.clone()))
            .chain(recorded.map(|cluster| cluster.name.clone()))
            .collect()
    }

    /// The incarnation that the policy or the status records.
    pub(super) fn recorded_incarnation(&self) -> Option<String> {
        let recorded = || self.observed.object.status.as_ref()?.ensemble.as_ref().map(|e| e.incarnation.clone());
        self.current().ensemble.incarnation.or_else(|| recorded().filter(|incarnation| !incarnation.is_empty()))
    }

    /// The incarnation that ends. A recorded one ends like any other, even if a tombstone names it.
    pub(super) fn incarnation(&self) -> String {
        self.recorded_incarnation().unwrap_or_else(|| {
            let reports = report::cluster_reports(self.observed.binding.as_ref(), &self.observed.clusters, &[]);
            let uid = self.observed.object.uid().unwrap_or_default();
            incarnation::current(&uid, None, false, &self.observed.tombstones, reports.values())
        })
    }

    /// The policy as it was. If another client deleted it: one for the clusters that may have servers.
    pub(super) fn propagation_policy(&self) -> serde_json::Result<PropagationPolicy> {
        let object = &self.observed.object;
        let selection = ClusterSelection::recover(self.observed).unwrap_or_else(|| {
            let clusters: Vec<(String, i32)> = self.concerned().into_iter().map(|cluster| (cluster, 1)).collect();
            let placement = placement::for_karmada(object.spec.placement.as_ref(), &clusters);
            ClusterSelection { hash: String::new(), placement, divided: false }
        });
        desired::propagation_policy(self.observed, &selection, &object.name_any(), &self.incarnation())
    }

    /// A plan that changes only the status. It publishes an event when the reason changes.
    pub(super) fn waiting(&self, reason: Reason, message: String) -> Plan {
        let before = self.observed.object.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        let progressing = find(before, ConditionType::Progressing, ConditionStatus::False);
        let is_published = progressing.is_some_and(|condition| condition.reason == reason.as_str());
        let findings = Findings { waiting: Some(Blocker { reason, message: message.clone() }), ..Findings::default() };
        let mut status = status::failed(self.observed, &findings, self.now);
        status.rollout = Some("Deleting".to_owned());
        let mut plan = Plan::nothing(status);
        if !is_published {
            plan.events.push(Event { reason: EventReason::Deleting, message });
        }
        plan
    }
}

/// True if the agent reports that it has decommissioned its servers as the server list says. Epochs of another incarnation do
/// not compare.
pub(super) fn is_decommissioned(status: &ZooKeeperStatus, list: &Ensemble) -> bool {
    let reported = status.ensemble.as_ref();
    reported.is_some_and(|reported| reported.incarnation == list.incarnation)
        && status.epoch() >= list.epoch
        && find(&status.conditions, ConditionType::Decommissioned, ConditionStatus::True).is_some()
}

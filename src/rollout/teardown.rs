//! The end of an ensemble: servers are dissolved first, objects go in the order that leaves nothing behind in a member.
//!
//! Karmada's deletion of a Work only releases the member's object while the policy preserves it. So: `dissolve` to every
//! cluster, wait until each reports it; preservation off, wait until every Work shows that; then template, binding and at
//! last the policies.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    api::{
        ZooKeeper,
        karmada::{
            policy::{OverridePolicy, PropagationPolicy},
            work::{NAMESPACE_PREFIX, Work},
        },
        zookeeper::{Ensemble, Role, ZooKeeperStatus},
    },
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::{ABANDON_CLUSTERS, OPERATOR_FINALIZER},
        naming::Naming,
        tombstone::Tombstone,
    },
    mutation::broken,
    rollout::{
        blocker::Blocker,
        certificates, cluster_spec,
        desired::{self, ClusterSelection, override_policy},
        events::{Event, EventReason},
        objects,
        observed::Observed,
        outcome::{Desired, Finalizer, Findings, Plan},
        override_rules::{self, Overrides},
        placement, rebootstrap,
        recovery::{Recovered, last_generation, recover_ensemble, recover_records},
        render,
        report::{self, ClusterReport},
        reported_list::{in_phase, newest_reported},
        status,
    },
};

/// Kubernetes' finalizer of a deletion that leaves owned objects where they are.
const ORPHAN: &str = "orphan";

/// The plan for an object that is being deleted.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn plan(observed: &Observed, now: Timestamp) -> serde_json::Result<Plan> {
    let object = &observed.object;
    if !object.finalizers().iter().any(|f| f == OPERATOR_FINALIZER) {
        return Ok(Plan::nothing(object.status.clone().unwrap_or_default()));
    }
    if object.finalizers().iter().any(|f| f == ORPHAN) {
        // `kubectl delete --cascade=orphan`: what is there is to stay as it is.
        let status = object.status.clone().unwrap_or_default();
        return Ok(Plan { finalizer: Finalizer::Remove, ..Plan::nothing(status) });
    }
    let teardown = Teardown { observed, now };
    let template = observed.template.as_ref().filter(|t| teardown.is_ours(&t.metadata));
    match template {
        Some(template) if template.metadata.deletion_timestamp.is_none() => {
            if let Some(plan) = teardown.dissolve(template)? {
                return Ok(plan);
            }
            if let Some(plan) = teardown.release()? {
                return Ok(plan);
            }
            Ok(teardown.delete_template())
        }
        Some(_) => Ok(teardown.delete_template()),
        None => match teardown.bring_back()? {
            Some(plan) => Ok(plan),
            None => Ok(teardown.delete_rest()),
        },
    }
}

/// What is known of what runs.
enum Remembered {
    /// This.
    Known(Box<Overrides>),
    /// Nothing, before these clusters were heard.
    Silent(Vec<String>),
}

struct Teardown<'a> {
    observed: &'a Observed,
    now: Timestamp,
}

impl<'a> Teardown<'a> {
    fn is_ours(&self, meta: &ObjectMeta) -> bool {
        objects::is_ours(meta, &self.observed.object) || broken!(AdoptForeign)
    }

    fn policy(&self) -> Option<&'a PropagationPolicy> {
        self.observed.policy.as_ref().filter(|p| self.is_ours(&p.metadata))
    }

    fn overrides(&self) -> Option<&'a OverridePolicy> {
        self.observed.overrides.as_ref().filter(|p| self.is_ours(&p.metadata))
    }

    fn known(&self) -> Overrides {
        self.overrides().map(|o| override_rules::read(&o.spec)).unwrap_or_default()
    }

    /// Every cluster that may hold servers, or an object that says so.
    fn concerned(&self) -> BTreeSet<String> {
        let known = self.known();
        let old = self.observed.object.status.as_ref().map(|s| s.clusters.as_slice()).unwrap_or_default();
        known
            .cluster_specs
            .keys()
            .cloned()
            .chain(known.ensemble.servers.iter().map(|s| s.cluster.clone()))
            .chain(old.iter().filter(|c| !c.voters.is_empty() || c.desired > 0).map(|c| c.name.clone()))
            .collect()
    }

    /// A plan that says what is waited for.
    fn waiting(&self, reason: Reason, message: String) -> Plan {
        let before = self.observed.object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let progressing = find(before, ConditionType::Progressing, ConditionStatus::False);
        let told = progressing.is_some_and(|condition| condition.reason == reason.as_str());
        let findings = Findings { waiting: Some(Blocker { reason, message: message.clone() }), ..Findings::default() };
        let mut status = status::failed(self.observed, &findings, self.now);
        status.rollout = Some("Deleting".to_owned());
        let mut plan = Plan::nothing(status);
        if !told {
            plan.events.push(Event { reason: EventReason::Deleting, message });
        }
        plan
    }

    /// Tells every cluster to dissolve, and waits until each reports that it has.
    fn dissolve(&self, template: &ZooKeeper) -> serde_json::Result<Option<Plan>> {
        // Once preservation is off, all of them have reported: what is left may be gone already.
        if self.released() {
            return Ok(None);
        }
        let object = &self.observed.object;
        let known = match self.remember(template)? {
            Remembered::Known(known) => *known,
            Remembered::Silent(clusters) => {
                return Ok(Some(self.waiting(
                    Reason::Decommissioning,
                    format!(
                        "what runs was forgotten: waits until these clusters report the list of servers that they obey: {}. A cluster that never comes back can be given up by the annotation {ABANDON_CLUSTERS}",
                        clusters.join(", ")
                    ),
                )));
            }
        };
        let mut concerned = self.concerned();
        concerned.extend(known.cluster_specs.keys().cloned());
        if concerned.is_empty() {
            return Ok(None);
        }
        let named: Vec<String> = concerned.iter().cloned().collect();
        let reports = report::cluster_reports(self.observed.binding.as_ref(), &self.observed.clusters, &named);
        let id = known.ensemble.incarnation.as_deref().unwrap_or_default();
        let newest = newest_reported(id, &reports).and_then(|list| list.epoch);
        // Above a newer list, which reports obey where an older policy was restored.
        if !known.ensemble.phase.is_ending() || newest > known.ensemble.epoch {
            let ensemble = in_phase(&known.ensemble, known.ensemble.phase.ended(), id, &reports)?;
            let old = object.status.clone().unwrap_or_default();
            let records = recover_records(self.observed, &old);
            let chosen = ClusterSelection::known(self.observed);
            let mut plan =
                self.waiting(Reason::Decommissioning, "servers are being dissolved in every cluster".to_owned());
            let wanted = Overrides { ensemble, ..known };
            if let Ok(policy) = override_policy(self.observed, &wanted, &records, chosen.as_ref())? {
                plan.overrides = Desired::Apply(policy);
            }
            return Ok(Some(plan));
        }
        let abandoned = objects::abandoned(&self.observed.object);
        let left: Vec<String> = concerned
            .into_iter()
            .filter(|name| !abandoned.contains(name.as_str()))
            .filter(|name| {
                !reports
                    .get(name)
                    .is_some_and(|m| m.fresh() && m.status.as_ref().is_some_and(|s| dissolved(s, &known.ensemble)))
            })
            .map(|name| {
                let reachable = reports.get(&name).is_some_and(|m| m.reachable);
                if reachable { name } else { format!("{name} (not Ready in Karmada)") }
            })
            .collect();
        if left.is_empty() || broken!(DeleteBeforeDissolved) {
            return Ok(None);
        }
        Ok(Some(self.waiting(
            Reason::Decommissioning,
            format!(
                "waits until these clusters report that their servers are dissolved: {}. A cluster that never comes back can be given up by the annotation {ABANDON_CLUSTERS}",
                left.join(", ")
            ),
        )))
    }

    /// The clusters that may hold servers of this life and were not heard to have ended it: those that a person gave up, and
    /// those that left the ensemble while Karmada did not reach them.
    fn unheard(&self) -> Option<Tombstone> {
        let object = &self.observed.object;
        let known = self.known().ensemble;
        let told =
            || object.status.as_ref()?.ensemble.as_ref().map(|e| e.incarnation.clone()).filter(|id| !id.is_empty());
        let incarnation = known.incarnation.clone().or_else(told)?;
        let concerned = self.concerned();
        let named: Vec<String> = concerned.iter().cloned().collect();
        let reports = report::cluster_reports(self.observed.binding.as_ref(), &self.observed.clusters, &named);
        let abandoned = objects::abandoned(&self.observed.object);
        let clusters: BTreeSet<String> = reports
            .into_iter()
            .filter(|(name, m)| {
                let status = m.status.as_ref();
                let holds = concerned.contains(name) || status.is_some_and(|s| s.observed_spec_hash.is_some());
                let done = m.fresh() && status.is_some_and(|s| dissolved(s, &known));
                holds && !done && (!m.reachable || abandoned.contains(name.as_str()))
            })
            .map(|(name, _)| name)
            .collect();
        (!clusters.is_empty()).then(|| Tombstone {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            incarnation,
            clusters,
        })
    }

    /// The life that ends.
    fn life(&self) -> String {
        let object = &self.observed.object;
        let known = self.known().ensemble.incarnation;
        let told =
            || object.status.as_ref()?.ensemble.as_ref().map(|e| e.incarnation.clone()).filter(|id| !id.is_empty());
        // What is known of ends like any other, also where it was noted as over just now.
        known.or_else(told).unwrap_or_else(|| {
            let reports = report::cluster_reports(self.observed.binding.as_ref(), &self.observed.clusters, &[]);
            let uid = object.uid().unwrap_or_default();
            rebootstrap::life(&uid, None, false, &self.observed.tombstones, reports.values())
        })
    }

    /// What the OverridePolicy says, or, when that was lost, what the status or the reports tell: nothing may be deleted
    /// that was not dissolved, also when nobody remembers that it runs.
    fn remember(&self, template: &ZooKeeper) -> serde_json::Result<Remembered> {
        let mut known = self.known();
        if !known.ensemble.servers.is_empty() || broken!(DissolveOnlyTheKnown) {
            return Ok(Remembered::Known(Box::new(known)));
        }
        let object = &self.observed.object;
        let old = object.status.clone().unwrap_or_default();
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        let id = self.life();
        let names = template.spec.source.as_ref().and_then(|s| s.names.as_ref());
        let naming = Naming { name: &name, namespace: &namespace, incarnation: &id, names };
        let reports = report::cluster_reports(self.observed.binding.as_ref(), &self.observed.clusters, &[]);
        let abandoned = objects::abandoned(&self.observed.object);
        // Where the object is applied and no status was ever written, no agent ever acted: there is nothing to ask for.
        let untouched = |m: &ClusterReport| m.reachable && m.applied && m.status.is_none() && !m.unreadable;
        let asked = reports.iter().filter(|(name, m)| !abandoned.contains(name.as_str()) && !untouched(m));
        let clusters: Vec<String> = asked.map(|(name, _)| name.clone()).collect();
        let tls = certificates::newest(&known.ensemble, newest_reported(&id, &reports), old.ensemble.as_ref());
        match recover_ensemble(naming, &old, &clusters, &reports, tls) {
            Recovered::Nothing => Ok(Remembered::Known(Box::new(known))),
            Recovered::Unreported(silent) => Ok(Remembered::Silent(silent)),
            // Nobody is left to ask: all of them were given up.
            Recovered::ServerListUnknown if clusters.is_empty() => Ok(Remembered::Known(Box::new(known))),
            // They tell of servers, but none of its list.
            Recovered::ServerListUnknown => Ok(Remembered::Silent(clusters)),
            Recovered::Ensemble(found) => {
                known.ensemble = *found;
                let mut voters: BTreeMap<&String, i32> = BTreeMap::new();
                for server in known.ensemble.servers.iter().filter(|s| s.role == Role::Voter) {
                    *voters.entry(&server.cluster).or_default() += 1;
                }
                // Without a pin an agent accepts nothing. This one comes together with `dissolve`, so it rolls nothing.
                for (cluster, count) in voters {
                    if !known.cluster_specs.contains_key(cluster) {
                        let generation = last_generation(cluster, &old, &reports);
                        known.cluster_specs.insert(
                            cluster.clone(),
                            cluster_spec::for_cluster(&template.spec, cluster, count, None, generation)?,
                        );
                    }
                }
                Ok(Remembered::Known(Box::new(known)))
            }
        }
    }

    fn released(&self) -> bool {
        self.policy().is_some_and(|p| p.spec.preserve_resources_on_deletion == Some(false))
    }

    /// Sets preservation to false, and waits until every Work shows it: only then Karmada deletes in the reports.
    fn release(&self) -> serde_json::Result<Option<Plan>> {
        if !self.released() {
            let mut policy = self.propagation_policy()?;
            policy.spec.preserve_resources_on_deletion = Some(false);
            policy.metadata = objects::with_applied_hash(policy.metadata, &policy.spec)?;
            let mut plan =
                self.waiting(Reason::Releasing, "reports' objects are being released for deletion".to_owned());
            plan.policy = Desired::Apply(policy);
            // Before anything goes by which it is known who has still to hear of the end.
            plan.tombstone = self.unheard();
            return Ok(Some(plan));
        }
        let kept = self.observed.works.iter().filter(|w| w.spec.preserve_resources_on_deletion == Some(true)).count();
        if kept > 0 && !broken!(DeleteBeforeReleased) {
            let message = format!("waits until Karmada has released {kept} objects in reports");
            return Ok(Some(self.waiting(Reason::Releasing, message)));
        }
        Ok(None)
    }

    /// The policy as it was, or, if somebody deleted it, one for the clusters that hold servers.
    fn propagation_policy(&self) -> serde_json::Result<PropagationPolicy> {
        let object = &self.observed.object;
        let chosen = ClusterSelection::known(self.observed).unwrap_or_else(|| {
            let clusters: Vec<String> = self.concerned().into_iter().collect();
            let placement = placement::for_karmada(object.spec.placement.as_ref(), &clusters);
            ClusterSelection { hash: String::new(), placement }
        });
        let id = self.life();
        desired::propagation_policy(self.observed, &chosen, &object.name_any(), &id)
    }

    fn delete_template(&self) -> Plan {
        let mut plan =
            self.waiting(Reason::DeletingTemplate, "the template and its exports are being deleted".to_owned());
        plan.template = Desired::Delete;
        plan.services = self.services();
        plan.protect_binding = Some(false);
        plan
    }

    fn services(&self) -> BTreeMap<String, Desired<Value>> {
        let keys = self.observed.services.keys().filter(|key| desired::service_is_ours(self.observed, key));
        keys.map(|key| (key.clone(), Desired::Delete)).collect()
    }

    /// A template that somebody else deleted: reports hold servers that only it can reach, so it comes back first.
    fn bring_back(&self) -> serde_json::Result<Option<Plan>> {
        if self.observed.template.is_some()
            || (self.overrides().is_none() && self.policy().is_none())
            || self.released()
            || self.concerned().is_empty()
        {
            return Ok(None);
        }
        let known = self.known();
        let certificates = certificates::dependencies(known.ensemble.tls.as_ref(), None);
        let spec =
            render::template(&self.observed.object, &self.observed.server_image, certificates, &known.cluster_specs)?;
        let mut plan = self.waiting(
            Reason::Decommissioning,
            "the template was deleted by somebody else and is brought back, to reach the clusters that hold servers"
                .to_owned(),
        );
        if self.policy().is_none() {
            plan.policy = Desired::Apply(self.propagation_policy()?);
        }
        plan.template = Desired::Apply(desired::template(self.observed, &spec, true)?);
        Ok(Some(plan))
    }

    /// Whether a Work is still there that somebody will remove: those of a cluster that was given up wait for it, and are
    /// marked for deletion already. It deletes its object when it is back.
    fn works_left(&self) -> bool {
        let abandoned = objects::abandoned(&self.observed.object);
        let of_lost = |work: &&Work| {
            let cluster = work.metadata.namespace.as_deref().and_then(|name| name.strip_prefix(NAMESPACE_PREFIX));
            cluster.is_some_and(|cluster| abandoned.contains(cluster)) && work.metadata.deletion_timestamp.is_some()
        };
        self.observed.works.iter().any(|work| !of_lost(&work))
    }

    /// Waits until Karmada has removed everything, then deletes the policies and lets the object go.
    fn delete_rest(&self) -> Plan {
        let (policy, overrides) = (self.policy(), self.overrides());
        let services = self.services();
        // Without a policy of ours, binding and Works belong to a template that is not ours either.
        let ours = policy.is_some() || overrides.is_some();
        let binding = self.observed.binding.as_ref().filter(|_| ours);
        if binding.is_some() || (ours && self.works_left()) || !services.is_empty() {
            let message = "waits until Karmada has removed the reports' objects".to_owned();
            let mut plan = self.waiting(Reason::DeletingBinding, message);
            plan.protect_binding = binding.map(|_| false);
            plan.services = services;
            return plan;
        }
        if policy.is_some() || overrides.is_some() {
            let mut plan = self.waiting(Reason::DeletingPolicies, "the policies are being deleted".to_owned());
            plan.policy = if policy.is_some() { Desired::Delete } else { Desired::Leave };
            plan.overrides = if overrides.is_some() { Desired::Delete } else { Desired::Leave };
            return plan;
        }
        let status = self.observed.object.status.clone().unwrap_or_default();
        Plan { finalizer: Finalizer::Remove, ..Plan::nothing(status) }
    }
}

fn dissolved(status: &ZooKeeperStatus, ensemble: &Ensemble) -> bool {
    // Epochs of another life count for nothing.
    let own = status.ensemble.as_ref().is_some_and(|told| told.incarnation == ensemble.incarnation);
    own && status.epoch() >= ensemble.epoch
        && find(&status.conditions, ConditionType::Decommissioned, ConditionStatus::True).is_some()
}

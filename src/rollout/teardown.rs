//! The end of an ensemble: servers are dissolved first, objects go in the order that leaves nothing behind in a member.
//!
//! Karmada's deletion of a Work only releases the member's object while the policy preserves it. So: `dissolve` to every
//! cluster, wait until each reports it; preservation off, wait until every Work shows that; then template, binding and at
//! last the policies.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::zookeeper::{Ensemble, ZooKeeperStatus},
    rollout::{
        ensemble,
        events::Event,
        member,
        mutation::Mutation,
        objects::{self, FINALIZER, GIVE_UP},
        override_rules::{self, Overrides},
        plan::{Desired, Finalizer, Findings, Observed, Plan, Wait, override_policy, remembered},
        status,
    },
};

/// Condition by which an agent reports that its servers are gone for good.
pub const DISSOLVED: &str = "Dissolved";

/// The plan for an object that is being deleted.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn plan(observed: &Observed, now: Timestamp, mutation: Mutation) -> serde_json::Result<Plan> {
    let object = &observed.object;
    let old = object.status.clone().unwrap_or_default();
    if !object.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Plan::nothing(old));
    }
    let ours = |meta| objects::is_ours(meta, object) || mutation.is(Mutation::AdoptForeign);
    let template = observed.template.as_ref().filter(|t| ours(&t.metadata));
    let policy = observed.policy.as_ref().filter(|p| ours(&p.metadata));
    let overrides = observed.overrides.as_ref().filter(|p| ours(&p.metadata));
    let waiting = |reason, message: String| {
        let findings = Findings { waiting: Some(Wait { reason, message }), ..Findings::default() };
        let mut status = status::failed(observed, &findings, now);
        status.rollout = Some("Deleting".to_owned());
        let changed = old.conditions.iter().find(|c| c.type_ == "Progressing").is_none_or(|c| c.reason != reason);
        let events = status
            .conditions
            .iter()
            .find(|c| c.type_ == "Progressing" && changed)
            .map(|c| Event { reason: "Deleting", warning: false, message: c.message.clone() })
            .into_iter()
            .collect();
        Plan { events, ..Plan::nothing(status) }
    };

    if let Some(template) = template {
        let mut known = overrides.map(|o| override_rules::read(&o.spec)).unwrap_or_default();
        let mut named: Vec<String> = known.pins.keys().cloned().collect();
        named.extend(known.ensemble.servers.iter().map(|s| s.cluster.clone()));
        named.extend(old.clusters.iter().filter(|c| !c.voters.is_empty() || c.desired > 0).map(|c| c.name.clone()));
        let given_up: BTreeSet<&str> =
            object.annotations().get(GIVE_UP).map(|list| list.split(',').map(str::trim).collect()).unwrap_or_default();
        let members = member::members(observed.binding.as_ref(), &observed.clusters, &named, mutation);
        let concerned: BTreeSet<&String> = named.iter().collect();
        if !concerned.is_empty() && template.metadata.deletion_timestamp.is_none() {
            if known.ensemble.dissolve != Some(true) {
                let records = remembered(observed, &old);
                known.ensemble = dissolving(&known.ensemble)?;
                let mut plan = waiting("Dissolving", "servers are being dissolved in every cluster".to_owned());
                if let Ok(policy) = override_policy(observed, &Overrides { ..known }, &records, 0, mutation)? {
                    plan.overrides = Desired::Apply(with_highest_id(policy, observed));
                }
                return Ok(plan);
            }
            let left: Vec<String> = concerned
                .into_iter()
                .filter(|name| !given_up.contains(name.as_str()))
                .filter(|name| {
                    !members
                        .get(*name)
                        .is_some_and(|m| m.fresh() && m.status.as_ref().is_some_and(|s| dissolved(s, &known.ensemble)))
                })
                .map(|name| {
                    let reachable = members.get(name).is_some_and(|m| m.reachable);
                    if reachable { name.clone() } else { format!("{name} (not Ready in Karmada)") }
                })
                .collect();
            if !left.is_empty() && !mutation.is(Mutation::DeleteBeforeDissolved) {
                return Ok(waiting(
                    "Dissolving",
                    format!(
                        "waits until these clusters report that their servers are dissolved: {}. A cluster that never comes back can be given up by the annotation {GIVE_UP}",
                        left.join(", ")
                    ),
                ));
            }
        }
        if let Some(policy) = policy.filter(|p| p.spec.preserve_resources_on_deletion != Some(false)) {
            let mut released = policy.clone();
            released.spec.preserve_resources_on_deletion = Some(false);
            let meta = objects::metadata(object, released.name_any(), Some(&policy.metadata));
            released.metadata = objects::seal(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    annotations: policy.metadata.annotations.clone().map(|mut a| {
                        a.retain(|key, _| key.starts_with("mczk.io/") && key != objects::APPLIED_HASH);
                        a
                    }),
                    ..meta
                },
                &released.spec,
            )?;
            let mut plan = waiting("Releasing", "members' objects are being released for deletion".to_owned());
            plan.policy = Desired::Apply(released);
            return Ok(plan);
        }
        let kept = observed.works.iter().filter(|w| w.spec.preserve_resources_on_deletion == Some(true)).count();
        if kept > 0 && !mutation.is(Mutation::DeleteBeforeReleased) {
            return Ok(waiting("Releasing", format!("waits until Karmada has released {kept} objects in members")));
        }
        let mut plan = waiting("DeletingTemplate", "the template and its exports are being deleted".to_owned());
        plan.template = Desired::Delete;
        plan.services = observed.services.keys().map(|key| (key.clone(), Desired::Delete)).collect();
        plan.services.retain(|key, _| service_is_ours(observed, key));
        plan.protect_binding = Some(false);
        return Ok(plan);
    }
    let services: BTreeMap<_, _> = observed
        .services
        .keys()
        .filter(|key| service_is_ours(observed, key))
        .map(|key| (key.clone(), Desired::Delete))
        .collect();
    let binding = observed.binding.as_ref().filter(|_| policy.is_some() || overrides.is_some());
    if binding.is_some() || !observed.works.is_empty() || !services.is_empty() {
        let mut plan = waiting("DeletingBinding", "waits until Karmada has removed the members' objects".to_owned());
        plan.protect_binding = binding.map(|_| false);
        plan.services = services;
        return Ok(plan);
    }
    if policy.is_some() || overrides.is_some() {
        let mut plan = waiting("DeletingPolicies", "the policies are being deleted".to_owned());
        plan.policy = if policy.is_some() { Desired::Delete } else { Desired::Leave };
        plan.overrides = if overrides.is_some() { Desired::Delete } else { Desired::Leave };
        return Ok(plan);
    }
    Ok(Plan { finalizer: Finalizer::Remove, ..Plan::nothing(old) })
}

fn service_is_ours(observed: &Observed, key: &str) -> bool {
    observed
        .services
        .get(key)
        .and_then(|v| v.get("metadata").cloned())
        .and_then(|m| serde_json::from_value(m).ok())
        .is_some_and(|meta| objects::is_ours(&meta, &observed.object))
}

fn with_highest_id(
    mut policy: crate::api::karmada::policy::OverridePolicy,
    observed: &Observed,
) -> crate::api::karmada::policy::OverridePolicy {
    use super::plan::HIGHEST_ID;
    let before = observed.overrides.as_ref().and_then(|o| o.annotations().get(HIGHEST_ID).cloned());
    if let Some(id) = before {
        policy.metadata.annotations.get_or_insert_default().insert(HIGHEST_ID.to_owned(), id);
    }
    policy
}

fn dissolving(current: &Ensemble) -> serde_json::Result<Ensemble> {
    ensemble::seal(Ensemble { dissolve: Some(true), epoch: Some(current.epoch.unwrap_or(0) + 1), ..current.clone() })
}

fn dissolved(status: &ZooKeeperStatus, ensemble: &Ensemble) -> bool {
    status.ensemble_epoch >= ensemble.epoch
        && status.conditions.iter().any(|c| c.type_ == DISSOLVED && c.status == "True")
}

//! The end of an ensemble: agents decommission the servers first, then the operator deletes the objects.
//!
//! When Karmada deletes a Work, it only releases the object in the member cluster while the policy preserves it. So the order
//! is: the server list decommissions, and every cluster reports it; preservation goes off, and every Work shows it; then the
//! template, the binding and at last the policies.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::Value;

use crate::{
    api::{
        ZooKeeper,
        karmada::policy::{OverridePolicy, PropagationPolicy},
    },
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::OPERATOR_FINALIZER,
        tombstone::Tombstone,
    },
    rollout::{
        binding::Request,
        blocker::Blocker,
        events::{Event, EventReason},
        known::{Ending, Known},
        name_conflict,
        outcome::{Finalizer, Findings, ObjectWrite, Plan},
        status,
    },
};

mod decommission;
mod delete;
mod recall;
mod release;

/// Kubernetes' finalizer of a deletion that keeps owned objects.
const ORPHAN: &str = "orphan";

/// What a step of the deletion writes while it waits.
struct Deletion {
    /// What the step waits for.
    cause: Blocker,
    overrides: ObjectWrite<OverridePolicy>,
    policy: ObjectWrite<PropagationPolicy>,
    services: BTreeMap<String, ObjectWrite<Value>>,
    template: ObjectWrite<ZooKeeper>,
    protect_binding: Option<bool>,
    tombstone: Option<Tombstone>,
    request: Option<Request>,
}

impl Deletion {
    /// A step that waits and writes nothing.
    fn waits(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            cause: Blocker { reason, message: message.into() },
            overrides: ObjectWrite::Leave,
            policy: ObjectWrite::Leave,
            services: BTreeMap::new(),
            template: ObjectWrite::Leave,
            protect_binding: None,
            tombstone: None,
            request: None,
        }
    }
}

/// The plan for an object that is being deleted.
///
/// # Errors
/// If a value has no JSON.
pub(super) fn plan(known: &Known<'_>, ending: &Ending) -> serde_json::Result<Plan> {
    let finalizers = known.object.finalizers();
    let unchanged = || Plan::nothing(known.object.status.clone().unwrap_or_default());
    if !finalizers.iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        return Ok(unchanged());
    }
    if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
        // `kubectl delete --cascade=orphan` keeps all objects as they are.
        return Ok(Plan { finalizer: Finalizer::Remove, ..unchanged() });
    }
    Ok(match step(known, ending)? {
        Some(deletion) => waiting(known, deletion),
        None => Plan { finalizer: Finalizer::Remove, ..unchanged() },
    })
}

/// The first step that is not done. `None` once all are.
fn step(known: &Known<'_>, ending: &Ending) -> serde_json::Result<Option<Deletion>> {
    if let Some(conflict) = foreign_object(known, ending) {
        return Ok(Some(Deletion::waits(conflict.reason, conflict.message)));
    }
    let template = known.template.filter(|template| known.is_ours(&template.metadata));
    let Some(template) = template else {
        let restored = decommission::restore_template(known, ending)?;
        return Ok(restored.or_else(|| delete::rest(known)));
    };
    if template.metadata.deletion_timestamp.is_some() {
        return Ok(Some(delete::template(known)));
    }
    // All clusters reported before the release. Their objects may be gone now.
    let decommissions = if ending.released { None } else { decommission::decommission(known, ending, template)? };
    if let Some(deletion) = decommissions {
        return Ok(Some(deletion));
    }
    let releases = release::release(known, ending)?;
    Ok(releases.or_else(|| Some(delete::template(known))))
}

/// An object of another owner with one of the names through which the operator ends servers that may run. Once those are
/// decommissioned and released, the operator leaves it alone.
fn foreign_object(known: &Known<'_>, ending: &Ending) -> Option<Blocker> {
    if ending.released || ending.concerned.iter().all(|cluster| known.abandoned.contains(cluster.as_str())) {
        return None;
    }
    name_conflict::conflict(known, &name_conflict::foreign(known))
}

/// The plan of a step that waits. It publishes an event when the reason changes.
fn waiting(known: &Known<'_>, deletion: Deletion) -> Plan {
    let Deletion { cause, overrides, policy, services, template, protect_binding, tombstone, request } = deletion;
    let before = known.status.conditions.as_slice();
    let progressing = find(before, ConditionType::Progressing, ConditionStatus::False);
    let is_published = progressing.is_some_and(|condition| condition.reason == cause.reason.as_str());
    let event = Event { reason: EventReason::Deleting, message: cause.message.clone() };
    let findings = Findings { waiting: Some(cause), ..Findings::default() };
    let mut status = status::failed(known, &findings);
    status.rollout = Some("Deleting".to_owned());
    Plan {
        overrides,
        policy,
        services,
        template,
        protect_binding,
        tombstone,
        requeue_after: request.as_ref().map(|request| request.again),
        reschedule: request.and_then(|request| request.at),
        events: if is_published { Vec::new() } else { vec![event] },
        ..Plan::nothing(status)
    }
}

//! The writes of a plan that differ from the live objects, in the order in which the operator makes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rollout::{
    as_written::{is_same, replacement},
    live::Live,
    observed::Observed,
    outcome::{Finalizer, ObjectWrite, Plan},
};
use mczk_api::{
    contract::{
        labels::OPERATOR_FINALIZER,
        naming::{binding_name, policy_name},
    },
    karmada::{DELETION_PROTECTION, PROTECTION_ALWAYS},
    zookeeper::ZooKeeperSpec,
};

/// A write of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
    /// The operator creates this.
    Create(Value),
    /// The operator replaces the live object by this.
    Update(Value),
    /// The operator deletes the object with this metadata.
    Delete(Box<ObjectMeta>),
}

/// The write of an owned object; `None` if the live one is as wanted.
///
/// # Errors
/// If the wanted object cannot be serialized.
pub fn change<T: Serialize>(
    desired: &ObjectWrite<T>,
    live: Option<&Value>,
) -> serde_json::Result<Option<ObjectChange>> {
    Ok(match desired {
        ObjectWrite::Leave => None,
        ObjectWrite::Delete => {
            let meta: Option<ObjectMeta> = live.and_then(|live| ObjectMeta::deserialize(live.get("metadata")?).ok());
            let meta = meta.filter(|meta| meta.deletion_timestamp.is_none());
            meta.map(|meta| ObjectChange::Delete(Box::new(meta)))
        }
        ObjectWrite::Apply(desired) => {
            let next = replacement(live, &serde_json::to_value(desired)?);
            next.map(|next| if live.is_some() { ObjectChange::Update(next) } else { ObjectChange::Create(next) })
        }
    })
}

/// The part of an object that the control plane stores otherwise than the operator wrote it, if Karmada or agents act by that
/// part: what rests on it cannot go on. Other parts may differ: a webhook that labels everything does no harm, and a newer
/// definition of `ZooKeeper` has defaults that this version does not know.
///
/// # Errors
/// As [`change`].
pub fn altered_part<T: Serialize>(
    kind: &str,
    desired: &ObjectWrite<T>,
    stored: &Value,
) -> serde_json::Result<Option<&'static str>> {
    let Some(ObjectChange::Update(again)) = change(desired, Some(stored))? else { return Ok(None) };
    let part = match kind {
        "PropagationPolicy" => "/spec/placement",
        "OverridePolicy" => "/spec/overrideRules",
        "ZooKeeper" => "/spec",
        _ => return Ok(None),
    };
    let (stored, wanted) = (stored.pointer(part), again.pointer(part));
    let understood = |spec: Option<&Value>| spec.and_then(|spec| ZooKeeperSpec::deserialize(spec).ok());
    let is_kept = if kind == "ZooKeeper" { understood(stored) == understood(wanted) } else { is_same(stored, wanted) };
    Ok((!is_kept).then_some(part.trim_start_matches('/')))
}

/// True if the binding has to get Karmada's deletion protection, or to lose it.
#[must_use]
pub fn changes_protection(observed: &Observed, protect: bool) -> bool {
    let Some(binding) = observed.binding.as_ref().filter(|b| b.metadata.deletion_timestamp.is_none() || !protect)
    else {
        return false;
    };
    let template = observed.template.as_deref().and_then(ResourceExt::uid);
    if protect && (template.is_none() || binding.spec.resource.uid != template) {
        return false;
    }
    let has = binding.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(DELETION_PROTECTION));
    has != protect
}

/// What a write does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The operator creates it.
    Create,
    /// The operator changes it.
    Update,
    /// The operator deletes it.
    Delete,
}

/// One write of a plan, with the object before and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedWrite {
    /// What the write does.
    pub verb: Verb,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// The live object, or the fields of it that change.
    pub before: Option<Value>,
    /// The object after the write. Contents of Secrets are not part of it.
    pub after: Option<Value>,
}

/// Every write of a plan but the status, in the order of the operator.
///
/// # Errors
/// If an object cannot be serialized.
pub fn writes(observed: &Observed, plan: &Plan) -> serde_json::Result<Vec<PlannedWrite>> {
    if let Some(write) = finalizer(observed, plan.finalizer) {
        // The operator observes again after it, and writes nothing else before.
        return Ok(vec![write]);
    }
    let name = observed.object.name_any();
    let policy = policy_name(&name);
    let certificate = || plan.certificate.iter().map(|make| secret(&make.name));
    let is_first = observed.template.is_none();
    let mut writes: Vec<PlannedWrite> = Vec::new();
    writes.extend(certificate().filter(|_| is_first));
    if let Some(tombstone) = &plan.tombstone {
        let policy = serde_json::to_value(tombstone.policy())?;
        writes.push(PlannedWrite {
            verb: Verb::Create,
            kind: "PropagationPolicy".to_owned(),
            name: tombstone.policy().name_any(),
            before: None,
            after: Some(policy),
        });
        writes.extend(tombstone.secret().name.map(|name| secret(&name)));
    }
    writes.extend(owned("OverridePolicy", &policy, &plan.overrides, observed.overrides.as_ref().map(Live::whole))?);
    writes.extend(owned("PropagationPolicy", &policy, &plan.policy, observed.policy.as_ref().map(Live::whole))?);
    for (key, desired) in &plan.services {
        let (kind, name) = key.split_once('/').unwrap_or(("", key));
        writes.extend(owned(kind, name, desired, observed.services.get(key))?);
    }
    writes.extend(protection(observed, plan, false));
    writes.extend(owned("ZooKeeper", &name, &plan.template, observed.template.as_ref().map(Live::whole))?);
    writes.extend(protection(observed, plan, true));
    if let Some(at) = plan.reschedule {
        let before = observed.binding.as_ref().and_then(|binding| binding.spec.reschedule_triggered_at.clone());
        let spec = |at: Option<Time>| json!({ "spec": { "rescheduleTriggeredAt": at } });
        writes.push(binding_update(&name, spec(before), spec(Some(Time(at)))));
    }
    writes.extend(certificate().filter(|_| !is_first));
    Ok(writes)
}

fn finalizer(observed: &Observed, desired: Finalizer) -> Option<PlannedWrite> {
    let before = observed.object.finalizers().to_vec();
    let mut after = before.clone();
    match desired {
        Finalizer::Keep => return None,
        Finalizer::Add => after.push(OPERATOR_FINALIZER.to_owned()),
        Finalizer::Remove => after.retain(|finalizer| finalizer != OPERATOR_FINALIZER),
    }
    let finalizers = |list: Vec<String>| Some(json!({ "metadata": { "finalizers": list } }));
    Some(PlannedWrite {
        verb: Verb::Update,
        kind: "MultiClusterZooKeeper".to_owned(),
        name: observed.object.name_any(),
        before: finalizers(before),
        after: finalizers(after),
    })
}

fn owned<T: Serialize>(
    kind: &str,
    name: &str,
    desired: &ObjectWrite<T>,
    live: Option<&Value>,
) -> serde_json::Result<Option<PlannedWrite>> {
    let (verb, after) = match change(desired, live)? {
        None => return Ok(None),
        Some(ObjectChange::Create(next)) => (Verb::Create, Some(next)),
        Some(ObjectChange::Update(next)) => (Verb::Update, Some(next)),
        Some(ObjectChange::Delete(_)) => (Verb::Delete, None),
    };
    let (kind, name) = (kind.to_owned(), name.to_owned());
    Ok(Some(PlannedWrite { verb, kind, name, before: live.cloned(), after }))
}

/// A Secret. It never changes, and its content stays secret.
fn secret(name: &str) -> PlannedWrite {
    PlannedWrite { verb: Verb::Create, kind: "Secret".to_owned(), name: name.to_owned(), before: None, after: None }
}

fn protection(observed: &Observed, plan: &Plan, protect: bool) -> Option<PlannedWrite> {
    if plan.protect_binding != Some(protect) || !changes_protection(observed, protect) {
        return None;
    }
    let labels = |is_protected: bool| {
        let label = is_protected.then_some(PROTECTION_ALWAYS);
        json!({ "metadata": { "labels": { DELETION_PROTECTION: label } } })
    };
    Some(binding_update(&observed.object.name_any(), labels(!protect), labels(protect)))
}

fn binding_update(object: &str, before: Value, after: Value) -> PlannedWrite {
    PlannedWrite {
        verb: Verb::Update,
        kind: "ResourceBinding".to_owned(),
        name: binding_name(object),
        before: Some(before),
        after: Some(after),
    }
}

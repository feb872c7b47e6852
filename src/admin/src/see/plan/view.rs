//! What the operator would write next, and what holds the rest back.

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::terminal::field_changes::{FieldChange, field_changes};
use mczk_api::{
    contract::labels::{APPLIED_HASH, RECORDS, TEMPLATE_HASH},
    karmada::policy::{OverridePolicySpec, OverrideRule},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
};
use mczk_rules::{
    rollout::{
        object_change::{PlannedWrite, Verb, writes},
        override_rules,
        plan::{Finalizer, Observed, Plan},
    },
    view::{
        findings::{self, Finding},
        steps::{self, StepView},
    },
};

/// Annotations that follow from the rest of an object.
const DERIVED: [&str; 3] = [APPLIED_HASH, TEMPLATE_HASH, RECORDS];

/// Path of the replicas in a template.
const REPLICAS: &str = "/spec/replicas";

/// What the operator would do next.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanView {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) generation: i64,
    /// Changes of the status. The operator writes it before everything else.
    pub(super) status: Vec<FieldChange>,
    /// Writes of objects, in order.
    pub(super) writes: Vec<WriteView>,
    /// Events that users get.
    pub(super) events: Vec<String>,
    /// What holds back the rest.
    pub(super) waits: Vec<Finding>,
    /// What each step of the plan reports.
    pub(super) steps: Vec<StepView>,
    /// Seconds after which the operator decides again, if nothing changes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requeue_seconds: Option<u64>,
}

/// A write of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteView {
    pub(super) verb: Verb,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) fields: Vec<FieldChange>,
}

impl PlanView {
    /// True if the operator would write something.
    pub(super) fn writes_something(&self) -> bool {
        !(self.status.is_empty() && self.writes.is_empty())
    }

    /// True if the operator would write something, or waits.
    pub(super) fn is_open(&self) -> bool {
        self.writes_something() || self.waits.iter().any(|finding| !finding.advice)
    }
}

/// The view of a plan.
///
/// # Errors
/// If an object cannot be serialized.
pub(super) fn view(observed: &Observed, plan: &Plan) -> serde_json::Result<PlanView> {
    let object = &observed.object;
    Ok(PlanView {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        generation: object.metadata.generation.unwrap_or(0),
        status: status(object.status.as_ref(), plan)?,
        writes: writes(observed, plan)?.into_iter().map(write).collect(),
        events: plan.events.iter().map(|event| format!("{}: {}", event.reason.as_str(), event.message)).collect(),
        waits: findings::of_ensemble(&plan.status.conditions),
        steps: steps::view(&plan.steps),
        requeue_seconds: plan.requeue_after.map(|after| after.as_secs()),
    })
}

fn status(before: Option<&MultiClusterZooKeeperStatus>, plan: &Plan) -> serde_json::Result<Vec<FieldChange>> {
    // The operator writes the finalizer alone, and decides again.
    if plan.finalizer != Finalizer::Keep || before == Some(&plan.status) {
        return Ok(Vec::new());
    }
    let before = before.map(serde_json::to_value).transpose()?;
    let after = serde_json::to_value(&plan.status)?;
    let is_shown = |change: &FieldChange| !change.path.ends_with("lastTransitionTime");
    Ok(field_changes(before.as_ref(), Some(&after)).into_iter().filter(is_shown).collect())
}

fn write(write: PlannedWrite) -> WriteView {
    let PlannedWrite { verb, kind, name, before, after } = write;
    let fields = match verb {
        Verb::Delete => Vec::new(),
        Verb::Create | Verb::Update => {
            let readable = |value: &Option<Value>| value.as_ref().map(|value| readable(value, &kind));
            let changes = field_changes(readable(&before).as_ref(), readable(&after).as_ref());
            // Another client has changed what the readable form leaves out.
            if changes.is_empty() { field_changes(before.as_ref(), after.as_ref()) } else { changes }
        }
    };
    WriteView { verb, kind, name, fields }
}

/// The clusters whose Work Karmada creates again: a rule of their own repeats the 0 replicas of all clusters.
fn lost_works(policy: &OverridePolicySpec) -> Vec<&str> {
    let sets_replicas = |rule: &&OverrideRule| rule.overriders.plaintext.iter().any(|patch| patch.path == REPLICAS);
    let targets = policy.override_rules.iter().filter(sets_replicas).filter_map(|rule| rule.target_cluster.as_ref());
    targets.flat_map(|target| target.cluster_names.iter().map(String::as_str)).collect()
}

/// An object with what the operator decides: without fields of the API server and hashes, and with the content of an
/// OverridePolicy by cluster.
fn readable(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
            metadata.remove(field);
        }
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !DERIVED.contains(&key.as_str()));
        for value in annotations.values_mut() {
            // The selected placement.
            let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(parsed) = parsed.filter(Value::is_object) {
                *value = parsed;
            }
        }
    }
    if kind == "OverridePolicy"
        && let Some(spec) = object.get_mut("spec")
        && let Ok(rules) = OverridePolicySpec::deserialize(&*spec)
    {
        let content = override_rules::read(&rules);
        *spec = json!({
            "clusterSpecs": content.cluster_specs, "ensemble": content.ensemble, "owned": content.owned,
            "lost": lost_works(&rules),
        });
    }
    object
}

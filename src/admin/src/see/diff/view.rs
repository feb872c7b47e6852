//! What an apply of a MultiClusterZooKeeper would change, restart and move.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::{ResourceExt, api::DynamicObject};
use serde::Serialize;
use serde_json::{Value, json};

use crate::terminal::field_changes::{FieldChange, field_changes};
use mczk_api::{
    contract::{conditions::Reason, labels::OPERATOR_FINALIZER},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    zookeeper::ZooKeeperSpec,
};
use mczk_rules::{
    rollout::{
        known::Known,
        plan::{
            Observed,
            forecast::{ClusterForecast, Forecast, forecast},
            plan,
        },
    },
    view::findings::{self, ENSEMBLE, Finding},
};

/// Reasons of the steps of every change: the operator writes, and Karmada schedules.
const TRANSIENT: [Reason; 4] =
    [Reason::Rescheduling, Reason::NoBinding, Reason::WaitingForSchedule, Reason::Certificates];

/// What an apply would do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffView {
    pub(super) namespace: String,
    pub(super) name: String,
    /// True if the object does not exist yet.
    pub(super) creates: bool,
    /// Fields of the object that differ.
    pub(super) fields: Vec<FieldChange>,
    /// Clusters whose servers differ after the rollout.
    pub(super) clusters: Vec<ClusterDiff>,
    /// True if Karmada's scheduler divides the voters: the numbers are those of now.
    pub(super) karmada_divides: bool,
    /// What the operator would wait for or refuse after the apply, and does not now.
    pub(super) findings: Vec<Finding>,
}

/// What changes in one cluster.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterDiff {
    pub(super) name: String,
    pub(super) voters_before: i32,
    pub(super) voters_after: i32,
    pub(super) observers_before: i32,
    pub(super) observers_after: i32,
    /// Servers that exist, stay and restart.
    pub(super) restarted: i32,
}

impl ClusterDiff {
    /// True if servers join, leave or restart.
    fn changes(&self) -> bool {
        self.voters_before != self.voters_after || self.observers_before != self.observers_after || self.restarted > 0
    }
}

/// The view of a diff between the live object and the one that the apply would store, with what the operator observes
/// `before` and `after` it.
///
/// # Errors
/// If a rule cannot serialize an object.
pub(super) fn view(
    live: Option<&DynamicObject>,
    stored: &DynamicObject,
    before: Option<&Observed>,
    after: &Observed,
    now: Timestamp,
) -> serde_json::Result<DiffView> {
    let Forecast { clusters, unscheduled, karmada_divides } = forecast(&Known::of(after, now))?;
    let after_apply = plan(after, now).status;
    let known: Vec<Condition> = before.map(|before| plan(before, now).status.conditions).unwrap_or_default();
    let mut findings = new_findings(&known, &after_apply);
    if let Some(cause) = unscheduled
        && !findings.iter().any(|finding| finding.reason.as_deref() == Some(cause.reason.as_str()))
    {
        findings.push(Finding::of_reason(ENSEMBLE, cause.reason, cause.message));
    }
    Ok(DiffView {
        namespace: after.object.namespace().unwrap_or_default(),
        name: after.object.name_any(),
        creates: live.is_none(),
        fields: field_changes(live.map(declared).as_ref(), Some(&declared(stored))),
        clusters: clusters.into_iter().map(cluster).filter(ClusterDiff::changes).collect(),
        karmada_divides,
        findings,
    })
}

/// What the operator would report after the apply, and does not report now.
fn new_findings(known: &[Condition], status: &MultiClusterZooKeeperStatus) -> Vec<Finding> {
    let before = findings::of_ensemble(known);
    let is_transient = |reason: &String| TRANSIENT.iter().any(|transient| transient.as_str() == reason);
    let is_new = |finding: &Finding| {
        !finding.reason.as_ref().is_some_and(is_transient)
            && !before.iter().any(|b| (&b.reason, &b.message) == (&finding.reason, &finding.message))
    };
    findings::of_ensemble(&status.conditions).into_iter().filter(is_new).collect()
}

/// The part of an object that a user declares.
fn declared(object: &DynamicObject) -> Value {
    let metadata = &object.metadata;
    let is_bookkeeping = |key: &str| key == "kubectl.kubernetes.io/last-applied-configuration";
    let annotations = metadata.annotations.iter().flatten().filter(|(key, _)| !is_bookkeeping(key));
    let annotations: BTreeMap<&String, &String> = annotations.collect();
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let mut declared = json!({ "metadata": {}, "spec": spec });
    if let Some(meta) = declared.get_mut("metadata").and_then(Value::as_object_mut) {
        if !annotations.is_empty() {
            meta.insert("annotations".to_owned(), json!(annotations));
        }
        if let Some(labels) = &metadata.labels {
            meta.insert("labels".to_owned(), json!(labels));
        }
    }
    declared
}

fn cluster((name, forecast): (String, ClusterForecast)) -> ClusterDiff {
    let counts = |spec: &Option<ZooKeeperSpec>| {
        spec.as_ref().map_or((0, 0), |spec| (spec.replicas, spec.observers.unwrap_or(0)))
    };
    let (before, after) = (counts(&forecast.before), counts(&forecast.after));
    let stay = before.0.min(after.0) + before.1.min(after.1);
    ClusterDiff {
        restarted: if forecast.restarts() { stay } else { 0 },
        name,
        voters_before: before.0,
        voters_after: after.0,
        observers_before: before.1,
        observers_after: after.1,
    }
}

/// What the operator would observe with another object. A new object has the finalizer that the operator adds first.
pub(super) fn with_object(mut observed: Observed, object: &DynamicObject) -> serde_json::Result<Observed> {
    let status = observed.object.status.take();
    observed.object = serde_json::from_value(serde_json::to_value(object)?)?;
    observed.object.status = status;
    if !observed.object.finalizers().iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        observed.object.finalizers_mut().push(OPERATOR_FINALIZER.to_owned());
    }
    Ok(observed)
}

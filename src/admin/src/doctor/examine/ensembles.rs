//! What the ensembles themselves report.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

use crate::doctor::{
    finding::{DoctorFinding, FindingSeverity},
    observed::{DoctorObserved, full_name, readable},
};
use mczk_api::contract::conditions::{ConditionStatus, ConditionType, find};
use mczk_rules::view::findings;

pub(super) const CHECKED: &str = "The operator has reconciled every ensemble, and no condition blocks one";

/// Ensembles that wait or need the user.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let Some(ensembles) = readable(&observed.ensembles, "ensembles", &mut found) else { return found };
    found.extend(ensembles.iter().filter_map(of_ensemble));
    found
}

fn of_ensemble(object: &DynamicObject) -> Option<DoctorFinding> {
    let meta = &object.metadata;
    let (name, namespace) = (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
    let remedy = format!("mczk why {name} --namespace {namespace}");
    let finding =
        |severity, message: String| Some(DoctorFinding::new(severity, full_name(meta), message, remedy.clone()));
    let observed_generation = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if observed_generation != meta.generation {
        let generation = meta.generation.unwrap_or(0);
        return finding(FindingSeverity::Fault, format!("The operator has not reconciled generation {generation}"));
    }
    let conditions = object.data.pointer("/status/conditions");
    let conditions: Vec<Condition> =
        conditions.and_then(|conditions| Vec::deserialize(conditions).ok()).unwrap_or_default();
    let risks =
        [(ConditionType::QuorumSafe, ConditionStatus::False), (ConditionType::UntestedVersion, ConditionStatus::True)]
            .map(|(type_, status)| Some(format!("{type_}={}", status.as_str())));
    // The risk comes last: another cause may be a fault.
    let mut causes = findings::of_ensemble(&conditions);
    causes.retain(|cause| !cause.advice);
    causes.sort_by_key(|cause| risks.contains(&cause.condition));
    let cause = causes.into_iter().next()?;
    let holds = |type_| find(&conditions, type_, ConditionStatus::True).is_some();
    // All servers serve, although the ensemble would not survive the loss of a cluster, or a version is not tested.
    let at_risk = holds(ConditionType::Ready) && risks.contains(&cause.condition);
    // A rollout that moves needs no action.
    let severity =
        if at_risk || holds(ConditionType::Progressing) { FindingSeverity::Warning } else { FindingSeverity::Fault };
    finding(severity, cause.message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, ensemble_with, healthy, now};

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn examined(conditions: &[Value]) -> Vec<DoctorFinding> {
        let mut observed = healthy();
        ensemble_with(&mut observed, json!({ "status": { "conditions": conditions } }));
        examine(&observed, now())
    }

    fn with(progressing: &str, reason: &str) -> Vec<DoctorFinding> {
        examined(&[
            condition("Ready", "False", "RollingOut", "Deploying m2"),
            condition("Progressing", progressing, reason, "Cluster m2: ImagePullBackOff"),
        ])
    }

    #[test]
    fn an_ensemble_that_waits() {
        let findings = with("False", "ClusterFailed");
        assert_fault(&findings, "Cluster m2: ImagePullBackOff", "mczk why zk --namespace n");
        assert_eq!(findings[0].subject, "n/zk");
    }

    #[test]
    fn a_rollout_that_moves_is_a_warning() {
        assert_warning(&with("True", "Deploying"), "Cluster m2", "mczk why zk --namespace n");
    }

    #[test]
    fn an_ensemble_that_is_ready_but_at_risk_is_a_warning() {
        let mut conditions = vec![
            condition("Ready", "True", "Serving", "All serve"),
            condition("Progressing", "False", "Done", "Done"),
            condition("QuorumSafe", "False", "ClusterHoldsMajority", "Without cluster m1"),
        ];
        assert_warning(&examined(&conditions), "Without cluster m1", "mczk why zk --namespace n");
        conditions[2] = condition("UntestedVersion", "True", "NotTested", "No run with Kubernetes 1.40");
        assert_warning(&examined(&conditions), "No run with Kubernetes 1.40", "mczk why zk --namespace n");
        conditions.push(condition("UnsafeVersion", "True", "LosesWrites", "Servers run 3.9.3"));
        assert_fault(&examined(&conditions), "Servers run 3.9.3", "mczk why zk --namespace n");
    }

    #[test]
    fn an_ensemble_that_no_operator_reconciles() {
        let mut observed = healthy();
        ensemble_with(&mut observed, json!({ "metadata": { "generation": 3 } }));
        assert_fault(&examine(&observed, now()), "has not reconciled generation 3", "mczk why zk");
    }
}

//! `InterpretHealth`: true if the servers of a member cluster are as the spec of that cluster demands.
//!
//! Karmada's graceful eviction removes an old cluster as soon as the new ones are healthy. So a cluster that is held at
//! 0 servers until its position in the rollout is not healthy: otherwise the old cluster would be removed before the
//! new one starts.

use mczk_api::zookeeper::EnsemblePhase;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{object::read, refusal::Refusal};

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct HealthView {
    spec: ObjectSpec,
    #[serde(default)]
    status: Option<HealthStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
struct ObjectSpec {
    replicas: i32,
    #[serde(default)]
    spec_hash: Option<String>,
    #[serde(default)]
    ensemble: Option<HealthEnsemble>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct HealthEnsemble {
    #[serde(default)]
    phase: EnsemblePhase,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
struct HealthStatus {
    #[serde(default)]
    observed_spec_hash: Option<String>,
    #[serde(default)]
    completed_spec_hash: Option<String>,
    #[serde(default)]
    started_replicas: Option<i32>,
    #[serde(default)]
    ready_replicas: Option<i32>,
}

/// True if the spec has a hash, the agent observed and completed it, and as many servers serve as demanded. While no
/// quorum has formed no server can serve, so started servers count.
///
/// # Errors
/// If a field that is read has another type. Karmada then treats the health as unknown, which it is.
pub(crate) fn interpret(object: &RawValue) -> Result<bool, Refusal> {
    let HealthView { spec, status } = read("object", object)?;
    let (Some(hash), Some(status)) = (spec.spec_hash, status) else { return Ok(false) };
    let complete =
        status.observed_spec_hash.as_ref() == Some(&hash) && status.completed_spec_hash.as_ref() == Some(&hash);
    let bootstrap = spec.ensemble.is_some_and(|ensemble| ensemble.phase.is_bootstrap());
    let enough = |replicas: Option<i32>| replicas.unwrap_or(0) >= spec.replicas;
    Ok(complete && (enough(status.ready_replicas) || bootstrap && enough(status.started_replicas)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value, status: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(&json!({ "spec": spec, "status": status })).unwrap()
    }

    #[rstest]
    #[case::serving(json!({"replicas": 2, "specHash": "p", "ensemble": {}}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "readyReplicas": 2}), true)]
    #[case::one_not_serving(json!({"replicas": 2, "specHash": "p"}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "readyReplicas": 1, "startedReplicas": 2}), false)]
    #[case::bootstrap(json!({"replicas": 2, "specHash": "p", "ensemble": {"phase": "Bootstrapping"}}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "startedReplicas": 2}), true)]
    #[case::bootstrap_begun(json!({"replicas": 2, "specHash": "p", "ensemble": {"phase": "Bootstrapping"}}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "startedReplicas": 1}), false)]
    #[case::bootstrap_over(json!({"replicas": 2, "specHash": "p", "ensemble": {"phase": "Running"}}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "startedReplicas": 2}), false)]
    #[case::held_at_zero(json!({"replicas": 0, "ensemble": {}}), json!({"readyReplicas": 0}), false)]
    #[case::zero_replicas_with_a_hash(json!({"replicas": 0, "specHash": "p"}), json!({"observedSpecHash": "p", "completedSpecHash": "p"}), true)]
    #[case::old_hash_completed(json!({"replicas": 2, "specHash": "q"}), json!({"observedSpecHash": "q", "completedSpecHash": "p", "readyReplicas": 2}), false)]
    #[case::hash_not_observed(json!({"replicas": 2, "specHash": "q"}), json!({"observedSpecHash": "p", "completedSpecHash": "q", "readyReplicas": 2}), false)]
    #[case::no_status(json!({"replicas": 2, "specHash": "p"}), json!(null), false)]
    #[case::empty_status(json!({"replicas": 0, "specHash": "p"}), json!({}), false)]
    #[case::more_than_demanded(json!({"replicas": 1, "specHash": "p"}), json!({"observedSpecHash": "p", "completedSpecHash": "p", "readyReplicas": 2, "news": []}), true)]
    fn health_is_interpreted(#[case] spec: Value, #[case] status: Value, #[case] healthy: bool) {
        assert_eq!(interpret(&object(&spec, &status)), Ok(healthy));
    }

    #[test]
    fn an_unreadable_status_is_refused() {
        assert_eq!(
            interpret(&object(&json!({"replicas": 1, "specHash": "p"}), &json!({"readyReplicas": "1"}))).unwrap_err(),
            Refusal::unreadable("object.status.readyReplicas: invalid type: string \"1\", expected i32")
        );
    }
}

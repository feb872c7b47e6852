//! Autoscalers whose target is an ensemble.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, is_our_group, readable, title},
};

pub(super) const CHECKED: &str = "No FederatedHPA and no HorizontalPodAutoscaler targets an ensemble";

/// Autoscalers that follow load. A `CronFederatedHPA` follows the clock, and may target an ensemble.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let autoscalers = readable(&observed.autoscalers, "autoscalers", &mut findings);
    findings.extend(autoscalers.into_iter().flatten().filter_map(of_autoscaler));
    findings
}

fn of_autoscaler(autoscaler: &DynamicObject) -> Option<DoctorFinding> {
    let target = autoscaler.data.pointer("/spec/scaleTargetRef")?;
    let field = |name: &str| target.get(name).and_then(Value::as_str);
    let (kind, name) = (field("kind")?, field("name")?);
    let message = format!(
        "It targets {kind} {name}, and does not scale it: Karmada propagates no MultiClusterZooKeeper, and no ZooKeeper has a scale. \
         More voters take no load off the others"
    );
    let (own_kind, own_name) = (autoscaler.types.as_ref()?.kind.to_lowercase(), autoscaler.name_any());
    let remedy = format!(
        "kubectl --namespace {} edit {own_kind} {own_name}: name another target, or delete it if it is for nothing else. For reads, \
         add observers: see docs/how-to/change-scale-move.md",
        autoscaler.namespace().unwrap_or_default()
    );
    is_our_group(field("apiVersion")?).then(|| DoctorFinding::warning(title(autoscaler), message, remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_warning, healthy, now, object};

    fn with(api_version: &str, kind: &str, target: &str) -> Vec<DoctorFinding> {
        let mut observed = healthy();
        let target = json!({ "apiVersion": target, "kind": "MultiClusterZooKeeper", "name": "zk" });
        let spec = json!({ "spec": { "scaleTargetRef": target } });
        observed.autoscalers = Ok(vec![object(api_version, kind, Some("n"), "load", spec)]);
        examine(&observed, now())
    }

    #[rstest]
    #[case("autoscaling.karmada.io/v1alpha1", "FederatedHPA", "edit federatedhpa load")]
    #[case("autoscaling/v2", "HorizontalPodAutoscaler", "edit horizontalpodautoscaler load")]
    fn an_autoscaler_targets_an_ensemble(#[case] api_version: &str, #[case] kind: &str, #[case] remedy: &str) {
        let findings = with(api_version, kind, "mczk.io/v1alpha1");
        assert_warning(&findings, "It targets MultiClusterZooKeeper zk", &format!("kubectl --namespace n {remedy}"));
        assert_eq!(findings[0].subject, format!("{kind} n/load"));
        assert_eq!(with(api_version, kind, "apps/v1"), []);
    }
}

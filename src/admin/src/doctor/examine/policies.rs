//! Policies of others that select objects of ensembles.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    doctor::{
        finding::DoctorFinding,
        observed::{DoctorObserved, ensembles, is_our_group, readable, title},
    },
    register::{agents::POLICY, propagation::policies as registered},
};
use mczk_api::{
    contract::labels::TOMBSTONE,
    karmada::{ResourceSelector, policy},
};
use mczk_reading::kinds::resource;
use mczk_rules::rollout::services::MCS_API_VERSION;

pub(super) const CHECKED: &str = "No policy of others selects ZooKeeper objects, exports or imports of an ensemble";

/// Policies that select our objects.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let Some(policies) = readable(&observed.policies, "policies", &mut findings) else { return findings };
    let ensembles = ensembles(observed, &mut findings).iter();
    let namespaces: BTreeSet<String> = ensembles.filter_map(|ensemble| ensemble.metadata.namespace.clone()).collect();
    let foreign = policies.iter().filter(|policy| !is_ours(policy));
    findings.extend(foreign.filter_map(|policy| of_policy(policy, &namespaces)));
    findings
}

/// True for a policy of the operator or of the registration.
fn is_ours(policy: &DynamicObject) -> bool {
    let owned = policy.owner_references().iter().any(|owner| is_our_group(&owner.api_version));
    let names: BTreeSet<_> = registered().into_iter().filter_map(|policy| policy.metadata.name).collect();
    let is_registered = |name: &String| policy.metadata.namespace.is_none() && (names.contains(name) || name == POLICY);
    owned || policy.annotations().contains_key(TOMBSTONE) || policy.metadata.name.as_ref().is_some_and(is_registered)
}

/// How a policy reaches our objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// By labels, or because it selects everything.
    Perhaps,
    /// By kind or name.
    Surely,
}

fn of_policy(policy: &DynamicObject, namespaces: &BTreeSet<String>) -> Option<DoctorFinding> {
    let kind = policy.types.as_ref().map_or("", |types| types.kind.as_str());
    let is_override = kind.contains("Override");
    // A policy of a namespace reaches the objects of that namespace alone.
    if let Some(namespace) = &policy.metadata.namespace
        && !namespaces.contains(namespace)
    {
        return None;
    }
    let selectors = policy.data.pointer("/spec/resourceSelectors").and_then(Value::as_array);
    let selectors = selectors.map(Vec::as_slice).unwrap_or_default();
    let all = (selectors.is_empty() && is_override).then(|| (Reach::Perhaps, "every object".to_owned()));
    let (reach, what) = selectors.iter().filter_map(|selector| reach(selector, namespaces)).chain(all).max()?;
    let effect = if is_override {
        "agents refuse a spec that it changes"
    } else {
        "Karmada may bind the objects to it instead of the operator's policy"
    };
    let (plural, name) = (resource(policy::API_VERSION, kind).plural, policy.name_any());
    let flag =
        policy.metadata.namespace.as_ref().map(|namespace| format!("--namespace {namespace} ")).unwrap_or_default();
    let message = format!("It selects {what}: {effect}");
    let remedy = format!(
        "kubectl {flag}edit {plural} {name}: name the objects that it is for, or delete it if it is for nothing else"
    );
    Some(match reach {
        Reach::Surely => DoctorFinding::fault(title(policy), message, remedy),
        Reach::Perhaps => DoctorFinding::warning(title(policy), message, remedy),
    })
}

/// Whether a selector reaches our objects, and what it selects.
fn reach(selector: &Value, namespaces: &BTreeSet<String>) -> Option<(Reach, String)> {
    let parsed = ResourceSelector::deserialize(selector).ok()?;
    let ours = is_our_group(&parsed.api_version) || parsed.api_version == MCS_API_VERSION;
    let elsewhere = parsed.namespace.as_ref().is_some_and(|namespace| !namespaces.contains(namespace));
    if !ours || elsewhere {
        return None;
    }
    let is_named = parsed.name.as_ref().is_some_and(|name| !name.is_empty());
    let exports = parsed.api_version == MCS_API_VERSION;
    Some(match (is_named, selector.get("labelSelector")) {
        // Karmada ignores the labels beside a name. Exports of others may have any name.
        (true, _) if exports => (Reach::Perhaps, format!("{} {}", parsed.kind, parsed.name.unwrap_or_default())),
        (true, _) => (Reach::Surely, format!("{} {}", parsed.kind, parsed.name.unwrap_or_default())),
        (false, Some(labels)) if !labels.is_null() => (Reach::Perhaps, format!("{} objects by labels", parsed.kind)),
        (false, _) => (Reach::Surely, format!("all {} objects", parsed.kind)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, healthy, now, object};

    fn with(kind: &str, namespace: Option<&str>, spec: &Value) -> Vec<DoctorFinding> {
        let mut observed = healthy();
        let policy = object("policy.karmada.io/v1alpha1", kind, namespace, "other", json!({ "spec": spec }));
        observed.policies.as_mut().unwrap().push(policy);
        examine(&observed, now())
    }

    fn zookeepers() -> Value {
        json!({ "resourceSelectors": [{ "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper" }] })
    }

    #[rstest]
    #[case::of_namespace("PropagationPolicy", Some("n"), "kubectl --namespace n edit propagationpolicies other")]
    #[case::of_cluster("ClusterPropagationPolicy", None, "kubectl edit clusterpropagationpolicies other")]
    #[case::override_of_namespace("OverridePolicy", Some("n"), "kubectl --namespace n edit overridepolicies other")]
    #[case::override_of_cluster("ClusterOverridePolicy", None, "kubectl edit clusteroverridepolicies other")]
    fn a_foreign_policy_selects_our_kind(#[case] kind: &str, #[case] namespace: Option<&str>, #[case] remedy: &str) {
        let findings = with(kind, namespace, &zookeepers());
        assert_fault(&findings, "It selects all ZooKeeper objects", remedy);
        let expected = namespace.map_or(format!("{kind} other"), |namespace| format!("{kind} {namespace}/other"));
        assert_eq!(findings[0].subject, expected);
    }

    #[test]
    fn exports_and_labels_and_everything() {
        let exports = json!({ "resourceSelectors": [{ "apiVersion": MCS_API_VERSION, "kind": "ServiceExport" }] });
        assert_fault(&with("PropagationPolicy", Some("n"), &exports), "all ServiceExport objects", "edit");
        let labels = json!({ "resourceSelectors": [{
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "labelSelector": { "matchLabels": { "a": "b" } },
        }] });
        assert_warning(&with("PropagationPolicy", Some("n"), &labels), "ZooKeeper objects by labels", "edit");
        assert_warning(&with("ClusterOverridePolicy", None, &json!({})), "every object: agents refuse", "edit");
    }

    #[rstest]
    #[case::namespace_without_ensembles("OverridePolicy", Some("other"), zookeepers())]
    #[case::selects_another_namespace("ClusterOverridePolicy", None, json!({ "resourceSelectors": [
        { "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "namespace": "other" },
    ] }))]
    #[case::selects_another_kind("PropagationPolicy", Some("n"), json!({ "resourceSelectors": [
        { "apiVersion": "apps/v1", "kind": "Deployment" },
    ] }))]
    fn a_policy_that_does_not_touch_us(#[case] kind: &str, #[case] namespace: Option<&str>, #[case] spec: Value) {
        assert_eq!(with(kind, namespace, &spec), []);
    }
}

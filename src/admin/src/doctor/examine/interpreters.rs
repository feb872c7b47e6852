//! Interpreters of others for our kinds.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::registration::names_our_kind;
use crate::{
    doctor::{
        finding::DoctorFinding,
        observed::{DoctorObserved, is_our_group, readable, title, webhooks},
    },
    register::NAME,
};

pub(super) const CHECKED: &str = "No customization and no webhook of others interprets ZooKeeper objects";

/// Interpreters that answer in place of our webhook.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    if let Some(all) = readable(&observed.customizations, "customizations", &mut findings) {
        let foreign = all.iter().filter(|customization| targets_us(customization));
        findings.extend(foreign.map(|customization| {
            let message =
                "It interprets ZooKeeper objects, and Karmada prefers it to the webhook: replicas and health are wrong";
            fault(customization, message, "resourceinterpretercustomizations")
        }));
    }
    if let Some(all) = readable(&observed.registrations, "webhooks", &mut findings) {
        let foreign =
            all.iter().filter(|webhook| webhook.metadata.name.as_deref() != Some(NAME) && answers_for_us(webhook));
        findings.extend(foreign.map(|webhook| {
            let message = "Its rules name ZooKeeper objects too: Karmada may call it in place of the operator";
            fault(webhook, message, "resourceinterpreterwebhookconfigurations")
        }));
    }
    findings
}

fn fault(object: &DynamicObject, message: &str, plural: &str) -> DoctorFinding {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let remedy =
        format!("kubectl edit {plural} {name}: leave out the kind ZooKeeper, or delete it if it is for nothing else");
    DoctorFinding::fault(title(object), message, remedy)
}

fn targets_us(customization: &DynamicObject) -> bool {
    let text = |pointer| customization.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    is_our_group(text("/spec/target/apiVersion")) && text("/spec/target/kind") == "ZooKeeper"
}

fn answers_for_us(registration: &DynamicObject) -> bool {
    webhooks(registration).iter().flat_map(|webhook| &webhook.rules).any(names_our_kind)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, healthy, now, object};

    #[test]
    fn a_foreign_customization() {
        let mut observed = healthy();
        let target = json!({ "spec": { "target": { "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper" } } });
        let kind = "ResourceInterpreterCustomization";
        observed.customizations = Ok(vec![object("config.karmada.io/v1alpha1", kind, None, "lua", target)]);
        let remedy = "kubectl edit resourceinterpretercustomizations lua";
        assert_fault(&examine(&observed, now()), "Karmada prefers it to the webhook", remedy);
    }

    #[rstest]
    #[case::by_name("ZooKeeper", true)]
    #[case::all("*", true)]
    #[case::another("Other", false)]
    fn a_foreign_webhook(#[case] kind: &str, #[case] expected: bool) {
        let mut observed = healthy();
        let rule = json!({ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": [kind] });
        let webhooks = json!({ "webhooks": [{ "name": "a.b.c", "rules": [rule] }] });
        let kind = "ResourceInterpreterWebhookConfiguration";
        let foreign = object("config.karmada.io/v1alpha1", kind, None, "other", webhooks);
        observed.registrations.as_mut().unwrap().push(foreign);
        let findings = examine(&observed, now());
        assert_eq!(findings.len(), usize::from(expected));
        if expected {
            assert_fault(
                &findings,
                "Its rules name ZooKeeper",
                "kubectl edit resourceinterpreterwebhookconfigurations other",
            );
        }
    }
}

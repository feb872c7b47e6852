//! An admission policy of the control plane that refuses writes in a namespace.

use serde_json::{Value, json};

/// The words of the policy.
pub(crate) const MESSAGE: &str = "not before the audit";

/// The policy and its binding: they refuse what the rules select in a namespace.
pub(crate) fn refusing(name: &str, namespace: &str, rules: &[Value]) -> [Value; 2] {
    let (api_version, metadata) = ("admissionregistration.k8s.io/v1", json!({ "name": name }));
    let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    let policy = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "matchConstraints": { "namespaceSelector": only, "resourceRules": rules },
            "validations": [{ "expression": "false", "message": MESSAGE }],
        },
    });
    let binding = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    [policy, binding]
}

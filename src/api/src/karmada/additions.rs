//! What Karmada itself adds to objects of its control plane: labels, annotations, finalizers, defaults and tolerations.
//!
//! Everything else that an owned object has, and that the operator has not written, comes from another client.

use serde_json::{Value, json};

/// The domain of Karmada's labels, annotations and finalizers.
const DOMAIN: &str = "karmada.io";

/// True for a label, an annotation or a finalizer of Karmada: its domain is `karmada.io` or ends with `.karmada.io`.
#[must_use]
pub fn is_karmada_key(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| {
        domain.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Defaults that Karmada's definitions and its webhook set in the spec of a policy: field and value.
///
/// Sources: the CustomResourceDefinitions of Karmada 1.14 to 1.18 (`+kubebuilder:default`).
#[must_use]
pub fn policy_defaults() -> [(&'static str, Value); 4] {
    [
        ("priority", json!(0)),
        ("preemption", json!("Never")),
        ("schedulerName", json!("default-scheduler")),
        ("conflictResolution", json!("Abort")),
    ]
}

/// Tolerations that Karmada's webhook appends to a placement, up to Karmada 1.14.
///
/// Source: `pkg/webhook/propagationpolicy/mutating.go`, `AddTolerations`; 300 s is its default.
#[must_use]
pub fn webhook_tolerations() -> [Value; 2] {
    ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"]
        .map(|key| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::top("karmada.io/managed", true)]
    #[case::part("propagationpolicy.karmada.io/permanent-id", true)]
    #[case::part_of_a_part("policy.karmada.io/applied-placement", true)]
    #[case::other_domain("notkarmada.io/x", false)]
    #[case::not_the_end("karmada.io.example.com/x", false)]
    #[case::own("mczk.io/ensemble", false)]
    #[case::no_domain("foregroundDeletion", false)]
    fn keys_of_karmada(#[case] key: &str, #[case] expected: bool) {
        assert_eq!(is_karmada_key(key), expected);
    }
}

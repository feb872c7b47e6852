//! The types of Karmada that this project writes, and views of those that it only reads.
//!
//! A view holds what a rule needs and ignores everything else, so that a newer Karmada is read without change.

pub mod additions;
pub mod cluster;
pub mod interpreter;
pub mod policy;
pub mod resource_binding;
pub mod work;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Karmada's label that forbids deletion while its value is [`PROTECTION_ALWAYS`].
pub const DELETION_PROTECTION: &str = "resourcetemplate.karmada.io/deletion-protected";
/// Value of [`DELETION_PROTECTION`] that forbids deletion.
pub const PROTECTION_ALWAYS: &str = "Always";
/// Karmada's annotation on a template: what happens if a member cluster already has an object of that name.
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
/// Value of [`CONFLICT_RESOLUTION`]: Karmada overwrites no foreign object.
pub const CONFLICT_ABORT: &str = "abort";
/// Value of [`CONFLICT_RESOLUTION`]: Karmada takes over the existing object.
pub const CONFLICT_OVERWRITE: &str = "overwrite";
/// Karmada's label on an object that no policy may propagate. Its value names the owner.
///
/// Source: `Reconcile` in `pkg/detector/detector.go`, since Karmada 1.9. Dependencies of other objects still travel.
pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
/// Karmada's annotations on an object that a policy propagates: the name of the policy.
const CLAIMING_POLICY: [&str; 2] =
    [resource_binding::POLICY_NAME_ANNOTATION, "clusterpropagationpolicy.karmada.io/name"];

/// The policy of a user that propagates an object.
#[must_use]
pub fn claiming_policy(meta: &ObjectMeta) -> Option<&str> {
    let annotations = meta.annotations.as_ref()?;
    CLAIMING_POLICY.iter().find_map(|key| annotations.get(*key)).map(String::as_str)
}

/// True for a namespace whose objects Karmada does not propagate: its own, and by default those of Kubernetes.
///
/// Source: `IsReservedNamespace` and the default of the flag `--skipped-propagating-namespaces` (`kube-.*`).
#[must_use]
pub fn is_reserved_namespace(namespace: &str) -> bool {
    ["karmada-system", "karmada-cluster"].contains(&namespace)
        || [work::NAMESPACE_PREFIX, "kube-"].iter().any(|prefix| namespace.starts_with(prefix))
}

/// Selects objects by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// `apiVersion` of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object. All of the kind if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the object. The policy's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ResourceSelector {
    /// Selects one object. Karmada's webhook adds an absent namespace, so a policy without it would always differ from the
    /// live one.
    #[must_use]
    pub fn named(api_version: &str, kind: &str, name: String, namespace: Option<String>) -> Self {
        Self { api_version: api_version.to_owned(), kind: kind.to_owned(), name: Some(name), namespace }
    }
}

//! A view of Work (`work.karmada.io/v1alpha1`): what Karmada sends to one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// `apiVersion` of Work.
pub const API_VERSION: &str = "work.karmada.io/v1alpha1";
/// Prefix of the namespace in which a cluster's Works are.
pub const NAMESPACE_PREFIX: &str = "karmada-es-";
/// Annotation of a Work: name of the binding that it was made for.
pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
/// Annotation of a Work: namespace of the binding that it was made for.
pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
/// Label of a binding and of its Works.
pub const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";

/// A Work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Work {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// What is sent.
    pub spec: WorkSpec,
}

/// What is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    /// Whether the member keeps its object when the Work goes.
    pub preserve_resources_on_deletion: Option<bool>,
}

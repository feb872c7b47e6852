//! A view of Work (`work.karmada.io/v1alpha1`): an object that Karmada sends to one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// `apiVersion` of Work.
pub const API_VERSION: &str = "work.karmada.io/v1alpha1";
/// Prefix of the namespace with a cluster's Works.
pub const NAMESPACE_PREFIX: &str = "karmada-es-";
/// Annotation of a Work: name of its binding.
pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
/// Annotation of a Work: namespace of its binding.
pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
/// Label of a binding and of its Works.
pub const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
/// The same for cluster-scoped objects.
pub const CLUSTER_BINDING_PERMANENT_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";

/// The cluster to which Karmada sends a Work.
#[must_use]
pub fn cluster_of(meta: &ObjectMeta) -> Option<&str> {
    meta.namespace.as_deref()?.strip_prefix(NAMESPACE_PREFIX)
}

/// A Work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Work {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// Content of the Work.
    pub spec: WorkSpec,
}

/// Content of a Work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    /// True if the member cluster keeps its object after the Work is deleted.
    pub preserve_resources_on_deletion: Option<bool>,
}

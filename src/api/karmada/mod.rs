//! The types of Karmada that this project writes, and views of those that it only reads.
//!
//! Views hold what a rule needs and ignore everything else, so that a newer Karmada is read without change.

pub mod cluster;
pub mod interpreter;
pub mod policy;
pub mod resource_binding;
pub mod work;

use serde::{Deserialize, Serialize};

/// Label of Karmada that forbids deletion while its value is [`PROTECTION_ALWAYS`].
pub const DELETION_PROTECTION: &str = "resourcetemplate.karmada.io/deletion-protected";
/// See [`DELETION_PROTECTION`].
pub const PROTECTION_ALWAYS: &str = "Always";
/// Annotation of Karmada on a template: what happens where a member has an object of that name already.
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
/// Value of [`CONFLICT_RESOLUTION`]: nothing foreign is overwritten.
pub const CONFLICT_ABORT: &str = "abort";
/// Value of [`CONFLICT_RESOLUTION`]: what is there is taken over.
pub const CONFLICT_OVERWRITE: &str = "overwrite";

/// Chooses objects by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// `apiVersion` of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace; the policy's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

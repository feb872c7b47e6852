//! Who made a Secret: `mczk install`, or another client. An uninstallation must remove only the former.

use kube::api::ObjectMeta;

use super::object::FIELD_MANAGER;
use mczk_api::contract::labels::{MANAGED_BY_INSTALL, MANAGED_BY_LABEL};

/// Marks an object as made by `mczk install`.
pub(crate) fn mark(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_INSTALL.to_owned());
}

/// True if the object has the label of [`mark`].
#[must_use]
pub(crate) fn is_marked(metadata: &ObjectMeta) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
    label.is_some_and(|label| label == MANAGED_BY_INSTALL)
}

/// True if `mczk install` made the object. Versions without the label left the name of their field manager.
#[must_use]
pub(crate) fn is_installed(metadata: &ObjectMeta) -> bool {
    let managers = metadata.managed_fields.as_deref().unwrap_or_default();
    is_marked(metadata) || managers.iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
}

/// Annotation of the operator's kubeconfig Secret in the host: the control plane of Karmada that it opens.
const CONTROL_PLANE: &str = "mczk.io/control-plane";

/// Marks the operator's kubeconfig Secret with the control plane that it opens.
pub(crate) fn bind(metadata: &mut ObjectMeta, control_plane: &str) {
    metadata.annotations.get_or_insert_default().insert(CONTROL_PLANE.to_owned(), control_plane.to_owned());
}

/// The control plane that [`bind`] named.
pub(crate) fn bound(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(CONTROL_PLANE).map(String::as_str)
}

/// True if [`bind`] named another control plane.
#[must_use]
pub(crate) fn is_of_another(metadata: &ObjectMeta, control_plane: &str) -> bool {
    bound(metadata).is_some_and(|bound| bound != control_plane)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::label(json!({ "labels": { "app.kubernetes.io/managed-by": "mczk-install" } }), true)]
    #[case::former_version(json!({ "managedFields": [{ "manager": "mczk-register", "operation": "Apply" }] }), true)]
    #[case::user(json!({ "managedFields": [{ "manager": "kubectl-create", "operation": "Update" }] }), false)]
    #[case::chart(json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" } }), false)]
    #[case::nothing(json!({}), false)]
    fn install_made_an_object(#[case] metadata: Value, #[case] expected: bool) {
        assert_eq!(is_installed(&serde_json::from_value(metadata).unwrap()), expected);
    }

    #[test]
    fn a_secret_knows_its_control_plane() {
        let mut metadata = ObjectMeta::default();
        assert!(!is_of_another(&metadata, "a"), "versions without the annotation");
        bind(&mut metadata, "a");
        assert!(is_of_another(&metadata, "b") && !is_of_another(&metadata, "a"));
    }

    #[test]
    fn a_marked_object_is_found_again() {
        let mut metadata = ObjectMeta::default();
        mark(&mut metadata);
        assert!(is_marked(&metadata));
    }
}

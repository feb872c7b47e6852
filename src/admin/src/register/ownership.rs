//! Who made a Secret: `mczk install`, or another client. An uninstallation must remove only the former.

use kube::api::ObjectMeta;

use mczk_api::contract::labels::{MANAGED_BY_INSTALL, MANAGED_BY_LABEL};

/// Marks an object as made by `mczk install`.
pub(crate) fn mark(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_INSTALL.to_owned());
}

/// True if `mczk install` made the object.
#[must_use]
pub(crate) fn is_marked(metadata: &ObjectMeta) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
    label.is_some_and(|label| label == MANAGED_BY_INSTALL)
}

/// Annotation of the operator's kubeconfig Secret in the host: the control plane of Karmada that it opens.
const CONTROL_PLANE: &str = "mczk.io/control-plane";

/// Marks the operator's kubeconfig Secret with the control plane that it opens.
pub(crate) fn bind(metadata: &mut ObjectMeta, control_plane: &str) {
    metadata.annotations.get_or_insert_default().insert(CONTROL_PLANE.to_owned(), control_plane.to_owned());
}

/// True if [`bind`] named another control plane.
#[must_use]
pub(crate) fn is_of_another(metadata: &ObjectMeta, control_plane: &str) -> bool {
    let bound = metadata.annotations.as_ref().and_then(|all| all.get(CONTROL_PLANE));
    bound.is_some_and(|bound| bound != control_plane)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::label(json!({ "labels": { "app.kubernetes.io/managed-by": "mczk-install" } }), true)]
    #[case::user(json!({ "managedFields": [{ "manager": "kubectl-create", "operation": "Update" }] }), false)]
    #[case::chart(json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" } }), false)]
    #[case::nothing(json!({}), false)]
    fn install_made_an_object(#[case] metadata: Value, #[case] expected: bool) {
        assert_eq!(is_marked(&serde_json::from_value(metadata).unwrap()), expected);
    }

    #[test]
    fn a_secret_knows_its_control_plane() {
        let mut metadata = ObjectMeta::default();
        assert!(!is_of_another(&metadata, "a"), "a Secret without the annotation");
        bind(&mut metadata, "a");
        assert!(is_of_another(&metadata, "b") && !is_of_another(&metadata, "a"));
    }
}

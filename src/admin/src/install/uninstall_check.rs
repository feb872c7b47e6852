//! Whether an uninstallation may remove the operator's rights in Karmada: not while an operator runs that it does not remove.

use k8s_openapi::api::apps::v1::Deployment;

use mczk_api::contract::labels::MANAGED_BY_LABEL;

/// What the host and Karmada hold.
pub(super) struct Found<'a> {
    /// Namespace of the host that the user named.
    pub(super) namespace: &'a str,
    /// Deployments of operators in it.
    pub(super) deployments: &'a [Deployment],
    /// True if it holds a Secret of `mczk install`.
    pub(super) has_secrets: bool,
    /// True if Karmada holds the operator's rights.
    pub(super) has_rights: bool,
}

/// Why the rights must stay, with the remedy. `without_operator`: the user says that no operator runs.
pub(super) fn refusal(found: &Found<'_>, without_operator: bool) -> Option<String> {
    if without_operator {
        return None;
    }
    let is_of_helm = |deployment: &&Deployment| {
        let labels = deployment.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(MANAGED_BY_LABEL)).is_some_and(|tool| tool == "Helm")
    };
    if let Some(deployment) = found.deployments.iter().find(is_of_helm) {
        return Some(format!(
            "Helm made the operator {}/{}: run helm uninstall first, or keep it with --without-operator, and it loses its \
             rights in Karmada",
            found.namespace,
            deployment.metadata.name.as_deref().unwrap_or_default()
        ));
    }
    if !found.deployments.is_empty() || found.has_secrets || !found.has_rights {
        return None;
    }
    Some(format!(
        "the namespace {} of the host holds no operator and none of its Secrets, so an operator may run elsewhere, and \
         would lose its rights in Karmada: name its cluster and namespace with --host-kubeconfig or --host-context, and \
         --host-namespace; if none runs, add --without-operator",
        found.namespace
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn deployment(tool: &str) -> Deployment {
        let metadata = json!({ "name": "mczk", "labels": { "app.kubernetes.io/managed-by": tool } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[rstest]
    #[case::installed(&[deployment("mczk")], true, true, None)]
    #[case::ended_halfway(&[], true, true, None)]
    #[case::nothing_left(&[], false, false, None)]
    #[case::wrong_host(&[], false, true, Some("--without-operator"))]
    #[case::chart(&[deployment("Helm")], true, true, Some("run helm uninstall first"))]
    fn rights_of_a_running_operator_stay(
        #[case] deployments: &[Deployment],
        #[case] has_secrets: bool,
        #[case] has_rights: bool,
        #[case] expected: Option<&str>,
    ) {
        let found = Found { namespace: "sys", deployments, has_secrets, has_rights };
        let refused = refusal(&found, false);
        assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
        assert!(refused.unwrap_or_default().contains(expected.unwrap_or_default()));
        assert_eq!(refusal(&found, true), None);
    }
}

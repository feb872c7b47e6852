//! Rights of the operator in Karmada's control plane: exactly those that the controller uses.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::core::ObjectMeta;

use super::object::Object;

/// Name of the role and its binding.
pub(crate) const ROLE: &str = "mczk-operator";
const AUTHORIZATION: &str = "rbac.authorization.k8s.io";

/// Identity of the operator in Karmada's control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A user, by the common name of its certificate or by its token.
    User(String),
    /// A service account of the control plane.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Rights of the controller: API group, resources and verbs.
const RULES: [(&str, &[&str], &[&str]); 11] = [
    ("mczk.io", &["multiclusterzookeepers"], &["get", "list", "watch", "patch"]),
    // Karmada writes the status of ZooKeeper, and the operator the object.
    ("mczk.io", &["zookeepers"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("mczk.io", &["multiclusterzookeepers/status"], &["update", "patch"]),
    // To be the owner of other objects, if the control plane checks owners.
    ("mczk.io", &["multiclusterzookeepers/finalizers"], &["update"]),
    (
        "policy.karmada.io",
        &["propagationpolicies", "overridepolicies"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    // Patched only with the label that protects them from deletion, and with the time of a wish to schedule again.
    ("work.karmada.io", &["resourcebindings"], &["get", "list", "watch", "patch"]),
    ("work.karmada.io", &["works"], &["list"]),
    ("cluster.karmada.io", &["clusters"], &["get", "list", "watch"]),
    (
        "multicluster.x-k8s.io",
        &["serviceexports", "serviceimports"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    // Certificates of the quorum. They never change, and are deleted with their owner. Rights cannot be limited by label. The
    // operator lists only metadata, and reads only the authority, to sign.
    ("", &["secrets"], &["get", "list", "create"]),
    ("events.k8s.io", &["events"], &["create", "patch"]),
];

/// The role and its binding.
///
/// # Errors
/// Never.
pub(crate) fn objects(operator: &Identity) -> serde_json::Result<Vec<Object>> {
    let rules = RULES.map(rule).to_vec();
    Ok(vec![
        Object::of(&ClusterRole { metadata: named(), rules: Some(rules), aggregation_rule: None })?,
        Object::of(&ClusterRoleBinding {
            metadata: named(),
            role_ref: RoleRef {
                api_group: AUTHORIZATION.to_owned(),
                kind: "ClusterRole".to_owned(),
                name: ROLE.to_owned(),
            },
            subjects: Some(vec![operator.subject()]),
        })?,
    ])
}

fn named() -> ObjectMeta {
    ObjectMeta { name: Some(ROLE.to_owned()), ..ObjectMeta::default() }
}

fn rule((group, resources, verbs): (&str, &[&str], &[&str])) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

impl Identity {
    fn subject(&self) -> Subject {
        match self {
            Self::User(name) => Subject {
                api_group: Some(AUTHORIZATION.to_owned()),
                kind: "User".to_owned(),
                name: name.clone(),
                namespace: None,
            },
            Self::ServiceAccount { namespace, name } => Subject {
                api_group: None,
                kind: "ServiceAccount".to_owned(),
                name: name.clone(),
                namespace: Some(namespace.clone()),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn no_right_has_a_wildcard() {
        for (group, resources, verbs) in RULES {
            assert!(!group.contains('*'));
            assert!(resources.iter().chain(verbs).all(|word| !word.contains('*')));
            assert!(resources.iter().all(|resource| *resource != "configmaps"));
            let secrets = resources.contains(&"secrets");
            assert!(!secrets || verbs.iter().all(|verb| ["get", "list", "create"].contains(verb)));
        }
    }

    #[test]
    fn a_service_account_is_bound() {
        let operator = Identity::ServiceAccount { namespace: "mczk-system".into(), name: "mczk".into() };
        let objects = objects(&operator).unwrap();
        let names: Vec<_> = objects.iter().map(|o| (o.resource.kind.as_str(), o.name())).collect();
        assert_eq!(
            names,
            [("ClusterRole", "mczk-operator".to_owned()), ("ClusterRoleBinding", "mczk-operator".to_owned())]
        );
        assert_eq!(
            objects[1].body.data["subjects"],
            serde_json::json!([{"kind": "ServiceAccount", "name": "mczk", "namespace": "mczk-system"}])
        );
    }
}

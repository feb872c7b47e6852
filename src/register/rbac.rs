//! The operator's rights in Karmada's control plane: what the controller does, and nothing else.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;

use super::Object;

/// Name of the roles and their bindings.
pub const ROLE: &str = "mczk-operator";
const AUTHORIZATION: &str = "rbac.authorization.k8s.io";

/// As whom the operator is known in Karmada's control plane.
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

/// Who the operator is, and where its Lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// As whom it is known.
    pub identity: Identity,
    /// Namespace of the Lease by which its replicas elect a leader.
    pub lease_namespace: String,
}

/// What the controller does, by API group, resources and verbs.
const RULES: [(&str, &[&str], &[&str]); 10] = [
    ("mczk.io", &["multiclusterzookeepers"], &["get", "list", "watch", "update", "patch"]),
    // Karmada writes the status of ZooKeeper; the operator makes the object.
    ("mczk.io", &["zookeepers"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ("mczk.io", &["multiclusterzookeepers/status"], &["get", "update", "patch"]),
    // To be an owner of others, where the control plane checks for it.
    ("mczk.io", &["multiclusterzookeepers/finalizers"], &["update"]),
    (
        "policy.karmada.io",
        &["propagationpolicies", "overridepolicies"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    // Patched with the label that protects them from deletion, and nothing else.
    ("work.karmada.io", &["resourcebindings"], &["get", "list", "watch", "patch"]),
    ("work.karmada.io", &["works"], &["get", "list", "watch"]),
    ("cluster.karmada.io", &["clusters"], &["get", "list", "watch"]),
    (
        "multicluster.x-k8s.io",
        &["serviceexports", "serviceimports"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    ("events.k8s.io", &["events"], &["create", "patch"]),
];
/// In the namespace of the Lease only.
const LEASE_RULE: (&str, &[&str], &[&str]) =
    ("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch"]);

/// Roles and bindings.
///
/// # Errors
/// Never; the error is serde's.
pub fn objects(operator: &Operator) -> serde_json::Result<Vec<Object>> {
    let namespace = Some(operator.lease_namespace.clone());
    let subjects = Some(vec![operator.identity.subject()]);
    let mut rules = RULES.map(rule).to_vec();
    rules.push(rule(("", &["events"], &["create", "patch"])));
    Ok(vec![
        Object::of(&ClusterRole { metadata: named(None), rules: Some(rules), aggregation_rule: None })?,
        Object::of(&ClusterRoleBinding {
            metadata: named(None),
            role_ref: reference("ClusterRole"),
            subjects: subjects.clone(),
        })?,
        Object::of(&Role { metadata: named(namespace.clone()), rules: Some(vec![rule(LEASE_RULE)]) })?,
        Object::of(&RoleBinding { metadata: named(namespace), role_ref: reference("Role"), subjects })?,
    ])
}

fn named(namespace: Option<String>) -> ObjectMeta {
    ObjectMeta { name: Some(ROLE.to_owned()), namespace, ..ObjectMeta::default() }
}

fn reference(kind: &str) -> RoleRef {
    RoleRef { api_group: AUTHORIZATION.to_owned(), kind: kind.to_owned(), name: ROLE.to_owned() }
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
    fn nothing_is_wider_than_it_is_named() {
        for (group, resources, verbs) in RULES.into_iter().chain([LEASE_RULE]) {
            assert!(!group.contains('*'));
            assert!(resources.iter().chain(verbs).all(|word| !word.contains('*')));
            assert!(resources.iter().all(|resource| !["secrets", "configmaps"].contains(resource)));
        }
    }

    #[test]
    fn all_bindings_name_the_same_subject() {
        let operator = Operator {
            identity: Identity::ServiceAccount { namespace: "mczk-system".into(), name: "mczk".into() },
            lease_namespace: "karmada-system".into(),
        };
        let objects = objects(&operator).unwrap();
        let subjects: Vec<_> = objects.iter().filter_map(|o| o.body.data.get("subjects")).collect();
        assert_eq!(subjects.len(), 2);
        for subject in subjects {
            assert_eq!(
                *subject,
                serde_json::json!([{"kind": "ServiceAccount", "name": "mczk", "namespace": "mczk-system"}])
            );
        }
        let names: Vec<_> = objects.iter().map(Object::name).collect();
        assert_eq!(
            names,
            ["mczk-operator", "mczk-operator", "karmada-system/mczk-operator", "karmada-system/mczk-operator"]
        );
    }
}

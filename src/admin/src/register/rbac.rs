//! Rights of the operator in Karmada's control plane: exactly those that the controller uses.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;

use super::object::{NAME, Object};
use mczk_api::contract::operator_rights::NAMESPACE_ROLE;

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

/// API group, resources and verbs.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Rights of the controller in all namespaces. They must not include Secrets: Karmada keeps the credentials of all member
/// clusters in Secrets of the namespace `karmada-cluster`.
const RULES: [Rule; 10] = [
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
    ("cluster.karmada.io", &["clusters"], &["list", "watch"]),
    (
        "multicluster.x-k8s.io",
        &["serviceexports", "serviceimports"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
    ),
    ("events.k8s.io", &["events"], &["create", "patch"]),
];

/// Right to read the registration of the webhook: `mczk check-webhook` has the credential of the operator.
const REGISTRATION_RULE: Rule = ("config.karmada.io", &["resourceinterpreterwebhookconfigurations"], &["get"]);

/// Namespace of the operator's Lease: it exists in every control plane of Karmada, and Karmada propagates it nowhere.
const LEASE_NAMESPACE: &str = "karmada-system";
/// Namespace and name of the operator's Lease, as the manifests have it. Karmada's own components have theirs beside it.
pub(crate) const LEASE: (&str, &str) = (LEASE_NAMESPACE, "mczk-operator");
/// Rights on the operator's Lease.
const LEASE_RULE: Rule = ("coordination.k8s.io", &["leases"], &["get", "update"]);
/// The right to create Leases. The API server does not know their names when it decides.
const NEW_LEASE_RULE: Rule = ("coordination.k8s.io", &["leases"], &["create"]);

/// Rights in the namespaces of ensembles: the certificates of the quorum. They never change, and are deleted with their
/// owner. Rights cannot be limited by label. The operator lists only metadata, and reads only the authority, to sign.
const NAMESPACE_RULES: [Rule; 1] = [("", &["secrets"], &["get", "list", "create"])];

/// Name of the role for the web page, and its binding.
pub(crate) const DASHBOARD_ROLE: &str = "mczk-operator-dashboard";
/// Rights to ask who the user of a token is, and what the user may see. Only an operator that serves the web page has them.
const DASHBOARD_RULES: [Rule; 2] = [
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// The rights of an operator that serves the web page.
///
/// # Errors
/// Never.
pub(super) fn dashboard_objects(operator: &Identity) -> serde_json::Result<Vec<Object>> {
    Ok(vec![
        Object::of(&role(DASHBOARD_ROLE, &DASHBOARD_RULES))?,
        Object::of(&ClusterRoleBinding {
            metadata: named(DASHBOARD_ROLE, None),
            role_ref: role_ref("ClusterRole", DASHBOARD_ROLE),
            subjects: Some(vec![operator.subject()]),
        })?,
    ])
}

/// The role in all namespaces with its binding, the role for the Lease with its binding, the role in namespaces of ensembles,
/// and a binding in each of `namespaces`.
///
/// # Errors
/// Never.
pub(crate) fn objects(operator: &Identity, namespaces: &BTreeSet<String>) -> serde_json::Result<Vec<Object>> {
    let mut everywhere = role(ROLE, &RULES);
    everywhere
        .rules
        .get_or_insert_default()
        .push(PolicyRule { resource_names: Some(vec![NAME.to_owned()]), ..rule(REGISTRATION_RULE) });
    let mut objects = vec![
        Object::of(&everywhere)?,
        Object::of(&ClusterRoleBinding {
            metadata: named(ROLE, None),
            role_ref: role_ref("ClusterRole", ROLE),
            subjects: Some(vec![operator.subject()]),
        })?,
        Object::of(&Role {
            metadata: named(ROLE, Some(LEASE_NAMESPACE)),
            rules: Some(vec![
                PolicyRule { resource_names: Some(vec![LEASE.1.to_owned()]), ..rule(LEASE_RULE) },
                rule(NEW_LEASE_RULE),
            ]),
        })?,
        Object::of(&RoleBinding {
            metadata: named(ROLE, Some(LEASE_NAMESPACE)),
            role_ref: role_ref("Role", ROLE),
            subjects: Some(vec![operator.subject()]),
        })?,
        Object::of(&role(NAMESPACE_ROLE, &NAMESPACE_RULES))?,
    ];
    for namespace in namespaces {
        objects.push(Object::of(&RoleBinding {
            metadata: named(ROLE, Some(namespace)),
            role_ref: role_ref("ClusterRole", NAMESPACE_ROLE),
            subjects: Some(vec![operator.subject()]),
        })?);
    }
    Ok(objects)
}

fn role(name: &str, rules: &[Rule]) -> ClusterRole {
    ClusterRole {
        metadata: named(name, None),
        rules: Some(rules.iter().copied().map(rule).collect()),
        aggregation_rule: None,
    }
}

pub(super) fn role_ref(kind: &str, role: &str) -> RoleRef {
    RoleRef { api_group: AUTHORIZATION.to_owned(), kind: kind.to_owned(), name: role.to_owned() }
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

fn rule((group, resources, verbs): Rule) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

impl Identity {
    /// The identity as a binding names it.
    #[must_use]
    pub fn subject(&self) -> Subject {
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

    /// The identity that a binding names; `None` for a group.
    pub(crate) fn of_subject(subject: Subject) -> Option<Self> {
        match (subject.kind.as_str(), subject.namespace) {
            ("User", None) => Some(Self::User(subject.name)),
            ("ServiceAccount", Some(namespace)) => Some(Self::ServiceAccount { namespace, name: subject.name }),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn operator() -> Identity {
        Identity::ServiceAccount { namespace: "mczk-system".into(), name: "mczk".into() }
    }

    fn built(namespaces: &[&str]) -> Vec<Object> {
        objects(&operator(), &namespaces.iter().map(|namespace| (*namespace).to_owned()).collect()).unwrap()
    }

    #[test]
    fn no_right_has_a_wildcard() {
        let named = [LEASE_RULE, NEW_LEASE_RULE, REGISTRATION_RULE];
        for (group, resources, verbs) in RULES.into_iter().chain(named).chain(NAMESPACE_RULES).chain(DASHBOARD_RULES) {
            assert!(!group.contains('*'));
            assert!(resources.iter().chain(verbs).all(|word| !word.contains('*')));
            assert!(resources.iter().all(|resource| *resource != "configmaps"));
            let secrets = resources.contains(&"secrets");
            assert!(!secrets || verbs.iter().all(|verb| ["get", "list", "create"].contains(verb)));
        }
    }

    /// C6: the namespace `karmada-cluster` holds the credentials of all member clusters.
    #[test]
    fn no_right_reaches_the_secrets_of_other_namespaces() {
        let objects = built(&["team-a"]);
        let find = |kind: &str, name: &str| {
            let found = objects.iter().find(|object| object.resource.kind == kind && object.name() == name);
            found.unwrap_or_else(|| panic!("{kind} {name} is missing")).body.data.clone()
        };
        for binding in objects.iter().filter(|object| object.resource.kind == "ClusterRoleBinding") {
            let role = find("ClusterRole", binding.body.data["roleRef"]["name"].as_str().unwrap());
            assert!(!role["rules"].to_string().contains("secrets"), "everywhere: {role}");
        }
        let binding = find("RoleBinding", "team-a/mczk-operator");
        assert_eq!(binding["roleRef"]["name"], NAMESPACE_ROLE);
        assert_eq!(find("ClusterRole", NAMESPACE_ROLE)["rules"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn only_the_own_registration_is_readable() {
        let role = built(&[])[0].body.data["rules"].clone();
        let mut rules = role.as_array().unwrap().iter();
        let own = rules.find(|rule| rule["apiGroups"][0] == "config.karmada.io").unwrap();
        assert_eq!((&own["resourceNames"], &own["verbs"]), (&serde_json::json!(["mczk"]), &serde_json::json!(["get"])));
    }

    #[test]
    fn rights_of_the_web_page_are_two_reviews() {
        let objects = dashboard_objects(&operator()).unwrap();
        assert_eq!(objects[0].body.data["rules"].as_array().map(Vec::len), Some(2));
        assert_eq!(objects[1].body.data["roleRef"]["name"], objects[0].body.metadata.name.clone().unwrap());
        let always = built(&["a"]);
        assert!(always.iter().all(|object| !object.body.data.to_string().contains("reviews")));
    }

    #[test]
    fn a_service_account_is_bound() {
        let objects = built(&[]);
        let names: Vec<_> = objects.iter().map(|o| (o.resource.kind.as_str(), o.name())).collect();
        assert_eq!(
            names,
            [
                ("ClusterRole", "mczk-operator".to_owned()),
                ("ClusterRoleBinding", "mczk-operator".to_owned()),
                ("Role", "karmada-system/mczk-operator".to_owned()),
                ("RoleBinding", "karmada-system/mczk-operator".to_owned()),
                ("ClusterRole", "mczk-ensemble-namespace".to_owned()),
            ]
        );
        assert_eq!(
            objects[1].body.data["subjects"],
            serde_json::json!([{"kind": "ServiceAccount", "name": "mczk", "namespace": "mczk-system"}])
        );
    }
}

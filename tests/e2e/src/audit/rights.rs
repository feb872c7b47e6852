//! Rights that roles grant, against the requests of an audit log: each right is used, and none is missing.

use std::collections::BTreeSet;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::Entry;

/// One verb on one resource, as a role grants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Plural of the kind, with `/` and the part of the object if it is limited to that.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Namespace; `None` for all.
    pub namespace: Option<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
}

/// A right that a test need not use: resource, verbs and the reason.
pub type Rare = (&'static str, &'static [&'static str], &'static str);

/// Rare rights of the operator in the scenarios.
pub const OPERATOR: &[Rare] = &[
    ("multiclusterzookeepers/finalizers", &["update"], "admission checks it, and no request has it"),
    ("multiclusterzookeepers/status", &["patch"], "an object that this version cannot read"),
    ("serviceexports", &["update", "patch"], "a user has changed it, or protected it from deletion"),
    ("serviceimports", &["update", "patch"], "a user has changed it, or protected it from deletion"),
    ("events", &["patch"], "an event comes again"),
    ("leases", &["create"], "no operator ran before"),
];

/// Rare rights of an agent in the story of the installation.
pub const AGENT: &[Rare] = &[
    ("zookeepers", &["delete"], "the ensemble ended while the cluster was away"),
    ("zookeepers", &["list"], "the API server does not stream the objects in a watch"),
    ("nodes", &["list"], "a node is drained"),
    ("persistentvolumes", &["get"], "a node is drained"),
    ("persistentvolumes", &["list"], "a spare lacks the storage class"),
    ("storageclasses", &["get", "list"], "an ensemble declares spares"),
    ("persistentvolumeclaims", &["create"], "a claim has been missing for five seconds"),
    ("persistentvolumeclaims", &["patch"], "the spec asks for larger volumes"),
    ("persistentvolumeclaims", &["delete"], "a user wants a volume replaced"),
    ("configmaps", &["delete"], "the garbage collector deletes it with its owner"),
    ("secrets", &["create", "patch", "delete"], "TLS for clients, and certificates that are replaced"),
    ("events", &["patch"], "an event comes again"),
    ("events", &["list"], "a pod is pending for half a minute"),
];

/// Rare rights of the operator in its own cluster.
pub const HOST: &[Rare] = &[("secrets", &["get", "patch"], "the operator looks at its token every ten minutes")];

/// The rights of the rules of one role, in a namespace or in all.
fn expanded<'r>(rules: &'r [PolicyRule], namespace: Option<&str>) -> impl Iterator<Item = Right> + use<'r> {
    let namespace = namespace.map(str::to_owned);
    rules.iter().flat_map(move |rule| {
        let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.iter().flatten());
        let names = rule.resource_names.clone().unwrap_or_default();
        let mut rights = Vec::new();
        for (group, resource) in groups.flat_map(|group| resources.clone().map(move |resource| (group, resource))) {
            rights.extend(rule.verbs.iter().map(|verb| Right {
                resource: resource.clone(),
                verb: verb.clone(),
                group: group.clone(),
                namespace: namespace.clone(),
                names: names.clone(),
            }));
        }
        rights
    })
}

/// True if an authorized request used the right.
fn uses(entry: &Entry, right: &Right) -> bool {
    let part = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
    // A server-side apply that creates the object needs both rights.
    let creates = entry.verb == "patch" && entry.code == 201 && right.verb == "create";
    !entry.is_forbidden
        && (entry.verb == right.verb || creates)
        && entry.group == right.group
        && format!("{}{part}", entry.resource) == right.resource
        && right.namespace.as_ref().is_none_or(|namespace| *namespace == entry.namespace)
        && (right.names.is_empty() || right.names.contains(&entry.name))
}

/// The rights that no request used, without the rare ones. A right that several namespaces have counts once.
#[must_use]
pub fn unused(granted: &[Right], entries: &[Entry], rare: &[Rare]) -> BTreeSet<String> {
    let is_rare =
        |right: &Right| rare.iter().any(|(name, verbs, _)| *name == right.resource && verbs.contains(&&*right.verb));
    let left = granted.iter().filter(|right| !is_rare(right));
    left.filter(|right| !entries.iter().any(|entry| uses(entry, &Right { namespace: None, ..(*right).clone() })))
        .map(|Right { verb, resource, group, .. }| format!("{verb} {resource}.{group}"))
        .collect()
}

/// The requests between two times for which the right was missing.
#[must_use]
pub fn missing(entries: &[Entry], from: Timestamp, until: Timestamp) -> BTreeSet<String> {
    let refused = entries.iter().filter(|entry| entry.is_forbidden && (from..until).contains(&entry.received));
    refused
        .map(|Entry { verb, resource, subresource, group, namespace, .. }| {
            format!("{verb} {resource}/{subresource}.{group} in {namespace:?}")
        })
        .collect()
}

/// True if a subject is the user: by its name, or as a service account.
fn is_user(subject: &Subject, user: &str) -> bool {
    let namespace = subject.namespace.as_deref().unwrap_or_default();
    match subject.kind.as_str() {
        "User" => subject.name == user,
        "ServiceAccount" => user == format!("system:serviceaccount:{namespace}:{}", subject.name),
        _ => false,
    }
}

/// The rights of a user by roles that name it, as the API server has them.
///
/// # Errors
/// If a role cannot be read.
pub async fn granted(client: &Client, user: &str) -> Result<Vec<Right>> {
    let all = ListParams::default();
    let has = |subjects: &Option<Vec<Subject>>| subjects.iter().flatten().any(|subject| is_user(subject, user));
    let mut rights = Vec::new();
    for binding in Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await? {
        if has(&binding.subjects) {
            rights.extend(expanded(&rules(client, &binding.role_ref, "").await?, None));
        }
    }
    for binding in Api::<RoleBinding>::all(client.clone()).list(&all).await? {
        let namespace = binding.namespace().unwrap_or_default();
        if has(&binding.subjects) {
            rights.extend(expanded(&rules(client, &binding.role_ref, &namespace).await?, Some(&namespace)));
        }
    }
    Ok(rights)
}

async fn rules(client: &Client, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>> {
    let rules = if role.kind == "ClusterRole" {
        Api::<ClusterRole>::all(client.clone()).get(&role.name).await?.rules
    } else {
        Api::<Role>::namespaced(client.clone(), namespace).get(&role.name).await?.rules
    };
    Ok(rules.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(verb: &str, resource: &str, code: u64) -> Entry {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Entry {
            user: "u".to_owned(),
            agent: String::new(),
            verb: verb.to_owned(),
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "n".to_owned(),
            name: "zk".to_owned(),
            code,
            is_forbidden: code == 403,
            received: Timestamp::UNIX_EPOCH,
            done: Timestamp::UNIX_EPOCH,
        }
    }

    fn rights(resource: &str, verbs: &[&str], names: &[&str]) -> Vec<Right> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let rule = PolicyRule {
            api_groups: Some(owned(&["apps"])),
            resources: Some(owned(&[resource])),
            resource_names: Some(owned(names)),
            verbs: owned(verbs),
            ..PolicyRule::default()
        };
        expanded(&[rule], Some("n")).collect()
    }

    #[test]
    fn a_right_without_a_request_is_unused() {
        let granted = rights("statefulsets", &["list", "delete"], &[]);
        let found = unused(&granted, &[entry("list", "statefulsets", 200)], &[]);
        assert_eq!(found, BTreeSet::from(["delete statefulsets.apps".to_owned()]));
        let rare: &[Rare] = &[("statefulsets", &["delete"], "the end")];
        assert!(unused(&granted, &[entry("list", "statefulsets", 200)], rare).is_empty());
        let refused = [entry("list", "statefulsets", 403)];
        assert_eq!(unused(&granted, &refused, rare).len(), 1, "a refused request uses no right");
    }

    #[test]
    fn a_part_of_an_object_and_a_name_are_rights_of_their_own() {
        let status = rights("statefulsets/status", &["patch"], &[]);
        assert_eq!(unused(&status, &[entry("patch", "statefulsets", 200)], &[]).len(), 1);
        assert!(unused(&status, &[entry("patch", "statefulsets/status", 200)], &[]).is_empty());
        let named = rights("statefulsets", &["get"], &["other"]);
        assert_eq!(unused(&named, &[entry("get", "statefulsets", 200)], &[]).len(), 1);
    }

    #[test]
    fn an_apply_that_creates_uses_two_rights() {
        let granted = rights("statefulsets", &["create", "patch"], &[]);
        assert!(unused(&granted, &[entry("patch", "statefulsets", 201)], &[]).is_empty());
        assert_eq!(unused(&granted, &[entry("patch", "statefulsets", 200)], &[]).len(), 1);
    }

    #[test]
    fn a_refused_request_names_the_missing_right() {
        let (from, until) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let entries = [entry("delete", "statefulsets", 403), entry("list", "statefulsets", 200)];
        assert_eq!(missing(&entries, from, until).len(), 1);
        assert!(missing(&entries, until, until).is_empty());
    }
}

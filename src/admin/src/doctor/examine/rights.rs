//! The rights of the operator in karmada-apiserver.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    doctor::{
        finding::DoctorFinding,
        observed::{DoctorObserved, Right, readable},
    },
    register::rbac::Identity,
};

pub(super) const CHECKED: &str =
    "karmada-apiserver grants the operator every right that it uses, also in the namespaces of ensembles";

/// Rights that one message names.
const SHOWN: usize = 3;

/// Rights that the operator lacks.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let Some(rights) = readable(&observed.rights, "operator", &mut findings) else { return findings };
    let Some(operator) = &rights.operator else {
        let message =
            "The ClusterRoleBinding mczk-operator does not exist: the operator has no rights in karmada-apiserver";
        let remedy = "Run mczk install again. If you registered by hand: mczk register --only rbac";
        return vec![DoctorFinding::fault("operator", message, remedy)];
    };
    let mut by_namespace: BTreeMap<Option<&String>, Vec<&Right>> = BTreeMap::new();
    for right in &rights.denied {
        by_namespace.entry(right.namespace.as_ref()).or_default().push(right);
    }
    findings.extend(by_namespace.into_iter().map(|(namespace, denied)| lacking(operator, namespace, &denied)));
    findings
}

fn lacking(operator: &Identity, namespace: Option<&String>, denied: &[&Right]) -> DoctorFinding {
    let place = namespace.map(|namespace| format!(" in the namespace {namespace}")).unwrap_or_default();
    let named: Vec<String> = denied.iter().take(SHOWN).map(|right| words(right)).collect();
    let rest = match denied.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and lacks {more} more rights"),
    };
    let message = format!("{} may not {}{place}{rest}", account(operator), named.join(", "));
    DoctorFinding::fault("operator", message, format!("mczk register --only rbac {}", flag(operator, namespace)))
}

fn words(right: &Right) -> String {
    let group = if right.group.is_empty() { String::new() } else { format!(".{}", right.group) };
    let (resource, sub) = right.resource.split_once('/').map_or((right.resource.as_str(), ""), |(r, sub)| (r, sub));
    let sub = if sub.is_empty() { String::new() } else { format!("/{sub}") };
    format!("{} {resource}{group}{sub}", right.verb)
}

fn account(operator: &Identity) -> String {
    match operator {
        Identity::User(name) => format!("The user {name}"),
        Identity::ServiceAccount { namespace, name } => format!("The service account {namespace}/{name}"),
    }
}

/// The flags of `mczk register` that keep the identity: others would bind the rights to its default.
fn flag(operator: &Identity, namespace: Option<&String>) -> String {
    let identity = match operator {
        Identity::User(name) => format!("--operator-user {name}"),
        Identity::ServiceAccount { namespace, name } => format!("--operator-service-account {namespace}/{name}"),
    };
    namespace.map_or_else(|| identity.clone(), |namespace| format!("{identity} --namespaces {namespace}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, healthy, now};

    fn right(namespace: Option<&str>, group: &str, resource: &str, verb: &str) -> Right {
        Right {
            namespace: namespace.map(str::to_owned),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: None,
            verb: verb.to_owned(),
        }
    }

    #[test]
    fn rights_that_the_operator_lacks() {
        let mut observed = healthy();
        observed.rights.as_mut().unwrap().denied = [
            right(None, "mczk.io", "multiclusterzookeepers/status", "patch"),
            right(Some("n"), "", "secrets", "create"),
            right(Some("n"), "", "secrets", "get"),
        ]
        .into();
        let findings = examine(&observed, now());
        assert_fault(
            &findings[..1],
            "account mczk-system/mczk-operator may not patch multiclusterzookeepers.mczk.io/status",
            "mczk register --only rbac --operator-service-account mczk-system/mczk-operator",
        );
        assert_fault(&findings[1..], "may not create secrets, get secrets in the namespace n", "--namespaces n");
    }

    #[test]
    fn a_message_names_at_most_three_rights() {
        let mut observed = healthy();
        let verbs = ["get", "list", "watch", "patch", "delete"];
        let rights = observed.rights.as_mut().unwrap();
        rights.operator = Some(Identity::User("ops".to_owned()));
        rights.denied = verbs.map(|verb| right(None, "mczk.io", "zookeepers", verb)).into();
        assert_fault(&examine(&observed, now()), "and lacks 2 more rights", "--operator-user ops");
    }

    #[test]
    fn no_binding() {
        let mut observed = healthy();
        observed.rights.as_mut().unwrap().operator = None;
        assert_fault(&examine(&observed, now()), "ClusterRoleBinding mczk-operator does not exist", "mczk install");
    }
}

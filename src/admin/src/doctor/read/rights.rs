//! The rights of the operator, by access reviews of karmada-apiserver.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::{ClusterRoleBinding, PolicyRule},
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;

use super::reader::BoundedReader;
use crate::{
    doctor::observed::{Read, Right, Rights},
    register::{
        Object, credential,
        rbac::{self, Identity, ROLE},
    },
};
use mczk_api::contract::operator_rights::NAMESPACE_ROLE;

/// Reviews under way at a time.
const CONCURRENT: usize = 8;

/// The identity of the operator, and the rights that it lacks: those of the registration, and those in `namespaces`.
pub(super) async fn rights(client: &Client, namespaces: &BTreeSet<String>, reader: &BoundedReader) -> Read<Rights> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = reader.read("the rights of the operator", api.get_opt(ROLE)).await?;
    let subjects = binding.and_then(|binding| binding.subjects).unwrap_or_default();
    let Some(operator) = subjects.into_iter().find_map(Identity::of_subject) else {
        return Ok(Rights { operator: None, denied: BTreeSet::new() });
    };
    let wanted = wanted(&operator, namespaces).map_err(|error| error.to_string())?;
    let reviews = wanted.into_iter().map(|right| {
        let operator = &operator;
        async move { is_allowed(client, operator, &right, reader).await.map(|allowed| (!allowed).then_some(right)) }
    });
    let denied: Vec<Option<Right>> = stream::iter(reviews).buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(Rights { operator: Some(operator), denied: denied.into_iter().flatten().collect() })
}

/// The rights that the registration grants, one by one.
fn wanted(operator: &Identity, namespaces: &BTreeSet<String>) -> serde_json::Result<BTreeSet<Right>> {
    let mut all = BTreeSet::new();
    let mut objects = rbac::objects(operator, &BTreeSet::new())?;
    let own =
        Identity::ServiceAccount { namespace: credential::NAMESPACE.to_owned(), name: credential::ACCOUNT.to_owned() };
    if *operator == own {
        objects.extend(credential::objects()?);
    }
    for object in objects {
        let in_namespaces: Vec<Option<&String>> = match object.resource.kind.as_str() {
            "ClusterRole" if object.name() == NAMESPACE_ROLE => namespaces.iter().map(Some).collect(),
            "ClusterRole" => vec![None],
            "Role" => vec![object.body.metadata.namespace.as_ref()],
            _ => continue,
        };
        for namespace in in_namespaces {
            all.extend(rules(&object)?.iter().flat_map(|rule| rights_of(rule, namespace)));
        }
    }
    Ok(all)
}

fn rules(role: &Object) -> serde_json::Result<Vec<PolicyRule>> {
    role.body.data.get("rules").map(Vec::deserialize).transpose().map(Option::unwrap_or_default)
}

fn rights_of(rule: &PolicyRule, namespace: Option<&String>) -> Vec<Right> {
    let name = rule.resource_names.as_ref().and_then(|names| names.first());
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            all.extend(rule.verbs.iter().map(|verb| Right {
                namespace: namespace.cloned(),
                group: group.clone(),
                resource: resource.clone(),
                name: name.cloned(),
                verb: verb.clone(),
            }));
        }
    }
    all
}

async fn is_allowed(client: &Client, operator: &Identity, right: &Right, reader: &BoundedReader) -> Read<bool> {
    let (resource, subresource) =
        right.resource.split_once('/').map_or((right.resource.as_str(), None), |(r, sub)| (r, Some(sub.to_owned())));
    let (user, groups) = user(operator);
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace: right.namespace.clone(),
                name: right.name.clone(),
                verb: Some(right.verb.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reader.read("the rights of the operator", api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// User and groups by which the API server knows an identity.
fn user(operator: &Identity) -> (String, Vec<String>) {
    let authenticated = "system:authenticated".to_owned();
    match operator {
        Identity::User(name) => (name.clone(), vec![authenticated]),
        Identity::ServiceAccount { namespace, name } => {
            let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            (format!("system:serviceaccount:{namespace}:{name}"), [groups.as_slice(), &[authenticated]].concat())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn written(operator: &Identity) -> Vec<String> {
        let rights = wanted(operator, &["n".to_owned()].into()).unwrap();
        let place = |right: &Right| right.namespace.clone().unwrap_or_default();
        rights.iter().map(|right| format!("{} {} {}", place(right), right.verb, right.resource)).collect()
    }

    #[test]
    fn each_right_of_the_registration_is_reviewed_where_it_is_granted() {
        let rights = written(&Identity::User("ops".to_owned()));
        for expected in [" update multiclusterzookeepers/status", "karmada-system update leases", "n create secrets"] {
            assert!(rights.iter().any(|right| right == expected), "{expected}: {rights:?}");
        }
        assert!(!rights.iter().any(|right| right.contains("serviceaccounts/token")), "{rights:?}");
        assert!(!rights.iter().any(|right| right.starts_with(' ') && right.contains("secrets")), "{rights:?}");
    }

    #[test]
    fn the_account_of_an_installation_renews_its_token() {
        let account =
            Identity::ServiceAccount { namespace: "mczk-system".to_owned(), name: "mczk-operator".to_owned() };
        assert!(written(&account).contains(&"mczk-system create serviceaccounts/token".to_owned()));
        let (user, groups) = user(&account);
        assert_eq!(user, "system:serviceaccount:mczk-system:mczk-operator");
        assert_eq!(groups[1], "system:serviceaccounts:mczk-system");
    }
}

//! Removes quorum certificates that Karmada no longer manages and that no server uses any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use crate::{context::AgentContext, observe::snapshot::MemberSnapshot};
use mczk_api::{
    contract::{
        certificate_names::{Holds, former, secret_name},
        labels::{INCARNATION_LABEL, KARMADA_MANAGED_LABEL},
    },
    tls::EnsembleTls,
    zookeeper::DependencyKind,
};
use mczk_rules::agent::decide::Decision;
use mczk_runtime::failure::{During, Error};

/// The largest number of former identities and authorities that the agent requests. The operator issues one identity a year.
const MOST_FORMER: u32 = 100;

/// The number of identities and authorities that the agent requests of a former incarnation.
const FIRST_OF_INCARNATION: u32 = 3;

/// Secrets with certificates that may remain of an incarnation: those that the server list names, and their predecessors.
fn candidates(tls: &EnsembleTls) -> Vec<String> {
    tls.secrets().cloned().chain(former(tls, MOST_FORMER)).collect()
}

/// What the labels of a Secret say about its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// The Secret is not of this incarnation.
    Foreign,
    /// Karmada still manages the Secret.
    Managed,
    /// Karmada no longer manages the Secret.
    Orphaned,
}

/// The owner of a Secret by its labels. Without an incarnation, the Secret may be of any.
fn ownership(labels: &BTreeMap<String, String>, incarnation: Option<&String>) -> Ownership {
    match labels.get(INCARNATION_LABEL) {
        Some(of) if incarnation.is_none_or(|incarnation| incarnation == of) => {
            if labels.contains_key(KARMADA_MANAGED_LABEL) { Ownership::Managed } else { Ownership::Orphaned }
        }
        _ => Ownership::Foreign,
    }
}

/// Removes the certificates that remain after Karmada removed the object from this cluster. With them a server could still
/// join the ensemble elsewhere.
pub(crate) async fn remove_all(
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<(), Error> {
    if let Some((list, tls)) = decision.list.as_ref().and_then(|list| Some((list, list.tls.as_ref()?))) {
        remove_orphaned(snapshot, list.incarnation.as_ref(), candidates(tls), context).await?;
    }
    // A cluster may have got the object, and never a server list: a move was called off, or a placement changed back at once.
    let brought = snapshot.observation.object.spec.dependencies.iter();
    let secrets = brought.filter(|dependency| dependency.kind == DependencyKind::Secret);
    let names = secrets.map(|dependency| dependency.name.clone()).collect();
    remove_orphaned(snapshot, None, names, context).await.map(drop)
}

/// Removes the predecessors of the certificates that all servers here have loaded, after Karmada has released them. Also
/// removes the certificates of former incarnations; one in which no quorum formed had only the first few. Runs once for
/// each change.
pub(crate) async fn remove_former(
    key: &(String, String),
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<(), Error> {
    let Some((list, tls)) = decision.list.as_ref().and_then(|list| Some((list, list.tls.as_ref()?))) else {
        return Ok(());
    };
    if decision.status.ensemble_tls.as_ref() != Some(tls) || snapshot.memory.cleared.as_ref() == Some(tls) {
        return Ok(());
    }
    let mut cleared = remove_orphaned(snapshot, list.incarnation.as_ref(), former(tls, MOST_FORMER), context).await?;
    let name = snapshot.observation.object.name_any();
    for incarnation in &list.former_incarnations {
        let numbered = |holds| (1..=FIRST_OF_INCARNATION).map(move |number| (holds, number));
        let names = numbered(Holds::Identity).chain(numbered(Holds::Trust));
        let names = names.map(|(holds, number)| secret_name(&name, incarnation, holds, number)).collect();
        cleared &= remove_orphaned(snapshot, Some(incarnation), names, context).await?;
    }
    if cleared {
        context.remember(key, |memory| memory.cleared = Some(tls.clone()));
    }
    Ok(())
}

/// Removes the orphaned ones of these Secrets. Returns true if none of them remains.
async fn remove_orphaned(
    snapshot: &MemberSnapshot,
    incarnation: Option<&String>,
    names: Vec<String>,
    context: &AgentContext,
) -> Result<bool, Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &snapshot.namespace());
    let mut none_remains = true;
    for name in names {
        let secret = api.get_metadata_opt(&name).await.during(|| format!("reading Secret {name}"))?;
        let Some(secret) = secret else { continue };
        match ownership(secret.labels(), incarnation) {
            Ownership::Foreign => continue,
            Ownership::Managed => {
                none_remains = false;
                continue;
            }
            Ownership::Orphaned => {}
        }
        let preconditions = Preconditions { uid: secret.uid(), resource_version: secret.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        none_remains &= context.delete(&snapshot.key(), &api, ("Secret", &name), &params).await?;
    }
    Ok(none_remains)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_the_listed_certificates_and_their_predecessors() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let tls = EnsembleTls { identity: "zk-a1-identity-3".into(), trust: names(&["zk-a1-trust-2"]) };
        let all = ["zk-a1-trust-2", "zk-a1-identity-3", "zk-a1-identity-2", "zk-a1-identity-1", "zk-a1-trust-1"];
        assert_eq!(candidates(&tls), names(&all));
        let many = EnsembleTls { identity: "zk-a1-identity-1000".into(), ..tls };
        assert_eq!(candidates(&many).len(), 2 + 100 + 1, "the newest hundred");
    }

    #[test]
    fn only_secrets_of_the_incarnation_that_karmada_released_are_orphaned() {
        let incarnation = "a1".to_owned();
        let labels = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let own = (INCARNATION_LABEL, "a1");
        let of = |all: &[(&str, &str)], incarnation| ownership(&labels(all), incarnation);
        assert_eq!(of(&[own], Some(&incarnation)), Ownership::Orphaned);
        assert_eq!(of(&[own, (KARMADA_MANAGED_LABEL, "x")], Some(&incarnation)), Ownership::Managed);
        for foreign in [vec![], vec![(INCARNATION_LABEL, "b2")]] {
            assert_eq!(of(&foreign, Some(&incarnation)), Ownership::Foreign);
        }
        assert_eq!(of(&[], None), Ownership::Foreign, "a Secret without the label is of no incarnation");
        assert_eq!(of(&[own], None), Ownership::Orphaned, "no server list names an incarnation");
        assert_eq!(of(&[own, (KARMADA_MANAGED_LABEL, "x")], None), Ownership::Managed);
    }
}

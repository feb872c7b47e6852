//! Namespaces that Karmada never propagates.

use crate::{
    api::karmada::is_reserved_namespace,
    contract::conditions::Reason,
    rollout::{blocker::Blocker, known::Known},
};

/// Why no ensemble can exist in the namespace of the object.
pub(super) fn reserved_namespace(known: &Known<'_>) -> Option<Blocker> {
    let namespace = Some(&known.namespace).filter(|namespace| is_reserved_namespace(namespace))?;
    let message = format!(
        "Karmada propagates nothing in namespace {namespace}, which is reserved: create the MultiClusterZooKeeper in another namespace"
    );
    Some(Blocker { reason: Reason::ReservedNamespace, message })
}

//! Namespaces that Karmada never propagates.

use kube::ResourceExt;

use crate::{
    api::karmada::is_reserved_namespace,
    contract::conditions::Reason,
    rollout::{blocker::Blocker, observed::Observed},
};

/// Why no ensemble can exist in the namespace of the object.
pub(super) fn reserved_namespace(observed: &Observed) -> Option<Blocker> {
    let namespace = observed.object.namespace().filter(|namespace| is_reserved_namespace(namespace))?;
    let message = format!(
        "Karmada propagates nothing in namespace {namespace}, which is reserved: create the MultiClusterZooKeeper in another namespace"
    );
    Some(Blocker { reason: Reason::ReservedNamespace, message })
}

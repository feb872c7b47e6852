//! Namespaces that Karmada never propagates.

use crate::rollout::known::Known;
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    karmada::is_reserved_namespace,
};

/// Why no ensemble can exist in the namespace of the object.
pub(super) fn reserved_namespace(known: &Known<'_>) -> Option<Cause> {
    let namespace = Some(&known.namespace).filter(|namespace| is_reserved_namespace(namespace))?;
    let message = format!(
        "Karmada propagates nothing in namespace {namespace}, which is reserved: create the MultiClusterZooKeeper in another namespace"
    );
    Some(Cause { reason: Reason::ReservedNamespace, message })
}

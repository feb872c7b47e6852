//! Clusters that a user names, and that Karmada does not know.

use std::collections::BTreeSet;

use crate::rollout::known::Known;
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// The names in `overrides`, `observers` and `rollout.clusters` that no cluster of Karmada has: what is declared for them reaches
/// nothing.
pub(super) fn unknown_clusters(known: &Known<'_>) -> Option<Cause> {
    let spec = &known.object.spec;
    let overrides = spec.overrides.iter().map(|own| ("overrides", &own.cluster));
    let observers = spec.observers.iter().map(|own| ("observers", &own.cluster));
    let order = spec.rollout.iter().flat_map(|rollout| &rollout.clusters).map(|name| ("rollout.clusters", name));
    let is_known = |name: &String| known.clusters.iter().any(|cluster| cluster.name() == name);
    let unknown: BTreeSet<String> = overrides
        .chain(observers)
        .chain(order)
        .filter(|(_, name)| !is_known(name))
        .map(|(field, name)| format!("{name} (spec.{field})"))
        .collect();
    (!unknown.is_empty()).then(|| Cause {
        reason: Reason::ClusterUnknown,
        message: format!(
            "Karmada has no cluster of these names, so what is declared for them has no effect: {}. Correct the names, or join the \
             clusters",
            unknown.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

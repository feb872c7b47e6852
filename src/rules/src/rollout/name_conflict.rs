//! Objects of the operator's names that belong to another owner. The operator never writes them (S7).

use crate::rollout::{known::Known, objects, services};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Kind and name of the foreign objects among template, PropagationPolicy and OverridePolicy.
fn foreign(known: &Known<'_>) -> Vec<String> {
    let template = known.template.map(|t| ("ZooKeeper", &t.metadata));
    let policy = known.policy.map(|p| ("PropagationPolicy", &p.metadata));
    let overrides = known.override_policy.map(|p| ("OverridePolicy", &p.metadata));
    let all = [template, policy, overrides].into_iter().flatten();
    let foreign = all.filter(|(_, meta)| !objects::is_ours(meta, known.object));
    foreign.map(|(kind, meta)| format!("{kind} {}", meta.name.as_deref().unwrap_or_default())).collect()
}

/// Kind and name of the foreign objects among the exports, the import and their policies.
fn foreign_services(known: &Known<'_>) -> Vec<String> {
    let imports = known.object.spec.network.as_ref().is_some_and(|network| !network.import_clusters.is_empty());
    // Without an import the operator wants no object of its names.
    let wanted = known.services.keys().filter(|key| imports || !services::is_of_import(key));
    wanted.filter(|key| !services::is_ours(known, key)).map(|key| key.replace('/', " ")).collect()
}

/// What the user has to do about any foreign object; `None` if there is none.
pub(super) fn any_conflict(known: &Known<'_>) -> Option<Cause> {
    conflict(known, &[foreign(known), foreign_services(known)].concat())
}

/// The same without exports and imports.
pub(super) fn conflict_at_the_end(known: &Known<'_>) -> Option<Cause> {
    conflict(known, &foreign(known))
}

/// What the user has to do about foreign objects; `None` if there are none.
fn conflict(known: &Known<'_>, foreign: &[String]) -> Option<Cause> {
    let is_ending = known.ending.is_some();
    let or_else =
        if is_ending { "" } else { ". Declare the ensemble under another name only if no servers of this name run" };
    (!foreign.is_empty()).then(|| Cause {
        reason: Reason::NameConflict,
        message: format!(
            "{} in namespace {} exists and does not belong to this MultiClusterZooKeeper; the operator does not change it. Delete it only if nothing else needs it{or_else}",
            foreign.join(", "),
            known.namespace
        ),
    })
}

//! Objects of the operator's names that belong to another owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::{
    contract::conditions::Reason,
    rollout::{blocker::Blocker, objects, observed::Observed, services},
};

/// The objects of the operator's names that are not its own. The operator never writes them (S7).
pub(super) fn name_conflict(observed: &Observed) -> Option<Blocker> {
    let object = &observed.object;
    let is_foreign = |meta: &ObjectMeta| !objects::is_ours(meta, object);
    let template = observed.template.as_ref().map(|t| (format!("ZooKeeper {}", t.name_any()), &t.metadata));
    let policy = observed.policy.as_ref().map(|p| (format!("PropagationPolicy {}", p.name_any()), &p.metadata));
    let overrides = observed.overrides.as_ref().map(|p| (format!("OverridePolicy {}", p.name_any()), &p.metadata));
    let owned = [template, policy, overrides].into_iter().flatten();
    let mut foreign: Vec<String> = owned.filter(|(_, meta)| is_foreign(meta)).map(|(name, _)| name).collect();
    let imports = object.spec.network.as_ref().is_some_and(|network| !network.import_clusters.is_empty());
    for (key, value) in &observed.services {
        if !imports && services::is_of_import(key) {
            // The operator wants no object of that name.
            continue;
        }
        let meta = value.get("metadata").cloned().and_then(|meta| serde_json::from_value(meta).ok());
        if is_foreign(&meta.unwrap_or_default()) {
            foreign.push(key.replace('/', " "));
        }
    }
    (!foreign.is_empty()).then(|| Blocker {
        reason: Reason::NameConflict,
        message: format!(
            "{} in namespace {} exists and does not belong to this MultiClusterZooKeeper; the operator does not change it. Delete or rename it, or declare the ensemble under another name",
            foreign.join(", "),
            object.namespace().unwrap_or_default()
        ),
    })
}

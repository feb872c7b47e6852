//! Reads tombstones: the operator's word that an incarnation is over.

use std::collections::BTreeSet;

use kube::{ResourceExt, api::DynamicObject};

use crate::{context::AgentContext, observe::objects::LiveObjects};
use mczk_api::{
    ZooKeeper,
    contract::{
        labels::{INCARNATION_LABEL, KARMADA_MANAGED_LABEL},
        tombstone,
    },
    zookeeper::Ensemble,
};
use mczk_rules::agent::render::object::Kind;
use mczk_runtime::failure::{During, Error};

/// Incarnations with a tombstone. The agent reads tombstones of other incarnations that remain here. It reads the one of
/// the list's own incarnation only if Karmada removes the object, or the spec names another incarnation, or no server of it runs
/// here: an older copy of the control plane may declare an incarnation that is over.
pub(super) async fn read(
    context: &AgentContext,
    namespace: &str,
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    live: &LiveObjects,
) -> Result<BTreeSet<String>, Error> {
    let name = object.name_any();
    let current = list.and_then(|list| list.incarnation.as_ref());
    let managed = object.labels().contains_key(KARMADA_MANAGED_LABEL) && object.metadata.deletion_timestamp.is_none();
    let spec_agrees = object.spec.ensemble.incarnation.as_ref().is_none_or(|named| Some(named) == current);
    let is_here = |object: &DynamicObject| current.is_some() && object.labels().get(INCARNATION_LABEL) == current;
    let has_set = live.iter().any(|((kind, _), object)| *kind == Kind::StatefulSet && is_here(object));
    let runs = has_set && list.is_some_and(|list| !list.phase.is_suspended());
    let remaining = live.values().filter_map(|object| object.labels().get(INCARNATION_LABEL)).chain(current);
    let mut tombstones = BTreeSet::new();
    for incarnation in remaining.collect::<BTreeSet<_>>() {
        if Some(incarnation) == current && managed && spec_agrees && runs {
            continue;
        }
        let secret = tombstone::secret_name(&name, incarnation);
        let found = context.api(namespace, Kind::Secret).get_opt(&secret).await;
        let found = found.during(|| format!("reading Secret {secret}"))?;
        tombstones.extend(found.and_then(|secret| tombstone::read(&secret.metadata, &name)));
    }
    Ok(tombstones)
}

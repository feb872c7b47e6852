//! The template and its policies, as the operator writes them.

use kube::ResourceExt;
use serde_json::json;

use crate::{
    api::{
        ZooKeeper,
        karmada::{
            CONFLICT_ABORT, CONFLICT_RESOLUTION, ResourceSelector,
            policy::{OverridePolicy, PropagationPolicy, PropagationPolicySpec},
        },
        multiclusterzookeeper::Record,
        zookeeper::ZooKeeperSpec,
    },
    contract::{
        canonical_json::short_hash,
        labels::{PLACEMENT_HASH, RECORDS, SELECTED_PLACEMENT, TEMPLATE_HASH},
        naming::policy_name,
    },
    mutation::broken,
    rollout::{
        cluster_selection::ClusterSelection,
        fence,
        known::Known,
        objects,
        override_rules::{self, Overrides},
        services::MCS_API_VERSION,
    },
};

/// Most records that the annotation [`RECORDS`] holds.
const MIRRORED_RECORDS: usize = 10;

/// True if another writer has changed the template since the operator wrote it.
pub(super) fn tampered(live: &ZooKeeper) -> serde_json::Result<bool> {
    let hash = short_hash(&live.spec)?;
    Ok(live.annotations().get(TEMPLATE_HASH) != Some(&hash) && !broken!(BelieveEditedTemplate))
}

pub(super) fn template(known: &Known<'_>, spec: &ZooKeeperSpec) -> serde_json::Result<ZooKeeper> {
    let live = known.template.map(|t| &t.metadata);
    let mut meta = objects::metadata(known.object, known.name.clone(), live);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_HASH.to_owned(), short_hash(spec)?);
    annotations.insert(CONFLICT_RESOLUTION.to_owned(), CONFLICT_ABORT.to_owned());
    Ok(ZooKeeper { metadata: objects::with_applied_hash(meta, spec)?, spec: spec.clone(), status: None })
}

pub(super) fn propagation_policy(
    known: &Known<'_>,
    selection: &ClusterSelection,
) -> serde_json::Result<PropagationPolicy> {
    let (name, id) = (&known.name, &known.incarnation.id);
    let select = |api_version, kind, name| ResourceSelector::named(api_version, kind, name, known.object.namespace());
    let spec = PropagationPolicySpec {
        resource_selectors: vec![
            select(crate::api::API_VERSION, "ZooKeeper", name.clone()),
            select(MCS_API_VERSION, "ServiceExport", name.clone()),
            select(MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        ],
        placement: selection.placement.clone(),
        propagate_deps: true,
        conflict_resolution: Some("Overwrite".to_owned()),
        preserve_resources_on_deletion: Some(!broken!(NoPreserve)),
        failover: Some(json!({ "cluster": { "purgeMode": "Gracefully" } })),
    };
    let live = known.policy.map(|p| &p.metadata);
    let mut meta = objects::metadata(known.object, policy_name(name), live);
    meta.annotations.get_or_insert_default().insert(PLACEMENT_HASH.to_owned(), selection.hash.clone());
    Ok(PropagationPolicy { metadata: objects::with_applied_hash(meta, &spec)?, spec })
}

/// The OverridePolicy, or why it cannot be written.
pub(super) fn override_policy(
    known: &Known<'_>,
    overrides: &Overrides,
    records: &[Record],
    selection: Option<&ClusterSelection>,
) -> serde_json::Result<Result<OverridePolicy, String>> {
    let spec = match override_rules::write(&known.namespace, &known.name, overrides) {
        Ok(spec) => spec,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let live = known.override_policy.map(|p| &p.metadata);
    let mut meta = objects::metadata(known.object, policy_name(&known.name), live);
    let annotations = meta.annotations.get_or_insert_default();
    let mirrored = records.get(records.len().saturating_sub(MIRRORED_RECORDS)..).unwrap_or_default();
    if !mirrored.is_empty() {
        annotations.insert(RECORDS.to_owned(), serde_json::to_string(mirrored)?);
    }
    if let Some(selection) = selection {
        annotations.insert(SELECTED_PLACEMENT.to_owned(), selection.stored()?);
    }
    let mut metadata = objects::with_applied_hash(meta, &spec)?;
    // The hash does not cover the term: a claim changes nothing else.
    fence::keep_term(&mut metadata, known.override_policy.map(|live| &**live), known.term);
    Ok(Ok(OverridePolicy { metadata, spec }))
}

//! The template and its policies, as the operator writes them.

use kube_core::ResourceExt;
use serde_json::json;

use crate::rollout::{
    binding,
    known::Known,
    objects,
    outcome::{Content, Objects, Plan, Propagation},
    services::MCS_API_VERSION,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        canonical_json::short_hash,
        labels::{
            APPLY_AGAIN, PLACEMENT_HASH, RECORDS, RELEASED, REPLACE_VOLUME, SELECTED_PLACEMENT, TEMPLATE_HASH, TERM,
        },
        replace_request::LONGEST_REQUEST,
    },
    karmada::{
        CONFLICT_ABORT, CONFLICT_RESOLUTION, ResourceSelector,
        policy::{OverridePolicy, PropagationPolicy, PropagationPolicySpec},
    },
    mutation::broken,
    zookeeper::ZooKeeperSpec,
};

/// Most records that the annotation [`RECORDS`] holds.
const MIRRORED_RECORDS: usize = 10;

/// True if another writer has changed the template since the operator wrote it.
pub(super) fn tampered(live: &ZooKeeper) -> serde_json::Result<bool> {
    let hash = short_hash(&live.spec)?;
    Ok(live.annotations().get(TEMPLATE_HASH) != Some(&hash) && !broken!(BelieveEditedTemplate))
}

/// Makes the objects of a plan.
pub(super) fn with_objects(known: &Known<'_>, objects: Objects, plan: Plan) -> serde_json::Result<Plan> {
    let Objects { overrides, policy, services, template, protect_binding } = objects;
    Ok(Plan {
        overrides: overrides.made(|content| override_policy(known, content))?,
        policy: policy.made(|propagation| propagation_policy(known, propagation))?,
        services,
        template: template.made(|spec| zookeeper(known, spec))?,
        protect_binding,
        ..plan
    })
}

fn zookeeper(known: &Known<'_>, spec: ZooKeeperSpec) -> serde_json::Result<ZooKeeper> {
    let live = known.template.map(|t| &t.metadata);
    // Karmada brings the request to every cluster. The agent of the cluster with that claim acts on it. Agents also say if it
    // is none.
    let request = known.object.annotations().get(REPLACE_VOLUME);
    let request = request.map(|text| (REPLACE_VOLUME, text.chars().take(LONGEST_REQUEST).collect()));
    let annotations = [(TEMPLATE_HASH, short_hash(&spec)?), (CONFLICT_RESOLUTION, CONFLICT_ABORT.to_owned())];
    let again = binding::asked_again(known).filter(|_| spec.surveys()).map(|time| (APPLY_AGAIN, time));
    let annotations = annotations.into_iter().chain(request).chain(again);
    let metadata = objects::hashed_metadata(known.object, known.name.clone(), live, annotations, &spec)?;
    Ok(ZooKeeper { metadata, spec, status: None })
}

fn propagation_policy(known: &Known<'_>, propagation: Propagation) -> serde_json::Result<PropagationPolicy> {
    let Propagation { selection, releases } = propagation;
    let name = &known.name;
    let select = |api_version, kind, name| ResourceSelector::named(api_version, kind, name, known.object.namespace());
    let mut spec = PropagationPolicySpec {
        resource_selectors: vec![
            select(mczk_api::API_VERSION, "ZooKeeper", name.clone()),
            select(MCS_API_VERSION, "ServiceExport", name.clone()),
            select(MCS_API_VERSION, "ServiceExport", format!("{name}-{}", known.incarnation.id)),
        ],
        placement: selection.placement,
        propagate_deps: true,
        conflict_resolution: Some("Overwrite".to_owned()),
        preserve_resources_on_deletion: Some(!broken!(NoPreserve)),
        failover: Some(json!({ "cluster": { "purgeMode": "Gracefully" } })),
    };
    let live = known.policy.map(|p| &p.metadata);
    let annotations = [(PLACEMENT_HASH, selection.hash)].into_iter();
    let mut metadata = objects::hashed_metadata(known.object, known.policy_name.clone(), live, annotations, &spec)?;
    if releases {
        spec.preserve_resources_on_deletion = Some(false);
        metadata.annotations.get_or_insert_default().insert(RELEASED.to_owned(), "true".to_owned());
        metadata = objects::with_applied_hash(metadata, &spec)?;
    }
    Ok(PropagationPolicy { metadata, spec })
}

fn override_policy(known: &Known<'_>, content: Content) -> serde_json::Result<OverridePolicy> {
    let Content { spec, records, selection } = content;
    let live = known.override_policy;
    let mirrored = records.get(records.len().saturating_sub(MIRRORED_RECORDS)..).filter(|records| !records.is_empty());
    let mirrored = mirrored.map(serde_json::to_string).transpose()?;
    let stored = selection.map(|selection| selection.stored()).transpose()?;
    let annotations = [(RECORDS, mirrored), (SELECTED_PLACEMENT, stored)].into_iter();
    let annotations = annotations.filter_map(|(name, value)| Some((name, value?)));
    let (name, meta) = (known.policy_name.clone(), live.map(|p| &p.metadata));
    let mut metadata = objects::hashed_metadata(known.object, name, meta, annotations, &spec)?;
    // The hash does not cover the term: a claim changes nothing else.
    if let Some(term) = &known.kept_term {
        metadata.annotations.get_or_insert_default().insert(TERM.to_owned(), term.clone());
    }
    Ok(OverridePolicy { metadata, spec })
}

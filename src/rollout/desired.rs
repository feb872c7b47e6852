//! The template and its policies, as the operator writes them.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            CONFLICT_RESOLUTION, ResourceSelector,
            policy::{OverridePolicy, PropagationPolicy, PropagationPolicySpec},
        },
        multiclusterzookeeper::Record,
        placement::Placement,
        zookeeper::ZooKeeperSpec,
    },
    contract::{
        canonical_json::short_hash,
        labels::{PLACEMENT_HASH, RECORDS, SELECTED_PLACEMENT, TEMPLATE_HASH},
        naming::policy_name,
    },
    mutation::broken,
    rollout::{
        objects,
        observed::Observed,
        override_rules::{self, Overrides},
        placement::{self, operator_divides},
        services::MCS_API_VERSION,
    },
};

/// Most records that the annotation [`RECORDS`] holds.
const MIRRORED_RECORDS: usize = 10;

/// The placement that Karmada gets. The operator selects it once for each `spec.placement`, and keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClusterSelection {
    /// Hash of the `spec.placement` that it follows.
    pub(super) hash: String,
    /// The placement, with the clusters by name.
    pub(super) placement: Placement,
    /// True if the operator decided the voters of each cluster: they are the static weights of the placement.
    #[serde(default)]
    pub(super) divided: bool,
}

impl ClusterSelection {
    /// The selected clusters.
    #[must_use]
    pub(super) fn clusters(&self) -> &[String] {
        self.placement.cluster_affinity.as_ref().map(|a| a.cluster_names.as_slice()).unwrap_or_default()
    }

    /// The voters of each cluster, if the operator decided them.
    #[must_use]
    pub(super) fn voters(&self) -> Option<BTreeMap<&str, i32>> {
        let scheduling = self.placement.replica_scheduling.as_ref().filter(|_| self.divided)?;
        let weights = scheduling.weight_preference.iter().flat_map(|preference| &preference.static_weight_list);
        Some(
            weights
                .filter_map(|weight| {
                    let cluster = weight.target_cluster.cluster_names.first()?;
                    Some((cluster.as_str(), i32::try_from(weight.weight).ok()?))
                })
                .collect(),
        )
    }

    /// True if the selection is for this placement and number of voters.
    #[must_use]
    pub(super) fn is_for(&self, hash: &str, object: &MultiClusterZooKeeper) -> bool {
        let divides = operator_divides(object.spec.placement.as_ref());
        self.hash == hash
            && self.divided == divides
            && self.voters().is_none_or(|voters| voters.values().sum::<i32>() == object.spec.replicas)
    }

    /// The selection that the OverridePolicy stores, or, if that is lost, the one in the PropagationPolicy.
    #[must_use]
    pub(super) fn recover(observed: &Observed) -> Option<Self> {
        let stored = observed.overrides.as_ref().and_then(|o| o.annotations().get(SELECTED_PLACEMENT));
        // To Karmada an empty list means all clusters. The operator writes none.
        let is_valid = |selection: &Self| !selection.clusters().is_empty();
        stored.and_then(|text| serde_json::from_str(text).ok()).filter(is_valid).or_else(|| {
            let policy = observed.policy.as_ref()?;
            let hash = policy.annotations().get(PLACEMENT_HASH)?.clone();
            // Another client may have edited the policy: only the clusters and the operator's weights count.
            let divided = operator_divides(observed.object.spec.placement.as_ref());
            let stored = Self { hash, placement: policy.spec.placement.clone(), divided };
            let voters = stored.voters().unwrap_or_default();
            let weight = |name: &String| (name.clone(), voters.get(name.as_str()).copied().unwrap_or(0));
            let clusters: Vec<(String, i32)> = stored.clusters().iter().map(weight).collect();
            let placement = placement::for_karmada(observed.object.spec.placement.as_ref(), &clusters);
            Some(Self { placement, ..stored }).filter(is_valid)
        })
    }
}

/// True if another writer has changed the template since the operator wrote it.
pub(super) fn tampered(live: &ZooKeeper) -> serde_json::Result<bool> {
    let hash = short_hash(&live.spec)?;
    Ok(live.annotations().get(TEMPLATE_HASH) != Some(&hash) && !broken!(BelieveEditedTemplate))
}

pub(super) fn template(observed: &Observed, spec: &ZooKeeperSpec, conflicts: &str) -> serde_json::Result<ZooKeeper> {
    let live = observed.template.as_ref().map(|t| &t.metadata);
    let mut meta = objects::metadata(&observed.object, observed.object.name_any(), live);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_HASH.to_owned(), short_hash(spec)?);
    annotations.insert(CONFLICT_RESOLUTION.to_owned(), conflicts.to_owned());
    Ok(ZooKeeper { metadata: objects::with_applied_hash(meta, spec)?, spec: spec.clone(), status: None })
}

pub(super) fn propagation_policy(
    observed: &Observed,
    selection: &ClusterSelection,
    name: &str,
    id: &str,
) -> serde_json::Result<PropagationPolicy> {
    let select = |api_version: &str, kind: &str, name: String| ResourceSelector {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: Some(name),
        namespace: observed.object.namespace(),
    };
    let spec = PropagationPolicySpec {
        resource_selectors: vec![
            select(crate::api::API_VERSION, "ZooKeeper", name.to_owned()),
            select(MCS_API_VERSION, "ServiceExport", name.to_owned()),
            select(MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        ],
        placement: selection.placement.clone(),
        propagate_deps: true,
        conflict_resolution: Some("Overwrite".to_owned()),
        preserve_resources_on_deletion: Some(!broken!(NoPreserve)),
        failover: Some(json!({ "cluster": { "purgeMode": "Gracefully" } })),
    };
    let live = observed.policy.as_ref().map(|p| &p.metadata);
    let mut meta = objects::metadata(&observed.object, policy_name(name), live);
    meta.annotations.get_or_insert_default().insert(PLACEMENT_HASH.to_owned(), selection.hash.clone());
    Ok(PropagationPolicy { metadata: objects::with_applied_hash(meta, &spec)?, spec })
}

/// The OverridePolicy, or why it cannot be written.
pub(super) fn override_policy(
    observed: &Observed,
    overrides: &Overrides,
    records: &[Record],
    selection: Option<&ClusterSelection>,
) -> serde_json::Result<Result<OverridePolicy, String>> {
    let name = observed.object.name_any();
    let spec = match override_rules::write(&observed.object.namespace().unwrap_or_default(), &name, overrides) {
        Ok(spec) => spec,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let live = observed.overrides.as_ref().map(|p| &p.metadata);
    let mut meta = objects::metadata(&observed.object, policy_name(&name), live);
    let annotations = meta.annotations.get_or_insert_default();
    let mirrored = records.get(records.len().saturating_sub(MIRRORED_RECORDS)..).unwrap_or_default();
    if !mirrored.is_empty() {
        annotations.insert(RECORDS.to_owned(), serde_json::to_string(mirrored)?);
    }
    if let Some(selection) = selection {
        annotations.insert(SELECTED_PLACEMENT.to_owned(), serde_json::to_string(selection)?);
    }
    Ok(Ok(OverridePolicy { metadata: objects::with_applied_hash(meta, &spec)?, spec }))
}

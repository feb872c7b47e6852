//! The owned objects as the operator writes them: template, policies, exports and imports.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            CONFLICT_ABORT, CONFLICT_OVERWRITE, CONFLICT_RESOLUTION, ResourceSelector,
            policy::{self, OverridePolicy, PropagationPolicy, PropagationPolicySpec},
        },
        multiclusterzookeeper::Record,
        placement::Placement,
        zookeeper::ZooKeeperSpec,
    },
    contract::{
        canonical_json::short_hash,
        labels::{PLACEMENT_HASH, RECORDS, SELECTED_PLACEMENT, TEMPLATE_HASH},
        naming::{Naming, policy_name},
        pod_layout::client_ports,
    },
    mutation::broken,
    rollout::{
        incarnation, objects,
        observed::Observed,
        outcome::ObjectWrite,
        override_rules::{self, Overrides},
        placement::{self, operator_divides},
    },
};

/// Most records that the annotation [`RECORDS`] holds.
const MIRRORED_RECORDS: usize = 10;
/// Group and version of Karmada's ServiceExport and ServiceImport.
pub const MCS_API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";

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

/// What Karmada does with an object of the same name in a member cluster: it takes over the operator's own alone.
const fn conflicts(reported: bool) -> &'static str {
    if reported { CONFLICT_OVERWRITE } else { CONFLICT_ABORT }
}

pub(super) fn template(observed: &Observed, spec: &ZooKeeperSpec, reported: bool) -> serde_json::Result<ZooKeeper> {
    let live = observed.template.as_ref().map(|t| &t.metadata);
    let mut meta = objects::metadata(&observed.object, observed.object.name_any(), live);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_HASH.to_owned(), short_hash(spec)?);
    annotations.insert(CONFLICT_RESOLUTION.to_owned(), conflicts(reported).to_owned());
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

/// ServiceExports of the client and the headless Service, and the import into clusters without servers.
///
/// Exports follow the template: Karmada takes them back in a cluster that left the federation and joined it again.
pub(super) fn services(
    observed: &Observed,
    naming: &Naming<'_>,
    reported: bool,
) -> BTreeMap<String, ObjectWrite<Value>> {
    let object = &observed.object;
    let mut wanted = BTreeMap::new();
    let mut add = |api_version: &str, kind: &str, name: String, conflicts: Option<&str>, spec: Option<Value>| {
        let key = format!("{kind}/{name}");
        let live_meta = observed
            .services
            .get(&key)
            .and_then(|v| v.get("metadata").cloned())
            .and_then(|m| serde_json::from_value(m).ok());
        let mut meta = objects::metadata(object, name, live_meta.as_ref());
        if let Some(conflicts) = conflicts {
            meta.annotations.get_or_insert_default().insert(CONFLICT_RESOLUTION.to_owned(), conflicts.to_owned());
        }
        let Ok(meta) = objects::with_applied_hash(meta, &spec) else { return };
        let mut value = json!({ "apiVersion": api_version, "kind": kind, "metadata": meta });
        if let (Some(spec), Some(reports)) = (spec, value.as_object_mut()) {
            reports.insert("spec".to_owned(), spec);
        }
        wanted.insert(key, ObjectWrite::Apply(value));
    };
    add(MCS_API_VERSION, "ServiceExport", naming.name.to_owned(), Some(conflicts(reported)), None);
    add(MCS_API_VERSION, "ServiceExport", naming.service(), Some(conflicts(reported)), None);
    let others = incarnation::neighbours(&object.uid().unwrap_or_default(), naming.incarnation).into_iter();
    let left = others.map(|id| format!("ServiceExport/{}-{id}", naming.name));
    let left: Vec<String> = left.filter(|key| service_is_ours(observed, key)).collect();
    let imports = object.spec.network.as_ref().map(|n| n.import_clusters.clone()).unwrap_or_default();
    let import_policy = import_policy_name(naming.name);
    if imports.is_empty() {
        for key in [format!("ServiceImport/{}", naming.name), format!("PropagationPolicy/{import_policy}")] {
            if service_is_ours(observed, &key) {
                wanted.insert(key, ObjectWrite::Delete);
            }
        }
    } else {
        let ports = client_ports(object.spec.tls.client.as_ref())
            .iter()
            .map(|(name, number)| json!({ "name": name, "port": number, "protocol": "TCP" }));
        add(
            MCS_API_VERSION,
            "ServiceImport",
            naming.name.to_owned(),
            Some(CONFLICT_ABORT),
            Some(json!({
                "type": "ClusterSetIP", "ports": ports.collect::<Vec<_>>()
            })),
        );
        add(
            policy::API_VERSION,
            "PropagationPolicy",
            import_policy,
            None,
            Some(json!({
                "resourceSelectors": [{ "apiVersion": MCS_API_VERSION, "kind": "ServiceImport", "name": naming.name }],
                "placement": { "clusterAffinity": { "clusterNames": imports } }
            })),
        );
    }
    wanted.extend(left.into_iter().map(|key| (key, ObjectWrite::Delete)));
    wanted
}

/// API version, kind and name of the objects in [`Observed::services`]. `ended` are incarnations that have a tombstone.
#[must_use]
pub(crate) fn service_names(
    object: &MultiClusterZooKeeper,
    ended: &BTreeSet<String>,
) -> Vec<(&'static str, &'static str, String)> {
    let name = object.name_any();
    let uid = object.uid().unwrap_or_default();
    let current = object.status.as_ref().and_then(|s| s.ensemble.as_ref()).filter(|e| !e.incarnation.is_empty());
    let id = current.map_or_else(|| incarnation::current(&uid, None, false, ended, []), |e| e.incarnation.clone());
    let mut names = vec![
        (MCS_API_VERSION, "ServiceExport", name.clone()),
        (MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        (MCS_API_VERSION, "ServiceImport", name.clone()),
        (policy::API_VERSION, "PropagationPolicy", import_policy_name(&name)),
    ];
    if current.is_none_or(|ensemble| !ensemble.formed) {
        // The bootstrap may restart as another incarnation, or has just done so.
        let others = incarnation::neighbours(&uid, &id).into_iter();
        names.extend(others.map(|id| (MCS_API_VERSION, "ServiceExport", format!("{name}-{id}"))));
    }
    names
}

/// Name of the policy of the import. No policy of an ensemble has a dot in its name.
fn import_policy_name(name: &str) -> String {
    format!("{}.import", policy_name(name))
}

/// True if an observed export, import or its policy is the operator's own.
pub(super) fn service_is_ours(observed: &Observed, key: &str) -> bool {
    observed
        .services
        .get(key)
        .and_then(|v| v.get("metadata").cloned())
        .and_then(|m| serde_json::from_value(m).ok())
        .is_some_and(|meta| objects::is_ours(&meta, &observed.object))
}

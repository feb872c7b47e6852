//! The owned objects beside the template: exports, the import, what asks the spares, their policies, and the policy of missing
//! Secrets.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::ResourceExt;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::rollout::{
    cluster_selection::ClusterSelection, incarnation, known::Known, missing_secrets::MissingSecrets, objects,
    outcome::ObjectWrite, override_rules,
};
use mczk_api::{
    API_VERSION, MultiClusterZooKeeper,
    contract::{
        conditions::{ConditionType, Reason},
        former_incarnations::FormerIncarnations,
        naming::{Naming, policy_name, spare_check_name},
        pod_layout::client_ports,
    },
    karmada::{
        CONFLICT_ABORT, CONFLICT_RESOLUTION, DELETION_PROTECTION, ResourceSelector,
        cluster::Cluster,
        policy::{self, OverridePolicySpec, OverrideRule},
    },
    pod::{TaintEffect, Toleration},
    zookeeper::{Source, ZooKeeperSpec},
};

pub use crate::rollout::served_kinds::MCS_API_VERSION;

/// Newer group and version of both kinds. The fields that the operator writes are the same in it.
pub const NEWER_MCS_API_VERSION: &str = "multicluster.x-k8s.io/v1beta1";
/// The remedy for a cluster with the newer version alone. Karmada writes the version of the control plane to all clusters.
pub const SERVE_BOTH: &str = "let the definition there serve multicluster.x-k8s.io/v1alpha1 beside v1beta1, as that of kubernetes-sigs/mcs-api does, since Karmada writes v1alpha1";

/// True if a cluster serves a kind of multi-cluster services in the newer version alone.
#[must_use]
pub fn serves_newer_alone(cluster: &Cluster, kind: &str) -> bool {
    cluster.serves(NEWER_MCS_API_VERSION, kind) && !cluster.serves(MCS_API_VERSION, kind)
}

type Writes = BTreeMap<String, ObjectWrite<Value>>;

/// ServiceExports of the client and the headless Service, and the import into clusters without servers.
///
/// Exports follow the template: Karmada takes them back in a cluster that left the federation and joined it again.
/// `owned` are the clusters in which Karmada may overwrite them. An incarnation that has not begun exports
/// nothing: clusters would keep its name if the ensemble continues a former one instead, and if its object is deleted, Karmada
/// would delete the exports of the former one.
pub(super) fn services(
    known: &Known<'_>,
    naming: &Naming<'_>,
    (owned, begins): (&BTreeSet<String>, bool),
    missing: &MissingSecrets,
) -> Writes {
    let policy = missing_policy_name(naming.name);
    let live = known.services.get(&key("OverridePolicy", &policy)).and_then(|live| live.get("spec"));
    let again = missing.policy(&known.namespace, live, known.now);
    let may_overwrite = (!owned.is_empty()).then(|| override_rules::may_overwrite(owned));
    let uid = known.object.uid().unwrap_or_default();
    let others = incarnation::neighbours(&uid, naming.incarnation).into_iter().chain(known.before_adoption());
    let mut wanted = removed(known, others.map(|id| key("ServiceExport", &format!("{}-{id}", naming.name))));
    if begins {
        wanted.extend(exports(known, [naming.name.to_owned(), naming.service()], may_overwrite));
    }
    wanted.extend(import(known, naming.name));
    wanted.extend(override_policy(known, policy, again));
    wanted
}

/// An OverridePolicy beside that of the template; without a spec its removal.
fn override_policy(known: &Known<'_>, name: String, spec: Option<OverridePolicySpec>) -> Writes {
    match spec {
        Some(spec) => {
            write(known, (policy::API_VERSION, "OverridePolicy", name), None, Some(json!(spec))).into_iter().collect()
        }
        None => removed(known, [key("OverridePolicy", &name)]),
    }
}

fn exports(known: &Known<'_>, names: [String; 2], may_overwrite: Option<OverrideRule>) -> Writes {
    let namespace = || known.object.namespace();
    let select = |name: &String| ResourceSelector::named(MCS_API_VERSION, "ServiceExport", name.clone(), namespace());
    let spec = may_overwrite.map(|rule| OverridePolicySpec {
        resource_selectors: names.iter().map(select).collect(),
        override_rules: vec![rule],
    });
    let mut wanted = override_policy(known, export_policy_name(&known.name), spec);
    for name in names {
        wanted.extend(write(known, (MCS_API_VERSION, "ServiceExport", name), Some(CONFLICT_ABORT), None));
    }
    wanted
}

fn import(known: &Known<'_>, name: &str) -> Writes {
    let spec = &known.object.spec;
    let clusters = spec.network.as_ref().map(|network| network.import_clusters.as_slice()).unwrap_or_default();
    let policy = import_policy_name(name);
    if clusters.is_empty() {
        return removed(known, [key("ServiceImport", name), key("PropagationPolicy", &policy)]);
    }
    let ports = client_ports(spec.tls.client.as_ref())
        .iter()
        .map(|(name, number)| json!({ "name": name, "port": number, "protocol": "TCP" }))
        .collect::<Vec<_>>();
    let import = json!({ "type": "ClusterSetIP", "ports": ports });
    let placed = placed((MCS_API_VERSION, "ServiceImport", name), &json!(clusters));
    let import = write(known, (MCS_API_VERSION, "ServiceImport", name.to_owned()), Some(CONFLICT_ABORT), Some(import));
    let policy = write(known, (policy::API_VERSION, "PropagationPolicy", policy), None, Some(placed));
    import.into_iter().chain(policy).collect()
}

/// The object that asks the spares without voters whether they could hold servers, and its policy.
pub(super) fn spare_check(known: &Known<'_>, template: &ZooKeeperSpec, selection: &ClusterSelection) -> Writes {
    let (name, policy) = (spare_check_name(&known.name), policy_name(&spare_check_name(&known.name)));
    let selected = selection.clusters();
    let spares: Vec<&String> = known.spares().iter().filter(|spare| !selected.contains(spare)).collect();
    if spares.is_empty() {
        return removed(known, [key("ZooKeeper", &name), key("PropagationPolicy", &policy)]);
    }
    let source = template.source.clone().unwrap_or_default();
    let spec = ZooKeeperSpec {
        replicas: 0,
        spare_of: Some(known.name.clone()),
        // Karmada brings it to every spare, although it has no replicas.
        source: Some(Source { surveys: true, ..source }),
        dependencies: Vec::new(),
        ..template.clone()
    };
    let placed = placed((API_VERSION, "ZooKeeper", &name), &json!(spares));
    let check = write(known, (API_VERSION, "ZooKeeper", name), Some(CONFLICT_ABORT), Some(json!(spec)));
    let policy = write(known, (policy::API_VERSION, "PropagationPolicy", policy), None, Some(placed));
    check.into_iter().chain(policy).collect()
}

/// The spec of a policy that brings one object to clusters which the user names. A taint takes it from none of them.
fn placed((api_version, kind, name): (&str, &str, &str), clusters: &Value) -> Value {
    let tolerations = [TaintEffect::NoExecute, TaintEffect::NoSchedule].map(Toleration::of_all);
    json!({
        "resourceSelectors": [{ "apiVersion": api_version, "kind": kind, "name": name }],
        "placement": { "clusterAffinity": { "clusterNames": clusters }, "clusterTolerations": tolerations }
    })
}

/// The write of an object that the operator wants.
fn write(
    known: &Known<'_>,
    (api_version, kind, name): (&str, &str, String),
    conflicts: Option<&str>,
    spec: Option<Value>,
) -> Option<(String, ObjectWrite<Value>)> {
    let key = key(kind, &name);
    let live = known.services.get(&key).and_then(metadata);
    let mut meta = objects::metadata(known.object, name.clone(), live.as_ref());
    if kind == "OverridePolicy"
        || [spare_check_name(&known.name), policy_name(&spare_check_name(&known.name))].contains(&name)
    {
        // An older version does not know this object, and the garbage collector cannot remove a protected one.
        meta.labels.get_or_insert_default().remove(DELETION_PROTECTION);
    }
    if let Some(conflicts) = conflicts {
        meta.annotations.get_or_insert_default().insert(CONFLICT_RESOLUTION.to_owned(), conflicts.to_owned());
    }
    let meta = objects::with_applied_hash(meta, &spec).ok()?;
    let mut value = json!({ "apiVersion": api_version, "kind": kind, "metadata": meta });
    if let (Some(spec), Some(members)) = (spec, value.as_object_mut()) {
        members.insert("spec".to_owned(), spec);
    }
    Some((key, ObjectWrite::Apply(value)))
}

/// The deletion of those that are there and the operator's own.
fn removed(known: &Known<'_>, keys: impl IntoIterator<Item = String>) -> Writes {
    keys.into_iter().filter(|key| is_ours(known, key)).map(|key| (key, ObjectWrite::Delete)).collect()
}

/// The deletion of all exports and imports, at the end of an ensemble. The policy of the exports stays as long as a Work of
/// one may be left: see [`all_deleted`].
pub(super) fn deleted(known: &Known<'_>) -> Writes {
    let export_policy = key("OverridePolicy", &export_policy_name(&known.name));
    removed(known, known.services.keys().filter(|key| **key != export_policy).cloned())
}

/// The deletion of all of them, with the policy that [`deleted`] leaves.
pub(super) fn all_deleted(known: &Known<'_>) -> Writes {
    removed(known, known.services.keys().cloned())
}

/// API version, kind and name of the objects in [`Known::services`]. `ended` are incarnations that have a tombstone.
#[must_use]
pub fn service_names(object: &MultiClusterZooKeeper, ended: &BTreeSet<String>) -> Vec<ServiceName> {
    let ensemble = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let recorded = ensemble.map(|ensemble| (ensemble.incarnation.as_str(), ensemble.formed));
    let former_incarnations = FormerIncarnations::of(object.annotations());
    let ended = former_incarnations.ended(ended);
    let mut names = names_in(&object.name_any(), &object.uid().unwrap_or_default(), recorded, &ended);
    if has_spares(object) {
        names.extend(names_of_spares(&object.name_any()));
    }
    let adopted =
        former_incarnations.adopted.map(|id| (MCS_API_VERSION, "ServiceExport", format!("{}-{id}", object.name_any())));
    names.extend(adopted.filter(|adopted| !names.contains(adopted)));
    names
}

/// True if the object declares spares, or its status does not say that it declared none.
#[must_use]
pub fn has_spares(object: &MultiClusterZooKeeper) -> bool {
    let declared = object.spec.failover.as_ref().is_some_and(|failover| !failover.spares.is_empty());
    let ready = ConditionType::FailoverReady.as_str();
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == ready);
    declared || ready.any(|condition| condition.reason != Reason::NoSparesDeclared.as_str())
}

/// API version, kind and name of the objects that ask spares.
#[must_use]
pub fn names_of_spares(name: &str) -> [ServiceName; 2] {
    [
        (API_VERSION, "ZooKeeper", spare_check_name(name)),
        (policy::API_VERSION, "PropagationPolicy", policy_name(&spare_check_name(name))),
    ]
}

/// API version, kind and name.
pub type ServiceName = (&'static str, &'static str, String);

/// The same for an object of this name and uid. `recorded` is the incarnation in its status, and whether a quorum has formed.
#[must_use]
pub fn names_in(name: &str, uid: &str, recorded: Option<(&str, bool)>, ended: &BTreeSet<String>) -> Vec<ServiceName> {
    let current = recorded.filter(|(incarnation, _)| !incarnation.is_empty());
    let id = current.map_or_else(|| incarnation::first(uid, ended), |(id, _)| id.to_owned());
    let mut names = vec![
        (MCS_API_VERSION, "ServiceExport", name.to_owned()),
        (MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        (MCS_API_VERSION, "ServiceImport", name.to_owned()),
        (policy::API_VERSION, "PropagationPolicy", import_policy_name(name)),
        (policy::API_VERSION, "OverridePolicy", export_policy_name(name)),
        (policy::API_VERSION, "OverridePolicy", missing_policy_name(name)),
    ];
    if current.is_none_or(|(_, formed)| !formed) {
        // The bootstrap may restart as another incarnation, or has just done so.
        let others = incarnation::neighbours(uid, &id).into_iter();
        names.extend(others.map(|id| (MCS_API_VERSION, "ServiceExport", format!("{name}-{id}"))));
    }
    names
}

/// True if a key of [`Known::services`] is that of the import or its policy.
pub(super) fn is_of_import(key: &str) -> bool {
    key.starts_with("ServiceImport/") || key.starts_with("PropagationPolicy/") && key.ends_with(".import")
}

/// Name of the policy of the import. No policy of an ensemble has a dot in its name.
fn import_policy_name(name: &str) -> String {
    format!("{}.import", policy_name(name))
}

/// Name of the policy of the exports.
fn export_policy_name(name: &str) -> String {
    format!("{}.exports", policy_name(name))
}

/// Name of the policy of missing Secrets.
fn missing_policy_name(name: &str) -> String {
    format!("{}.missing", policy_name(name))
}

/// The key of an object in [`Known::services`].
fn key(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

fn metadata(object: &Value) -> Option<ObjectMeta> {
    object.get("metadata").and_then(|meta| ObjectMeta::deserialize(meta).ok())
}

/// True if an observed object is the operator's own.
pub(super) fn is_ours(known: &Known<'_>, key: &str) -> bool {
    let meta = known.services.get(key).and_then(metadata);
    meta.is_some_and(|meta| objects::is_ours(&meta, known.object))
}

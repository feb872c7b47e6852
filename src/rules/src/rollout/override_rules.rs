//! The rules of the OverridePolicy of the template: replicas, cluster specs and the server list.
//!
//! Karmada applies the rules in this order:
//! - only while a Work is lost: 0 replicas for its cluster. The next rule states the same, but Karmada creates a lost Work
//!   again only when the binding or the spec of a policy changes.
//! - all clusters: `/spec/replicas` 0, so that no server starts if the registration of the webhook is lost.
//! - the clusters whose object is known to be the operator's own: Karmada may overwrite it. Elsewhere it overwrites nothing,
//!   as the template says.
//! - each cluster in use: its whole `/spec`, so that a change of the template reaches it only at its position in the rollout.
//! - before the first server list, and before clusters join: all clusters: `/spec/preflight`, the request to check the network.
//! - all clusters: `/spec/ensemble`. Membership belongs to the ensemble: a server list that reached one cluster after the
//!   other would deadlock growth and migration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use mczk_api::{
    API_VERSION,
    contract::{server_list, spec_hash},
    karmada::{
        CONFLICT_OVERWRITE, CONFLICT_RESOLUTION, ResourceSelector,
        policy::{OverridePolicySpec, OverrideRule, OverrideTarget, Overriders, PlaintextOverrider},
    },
    mutation::broken,
    preflight::Preflight,
    zookeeper::{Ensemble, ZooKeeperSpec},
};

/// Size of the largest cluster spec, in bytes of JSON. Karmada copies the applied overrides into annotations of each Work,
/// which may hold 256 KiB.
const MAX_CLUSTER_SPEC_BYTES: usize = 64 * 1024;
/// Size of the largest policy, in bytes of JSON. The limit of etcd for a request is 1.5 MiB.
const MAX_POLICY_BYTES: usize = 1024 * 1024;

/// The content of the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The cluster spec of each cluster in use, by name.
    pub cluster_specs: BTreeMap<String, ZooKeeperSpec>,
    /// The server list, for all clusters.
    pub ensemble: Ensemble,
    /// The request to check the network, for all clusters.
    pub preflight: Option<Preflight>,
    /// Clusters whose object is known to be the operator's own.
    pub owned: BTreeSet<String>,
    /// Clusters whose Work is lost, so that Karmada has to create it again.
    pub lost: BTreeSet<String>,
    /// Clusters whose cluster spec another client has changed. It counts as lost, and is never written.
    pub damaged: BTreeSet<String>,
}

/// Why a policy cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooLarge {
    /// A cluster spec is too large.
    #[error(
        "The cluster spec of {cluster} has {bytes} bytes, more than {MAX_CLUSTER_SPEC_BYTES}: shorten template or overrides"
    )]
    ClusterSpec {
        /// Its cluster.
        cluster: String,
        /// Its size.
        bytes: usize,
    },
    /// All cluster specs together are too large.
    #[error(
        "All cluster specs together have {bytes} bytes, more than {MAX_POLICY_BYTES}: shorten template or overrides"
    )]
    Policy {
        /// Their size.
        bytes: usize,
    },
    /// A value has no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The spec of the policy.
///
/// # Errors
/// See [`TooLarge`].
pub(crate) fn write(namespace: &str, name: &str, overrides: &Overrides) -> Result<OverridePolicySpec, TooLarge> {
    let mut rules = Vec::with_capacity(overrides.cluster_specs.len() + 4);
    if !overrides.lost.is_empty() {
        rules.push(rule(Some(overrides.lost.iter().cloned().collect()), "replace", "/spec/replicas", json!(0)));
    }
    if !broken!(NoZeroRule) {
        rules.push(rule(None, "replace", "/spec/replicas", json!(0)));
    }
    if !overrides.owned.is_empty() {
        rules.push(may_overwrite(&overrides.owned));
    }
    let mut total = 0;
    for (cluster, spec) in &overrides.cluster_specs {
        let value = serde_json::to_value(spec)?;
        let bytes = value.to_string().len();
        if bytes > MAX_CLUSTER_SPEC_BYTES {
            return Err(TooLarge::ClusterSpec { cluster: cluster.clone(), bytes });
        }
        total += bytes;
        rules.push(rule(Some(vec![cluster.clone()]), "replace", "/spec", value));
    }
    if let Some(request) = &overrides.preflight {
        let value = serde_json::to_value(request)?;
        total += value.to_string().len();
        // The template has no request, and `replace` would fail.
        rules.push(rule(None, "add", "/spec/preflight", value));
    }
    if overrides.ensemble != Ensemble::default() {
        let value = serde_json::to_value(&overrides.ensemble)?;
        total += value.to_string().len();
        let clusters = broken!(ListByCluster).then(|| overrides.cluster_specs.keys().cloned().collect::<Vec<_>>());
        if clusters.as_ref().is_none_or(|c| !c.is_empty()) {
            rules.push(rule(clusters, "replace", "/spec/ensemble", value));
        }
    }
    if total > MAX_POLICY_BYTES {
        return Err(TooLarge::Policy { bytes: total });
    }
    Ok(OverridePolicySpec {
        resource_selectors: vec![ResourceSelector::named(
            API_VERSION,
            "ZooKeeper",
            name.to_owned(),
            Some(namespace.to_owned()),
        )],
        override_rules: rules,
    })
}

/// Karmada may overwrite the object in these clusters: it is the operator's own.
pub(super) fn may_overwrite(clusters: &BTreeSet<String>) -> OverrideRule {
    annotate(clusters, CONFLICT_RESOLUTION, CONFLICT_OVERWRITE)
}

/// An annotation of the object in these clusters. The object has other annotations.
pub(super) fn annotate(clusters: &BTreeSet<String>, annotation: &str, value: &str) -> OverrideRule {
    // Another client may have removed the annotation, and `replace` would then fail for these clusters.
    rule(Some(clusters.iter().cloned().collect()), "add", &path_of(annotation), json!(value))
}

/// The JSON pointer to an annotation.
fn path_of(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

fn rule(clusters: Option<Vec<String>>, operator: &str, path: &str, value: Value) -> OverrideRule {
    OverrideRule {
        target_cluster: clusters.map(|cluster_names| OverrideTarget { cluster_names }),
        overriders: Overriders {
            plaintext: vec![PlaintextOverrider {
                path: path.to_owned(),
                operator: operator.to_owned(),
                value: Some(value),
            }],
        },
    }
}

/// The content of a policy. If another client has changed a cluster spec or the server list, its hash does not match. It
/// counts as absent then, and the operator recovers it as a lost one.
#[must_use]
pub fn read(spec: &OverridePolicySpec) -> Overrides {
    let mut overrides = Overrides::default();
    let conflict_resolution = path_of(CONFLICT_RESOLUTION);
    for rule in &spec.override_rules {
        let clusters = rule.target_cluster.as_ref().map(|target| target.cluster_names.as_slice()).unwrap_or_default();
        for patch in &rule.overriders.plaintext {
            let value = patch.value.clone().unwrap_or(Value::Null);
            match (patch.path.as_str(), clusters.first()) {
                (path, _) if path == conflict_resolution => overrides.owned.extend(clusters.iter().cloned()),
                ("/spec", Some(cluster)) => {
                    if let Some(spec) = intact_spec(value) {
                        overrides.cluster_specs.insert(cluster.clone(), spec);
                    } else {
                        overrides.damaged.insert(cluster.clone());
                    }
                }
                ("/spec/ensemble", _) if server_list::hash_matches(&value) || broken!(BelieveEditedList) => {
                    let list: Ensemble = serde_json::from_value(value).unwrap_or_default();
                    // As a lost one: the operator waits for reports that it can read.
                    overrides.ensemble = if list.phase.is_understood() { list } else { Ensemble::default() };
                }
                ("/spec/preflight", _) => overrides.preflight = serde_json::from_value(value).ok(),
                _ => {}
            }
        }
    }
    overrides
}

/// The cluster spec, if its hash matches. This version must not write one of a newer version with fields that it does not
/// know: without them the hash would not match.
fn intact_spec(value: Value) -> Option<ZooKeeperSpec> {
    if broken!(BelieveEditedSpec) {
        return serde_json::from_value(value).ok();
    }
    let is_intact = spec_hash::hash_matches(&value);
    let spec = serde_json::from_value(value).ok().filter(|_| is_intact)?;
    serde_json::to_value(&spec).is_ok_and(|written| spec_hash::hash_matches(&written)).then_some(spec)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::{fixtures::zookeeper_spec, rollout::cluster_spec};
    use mczk_api::contract::preflight;

    #[test]
    fn a_lost_work_changes_the_policy_but_not_its_content() {
        let whole = Overrides::default();
        let lost = Overrides { lost: BTreeSet::from(["m1".to_owned()]), ..Overrides::default() };
        let (before, after) = (write("n", "zoo", &whole), write("n", "zoo", &lost));
        let (before, after) = (before.unwrap(), after.unwrap());
        assert_ne!(before, after);
        assert_eq!(read(&before), read(&after));
        // The last rule, which decides the replicas of every cluster, is the same.
        assert_eq!(before.override_rules.last(), after.override_rules.last());
    }

    fn overrides() -> Overrides {
        let template = zookeeper_spec(json!({}));
        let spec = |cluster: &str, replicas| {
            (cluster.to_owned(), cluster_spec::for_cluster(&template, cluster, replicas, None, 0).unwrap())
        };
        let list = json!({
            "incarnation": "abc123", "epoch": 4,
            "servers": [{ "id": 1, "cluster": "m1", "ordinal": 0, "host": "h", "role": "voter" }]
        });
        Overrides {
            cluster_specs: BTreeMap::from([spec("m1", 2), spec("m2", 1)]),
            owned: BTreeSet::from(["m1".to_owned(), "m3".to_owned()]),
            ensemble: server_list::with_hash(serde_json::from_value(list).unwrap()).unwrap(),
            ..Overrides::default()
        }
    }

    #[test]
    fn a_request_to_check_the_network_is_read_back_with_and_without_servers() {
        let request = preflight::request("abc123", Vec::new(), None).unwrap();
        for whole in [Overrides::default(), overrides()] {
            let requested = Overrides { preflight: Some(request.clone()), ..whole };
            assert_eq!(read(&write("n", "zoo", &requested).unwrap()), requested);
        }
    }

    #[test]
    fn a_policy_is_read_back() {
        let whole = overrides();
        let spec = write("n", "zoo", &whole).unwrap();
        assert_eq!(read(&spec), whole);
        let paths: Vec<&str> =
            spec.override_rules.iter().flat_map(|r| &r.overriders.plaintext).map(|p| p.path.as_str()).collect();
        let annotation = "/metadata/annotations/work.karmada.io~1conflict-resolution";
        assert_eq!(paths, ["/spec/replicas", annotation, "/spec", "/spec", "/spec/ensemble"]);
    }

    /// M4: an operator that was taken back to the former version must not write a list with a hash of other content.
    #[test]
    fn the_server_list_of_a_newer_version_stays_as_it_is() {
        let newer = crate::newer_list::of_newer_version(&overrides().ensemble);
        let whole = Overrides { ensemble: serde_json::from_value(newer.clone()).unwrap(), ..overrides() };
        let spec = write("n", "zoo", &whole).unwrap();
        let value = |spec: &OverridePolicySpec| {
            let last = spec.override_rules.last().and_then(|rule| rule.overriders.plaintext.first());
            last.and_then(|patch| patch.value.clone())
        };
        assert_eq!(value(&spec), Some(newer.clone()));
        assert_eq!(value(&write("n", "zoo", &read(&spec)).unwrap()), Some(newer));
    }

    /// M4: as above, for a cluster spec. It is recovered or assigned again.
    #[test]
    fn the_cluster_spec_of_a_newer_version_counts_as_absent() {
        let mut newer = serde_json::to_value(&overrides().cluster_specs["m1"]).unwrap();
        newer["ofNewerVersion"] = json!(1);
        newer["specHash"] = spec_hash::spec_hash_of(&newer, 1).unwrap().into();
        let mut spec = write("n", "zoo", &overrides()).unwrap();
        for patch in spec.override_rules.iter_mut().flat_map(|rule| &mut rule.overriders.plaintext) {
            if patch.path == "/spec" && patch.value.as_ref().unwrap()["cluster"] == "m1" {
                patch.value = Some(newer.clone());
            }
        }
        let content = read(&spec);
        assert_eq!(content.cluster_specs.keys().collect::<Vec<_>>(), ["m2"]);
        assert!(content.damaged.contains("m1"));
    }

    #[test]
    fn a_changed_cluster_spec_or_server_list_counts_as_absent() {
        let whole = overrides();
        let mut spec = write("n", "zoo", &whole).unwrap();
        for rule in &mut spec.override_rules {
            for patch in &mut rule.overriders.plaintext {
                let value = patch.value.as_mut().unwrap();
                let m1 = rule.target_cluster.as_ref().is_some_and(|t| t.cluster_names == ["m1"]);
                match patch.path.as_str() {
                    "/spec" if m1 => *value.get_mut("replicas").unwrap() = json!(9),
                    "/spec/ensemble" => *value.get_mut("epoch").unwrap() = json!(9),
                    _ => {}
                }
            }
        }
        let content = read(&spec);
        assert_eq!(content.cluster_specs.keys().collect::<Vec<_>>(), ["m2"]);
        assert!(content.damaged.contains("m1"));
        assert_eq!(content.ensemble, Ensemble::default());
    }
}

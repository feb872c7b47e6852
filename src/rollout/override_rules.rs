//! The one OverridePolicy: replicas, cluster_specs and the list of servers, as rules in an order that keeps clusters apart.
//!
//! First, only while Karmada has lost a Work: 0 replicas for that cluster, which (a) says anyway. Karmada makes a lost Work
//! again only when the binding or a policy's spec changes.
//!
//! (a) all clusters: `/spec/replicas` 0, so that a lost webhook registration starts nothing; (b) each cluster in use: the
//! whole `/spec`, so that a change of the template reaches it only when its turn comes; (c) all clusters: `/spec/ensemble`,
//! written once for all and at once, because membership belongs to the ensemble and a list that travels in turns deadlocks
//! growth and migration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    api::{
        karmada::{
            ResourceSelector,
            policy::{OverridePolicySpec, OverrideRule, Overriders, PlaintextOverrider, TargetCluster},
        },
        zookeeper::{Ensemble, ZooKeeperSpec},
    },
    contract::{server_list, spec_hash},
    mutation::broken,
};

/// Largest pin, in bytes of JSON. Karmada copies the overrides that it applied into annotations of each Work, which may
/// hold 256 KiB.
pub const MAX_CLUSTER_SPEC_BYTES: usize = 64 * 1024;
/// Largest policy, in bytes of JSON: below etcd's limit of a request, 1.5 MiB.
pub const MAX_POLICY_BYTES: usize = 1024 * 1024;

/// What the policy says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The whole spec of each cluster in use, by name.
    pub cluster_specs: BTreeMap<String, ZooKeeperSpec>,
    /// The list of servers, for all.
    pub ensemble: Ensemble,
    /// Clusters whose Work is lost and is to be made again.
    pub lost: BTreeSet<String>,
    /// Clusters whose pin was changed by somebody else, and counts as lost. Never written.
    pub damaged: BTreeSet<String>,
}

/// Why a policy cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TooLarge {
    /// One pin is.
    #[error(
        "the spec of cluster {cluster} has {bytes} bytes, more than {MAX_CLUSTER_SPEC_BYTES}: shorten template or overrides"
    )]
    Pin {
        /// Its cluster.
        cluster: String,
        /// Its size.
        bytes: usize,
    },
    /// All together are.
    #[error(
        "the specs of all clusters together have {bytes} bytes, more than {MAX_POLICY_BYTES}: shorten template or overrides"
    )]
    Policy {
        /// Their size.
        bytes: usize,
    },
    /// Something has no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The policy's spec.
///
/// # Errors
/// See [`TooLarge`].
pub fn write(namespace: &str, name: &str, overrides: &Overrides) -> Result<OverridePolicySpec, TooLarge> {
    let mut rules = Vec::with_capacity(overrides.cluster_specs.len() + 2);
    if !overrides.lost.is_empty() {
        rules.push(rule(Some(overrides.lost.iter().cloned().collect()), "/spec/replicas", json!(0)));
    }
    if !broken!(NoZeroRule) {
        rules.push(rule(None, "/spec/replicas", json!(0)));
    }
    let mut total = 0;
    for (cluster, pin) in &overrides.cluster_specs {
        let value = serde_json::to_value(pin)?;
        let bytes = value.to_string().len();
        if bytes > MAX_CLUSTER_SPEC_BYTES {
            return Err(TooLarge::Pin { cluster: cluster.clone(), bytes });
        }
        total += bytes;
        rules.push(rule(Some(vec![cluster.clone()]), "/spec", value));
    }
    if overrides.ensemble != Ensemble::default() {
        let value = serde_json::to_value(&overrides.ensemble)?;
        total += value.to_string().len();
        let clusters = broken!(ListInTurns).then(|| overrides.cluster_specs.keys().cloned().collect::<Vec<_>>());
        if clusters.as_ref().is_none_or(|c| !c.is_empty()) {
            rules.push(rule(clusters, "/spec/ensemble", value));
        }
    }
    if total > MAX_POLICY_BYTES {
        return Err(TooLarge::Policy { bytes: total });
    }
    Ok(OverridePolicySpec {
        resource_selectors: vec![ResourceSelector {
            api_version: crate::api::API_VERSION.to_owned(),
            kind: "ZooKeeper".to_owned(),
            name: Some(name.to_owned()),
            // Karmada's webhook would fill it in, and ours would then differ from the live one for ever.
            namespace: Some(namespace.to_owned()),
        }],
        override_rules: rules,
    })
}

fn rule(clusters: Option<Vec<String>>, path: &str, value: Value) -> OverrideRule {
    OverrideRule {
        target_cluster: clusters.map(|cluster_names| TargetCluster { cluster_names }),
        overriders: Overriders {
            plaintext: vec![PlaintextOverrider {
                path: path.to_owned(),
                operator: "replace".to_owned(),
                value: Some(value),
            }],
        },
    }
}

/// What a policy says. A pin or a list whose own hash does not fit was changed by somebody else: it counts as absent, and is
/// found again as if it were lost.
#[must_use]
pub fn read(spec: &OverridePolicySpec) -> Overrides {
    let mut overrides = Overrides::default();
    for rule in &spec.override_rules {
        for patch in &rule.overriders.plaintext {
            let value = patch.value.clone().unwrap_or(Value::Null);
            match (patch.path.as_str(), rule.target_cluster.as_ref().and_then(|t| t.cluster_names.first())) {
                ("/spec", Some(cluster)) => {
                    if let (true, Ok(pin)) = (spec_hash::hash_matches(&value), serde_json::from_value(value)) {
                        overrides.cluster_specs.insert(cluster.clone(), pin);
                    } else {
                        overrides.damaged.insert(cluster.clone());
                    }
                }
                ("/spec/ensemble", _) if server_list::hash_matches(&value) => {
                    overrides.ensemble = serde_json::from_value(value).unwrap_or_default();
                }
                _ => {}
            }
        }
    }
    overrides
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rollout::cluster_spec;

    #[test]
    fn a_lost_work_changes_the_policy_and_nothing_that_it_says() {
        let whole = Overrides::default();
        let lost = Overrides { lost: BTreeSet::from(["m1".to_owned()]), ..Overrides::default() };
        let (before, after) = (write("n", "zoo", &whole), write("n", "zoo", &lost));
        let (before, after) = (before.unwrap(), after.unwrap());
        assert_ne!(before, after);
        assert_eq!(read(&before), read(&after));
        // What every cluster is told last about its replicas is what it was told before.
        assert_eq!(before.override_rules.last(), after.override_rules.last());
    }

    fn overrides() -> Overrides {
        let template = json!({
            "replicas": 3, "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": true }, "revision": "r",
            "template": { "image": "zoo:1", "storage": { "size": "1Gi" } }, "ensemble": {}
        });
        let template = serde_json::from_value(template).unwrap();
        let pin = |cluster: &str, replicas| {
            (cluster.to_owned(), cluster_spec::for_cluster(&template, cluster, replicas, None, 0).unwrap())
        };
        let list = json!({
            "incarnation": "abc123", "epoch": 4,
            "servers": [{ "id": 1, "cluster": "m1", "ordinal": 0, "host": "h", "role": "voter" }]
        });
        Overrides {
            cluster_specs: BTreeMap::from([pin("m1", 2), pin("m2", 1)]),
            ensemble: server_list::with_hash(serde_json::from_value(list).unwrap()).unwrap(),
            ..Overrides::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let whole = overrides();
        let spec = write("n", "zoo", &whole).unwrap();
        assert_eq!(read(&spec), whole);
        let paths: Vec<&str> =
            spec.override_rules.iter().flat_map(|r| &r.overriders.plaintext).map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["/spec/replicas", "/spec", "/spec", "/spec/ensemble"]);
    }

    #[test]
    fn a_pin_or_a_list_that_somebody_changed_counts_as_absent() {
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
        let told = read(&spec);
        assert_eq!(told.cluster_specs.keys().collect::<Vec<_>>(), ["m2"]);
        assert!(told.damaged.contains("m1"));
        assert_eq!(told.ensemble, Ensemble::default());
    }
}

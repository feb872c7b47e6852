//! Secrets with certificates that Karmada has not brought to a cluster.
//!
//! If a cluster does not answer a creation for 32 seconds, Karmada takes it for a success: client-go's `RetryOnConflict`
//! loses an error that is a deadline. Karmada repeats the creation only when the Work changes. So the operator changes an
//! annotation of the Secret for that cluster, until the agent has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::rollout::{override_rules, report::ClusterReport};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::APPLY_AGAIN},
    karmada::{ResourceSelector, policy::OverridePolicySpec, work::NAMESPACE_PREFIX},
    tls::EnsembleTls,
};

/// Time between two changes of the annotation.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// The Secrets that clusters report as missing.
#[derive(Debug, Default)]
pub(super) struct MissingSecrets {
    clusters: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl MissingSecrets {
    /// Of the reports on which the operator may rely. A cluster can name only the Secrets of the server list.
    pub(super) fn of(reports: &BTreeMap<String, ClusterReport>, tls: Option<&EnsembleTls>) -> Self {
        let mut missing = Self::default();
        let is_listed = |name: &&String| tls.is_some_and(|tls| tls.secrets().any(|listed| listed == *name));
        for report in reports.values().filter(|report| report.fresh()) {
            let names = report.status.iter().flat_map(|status| &status.missing_secrets);
            for name in names.filter(is_listed) {
                missing.clusters.insert(report.cluster.clone());
                missing.names.insert(name.clone());
            }
        }
        missing
    }

    /// The clusters, the Secrets, and where Karmada says what refuses them. `None` if no cluster misses any.
    pub(super) fn describe(&self, namespace: &str) -> Option<Cause> {
        let (first, list) =
            (self.clusters.first()?, |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(", "));
        let message = format!(
            "Certificates of the quorum have not reached cluster {}: Secret {} in namespace {namespace}. Servers there keep their former ones until these expire. The Works of the Secrets say what refuses them: kubectl --namespace {NAMESPACE_PREFIX}{first} get works -o yaml",
            list(&self.clusters),
            list(&self.names),
        );
        Some(Cause::new(Reason::CertificatesMissing, message))
    }

    /// True if no cluster misses any.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The policy that changes the annotation, if a Secret is missing. `live` is its spec as it is: within [`INTERVAL`] it
    /// stays.
    pub(super) fn policy(&self, namespace: &str, live: Option<&Value>, now: Timestamp) -> Option<OverridePolicySpec> {
        if self.is_empty() {
            return None;
        }
        let select = |name: &String| ResourceSelector::named("v1", "Secret", name.clone(), Some(namespace.to_owned()));
        let at = |time: Timestamp| OverridePolicySpec {
            resource_selectors: self.names.iter().map(select).collect(),
            override_rules: vec![override_rules::annotate(&self.clusters, APPLY_AGAIN, &time.to_string())],
        };
        let time = live.and_then(|live| live.pointer("/overrideRules/0/overriders/plaintext/0/value"));
        let last: Option<Timestamp> = time.and_then(Value::as_str).and_then(|time| time.parse().ok());
        // Karmada adds fields of its own.
        let live = live.and_then(|live| OverridePolicySpec::deserialize(live).ok());
        // A time ahead is that of a wrong clock.
        let is_recent = |last: &Timestamp| {
            *last <= now && now.duration_since(*last).unsigned_abs() < INTERVAL && live == Some(at(*last))
        };
        Some(at(last.filter(is_recent).unwrap_or(now)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use mczk_api::zookeeper::ZooKeeperStatus;

    fn report(cluster: &str, missing: &[&str], reachable: bool) -> (String, ClusterReport) {
        let missing_secrets = missing.iter().map(|name| (*name).to_owned()).collect();
        let status = Some(ZooKeeperStatus { missing_secrets, ..ZooKeeperStatus::default() });
        let cluster = cluster.to_owned();
        (cluster.clone(), ClusterReport { cluster, reachable, applied: true, status, ..ClusterReport::default() })
    }

    fn listed() -> EnsembleTls {
        EnsembleTls { identity: "a".to_owned(), trust: vec!["b".to_owned()] }
    }

    #[test]
    fn the_annotation_changes_once_in_an_interval() {
        let missing = MissingSecrets::of(
            &BTreeMap::from([report("m1", &["a", "users"], true), report("m2", &[], true)]),
            Some(&listed()),
        );
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |seconds: i64| start.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(seconds)).unwrap();
        let first = json!(missing.policy("n", None, start).unwrap());
        assert_eq!(first.pointer("/resourceSelectors").and_then(Value::as_array).map(Vec::len), Some(1));
        assert_eq!(first.pointer("/overrideRules/0/targetCluster/clusterNames").unwrap(), &json!(["m1"]));
        let at = |live: &Value, seconds: i64| json!(missing.policy("n", Some(live), after(seconds)).unwrap());
        assert_eq!(at(&first, 59), first);
        let second = at(&first, 60);
        assert_ne!(second, first);
        assert_eq!(at(&second, 61), second);
        assert_ne!(at(&second, 0), second, "the clock was ahead");
        let more = MissingSecrets::of(&BTreeMap::from([report("m1", &["a", "b"], true)]), Some(&listed()));
        assert_ne!(json!(more.policy("n", Some(&first), after(1)).unwrap()), first, "another Secret is missing");
    }

    /// Seen in Karmada 1.18: its webhook adds an empty field, and the operator wrote seven times a second.
    #[test]
    fn a_field_that_karmada_adds_is_no_change() {
        let missing = MissingSecrets::of(&BTreeMap::from([report("m1", &["a"], true)]), Some(&listed()));
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = missing.policy("n", None, start).unwrap();
        let mut live = json!(first);
        live.as_object_mut().unwrap().insert("overriders".to_owned(), json!({}));
        let after = start.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(59)).unwrap();
        assert_eq!(missing.policy("n", Some(&live), after), Some(first));
    }

    #[test]
    fn nothing_missing_needs_no_policy() {
        let reports = BTreeMap::from([report("m1", &[], true), report("m2", &["a"], false)]);
        let none = MissingSecrets::of(&reports, Some(&listed()));
        assert_eq!(none.policy("n", None, Timestamp::UNIX_EPOCH), None);
    }
}

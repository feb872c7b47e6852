//! Names between the member clusters.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, ensembles, full_name, members, parsed, spares},
};
use mczk_api::MultiClusterZooKeeper;
use mczk_rules::rollout::services::{MCS_API_VERSION, SERVE_BOTH, serves_newer_alone};

pub(super) const CHECKED: &str =
    "Every member cluster that is Ready serves ServiceExport and ServiceImport, and spares have names in DNS";

/// Clusters that cannot hold the exports of an ensemble.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    // What Karmada knows of a cluster that it does not reach may be old.
    let all = members(observed, &mut findings);
    for member in all.iter().filter(|member| member.cluster.ready()) {
        let lacks = |kind: &&str| !member.cluster.serves(MCS_API_VERSION, kind);
        let kinds: Vec<&str> = ["ServiceExport", "ServiceImport"].into_iter().filter(lacks).collect();
        if kinds.is_empty() {
            continue;
        }
        let name = member.cluster.name();
        let message =
            format!("The cluster does not serve {}: an ensemble there waits with KindsNotServed", kinds.join(" and "));
        let remedy = if kinds.iter().any(|kind| serves_newer_alone(&member.cluster, kind)) {
            format!("In {name} {SERVE_BOTH}: see docs/how-to/network.md")
        } else {
            format!(
                "mczk register --only propagation: Karmada then brings the definitions. If it stays, see kubectl \
                 --namespace karmada-es-{name} get works"
            )
        };
        findings.push(DoctorFinding::fault(name, message, remedy));
    }
    let ensembles = parsed(ensembles(observed, &mut findings));
    findings.extend(ensembles.iter().flat_map(without_id));
    findings
}

/// Spares that have no entry in `network.clusterIds`, although other clusters have one.
fn without_id(ensemble: &MultiClusterZooKeeper) -> Vec<DoctorFinding> {
    let ids = ensemble.spec.network.iter().flat_map(|network| &network.cluster_ids);
    let ids: BTreeSet<&String> = ids.map(|id| &id.cluster).collect();
    let lacks = |spare: &&String| !ids.is_empty() && !ids.contains(spare);
    let finding = |spare: &String| {
        let message = format!(
            "network.clusterIds has no entry for the spare {spare}: servers that move there get names with {spare}, which may not \
             resolve"
        );
        let remedy = format!("Add the name of {spare} in DNS to spec.network.clusterIds, also if it is {spare}");
        DoctorFinding::warning(full_name(&ensemble.metadata), message, remedy)
    };
    spares(ensemble).filter(lacks).map(finding).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, ensemble_with, healthy, member, now};

    #[test]
    fn a_kind_is_not_served() {
        let mut observed = healthy();
        let enablements = &mut member(&mut observed).cluster.status.api_enablements;
        for enablement in enablements.iter_mut() {
            enablement.resources.retain(|resource| resource.kind != "ServiceExport");
        }
        assert_fault(&examine(&observed, now()), "does not serve ServiceExport:", "mczk register --only propagation");
    }

    /// Karmada leaves a definition that it did not make, so to propagate its own again has no effect.
    #[test]
    fn a_kind_is_served_in_a_newer_version_alone() {
        let mut observed = healthy();
        let enablements = &mut member(&mut observed).cluster.status.api_enablements;
        for enablement in enablements.iter_mut().filter(|enablement| enablement.group_version == MCS_API_VERSION) {
            enablement.group_version = "multicluster.x-k8s.io/v1beta1".to_owned();
        }
        let findings = examine(&observed, now());
        assert_fault(&findings, "does not serve ServiceExport and ServiceImport", "v1alpha1 beside v1beta1");
        assert!(!findings[0].remedy.contains("mczk register"), "{}", findings[0].remedy);
    }

    #[test]
    fn a_spare_has_no_name_in_dns() {
        let mut observed = healthy();
        let ids = |cluster: &str| json!({ "network": { "clusterIds": [{ "cluster": cluster, "id": "one" }] } });
        ensemble_with(&mut observed, json!({ "spec": { "failover": { "spares": ["m3"] } } }));
        assert_eq!(examine(&observed, now()), []);
        ensemble_with(&mut observed, json!({ "spec": ids("m1") }));
        assert_warning(&examine(&observed, now()), "no entry for the spare m3", "spec.network.clusterIds");
        ensemble_with(&mut observed, json!({ "spec": ids("m3") }));
        assert_eq!(examine(&observed, now()), []);
    }
}

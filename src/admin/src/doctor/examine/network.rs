//! Names between the member clusters.

use jiff::Timestamp;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, members},
};
use mczk_rules::rollout::services::{MCS_API_VERSION, SERVE_BOTH, serves_newer_alone};

pub(super) const CHECKED: &str = "Every member cluster that is Ready serves ServiceExport and ServiceImport";

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
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, healthy, member, now};

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
}

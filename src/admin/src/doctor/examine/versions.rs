//! Versions of Kubernetes and Karmada.

use jiff::Timestamp;

use crate::doctor::{
    finding::DoctorFinding,
    image::version,
    observed::{DoctorObserved, members, readable},
};
use mczk_api::contract::supported_versions::{karmada, kubernetes, supports_karmada, supports_kubernetes};

pub(super) const CHECKED: &str = "mczk supports Kubernetes of all member clusters, and Karmada if its pods can be read";

/// Versions that mczk does not support.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for member in members(observed, &mut findings) {
        let version = &member.cluster.status.kubernetes_version;
        if !supports_kubernetes(version) {
            let message = format!("The cluster runs Kubernetes {version}, and mczk supports {}", kubernetes());
            let remedy = format!("Upgrade the cluster to Kubernetes {}, or upgrade mczk", kubernetes());
            findings.push(DoctorFinding::fault(member.cluster.name(), message, remedy));
        }
    }
    let image = observed.host.as_ref().map(|host| &host.karmada_image);
    let image = image.and_then(|image| readable(image, "Karmada", &mut findings));
    if let Some(version) = image.and_then(|image| version(image.as_ref()?))
        && !supports_karmada(version)
    {
        let message = format!("Karmada has the version {version}, and mczk supports {}", karmada());
        let remedy = format!("Upgrade Karmada to {}, or upgrade mczk", karmada());
        findings.push(DoctorFinding::fault("Karmada", message, remedy));
    }
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, healthy, member, now};

    #[test]
    fn kubernetes_of_a_member_cluster() {
        let mut observed = healthy();
        member(&mut observed).cluster.status.kubernetes_version = "v1.29.4".to_owned();
        assert_fault(
            &examine(&observed, now()),
            "Kubernetes v1.29.4, and mczk supports 1.31 to",
            "Upgrade the cluster",
        );
    }

    #[test]
    fn karmada_in_the_host() {
        let mut observed = healthy();
        let image = |tag: &str| Ok(Some(format!("docker.io/karmada/karmada-controller-manager:{tag}")));
        observed.host.as_mut().unwrap().karmada_image = image("v1.12.0");
        assert_fault(&examine(&observed, now()), "Karmada has the version v1.12.0", "Upgrade Karmada to 1.16 to");
        observed.host.as_mut().unwrap().karmada_image = image("latest");
        assert_eq!(examine(&observed, now()), []);
    }
}

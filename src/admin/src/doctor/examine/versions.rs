//! Versions of Kubernetes and Karmada.

use jiff::Timestamp;

use crate::doctor::{
    finding::DoctorFinding,
    image::version,
    observed::{DoctorObserved, members, readable},
};
use mczk_api::contract::tested_versions::{is_tested_karmada, is_tested_kubernetes, karmada, kubernetes};

pub(super) const CHECKED: &str =
    "mczk is tested with Kubernetes of all member clusters, and with Karmada if its pods can be read";

/// Versions with which mczk has no run.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for member in members(observed, &mut findings) {
        let version = &member.cluster.status.kubernetes_version;
        if !is_tested_kubernetes(version) {
            let message = format!("The cluster runs Kubernetes {version}, and mczk is tested with {}", kubernetes());
            let remedy = format!("Use Kubernetes {}, or test this version yourself", kubernetes());
            findings.push(DoctorFinding::warning(member.cluster.name(), message, remedy));
        }
    }
    let image = observed.host.as_ref().map(|host| &host.karmada_image);
    let image = image.and_then(|image| readable(image, "Karmada", &mut findings));
    if let Some(version) = image.and_then(|image| version(image.as_ref()?))
        && !is_tested_karmada(version)
    {
        let message = format!("Karmada has the version {version}, and mczk is tested with {}", karmada());
        let remedy = format!("Use Karmada {}, or test this version yourself", karmada());
        findings.push(DoctorFinding::warning("Karmada", message, remedy));
    }
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_warning, healthy, member, now};

    #[test]
    fn kubernetes_of_a_member_cluster() {
        let mut observed = healthy();
        member(&mut observed).cluster.status.kubernetes_version = "v1.29.4".to_owned();
        assert_warning(
            &examine(&observed, now()),
            "Kubernetes v1.29.4, and mczk is tested with 1.34, 1.35",
            "Use Kubernetes",
        );
    }

    #[test]
    fn karmada_in_the_host() {
        let mut observed = healthy();
        let image = |tag: &str| Ok(Some(format!("docker.io/karmada/karmada-controller-manager:{tag}")));
        observed.host.as_mut().unwrap().karmada_image = image("v1.12.0");
        assert_warning(&examine(&observed, now()), "Karmada has the version v1.12.0", "Use Karmada 1.16 to");
        observed.host.as_mut().unwrap().karmada_image = image("latest");
        assert_eq!(examine(&observed, now()), []);
    }
}

//! The certificates of the quorum of each ensemble.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::doctor::{
    examine::certificates::RESERVE,
    finding::DoctorFinding,
    observed::{DoctorObserved, ensembles, full_name, parsed, readable},
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::labels::{NOT_AFTER, REPLACE_AUTHORITY},
};

pub(super) const CHECKED: &str = "The certificates of every quorum exist and are valid for 30 days and more";

/// Certificates that ended, or end soon: the operator renews them when a third of their validity is left.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let ensembles = parsed(ensembles(observed, &mut findings));
    for (namespace, read) in &observed.certificates {
        let Some(secrets) = readable(read, namespace, &mut findings) else { continue };
        let own = ensembles.iter().filter(|ensemble| ensemble.metadata.namespace.as_ref() == Some(namespace));
        findings.extend(own.flat_map(|ensemble| of_ensemble(ensemble, secrets, now)));
    }
    findings
}

fn of_ensemble(ensemble: &MultiClusterZooKeeper, secrets: &[ObjectMeta], now: Timestamp) -> Vec<DoctorFinding> {
    let tls = ensemble.status.as_ref().and_then(|status| status.ensemble.as_ref()?.tls.as_ref());
    let Some(tls) = tls else { return Vec::new() };
    let (name, subject) = (ensemble.name_any(), full_name(&ensemble.metadata));
    let namespace = ensemble.namespace().unwrap_or_default();
    let see = format!("mczk why {name} --namespace {namespace}, and see the log of the operator, which renews it");
    let replace = format!(
        "kubectl --namespace {namespace} annotate mczk {name} {REPLACE_AUTHORITY}={} --overwrite",
        now.strftime("%Y-%m-%d")
    );
    // While an authority is replaced, the former one may end.
    let authority = tls.trust.iter().max_by_key(|name| number(name));
    let used = [(&tls.identity, "identity", see)].into_iter().chain(authority.map(|name| (name, "authority", replace)));
    used.filter_map(|(secret, what, remedy)| {
        let Some(meta) = secrets.iter().find(|meta| meta.name.as_ref() == Some(secret)) else {
            let message = format!("The Secret {secret} with the {what} of the quorum does not exist");
            return Some(DoctorFinding::fault(&subject, message, remedy));
        };
        let end: Timestamp = meta.annotations.as_ref()?.get(NOT_AFTER)?.parse().ok()?;
        let text = if end <= now { "expired at" } else { "expires within 30 days, at" };
        let message = format!("The {what} of the quorum in Secret {secret} {text} {end}");
        (end.duration_since(now) <= RESERVE).then(|| DoctorFinding::fault(&subject, message, remedy))
    })
    .collect()
}

/// The number at the end of a Secret's name.
fn number(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, days, healthy, now};

    #[test]
    fn an_identity_that_ends() {
        let findings = examine(&healthy(), days(380));
        assert_fault(&findings, "identity of the quorum in Secret zk-abc-identity-1 expires within", "mczk why zk");
        assert_fault(&examine(&healthy(), days(401)), "identity-1 expired at", "log of the operator");
    }

    #[test]
    fn an_authority_that_ends() {
        let findings = examine(&healthy(), days(3640));
        let remedy = "annotate mczk zk mczk.io/replace-authority=";
        assert_fault(&findings[1..], "authority of the quorum in Secret zk-abc-trust-1 expires within", remedy);
    }

    #[test]
    fn a_secret_that_does_not_exist() {
        let mut observed = healthy();
        let secrets = observed.certificates.get_mut("n").unwrap().as_mut().unwrap();
        secrets.retain(|meta| meta.name.as_deref() != Some("zk-abc-trust-1"));
        assert_fault(&examine(&observed, now()), "zk-abc-trust-1 with the authority", "annotate mczk zk");
    }
}

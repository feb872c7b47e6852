//! The certificates of the quorum of each ensemble.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, ensembles, full_name, parsed, readable},
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{certificate_expiry::phrase, certificate_names::numbered, labels::REPLACE_AUTHORITY},
    karmada::CLAIMED_BY,
};
use mczk_rules::rollout::certificates::{Certificate, trusted_keys};

pub(super) const CHECKED: &str = "The certificates of every quorum exist, and none expires soon";

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
    let status = ensemble.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let Some((status, tls)) = status.and_then(|status| Some((status, status.tls.as_ref()?))) else { return Vec::new() };
    let (name, subject) = (ensemble.name_any(), full_name(&ensemble.metadata));
    let namespace = ensemble.namespace().unwrap_or_default();
    let see = format!("mczk why {name} --namespace {namespace}, and see the log of the operator, which renews it");
    let replace = format!(
        "kubectl --namespace {namespace} annotate mczk {name} {REPLACE_AUTHORITY}={} --overwrite",
        now.strftime("%Y-%m-%d")
    );
    let certificates: Vec<_> = secrets.iter().filter_map(|meta| Certificate::read(meta, ensemble)).collect();
    let keys = trusted_keys(tls, &status.incarnation, &certificates);
    let mut findings: Vec<_> = keys.filter_map(|key| exposed(key, secrets, &subject, &namespace, &replace)).collect();
    // While an authority is replaced, the former one may end.
    let authority = tls.trust.iter().max_by_key(|name| numbered(name).map(|(_, number)| number));
    let used = [(&tls.identity, "identity", see)].into_iter().chain(authority.map(|name| (name, "authority", replace)));
    findings.extend(used.filter_map(|(secret, what, remedy)| {
        let Some(certificate) = certificates.iter().find(|certificate| certificate.name == *secret) else {
            let message = format!("The Secret {secret} with the {what} of the quorum does not exist");
            return Some(DoctorFinding::fault(&subject, message, remedy));
        };
        let end = phrase(certificate.not_after, now);
        let message = format!("The {what} of the quorum in Secret {secret} {end}");
        certificate.validity().is_ending(now).then(|| DoctorFinding::fault(&subject, message, remedy))
    }));
    findings
}

/// A private key that a policy carries to member clusters, or could carry. Karmada's own label forbids it.
fn exposed(
    key: &Certificate,
    secrets: &[ObjectMeta],
    subject: &str,
    namespace: &str,
    replace: &str,
) -> Option<DoctorFinding> {
    let secret = &key.name;
    if let Some(policy) = &key.propagated_by {
        let message = format!("Policy {policy} carries the private key in Secret {secret} to member clusters");
        let remedy = format!("Exclude the Secret from the policy, and then replace the authority: {replace}");
        return Some(DoctorFinding::fault(subject, message, remedy));
    }
    let meta = secrets.iter().find(|meta| meta.name.as_ref() == Some(secret))?;
    let is_claimed = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(CLAIMED_BY));
    let message = format!("A policy that selects all Secrets would carry the private key in {secret} to clusters");
    let remedy = format!("kubectl --namespace {namespace} label secret {secret} {CLAIMED_BY}=mczk");
    (!is_claimed).then(|| DoctorFinding::warning(subject, message, remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, certificate, days, ensemble_with, healthy, now};

    const BY_POLICY: &str = "clusterpropagationpolicy.karmada.io/name";

    #[test]
    fn an_identity_that_ends() {
        let findings = examine(&healthy(), days(380));
        assert_fault(&findings, "identity of the quorum in Secret zk-abc-identity-1 expires on", "mczk why zk");
        assert_fault(&examine(&healthy(), days(401)), "identity-1 has expired on", "log of the operator");
    }

    #[test]
    fn an_authority_that_ends() {
        let findings = examine(&healthy(), days(3640));
        let remedy = "annotate mczk zk mczk.io/replace-authority=";
        assert_fault(&findings[1..], "authority of the quorum in Secret zk-abc-trust-1 expires on", remedy);
    }

    #[test]
    fn a_key_that_a_policy_carries_or_could_carry() {
        let with = |label: &str, policy: &str| {
            let mut observed = healthy();
            let mut key = certificate("abc", "authority", "1/1", 3650);
            key.labels.as_mut().unwrap().insert(CLAIMED_BY.to_owned(), label.to_owned());
            key.labels.as_mut().unwrap().retain(|_, value| !value.is_empty());
            let policy = (!policy.is_empty()).then(|| (BY_POLICY.to_owned(), policy.to_owned()));
            key.annotations.as_mut().unwrap().extend(policy);
            observed.certificates.get_mut("n").unwrap().as_mut().unwrap().push(key);
            examine(&observed, now())
        };
        assert_eq!(with("mczk", ""), []);
        let label = "kubectl --namespace n label secret zk-abc-authority-1 resourcetemplate.karmada.io/claimed-by=mczk";
        assert_warning(&with("", ""), "would carry the private key in zk-abc-authority-1", label);
        let message = "Policy all-secrets carries the private key in Secret zk-abc-authority-1";
        assert_fault(&with("mczk", "all-secrets"), message, "annotate mczk zk mczk.io/replace-authority=");
    }

    /// The remedy is to replace the authority. Afterwards its key is worth nothing.
    #[rstest]
    #[case::former_authority("abc", "authority", "1/1")]
    #[case::identity_under_it("abc", "identity", "1/1")]
    #[case::former_incarnation("old", "authority", "2/2")]
    fn a_key_that_the_quorum_no_longer_trusts(#[case] incarnation: &str, #[case] holds: &str, #[case] numbers: &str) {
        let mut observed = healthy();
        let tls = json!({ "identity": "zk-abc-identity-2", "trust": ["zk-abc-trust-2"] });
        ensemble_with(&mut observed, json!({ "status": { "ensemble": { "tls": tls } } }));
        let mut key = certificate(incarnation, holds, numbers, 300);
        key.annotations.as_mut().unwrap().insert(BY_POLICY.to_owned(), "all-secrets".to_owned());
        let new = [certificate("abc", "identity", "2/2", 400), certificate("abc", "trust", "2/2", 3650)];
        observed.certificates.insert("n".to_owned(), Ok(new.into_iter().chain([key]).collect()));
        assert_eq!(examine(&observed, now()), []);
    }

    #[test]
    fn a_secret_that_does_not_exist() {
        let mut observed = healthy();
        let secrets = observed.certificates.get_mut("n").unwrap().as_mut().unwrap();
        secrets.retain(|meta| meta.name.as_deref() != Some("zk-abc-trust-1"));
        assert_fault(&examine(&observed, now()), "zk-abc-trust-1 with the authority", "annotate mczk zk");
    }
}

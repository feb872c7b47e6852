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
    contract::{
        certificate_names::Holds,
        labels::{CERTIFICATE, ENSEMBLE_LABEL, NOT_AFTER, REPLACE_AUTHORITY},
    },
    karmada::{CLAIMED_BY, claiming_policy},
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
    let mut findings = exposed(&name, &subject, secrets, &replace);
    // While an authority is replaced, the former one may end.
    let authority = tls.trust.iter().max_by_key(|name| number(name));
    let used = [(&tls.identity, "identity", see)].into_iter().chain(authority.map(|name| (name, "authority", replace)));
    findings.extend(used.filter_map(|(secret, what, remedy)| {
        let Some(meta) = secrets.iter().find(|meta| meta.name.as_ref() == Some(secret)) else {
            let message = format!("The Secret {secret} with the {what} of the quorum does not exist");
            return Some(DoctorFinding::fault(&subject, message, remedy));
        };
        let end: Timestamp = meta.annotations.as_ref()?.get(NOT_AFTER)?.parse().ok()?;
        let text = if end <= now { "expired at" } else { "expires within 30 days, at" };
        let message = format!("The {what} of the quorum in Secret {secret} {text} {end}");
        (end.duration_since(now) <= RESERVE).then(|| DoctorFinding::fault(&subject, message, remedy))
    }));
    findings
}

/// Secrets with a key that a policy carries to member clusters, or could carry. Karmada's own label forbids it.
fn exposed(ensemble: &str, subject: &str, secrets: &[ObjectMeta], replace: &str) -> Vec<DoctorFinding> {
    let label = |meta: &ObjectMeta, key: &str| meta.labels.as_ref()?.get(key).cloned();
    let has_key = |meta: &&ObjectMeta| {
        let kind = meta.annotations.as_ref().and_then(|annotations| annotations.get(CERTIFICATE));
        let holds = kind.and_then(|kind| kind.split('/').next());
        holds.is_some_and(|word| [Holds::Authority, Holds::Identity].iter().any(|holds| holds.word() == word))
    };
    let own = secrets.iter().filter(|meta| label(meta, ENSEMBLE_LABEL).as_deref() == Some(ensemble)).filter(has_key);
    own.filter_map(|meta| {
        let secret = meta.name.clone().unwrap_or_default();
        if let Some(policy) = claiming_policy(meta) {
            let message = format!("Policy {policy} carries the private key in Secret {secret} to member clusters");
            let remedy = format!("Exclude the Secret from the policy, and then replace the authority: {replace}");
            return Some(DoctorFinding::fault(subject, message, remedy));
        }
        let message = format!("A policy that selects all Secrets would carry the private key in {secret} to clusters");
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let remedy = format!("kubectl --namespace {namespace} label secret {secret} {CLAIMED_BY}=mczk");
        label(meta, CLAIMED_BY).is_none().then(|| DoctorFinding::warning(subject, message, remedy))
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
    use crate::doctor::healthy::{assert_fault, assert_warning, days, healthy, now};

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
    fn a_key_that_a_policy_carries_or_could_carry() {
        let with = |label: &str, policy: &str| {
            let mut observed = healthy();
            let secrets = observed.certificates.get_mut("n").unwrap().as_mut().unwrap();
            secrets.push(
                serde_json::from_value(serde_json::json!({
                    "name": "zk-abc-authority-1", "namespace": "n",
                    "labels": { ENSEMBLE_LABEL: "zk", CLAIMED_BY: label },
                    "annotations": { CERTIFICATE: "authority/1/1", "clusterpropagationpolicy.karmada.io/name": policy },
                }))
                .map(|mut meta: ObjectMeta| {
                    meta.labels.as_mut().unwrap().retain(|_, value| !value.is_empty());
                    meta.annotations.as_mut().unwrap().retain(|_, value| !value.is_empty());
                    meta
                })
                .unwrap(),
            );
            examine(&observed, now())
        };
        assert_eq!(with("mczk", ""), []);
        let label = "kubectl --namespace n label secret zk-abc-authority-1 resourcetemplate.karmada.io/claimed-by=mczk";
        assert_warning(&with("", ""), "would carry the private key in zk-abc-authority-1", label);
        let message = "Policy all-secrets carries the private key in Secret zk-abc-authority-1";
        assert_fault(&with("mczk", "all-secrets"), message, "annotate mczk zk mczk.io/replace-authority=");
    }

    #[test]
    fn a_secret_that_does_not_exist() {
        let mut observed = healthy();
        let secrets = observed.certificates.get_mut("n").unwrap().as_mut().unwrap();
        secrets.retain(|meta| meta.name.as_deref() != Some("zk-abc-trust-1"));
        assert_fault(&examine(&observed, now()), "zk-abc-trust-1 with the authority", "annotate mczk zk");
    }
}

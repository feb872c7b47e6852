//! The condition `CertificatesExpire`: the operator's own view of the quorum's certificates, and what agents report.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::inputs::{StatusInputs, messages_of};
use crate::rollout::{
    certificates::{Certificate, in_use, trusted_keys},
    report::{ClusterReport, last_reports},
};
use mczk_api::contract::{
    cause::Cause,
    certificate_expiry::phrase,
    certificate_names::Holds,
    conditions::{ConditionType, Reason},
    labels::REPLACE_AUTHORITY,
};

/// The certificates that expire soon: those of the quorum first, since without them no server reaches another.
pub(super) fn expire(inputs: &StatusInputs<'_>) -> Cause {
    let used = in_use(inputs.next.ensemble.tls.as_ref(), reports(inputs));
    let mut quorum: Vec<String> = ending(&used, inputs.known.certificates, inputs.known.now);
    let reported = messages_of(reports(inputs), ConditionType::AgentCertificatesExpire);
    let (of_quorum, others): (Vec<_>, Vec<_>) =
        reported.into_iter().partition(|(reason, _)| *reason == Some(Reason::QuorumCertificateExpires));
    // The operator may be unable to list Secrets. If it lists them, an agent's report about the same ones adds nothing.
    if quorum.is_empty() {
        quorum.extend(of_quorum.into_iter().map(|(_, message)| message));
    }
    let reason = if quorum.is_empty() { Reason::ClientCertificateExpires } else { Reason::QuorumCertificateExpires };
    let all: Vec<String> = quorum.into_iter().chain(others.into_iter().map(|(_, message)| message)).collect();
    if all.is_empty() {
        let stale: Vec<&str> =
            reports(inputs).filter(|report| !report.fresh()).map(|report| report.cluster.as_str()).collect();
        let by = if stale.is_empty() {
            String::new()
        } else {
            format!(", by the last report of {}, which may be out of date", stale.join(", "))
        };
        return Cause::new(Reason::CertificatesValid, format!("No certificate of the ensemble expires soon{by}"));
    }
    Cause::new(reason, all.join(". "))
}

/// A certificate expires whether Karmada reaches its cluster or not.
fn reports<'a>(inputs: &'a StatusInputs<'_>) -> impl Iterator<Item = &'a ClusterReport> {
    let servers = &inputs.next.ensemble.servers;
    last_reports(inputs.reports, move |cluster| servers.iter().any(|server| server.cluster == cluster))
}

/// One message for each certificate in use that expires soon. An authority has the same name and end as its trust.
fn ending(used: &BTreeMap<&str, BTreeSet<&str>>, certificates: &[Certificate], now: Timestamp) -> Vec<String> {
    let message = |certificate: &Certificate| {
        let clusters = used.get(certificate.name.as_str())?;
        if !certificate.validity().is_ending(now) {
            return None;
        }
        let what = if certificate.holds == Holds::Identity { "certificate" } else { "authority" };
        let clusters: Vec<&str> = clusters.iter().copied().collect();
        let by = if clusters.is_empty() { String::new() } else { format!("; clusters {} use it", clusters.join(", ")) };
        Some(format!(
            "The {what} of the quorum in Secret {} {}, and its renewal is overdue{by}. Read the condition Progressing and \
             the operator's log",
            certificate.name,
            phrase(certificate.not_after, now),
        ))
    };
    certificates.iter().filter_map(message).collect()
}

/// The Secrets with private keys that servers trust, or will trust in the first server list.
fn keys<'a>(inputs: &'a StatusInputs<'_>) -> Box<dyn Iterator<Item = &'a Certificate> + 'a> {
    let ensemble = &inputs.next.ensemble;
    match (&ensemble.tls, &ensemble.incarnation) {
        (Some(tls), Some(incarnation)) => Box::new(trusted_keys(tls, incarnation, inputs.known.certificates)),
        _ => Box::new(
            inputs
                .known
                .certificates
                .iter()
                .filter(|secret| secret.incarnation == inputs.known.incarnation.id && secret.holds != Holds::Trust),
        ),
    }
}

/// The private keys of the quorum that a policy of a user carries to member clusters.
pub(super) fn exposed(inputs: &StatusInputs<'_>) -> Option<Cause> {
    let exposed: Vec<String> = keys(inputs)
        .filter_map(|secret| Some(format!("{} by policy {}", secret.name, secret.propagated_by.as_ref()?)))
        .collect();
    let message = format!(
        "Private keys of the quorum travel to member clusters: Secret {}. Exclude the Secrets from the policies, and then replace the authority: kubectl --namespace {} annotate mczk {} {REPLACE_AUTHORITY}=VALUE --overwrite",
        exposed.join(", "),
        inputs.known.namespace,
        inputs.known.name,
    );
    (!exposed.is_empty()).then(|| Cause::new(Reason::KeyPropagated, message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn secret(holds: Holds, name: &str, not_after: &str) -> Certificate {
        Certificate {
            incarnation: "abc".to_owned(),
            holds,
            number: 1,
            authority: 1,
            name: name.to_owned(),
            not_after: not_after.parse().unwrap(),
            requested: None,
            propagated_by: None,
        }
    }

    #[rstest]
    #[case::overdue("2026-12-01T00:00:00Z", Some("expires on 2026-12-01 00:00 UTC"))]
    #[case::over("2026-11-01T00:00:00Z", Some("has expired on 2026-11-01 00:00 UTC"))]
    #[case::renewal_is_due("2027-01-01T00:00:00Z", None)]
    fn only_certificates_in_use_count(#[case] end: &str, #[case] expected: Option<&str>) {
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        let all = [secret(Holds::Identity, "new", end), secret(Holds::Identity, "old", "2026-11-24T00:00:00Z")];
        let used = BTreeMap::from([("new", BTreeSet::from(["m1"]))]);
        let messages = ending(&used, &all, now);
        assert_eq!(messages.len(), usize::from(expected.is_some()));
        for (message, expected) in messages.iter().zip(expected) {
            assert!(
                message.contains(expected) && message.contains("Secret new") && message.contains("m1"),
                "{message}"
            );
        }
    }
}

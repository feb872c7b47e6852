//! The condition `CertificatesExpire`: the operator's own view of the quorum's certificates, and what agents report.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::inputs::{StatusInputs, messages};
use crate::rollout::certificates::{Certificate, trusted_keys};
use mczk_api::{
    contract::{
        cause::Cause,
        certificate_expiry::phrase,
        certificate_names::Holds,
        conditions::{ConditionType, Reason},
        labels::REPLACE_AUTHORITY,
    },
    tls::EnsembleTls,
};

/// The certificates that expire soon: those of the quorum first, since without them no server reaches another.
pub(super) fn expire(inputs: &StatusInputs<'_>) -> Cause {
    let mut quorum: Vec<String> = ending(&in_use(inputs), inputs.known.certificates, inputs.known.now);
    let reported = messages(inputs, ConditionType::AgentCertificatesExpire);
    let (of_quorum, others): (Vec<_>, Vec<_>) =
        reported.into_iter().partition(|(reason, _)| *reason == Some(Reason::QuorumCertificateExpires));
    // The operator may be unable to list Secrets. If it lists them, an agent's report about the same ones adds nothing.
    if quorum.is_empty() {
        quorum.extend(of_quorum.into_iter().map(|(_, message)| message));
    }
    let reason = if quorum.is_empty() { Reason::ClientCertificateExpires } else { Reason::QuorumCertificateExpires };
    let all: Vec<String> = quorum.into_iter().chain(others.into_iter().map(|(_, message)| message)).collect();
    if all.is_empty() {
        return Cause::new(Reason::CertificatesValid, "No certificate of the ensemble expires soon");
    }
    Cause::new(reason, all.join(". "))
}

/// The certificates that the server list names, and those that servers of a cluster have loaded, with these clusters.
fn in_use<'a>(inputs: &'a StatusInputs<'_>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let listed = inputs.next.ensemble.tls.iter().map(|tls| (None, tls));
    let reports = inputs.reports.values().filter(|report| report.fresh());
    let loaded = reports
        .filter_map(|report| Some((Some(report.cluster.as_str()), report.status.as_ref()?.ensemble_tls.as_ref()?)));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (cluster, tls) in listed.chain(loaded) {
        for name in EnsembleTls::secrets(tls) {
            names.entry(name).or_default().extend(cluster);
        }
    }
    names
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

/// The private keys of the quorum that a policy of a user carries to member clusters.
pub(super) fn exposed(inputs: &StatusInputs<'_>) -> Option<Cause> {
    let tls = inputs.next.ensemble.tls.as_ref()?;
    let incarnation = inputs.next.ensemble.incarnation.as_ref()?;
    let exposed: Vec<String> = trusted_keys(tls, incarnation, inputs.known.certificates)
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

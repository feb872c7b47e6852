//! The certificate of the webhook, and the authority by which Karmada verifies it.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use crate::{
    doctor::{
        finding::{DoctorFinding, FindingSeverity},
        observed::{DoctorObserved, address},
    },
    install::host::text,
};
use mczk_api::contract::certificate_expiry::phrase;
use mczk_runtime::pki;

pub(super) const CHECKED: &str =
    "The certificate of the webhook does not expire soon, and is valid for its name, under the registered authority";

const SUBJECT: &str = "webhook";
const RENEW: &str = "Run mczk install again. If you made the certificate by hand: mczk certs --dir DIR --renew, and replace \
                     the Secret mczk-webhook-tls";
const REGISTER: &str = "Run mczk install again. If you registered by hand: mczk register --only interpreter with --service or \
                        --url, and the authority that signed the certificate in --ca-file";

/// What is wrong with the certificate.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let Some(webhook) = observed.webhook_of_ours() else {
        let message = "Not examined: there is no registration";
        return vec![DoctorFinding::new(FindingSeverity::Skipped, SUBJECT, message, "See the area registration")];
    };
    let bundle = authorities(&webhook.client_config.ca_bundle);
    if bundle.is_empty() {
        let message = "The caBundle of the registration holds no certificate: Karmada trusts no webhook";
        return vec![DoctorFinding::fault(SUBJECT, message, REGISTER)];
    }
    for authority in &bundle {
        findings.extend(ending("The authority in the caBundle of the registration", authority, now));
    }
    let name = address(&webhook.client_config).map(|(host, _)| host).unwrap_or_default();
    let (served, mut stored) = (served(observed), stored(observed));
    if served == stored {
        stored.clear();
    }
    let sources =
        [("The certificate that the webhook serves", served), ("The certificate in the Secret of the host", stored)];
    if sources.iter().all(|(_, chain)| chain.is_empty()) {
        let message =
            "The certificate of the webhook is not examined: it is not reachable from here, nor read in the host";
        let remedy = "Name the cluster of the operator with --host-kubeconfig or --host-context";
        findings.push(DoctorFinding::warning(SUBJECT, message, remedy));
    }
    for (what, chain) in sources {
        let Some(own) = chain.first() else { continue };
        let end = ending(what, own, now);
        let is_over = end.as_ref().is_some_and(|end| end.severity == FindingSeverity::Fault);
        findings.extend(end);
        if !is_over && let Err(why) = verify(&chain, bundle.clone(), &name, now) {
            let message = format!("{what} does not match the caBundle of the registration: {why}. Karmada refuses it");
            findings.push(DoctorFinding::fault(SUBJECT, message, REGISTER));
        }
    }
    findings
}

/// The certificates that this program received from the webhook.
fn served(observed: &DoctorObserved) -> Vec<CertificateDer<'static>> {
    let chain = observed.webhook.as_ref().and_then(|webhook| webhook.as_ref().ok());
    chain.into_iter().flatten().map(|der| CertificateDer::from(der.clone())).collect()
}

/// The certificates in the Secret from which the operator serves.
fn stored(observed: &DoctorObserved) -> Vec<CertificateDer<'static>> {
    let secret = observed.host.as_ref().and_then(|host| host.certificate.as_ref().ok()?.as_ref());
    let pem = text(secret, "tls.crt").unwrap_or_default();
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

/// The certificates of a `caBundle`.
fn authorities(bundle: &str) -> Vec<CertificateDer<'static>> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect()
}

/// A certificate that has ended, or ends soon.
fn ending(what: &str, certificate: &CertificateDer<'_>, now: Timestamp) -> Option<DoctorFinding> {
    let Ok(validity) = pki::validity(certificate) else {
        return Some(DoctorFinding::fault(SUBJECT, format!("{what} cannot be parsed"), RENEW));
    };
    let message = format!("{what} {}", phrase(validity.end, now));
    if validity.end <= now {
        return Some(DoctorFinding::fault(SUBJECT, format!("{message}: Karmada refuses it"), RENEW));
    }
    validity.is_ending(now).then(|| DoctorFinding::warning(SUBJECT, message, RENEW))
}

/// Verifies a chain as Karmada does.
fn verify(
    chain: &[CertificateDer<'_>],
    bundle: Vec<CertificateDer<'static>>,
    name: &str,
    now: Timestamp,
) -> Result<(), String> {
    let (own, intermediates) = chain.split_first().ok_or("the webhook shows no certificate")?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let server = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no name of a server"))?;
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    verifier.verify_server_cert(own, intermediates, &server, &[], now).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{
        Webhook, assert_fault, assert_skipped, assert_warning, days, healthy, now, register_with, tls_secret,
    };

    #[test]
    fn an_expired_certificate() {
        assert_fault(&examine(&healthy(), days(366)), "webhook serves has expired on", "mczk certs --dir DIR --renew");
    }

    #[test]
    fn a_certificate_that_expires_soon() {
        assert_warning(&examine(&healthy(), days(340)), "expires on", "mczk install");
    }

    /// cert-manager renews a certificate of 90 days when 30 are left.
    #[rstest]
    #[case::renewed_by_cert_manager(90, 61, false)]
    #[case::renewal_is_overdue(90, 68, true)]
    #[case::short(30, 1, false)]
    fn the_notice_is_a_quarter_of_the_validity(#[case] length: i64, #[case] age: i64, #[case] expected: bool) {
        let mut observed = healthy();
        let webhook = Webhook::beginning_now(length);
        register_with(&mut observed, json!({ "clientConfig": { "caBundle": webhook.bundle } }));
        observed.host = None;
        observed.webhook = Some(Ok(webhook.chain));
        assert_eq!(examine(&observed, days(age)).len(), usize::from(expected));
    }

    #[test]
    fn an_authority_that_expires() {
        assert_fault(&examine(&healthy(), days(3651))[..1], "authority in the caBundle", "mczk install");
    }

    #[test]
    fn a_certificate_of_another_authority() {
        let mut observed = healthy();
        observed.webhook = Some(Ok(Webhook::make("mczk.mczk-system.svc").chain));
        assert_fault(&examine(&observed, now()), "does not match the caBundle", "--ca-file");
    }

    #[test]
    fn a_certificate_for_another_name() {
        let mut observed = healthy();
        observed.host = None;
        let other = Webhook::make("other.example");
        register_with(&mut observed, json!({ "clientConfig": { "caBundle": other.bundle } }));
        observed.webhook = Some(Ok(other.chain));
        assert_fault(&examine(&observed, now()), "not valid for name", "--ca-file");
    }

    #[test]
    fn no_authority() {
        let mut observed = healthy();
        register_with(&mut observed, json!({ "clientConfig": { "caBundle": "" } }));
        assert_fault(&examine(&observed, now()), "holds no certificate", "--ca-file");
    }

    #[test]
    fn a_certificate_that_cannot_be_examined() {
        let mut observed = healthy();
        observed.webhook = Some(Err("no route".to_owned()));
        observed.host = None;
        assert_warning(&examine(&observed, now()), "not reachable from here, nor read in the host", "--host-context");
        observed.registrations = Ok(vec![]);
        assert_skipped(&examine(&observed, now()), "webhook");
    }

    #[test]
    fn the_secret_counts_while_the_webhook_is_not_reachable() {
        let mut observed = healthy();
        observed.webhook = Some(Err("no route".to_owned()));
        observed.host.as_mut().unwrap().certificate = Ok(Some(tls_secret(&Webhook::make("mczk.mczk-system.svc").pem)));
        assert_fault(&examine(&observed, now()), "in the Secret of the host does not match", "--ca-file");
    }
}

//! Step: whether a certificate that servers of this cluster mount expires soon.

use k8s_openapi::jiff::Timestamp;

use crate::{
    agent::{decide::local_ensemble::LocalEnsemble, render::material::Material, render::secret::quorum_secret},
    contract::{
        cause::Cause,
        certificate_expiry::{Validity, phrase},
        conditions::Reason,
    },
    runtime::pki,
};

/// The certificates that expire soon; those of the quorum give the reason.
pub(super) fn find(ensemble: &LocalEnsemble<'_>, now: Timestamp) -> Option<Cause> {
    let observation = ensemble.observation;
    let object = &observation.object;
    let quorum = observation.mounted_certificates.as_ref().and_then(|material| ending(material, now)).map(|end| {
        let secret = quorum_secret(object.metadata.name.as_deref().unwrap_or_default(), ensemble.incarnation);
        format!(
            "The certificate of the quorum that servers mount from Secret {secret} {}, and no renewal has arrived. Check \
             the operator, and that Karmada propagates Secrets to this cluster",
            phrase(end, now)
        )
    });
    let client = object.spec.tls.client.as_ref().and_then(|client| {
        let end = ending(observation.client_certificates.material.as_ref()?, now)?;
        Some(format!(
            "The certificate for clients in Secret {} {}. Renew it in the control plane",
            client.secret_name,
            phrase(end, now)
        ))
    });
    let reason = if quorum.is_some() { Reason::QuorumCertificateExpires } else { Reason::ClientCertificateExpires };
    let messages: Vec<String> = quorum.into_iter().chain(client).collect();
    (!messages.is_empty()).then(|| Cause::new(reason, messages.join(". ")))
}

/// The end of the certificates if it comes soon: of any one of the chain, or of the last authority.
fn ending(material: &Material, now: Timestamp) -> Option<Timestamp> {
    let validity = |(begin, end)| Validity { begin, end };
    let chain = pki::validities(&material.certificate).into_iter().map(validity).min_by_key(|validity| validity.end);
    let authority =
        pki::validities(&material.authorities).into_iter().map(validity).max_by_key(|validity| validity.end);
    let soon = chain.into_iter().chain(authority).filter(|validity: &Validity| validity.is_ending(now));
    soon.map(|validity| validity.end).min()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    #[rstest]
    #[case::both_long(400, 300, None)]
    #[case::identity(400, 20, Some(20))]
    #[case::authority_ends_both(10, 20, Some(10))]
    fn chain_and_authority_count(#[case] authority: i32, #[case] identity: i32, #[case] expected: Option<i32>) {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let ca = pki::authority("a", now, DAY * authority).unwrap();
        let issued = pki::identity("i", (&ca.certificate, &ca.key), now, DAY * identity).unwrap();
        // An authority that has expired does no harm beside a valid one.
        let former = pki::authority("former", now - DAY * 30, DAY).unwrap();
        let material = Material {
            certificate: issued.certificate,
            key: issued.key,
            authorities: former.certificate + &ca.certificate,
        };
        assert_eq!(ending(&material, now), expected.map(|days| now + DAY * days));
    }

    #[test]
    fn certificates_that_cannot_be_read_have_no_end() {
        let text = || "no certificate".to_owned();
        let material = Material { certificate: text(), key: text(), authorities: text() };
        assert_eq!(ending(&material, Timestamp::UNIX_EPOCH), None);
    }
}

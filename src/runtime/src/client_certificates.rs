//! The certificates for clients that `ZooKeeper` can use. Both the agent and the server check a Secret by this rule.

use std::collections::BTreeSet;

use rustls::{
    RootCertStore, SignatureAlgorithm,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

/// Cause of refused certificates.
#[derive(Debug, thiserror::Error)]
pub enum Unsound {
    /// A key of the Secret holds nothing of the required kind.
    #[error("{key} holds no {what} in PEM")]
    Empty {
        /// Key of the Secret.
        key: &'static str,
        /// What the key should hold.
        what: &'static str,
    },
    /// `ZooKeeper` cannot read the private key.
    #[error("tls.key holds no key that ZooKeeper reads: it has to be PKCS#8 (BEGIN PRIVATE KEY), RSA or EC")]
    Key,
    /// The private key does not match the certificate.
    #[error("tls.crt and tls.key do not go together: {0}")]
    NoPair(rustls::Error),
    /// An authority cannot be trusted.
    #[error("ca.crt: {0}")]
    Authority(rustls::Error),
    /// `ZooKeeper` trusts one authority of each subject: the last one in the file.
    #[error(
        "ca.crt holds two authorities with the same subject and other keys. ZooKeeper trusts only the last of them: give the new \
         authority another subject, or remove the first one"
    )]
    SameSubject,
}

/// Checks that servers can use `tls.crt`, `tls.key` and `ca.crt`, each in PEM.
///
/// # Errors
/// If they cannot.
pub fn check(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<(), Unsound> {
    let all = |pem: &[u8], key| {
        let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        if all.is_empty() { Err(Unsound::Empty { key, what: "certificate" }) } else { Ok(all) }
    };
    let chain = all(certificate, "tls.crt")?;
    let trusted = all(authorities, "ca.crt")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Unsound::Empty { key: "tls.key", what: "private key" })?;
    if !matches!(key, PrivateKeyDer::Pkcs8(_)) {
        return Err(Unsound::Key);
    }
    let pair = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(Unsound::NoPair)?;
    if !matches!(pair.key.algorithm(), SignatureAlgorithm::RSA | SignatureAlgorithm::ECDSA) {
        return Err(Unsound::Key);
    }
    let mut roots = RootCertStore::empty();
    trusted.into_iter().try_for_each(|authority| roots.add(authority)).map_err(Unsound::Authority)
}

/// Checks that `ZooKeeper` trusts every authority of `ca.crt`: it keeps one of each subject. Servers that run with such a file go on
/// with it, so only what would replace their certificates is checked.
///
/// # Errors
/// If two authorities have one subject and other keys.
pub fn check_subjects(authorities: &[u8]) -> Result<(), Unsound> {
    let mut roots = RootCertStore::empty();
    let all = CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok);
    roots.add_parsable_certificates(all);
    let subjects: BTreeSet<&[u8]> = roots.roots.iter().map(|authority| authority.subject.as_ref()).collect();
    let keys: BTreeSet<(&[u8], &[u8])> = roots
        .roots
        .iter()
        .map(|authority| (authority.subject.as_ref(), authority.subject_public_key_info.as_ref()))
        .collect();
    if keys.len() > subjects.len() { Err(Unsound::SameSubject) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use rstest::rstest;

    use super::*;
    use crate::pki;

    /// The three keys of a Secret.
    struct Data {
        certificate: String,
        key: String,
        authorities: String,
    }

    impl Data {
        fn check(&self) -> Result<(), Unsound> {
            check(self.certificate.as_bytes(), self.key.as_bytes(), self.authorities.as_bytes())?;
            check_subjects(self.authorities.as_bytes())
        }
    }

    fn made() -> Data {
        let (now, validity) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, validity).unwrap();
        let issued = pki::identity("i", (&authority.certificate, &authority.key), now, validity).unwrap();
        Data { certificate: issued.certificate, key: issued.key, authorities: authority.certificate }
    }

    #[test]
    fn made_certificates_are_sound() {
        let mut data = made();
        data.check().unwrap();
        // A user appended the same authority again.
        data.authorities.push_str(&data.authorities.clone());
        data.check().unwrap();
    }

    /// Keys that `ZooKeeper` cannot read must not replace those that it can.
    #[test]
    fn keys_of_other_forms_are_not_sound() {
        let Data { certificate, authorities, .. } = made();
        let der = rcgen::KeyPair::generate().unwrap().serialize_der();
        let other = |label: &str, der: &[u8]| {
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
        };
        let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let own = rcgen::CertificateParams::default().self_signed(&ed25519).unwrap().pem();
        for (certificate, key) in [
            (&certificate, other("EC PRIVATE KEY", &der)),
            (&certificate, other("RSA PRIVATE KEY", &der)),
            (&own, ed25519.serialize_pem()),
        ] {
            let refused = check(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes()).unwrap_err();
            assert!(matches!(refused, Unsound::Key), "{refused}");
        }
    }

    #[rstest]
    #[case::no_pair(Data { key: made().key, ..made() }, "tls.crt and tls.key do not go together")]
    #[case::no_key(Data { key: made().certificate, ..made() }, "tls.key holds no private key in PEM")]
    #[case::no_certificate(Data { certificate: "none".into(), ..made() }, "tls.crt holds no certificate")]
    #[case::no_authority(Data { authorities: String::new(), ..made() }, "ca.crt holds no certificate")]
    #[case::a_broken_authority(
        Data { authorities: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(), ..made() },
        "ca.crt: "
    )]
    #[case::two_authorities_of_one_subject(
        { let data = made(); let authorities = format!("{}{}", made().authorities, data.authorities); Data { authorities, ..data } },
        "two authorities with the same subject"
    )]
    fn unsound_certificates_are_refused_with_the_key_of_the_secret(#[case] data: Data, #[case] why: &str) {
        let refused = data.check().unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

//! The certificates for clients that `ZooKeeper` can use. Both the agent and the server check a Secret by this rule.

use rustls::{
    RootCertStore, SignatureAlgorithm,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

/// Cause of refused certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsound {
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
}

/// Checks that servers can use `tls.crt`, `tls.key` and `ca.crt`, each in PEM.
///
/// # Errors
/// If they cannot.
pub(crate) fn check(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<(), Unsound> {
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

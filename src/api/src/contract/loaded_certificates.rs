//! The certificates that a server reports as loaded.

use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::contract::canonical_json::hash_bytes;

/// SHA-256 of each certificate that a server has loaded, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    /// The certificate of the server itself.
    identity: String,
    /// The trusted authorities, sorted.
    trust: Vec<String>,
}

impl Loaded {
    /// The hashes of certificates in PEM: the server's own certificate (the first of its file), and the authorities.
    #[must_use]
    pub fn of(certificate: &[u8], authorities: &[u8]) -> Option<Self> {
        let own = CertificateDer::from_pem_slice(certificate).ok()?;
        let trusted: Vec<_> = CertificateDer::pem_slice_iter(authorities).collect::<Result<_, _>>().ok()?;
        let mut trust: Vec<String> = trusted.iter().map(|one| hash_bytes(one)).collect();
        trust.sort();
        trust.dedup();
        Some(Self { identity: hash_bytes(&own), trust })
    }
}

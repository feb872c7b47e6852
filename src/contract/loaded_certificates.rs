//! The certificates that a server reports as loaded.

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::contract::canonical_json::hash_bytes;

/// Certificates that a server has loaded, by the SHA-256 of each, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    /// The one that it shows.
    pub identity: String,
    /// The authorities that it trusts, in order.
    pub trust: Vec<String>,
}

impl Loaded {
    /// Of certificates in PEM: those that are shown, the server's own first, and the authorities.
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

//! Which certificates servers have loaded: what each tells of itself, and what a cluster reports of all of its own.

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use super::{own::Own, render::Material};
use crate::{api::zookeeper::EnsembleTls, rollout::canonical::hash_bytes};

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

/// What a cluster reports: the certificates that the list names, if every server here has loaded just these, and each that
/// starts will. Nothing while one is on its way, or cannot be asked.
#[must_use]
pub fn by_all(
    tls: Option<&EnsembleTls>,
    material: Option<&Material>,
    mounted: Option<&Material>,
    own: &[Own],
) -> Option<EnsembleTls> {
    let material = material.filter(|material| mounted == Some(*material))?;
    let wanted = Loaded::of(material.certificate.as_bytes(), material.authorities.as_bytes())?;
    let has = |own: &Own| own.view.as_ref().is_some_and(|view| view.loaded.as_ref() == Some(&wanted));
    tls.filter(|_| own.iter().all(has)).cloned()
}

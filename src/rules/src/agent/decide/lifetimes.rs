//! How long certificates are valid. The agent reads it from the Secrets that servers mount.

use k8s_openapi::jiff::Timestamp;

use mczk_api::contract::certificate_expiry::Validity;

/// Validity of the certificates of one purpose. A certificate that cannot be read has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// The identity, and the chain to its authority.
    pub chain: Vec<Validity>,
    /// The trusted authorities.
    pub authorities: Vec<Validity>,
}

impl Lifetime {
    /// The end of the certificates if it comes soon: of any one of the chain, or of the last authority.
    #[must_use]
    pub fn ending(&self, now: Timestamp) -> Option<Timestamp> {
        let chain = self.chain.iter().min_by_key(|validity| validity.end);
        let authority = self.authorities.iter().max_by_key(|validity| validity.end);
        let soon = chain.into_iter().chain(authority).filter(|validity| validity.is_ending(now));
        soon.map(|validity| validity.end).min()
    }
}

/// Validity of the certificates that servers mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Certificates of the quorum.
    pub quorum: Option<Lifetime>,
    /// Certificates for clients.
    pub client: Option<Lifetime>,
}

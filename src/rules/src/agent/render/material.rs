//! Certificates in PEM.

/// Certificates of one purpose, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The identity that servers show, and for the quorum agents too, with the chain to its authority.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// Every trusted authority.
    pub authorities: String,
}

impl std::fmt::Debug for Material {
    /// Omits the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Material").finish_non_exhaustive()
    }
}

//! The Secret with the quorum's certificates: what pods mount, merged from the Secrets that travelled here.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{Kind, Object, Source};

/// Certificates of the quorum, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The identity that servers and agents show, and those that lead to its authority.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// Every authority that is trusted.
    pub authorities: String,
}

impl std::fmt::Debug for Material {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Material").finish_non_exhaustive()
    }
}

impl Source<'_> {
    /// Name of the Secret that pods mount.
    #[must_use]
    pub fn quorum_secret(&self) -> String {
        format!("{}-quorum", self.base())
    }
}

pub(super) fn quorum(source: &Source<'_>) -> Option<Object> {
    let material = source.material.filter(|_| source.spec.tls.quorum)?;
    let data = json!({ "type": "kubernetes.io/tls", "data": {
        "tls.crt": STANDARD.encode(&material.certificate),
        "tls.key": STANDARD.encode(&material.key),
        "ca.crt": STANDARD.encode(&material.authorities),
    }});
    Some(source.object(Kind::Secret, source.quorum_secret(), &source.labels(), data))
}

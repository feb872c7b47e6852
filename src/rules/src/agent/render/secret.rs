//! The Secrets that pods mount: the quorum's certificates, merged from the propagated Secrets, and the last sound certificates
//! for clients.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::agent::render::{
    material::Material,
    object::{Kind, Object},
    source::Source,
};

/// Name of the Secret with the quorum's certificates that pods of an incarnation mount.
#[must_use]
pub fn quorum_secret(name: &str, incarnation: &str) -> String {
    format!("{name}-{incarnation}-quorum")
}

/// Name of the agent's copy of the certificates for clients, which pods of an incarnation mount.
#[must_use]
pub fn client_copy(name: &str, incarnation: &str) -> String {
    format!("{name}-{incarnation}-client")
}

impl Source<'_> {
    /// As [`quorum_secret`].
    #[must_use]
    pub fn quorum_secret(&self) -> String {
        quorum_secret(self.name, self.incarnation())
    }

    /// As [`client_copy`].
    #[must_use]
    pub fn client_copy(&self) -> String {
        client_copy(self.name, self.incarnation())
    }

    /// Name of the Secret with certificates for clients that pods mount: the agent's copy. Suspended servers serve no client,
    /// and must start without the copy.
    pub(super) fn client_secret(&self) -> Option<String> {
        let serves = self.spec.tls.client.is_some() && !self.list.phase.is_suspended();
        serves.then(|| self.client_copy())
    }
}

pub(super) fn quorum(source: &Source<'_>) -> Option<Object> {
    let material = source.material.filter(|_| source.spec.tls.quorum)?;
    Some(secret(source, source.quorum_secret(), material))
}

pub(super) fn client(source: &Source<'_>) -> Option<Object> {
    let material = source.client.filter(|_| source.spec.tls.client.is_some())?;
    Some(secret(source, source.client_copy(), material))
}

fn secret(source: &Source<'_>, name: String, material: &Material) -> Object {
    let data = json!({ "type": "kubernetes.io/tls", "data": {
        "tls.crt": STANDARD.encode(&material.certificate),
        "tls.key": STANDARD.encode(&material.key),
        "ca.crt": STANDARD.encode(&material.authorities),
    }});
    source.object(Kind::Secret, name, &source.labels(), data)
}

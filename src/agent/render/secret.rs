//! The Secrets that pods mount: the quorum's certificates, merged from the Secrets that travelled here, and those that clients
//! see, as they were sound last.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    agent::render::{Kind, Object, Source},
    api::{tls::ClientTls, zookeeper::ZooKeeperSpec},
};

/// Certificates of one purpose, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// What servers show, of the quorum agents too, and those that lead to its authority.
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

/// Name of the Secret with the quorum's certificates that pods of a life mount.
#[must_use]
pub fn quorum_secret(name: &str, life: &str) -> String {
    format!("{name}-{life}-quorum")
}

/// Name of the agent's copy of the certificates that clients see, which pods of a life mount.
#[must_use]
pub fn client_copy(name: &str, life: &str) -> String {
    format!("{name}-{life}-client")
}

/// Encryption towards clients, if pods mount the agent's copy of its certificates: those of version 1 mount the person's own.
#[must_use]
pub fn copied_client(spec: &ZooKeeperSpec) -> Option<&ClientTls> {
    spec.tls.client.as_ref().filter(|_| spec.render_version > 1)
}

impl Source<'_> {
    /// As [`quorum_secret`].
    #[must_use]
    pub fn quorum_secret(&self) -> String {
        quorum_secret(self.name, self.id())
    }

    /// As [`client_copy`].
    #[must_use]
    pub fn client_copy(&self) -> String {
        client_copy(self.name, self.id())
    }

    /// Name of the Secret with certificates for clients that pods mount, if they do: the agent's copy, or the person's own
    /// ([`copied_client`]). Those that are parked serve nobody, and have to start also where there is no copy.
    pub(super) fn client_secret(&self) -> Option<String> {
        match copied_client(self.spec) {
            Some(_) => (!self.list.phase.is_suspended()).then(|| self.client_copy()),
            None => self.spec.tls.client.as_ref().map(|client| client.secret_name.clone()),
        }
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

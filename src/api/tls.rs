//! Encryption, of the quorum and towards clients.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Encryption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.quorum == oldSelf.quorum").message("quorum cannot change: it is fixed at creation"))]
pub struct Tls {
    /// Whether servers speak TLS with each other, under a certificate authority of this ensemble alone; `true` if absent.
    /// A change is refused.
    #[serde(default = "yes")]
    pub quorum: bool,
    /// Encryption towards clients. A change rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientTls>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { quorum: true, client: None }
    }
}

const fn yes() -> bool {
    true
}

/// Encryption towards clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// Whether plain connections are still accepted. A change rolls servers.
    pub mode: ClientTlsMode,
    /// Secret in the same namespace with `tls.crt`, `tls.key` and `ca.crt`; it travels to the member clusters with the
    /// object. Another name rolls servers; what it holds may be renewed at any time, which restarts none.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub secret_name: String,
    /// Whether clients that speak TLS must show a certificate under `ca.crt` of the Secret; `Required` if absent. A change
    /// rolls servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<ClientCertificates>,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientCertificates {
    /// They must; others are refused.
    Required,
    /// They may, and are then known by it (the scheme `x509` in ACLs).
    Optional,
    /// They are not asked.
    Ignored,
}

/// Which connections of clients are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientTlsMode {
    /// Plain and encrypted ones.
    Optional,
    /// Encrypted ones only.
    Required,
}

/// Encryption, as a member needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerTls {
    /// Whether servers speak TLS with each other.
    pub quorum: bool,
    /// Encryption towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientTls>,
}

/// Certificates of the quorum, by the names of the Secrets that hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleTls {
    /// Secret with the identity that servers show.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// Secrets with the authorities that servers trust.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 253)))]
    pub trust: Vec<String>,
}

impl EnsembleTls {
    /// Every Secret that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        self.trust.iter().chain([&self.identity])
    }
}

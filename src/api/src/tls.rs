//! Encryption of the quorum and towards clients.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Encryption between servers and towards clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.quorum == oldSelf.quorum").message("quorum cannot change: create a new MultiClusterZooKeeper instead"),
    validation = Rule::new("has(self.client) == has(oldSelf.client) || (has(self.client) ? self.client : oldSelf.client).mode != 'Required'")
        .message("client.mode Required cannot be added or removed in one step: no server would accept clients until its restart. Set Optional first, and wait for its rollout")
)]
pub struct Tls {
    /// True if servers use TLS among themselves, with a certificate authority for this ensemble alone. Defaults to
    /// true. Immutable.
    #[serde(default = "yes")]
    pub quorum: bool,
    /// Encryption towards clients. Defaults to plain connections only. A change restarts servers. Mode `Required` comes
    /// after mode `Optional`, and goes the same way.
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
    /// Connections that servers accept: `Optional` accepts plain and encrypted ones, `Required` only encrypted ones. A
    /// change restarts servers.
    pub mode: ClientTlsMode,
    /// Secret in the same namespace with `tls.crt`, `tls.key` and `ca.crt`. Karmada propagates it to the member
    /// clusters with the object. Another name restarts servers. A change of its content, such as a renewal, restarts
    /// none.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub secret_name: String,
    /// Certificates of TLS clients: `Required`, `Optional` or `Ignored`. Servers verify them with `ca.crt` of the
    /// Secret. Defaults to `Required`. A change restarts servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<ClientCertificates>,
}

/// Handling of client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientCertificates {
    /// Servers refuse clients without a certificate.
    Required,
    /// Clients may present a certificate, which then identifies them (scheme `x509` in ACLs).
    Optional,
    /// Servers request no certificate.
    Ignored,
}

/// Connections of clients that servers accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientTlsMode {
    /// Plain and encrypted connections.
    Optional,
    /// Encrypted connections only.
    Required,
}

/// Encryption, as an agent needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerTls {
    /// True if servers use TLS among themselves.
    pub quorum: bool,
    /// Encryption towards clients. Plain connections only if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientTls>,
}

/// Certificates of the quorum, by the names of the Secrets that hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct EnsembleTls {
    /// Secret with the certificate and key that servers present.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// Secrets with the authorities that servers trust.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 253)))]
    pub trust: Vec<String>,
}

impl EnsembleTls {
    /// Names of all its Secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        self.trust.iter().chain([&self.identity])
    }
}

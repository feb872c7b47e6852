//! Kinds of rendered objects.

use serde_json::Value;

/// Kind of a rendered object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Without a token: servers do not call the Kubernetes API.
    ServiceAccount,
    /// The server list, a server configuration, or connection strings.
    ConfigMap,
    /// Certificates.
    Secret,
    /// The headless Service, or that of clients.
    Service,
    /// Allows no eviction.
    PodDisruptionBudget,
    /// Allowed connections to servers.
    NetworkPolicy,
    /// Voters or observers.
    StatefulSet,
}

impl Kind {
    /// Every kind, in the order in which the agent writes objects.
    pub const ALL: &[Self] = &[
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Secret,
        Self::Service,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::StatefulSet,
    ];

    /// The text in `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// The text in `apiVersion`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::ServiceAccount | Self::ConfigMap | Self::Secret | Self::Service => "v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::StatefulSet => "apps/v1",
        }
    }
}

/// A rendered object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The whole object as JSON.
    pub value: Value,
}

//! What operator, agent and server need to run as services: HTTP, TLS, lease, reconcile shell, process, logs and metrics.

pub(crate) mod authority_verifier;
pub(crate) mod failure;
pub mod http_server;
pub mod lease;
pub mod pki;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod readiness;
pub(crate) mod reconcile;
pub mod shutdown;
mod slow_clients;
pub mod telemetry;
pub mod tls;

//! What every subcommand that runs as a service needs.

pub mod authority_verifier;
pub mod failure;
pub mod http_server;
pub mod lease;
pub mod pki;
pub mod probe;
pub mod process;
pub mod readiness;
pub mod reconcile;
pub mod shutdown;
pub mod slow_clients;
pub mod telemetry;
pub mod tls;

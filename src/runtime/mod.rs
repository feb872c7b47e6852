//! What operator, agent and server need to run as services: HTTP, TLS, leader election, reconcile shell, process, logs and metrics.

pub mod api_requests;
pub(crate) mod authority_verifier;
pub(crate) mod client_certificates;
pub(crate) mod closing;
mod connections;
mod dual_stack;
pub mod election;
pub(crate) mod event_queue;
pub(crate) mod exchange;
pub(crate) mod failure;
pub mod http_server;
pub(crate) mod jitter;
pub(crate) mod panics;
mod permits;
pub mod pki;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod readiness;
pub(crate) mod reconcile;
pub mod shutdown;
mod slow_clients;
pub mod telemetry;
pub mod tls;
pub(crate) mod traces;
pub(crate) mod user_agent;
pub(crate) mod watch;

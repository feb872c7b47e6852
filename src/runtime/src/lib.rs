//! What operator, agent and server need to run as services: HTTP, TLS, leader election, reconcile shell, process, logs and metrics.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod api_requests;
pub mod atomic_file;
pub mod authority_verifier;
pub mod client_certificates;
pub mod closing;
mod connections;
pub mod conversation;
mod dual_stack;
pub mod election;
pub mod event_queue;
pub mod exchange;
pub mod failure;
pub mod http_server;
pub mod jitter;
mod log_target;
pub mod panics;
mod permits;
pub mod pki;
pub mod probe;
pub mod process;
pub mod readiness;
pub mod reconcile;
pub mod shutdown;
mod slow_clients;
pub mod telemetry;
pub mod tls;
pub mod traces;
pub mod user_agent;
pub mod watch;

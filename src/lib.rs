//! One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation.
//!
//! Each folder may import only the folders above it in this list:
//!
//! 1. [`api`]: the types of both custom resources, and views of Karmada's objects.
//! 2. [`contract`]: what operator, agent and server agree on.
//! 3. [`runtime`]: HTTP server, TLS, lease, reconcile shell, telemetry.
//! 4. [`interpreter`] answers Karmada's questions, by pure functions behind an HTTP service. [`rollout`] decides what the operator
//!    does next: pure.
//! 5. [`controller`] is the operator's shell; [`agent`] runs in a member cluster; [`server`] is ZooKeeper's parent process.
//! 6. `view` is what users see of an ensemble: pure. `dashboard` shows it as a web page.
//! 7. [`register`] and [`cli`].

// What is not reachable outside the library is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod agent;
pub mod api;
pub mod cli;
pub mod contract;
pub mod controller;
mod dashboard;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod interpreter;
pub mod mutation;
pub mod register;
pub mod rollout;
pub mod runtime;
pub mod server;
mod term;
mod view;

#[cfg(test)]
#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

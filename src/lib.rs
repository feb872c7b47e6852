//! One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation.
//!
//! `api` holds the types, `interpreter` answers Karmada's questions about them, `rollout` decides what to do next without
//! a client or a clock, and `controller` does it. Imports point that way only.

pub mod api;
mod attempt;
pub mod cli;
pub mod controller;
pub mod interpreter;
pub mod lease;
pub mod member;
pub mod pace;
pub mod pki;
pub mod probe;
pub mod readiness;
pub mod register;
pub mod rollout;
pub mod server;
pub mod shutdown;
pub mod telemetry;
pub mod tls;

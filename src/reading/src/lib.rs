//! What the operator and the commands read of the control plane. Nothing here writes.
//!
//! [`observe`] reads everything that a decision depends on, live. [`read_only`] reads for commands, and [`pages`] long lists.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod certificate_secrets;
pub mod clusters;
pub mod kinds;
pub mod observe;
pub mod operator_identity;
pub mod pages;
pub mod read_only;
pub mod versions;

#[cfg(test)]
#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;

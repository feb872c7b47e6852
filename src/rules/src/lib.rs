//! Everything that mczk decides. Nothing here uses a client, a clock, a file or the network.
//!
//! [`rollout`] decides what the operator does next, [`agent`] what an agent does, [`server`] how a server starts and which
//! steps it takes. [`interpreter`] answers Karmada's questions. [`view`] is what users see of an ensemble, and [`card`] what
//! the web page shows.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod agent;
pub mod card;
pub mod credential_name;
pub mod interpreter;
pub mod rollout;
pub mod server;
pub mod view;

#[cfg(test)]
#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;
#[cfg(test)]
#[path = "../../../tests/fixtures/newer_list.rs"]
mod newer_list;

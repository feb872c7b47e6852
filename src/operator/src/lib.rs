//! The shell of `mczk operator`: the [`controller`], the [`interpreter`] webhook, and the web page ([`dashboard`]).

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod controller;
pub mod dashboard;
pub mod interpreter;

#[cfg(test)]
#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;

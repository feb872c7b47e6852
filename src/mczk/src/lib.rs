//! The program `mczk`: its command line, and the services that it starts.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod cli;

//! The commands of users. Each has a file or folder with its arguments and a `run`.
//!
//! [`install`] installs and removes, from the objects of [`register`]. [`doctor`] examines an installation. [`see`] shows
//! ensembles, [`act`] changes them, [`collect`] fetches logs. [`terminal`] is what all of them share.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

pub mod act;
pub mod collect;
pub mod doctor;
pub mod install;
pub mod register;
pub mod see;
pub mod terminal;

#[cfg(test)]
#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;

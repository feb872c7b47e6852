//! Commands that act on servers.

pub mod replace;
pub mod restart;

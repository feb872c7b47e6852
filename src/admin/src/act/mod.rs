//! Commands that act on servers.

mod confirm;
pub mod failover;
pub mod former_incarnations;
mod patch;
pub mod replace;
pub mod restart;
mod wait;

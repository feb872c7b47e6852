//! Commands that act on servers.

mod patch;
pub mod replace;
pub mod restart;
mod wait;

//! Random, overlapping changes and faults on an ensemble with real nodes, while two independent clients write and others
//! use [registers](crate::registers).
//!
//! A seed determines the [`schedule`]; the [`governor`] keeps out what no ensemble survives. After each round all faults end,
//! the ensemble must become as declared, and the [`checks`] compare all servers and all logs.

pub mod apply;
pub mod checks;
mod control_plane;
pub mod governor;
mod hands;
mod limits;
pub mod moves;
pub mod network;
pub mod operations;
pub mod play;
pub mod process;
pub mod report;
pub mod run;
pub mod schedule;
mod strain;
mod volumes;
pub mod world;

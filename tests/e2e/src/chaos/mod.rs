//! Random, overlapping changes and faults on an ensemble with real nodes, while two independent clients write.

pub mod governor;
pub mod operations;
pub mod schedule;

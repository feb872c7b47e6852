//! Commands that show ensembles.

pub mod diff;
pub mod interpret;
pub mod plan;
pub mod status;
pub mod why;

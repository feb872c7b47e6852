//! The interpreter webhook: Karmada asks what our kind means, and this answers.
//!
//! Each operation is a pure function from the object that Karmada sends to its answer, in a file of its own. [`handler`]
//! is the thin shell around them, [`router`] turns it into an HTTP service, and `wire` holds what travels.

pub mod aggregate;
pub mod dependency;
pub mod handler;
pub mod health;
pub mod metrics;
pub mod object;
pub mod replica;
pub mod revise;
pub mod router;
pub mod wire;

pub use metrics::Metrics;
pub use router::{Limits, router};

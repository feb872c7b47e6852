//! The interpreter webhook, which answers Karmada's questions about ZooKeeper objects.
//!
//! Each operation is a pure function from the object that Karmada sends to its answer, in its own file. [`handler`]
//! reads the question and calls the function, [`router`] makes an HTTP service of it, and [`wire`] holds the types of
//! questions and answers.

pub mod aggregate;
pub mod dependency;
pub mod handler;
pub mod health;
pub mod metrics;
pub mod object;
pub mod refusal;
pub mod replica;
pub mod revise;
pub mod router;
pub mod wire;

pub use metrics::Metrics;
pub use router::{Limits, router};

//! The interpreter webhook, which answers Karmada's questions about ZooKeeper objects.
//!
//! Each operation is a pure function from the object that Karmada sends to its answer, in its own file. `handler`
//! reads the question and calls the function, `router` makes an HTTP service of it, and `wire` holds the types of
//! questions and answers.

mod aggregate;
mod bodies;
mod dependency;
mod equal;
pub(crate) mod handler;
mod health;
mod metrics;
mod object;
mod refusal;
mod rejection;
mod replica;
mod request_id;
mod revise;
mod router;
pub(crate) mod wire;

pub use metrics::Metrics;
pub use router::{Limits, router};

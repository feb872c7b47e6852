//! The interpreter webhook, which answers Karmada's questions about ZooKeeper objects.
//!
//! Each operation is a pure function from the object that Karmada sends to its answer, in its own file. `handler`
//! reads the question and calls the function, `router` makes an HTTP service of it, and `wire` holds the types of
//! questions and answers.

mod bodies;
mod metrics;
mod rejection;
mod request_id;
pub mod router;

pub use metrics::Metrics;
pub use router::{RequestLimits, router};

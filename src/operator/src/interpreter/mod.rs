//! The interpreter webhook, which answers Karmada's questions about ZooKeeper objects.
//!
//! [`mczk_rules::interpreter`] reads a question and answers it. `router` makes an HTTP service of that, and `bodies` reads
//! what Karmada sends.

mod bodies;
mod metrics;
mod rejection;
mod request_id;
pub mod router;

pub use metrics::Metrics;
pub use router::{RequestLimits, router};

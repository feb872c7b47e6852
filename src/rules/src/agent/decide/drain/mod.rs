//! Which servers have to leave their nodes, and which of them stay because no other node fits them. Pure.

mod fit;
mod node_terms;
mod surroundings;
mod taints;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]
mod tests;

pub use fit::{has_room, other_nodes};
pub use surroundings::{PodVolume, Surroundings, claims_of, node_of};
pub use taints::drains;

/// The node of a server is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Name of the node.
    pub node: String,
    /// Why the server stays there. Absent if it moves.
    pub stays: Option<Stay>,
}

/// Why a server stays on a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stay {
    /// A new pod could start on no other node, for this reason. So the server does not restart at all.
    NoOtherNode(String),
    /// An ensemble of one or two voters can spare none.
    TooFewVoters,
}

//! What the agent of a member cluster decides ([`decide`]), and the objects that it writes ([`render`]).

pub mod decide;
pub mod next_pod;
pub mod render;
pub mod spare;

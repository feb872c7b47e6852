//! The member side: what runs in a member cluster.
//!
//! [`wire`] is what agents and servers say to each other, and [`layout`] where things lie in a server's pod. Pure, of the
//! agent: [`render`] what the cluster should hold.

pub mod layout;
pub mod render;
pub mod wire;

//! `mczk` on a real Karmada federation: scenarios, the demonstration and the bench of transitions.
//!
//! The federation is the rig's. `mczk` runs as people run it: `mczk certs`, `mczk register`, `mczk operator`. The members
//! of most have API servers but no nodes; [`agent`] reports there what the agent of a member would. [`members`] is about the
//! agent itself, on nodes.

pub mod agent;
pub mod diagnosis;
pub mod federation;
pub mod interruption;
pub mod members;
pub mod metrics;
pub mod patience;
pub mod programs;
pub mod scenarios;
pub mod scene;

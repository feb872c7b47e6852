//! What to do next: every rule of this project, without a client and without a clock.
//!
//! [`plan::plan`] takes what was observed and the time, and answers what should be. The rules stand in files of their
//! own: [`placement`] which clusters match, [`binding`] what the scheduler decided, [`ensemble`] ids, names and quorum,
//! [`record`] which cluster is next, [`member`] what a cluster reported, [`render`] the template and the pins,
//! [`override_rules`] the one OverridePolicy, [`status`] what people are told, [`teardown`] the end.

pub mod binding;
pub mod canonical;
pub mod ensemble;
pub mod events;
pub mod member;
pub mod mutation;
pub mod objects;
pub mod override_rules;
pub mod placement;
pub mod plan;
pub mod record;
pub mod render;
pub mod status;
pub mod teardown;

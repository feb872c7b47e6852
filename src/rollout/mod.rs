//! What to do next: every rule of this project, without a client and without a clock.
//!
//! [`plan::plan`] takes what was [`observed`] and the time, and answers what should be, an [`outcome`]. The rules stand in
//! files of their own: [`placement`] which clusters match, [`binding`] what the scheduler decided, [`record`] when a rollout
//! begins and in which order, [`advance`] which cluster is next, [`member`] what a cluster reported, [`ensemble`] ids, names
//! and quorum, [`render`] the template and [`pin`] what each cluster is given of it, [`override_rules`] the one OverridePolicy,
//! [`desired`] the owned objects, [`certificates`] those of the quorum, [`recovery`] what was lost, [`status`] and [`events`] what people are told, [`teardown`] the end,
//! [`ended`] what clusters are told of it that were away, [`second_bootstrap`] when an ensemble that never formed begins anew.

mod advance;
pub mod binding;
pub mod blocker;

pub mod certificates;
pub mod completion;
pub mod desired;

pub mod cluster_spec;
pub mod events;
pub mod objects;
pub mod observed;
pub mod outcome;
pub mod override_rules;
pub mod placement;
pub mod plan;
pub mod quorum;
pub mod rebootstrap;
pub mod record;
mod recovery;
pub mod render;
pub mod report;
mod reported_list;
mod server_ids;
pub mod status;
pub mod teardown;

//! One pass over the rules of a rollout: which record begins, which cluster is next, and when it is complete.
//!
//! [`roll`] is the table of contents. [`pass`] holds the state of a pass, [`server_list`] the rules of the server list,
//! [`start_record`] when a record begins, [`clusters`] how clusters move through it, [`next_cluster`] which cluster begins,
//! [`restart_rules`] whether it may, [`deploying`] when it is complete, and [`stuck`] why a record does not move.

mod clusters;
mod deploying;
mod next_cluster;
mod pass;
mod restart_rules;
mod roll;
mod server_list;
mod start_record;
mod stuck;

pub(super) use pass::Pass;
pub(super) use stuck::{Stuck, stuck};

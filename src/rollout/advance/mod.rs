//! One pass over the rules of a rollout: which record starts, which cluster is next, and when it is complete.
//!
//! [`roll`] is the table of contents. [`pass`] holds the state of a pass, [`server_list`] the rules of the server list,
//! [`preflight`] whether the first server may start, [`start_record`] when a record starts, [`clusters`] how clusters move through it, [`next_cluster`] which cluster starts,
//! [`start_rules`] whether it may, [`deploying`] when it is complete, and `stuck` beside this folder why a record does not move.

mod clusters;
mod deploying;
mod lost_list;
mod next_cluster;
mod pass;
mod preflight;
mod roll;
mod server_list;
mod start_record;
mod start_rules;

pub(super) use pass::Pass;

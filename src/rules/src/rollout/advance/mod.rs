//! One pass over the rules of a rollout: which record starts, which cluster is next, and when it is complete.
//!
//! [`roll`] is the table of contents, and the only one here that writes into the [`draft`]. Every other file holds rules over the
//! [`inputs`], which return what changes: [`server_list`] the server list, [`preflight`] and [`lost_list`] whether the first
//! server may start, [`start_record`] when a record starts, [`clusters`] how clusters move through it, [`next_cluster`] which
//! cluster starts, [`start_rules`] whether it may, and [`deploying`] when it is complete.

mod clusters;
mod deploying;
mod draft;
mod inputs;
mod lost_list;
mod next_cluster;
mod preflight;
mod roll;
mod server_list;
mod start_record;
mod start_rules;

pub(super) use draft::Draft;
pub(super) use inputs::Inputs;
pub(super) use roll::roll;

//! A read-only web page of ensembles: `mczk dashboard` serves it to one user, and the operator to users of the cluster.
//!
//! [`mczk_rules::card`] is what the page shows of one ensemble. [`source`] reads it and [`rendered`] makes text of it, and
//! [`poll`] does both once for all listeners. [`steps`] computes the operator's steps of one ensemble. [`access`] decides who
//! may see what. [`router`] serves the page, the cards as JSON, and a stream of changes.

pub mod access;
mod budget;
mod events;
mod grants;
pub mod poll;
mod refusal;
mod rendered;
mod requested_name;
mod reviews;
pub mod router;
pub mod source;
pub mod steps;

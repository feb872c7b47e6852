//! A read-only web page of ensembles: `mczk dashboard` serves it to one user, and the operator to users of the cluster.
//!
//! [`card`] is what the page shows of one ensemble: pure. [`poll`] reads it and [`rendered`] makes text of it, once for
//! all listeners. [`steps`] computes the operator's steps of one ensemble. [`access`] decides who may see what. [`router`] serves the page, the cards as JSON, and a stream of
//! changes.

pub(crate) mod access;
mod card;
mod events;
mod grants;
pub(crate) mod poll;
mod refusal;
mod rendered;
mod reviews;
pub(crate) mod router;
pub(crate) mod steps;

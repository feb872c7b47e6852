//! Carries out a decision: objects, status, requests to servers, deletions.
//!
//! The agent writes and deletes only its own objects. It creates an object only if none of that name exists, and every
//! delete carries the uid of the observed object.

pub(crate) mod act;
pub(crate) mod certificates;
pub(crate) mod events;
pub(crate) mod finalizer;
pub(crate) mod objects;
mod pod;
pub(crate) mod preflight;
pub(crate) mod removal;
mod replace;
mod restart_lock;
pub(crate) mod status;

//! Carries out a decision: objects, status, requests to servers, deletions.
//!
//! The agent writes and deletes only its own objects. It creates an object only if none of that name exists. Every other write
//! or delete carries the version of the observed object, and every delete its uid: the agent may have been paused, and another
//! one may have acted. The delete of a pod carries the uid alone.

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

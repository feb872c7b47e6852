//! Carries out a decision: objects, status, requests to servers, deletions.
//!
//! The agent writes and deletes only its own objects. It creates an object only if none of that name exists, and every
//! delete carries the uid of the observed object.

pub mod act;
pub mod certificates;
pub mod finalizer;
pub mod objects;
pub mod removal;
pub mod status;

//! What all commands share: connections, what a user names, and what a terminal shows.

pub mod columns;
pub mod connection;
pub mod documents;
pub mod error;
pub(crate) mod field_changes;
pub(crate) mod findings_text;
pub(crate) mod host_connection;
pub mod lease_timing;
pub mod output;
pub mod proxy;
pub mod run;
pub mod scope;
pub mod server_list;
pub(crate) mod server_name;
pub(crate) mod steps_text;

//! The contract between operator, agents and servers: names, hashes, conditions and the control API.

pub(crate) mod canonical_json;
pub mod cause;
pub(crate) mod certificate_expiry;
pub mod certificate_names;
pub mod conditions;
pub mod control_api;
pub mod event_reasons;
pub mod labels;
pub mod loaded_certificates;
pub mod naming;
pub(crate) mod operator_rights;
pub(crate) mod owned_fields;
pub mod pod_layout;
pub(crate) mod preflight;
pub mod server_list;
pub mod spec_hash;
pub(crate) mod supported_versions;
pub mod tombstone;
pub(crate) mod zookeeper_versions;

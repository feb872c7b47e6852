//! The contract between operator, agents and servers: names, hashes, conditions and the control API.

#![warn(unreachable_pub)]

pub mod canonical_json;
pub mod cause;
pub mod certificate_expiry;
pub mod certificate_names;
pub mod conditions;
pub mod control_api;
pub mod described;
pub mod event_reasons;
pub mod former_incarnations;
pub mod labels;
pub mod last_write;
pub mod loaded_certificates;
pub mod mesh;
pub mod naming;
pub mod operator_rights;
pub mod owned_fields;
pub mod pod_layout;
pub mod preflight;
pub mod replace_request;
pub mod requested_places;
pub mod server_list;
pub mod settings;
pub mod spec_hash;
pub mod tested_versions;
pub mod tombstone;
pub mod zookeeper_versions;

//! The API of this project, and the parts of Karmada's API that it reads or writes. Names are those in the YAML that users
//! write.
//!
//! [`contract`] is what operator, agent and server agree on. Nothing here uses a client or a clock.

// The derive macros name `::kube`, and need only its `core` and `KubeSchema`.
extern crate self as kube;

mod as_received;
pub mod contract;
pub mod crd;
pub mod karmada;
pub mod multiclusterzookeeper;
pub mod mutation;
pub mod network;
pub mod placement;
pub mod pod;
pub mod preflight;
pub mod quantity;
mod schema;
mod setting_rules;
pub mod term;
pub mod tls;
pub mod yaml;
pub mod zookeeper;

pub use kube_core as core;
pub use kube_derive::KubeSchema;
pub use multiclusterzookeeper::MultiClusterZooKeeper;
pub use zookeeper::ZooKeeper;

/// API group of both kinds.
pub const GROUP: &str = "mczk.io";
/// API version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "mczk.io/v1alpha1";

#[cfg(test)]
#[path = "../../../tests/fixtures/mod.rs"]
mod fixtures;

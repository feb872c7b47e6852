//! The API of this project, and the parts of Karmada's API that it reads or writes.
//!
//! Names here are the names in the YAML that users write. Nothing in this module uses a client or a clock.

// `KubeSchema` derives structs that are `pub` and unreachable.
#![allow(unreachable_pub)]

mod as_received;
pub mod crd;
pub mod karmada;
pub mod multiclusterzookeeper;
pub mod network;
pub mod placement;
pub mod pod;
pub mod preflight;
pub(crate) mod quantity;
mod schema;
pub mod tls;
pub mod yaml;
pub mod zookeeper;

pub use multiclusterzookeeper::MultiClusterZooKeeper;
pub use zookeeper::ZooKeeper;

/// API group of both kinds.
pub(crate) const GROUP: &str = "mczk.io";
/// API version of both kinds.
pub(crate) const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "mczk.io/v1alpha1";

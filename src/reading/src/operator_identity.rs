//! How the operator names itself in objects.

/// Field manager of everything that the controller writes.
pub const FIELD_MANAGER: &str = "mczk";

/// Image of mczk for member clusters, if the user names none.
pub const DEFAULT_SERVER_IMAGE: &str = concat!("mczk:", env!("CARGO_PKG_VERSION"));

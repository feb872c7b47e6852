//! Failures of a reconcile that only the agent has.

use mczk_rules::agent::render::Refused;
use mczk_runtime::failure::Error;

/// The failure of a reconcile whose object this version cannot render.
pub(crate) fn refused(error: &Refused) -> Error {
    Error::Other { category: "render", message: error.to_string() }
}

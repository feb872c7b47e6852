//! Failures of a reconcile that only the agent has.

use crate::{agent::render, runtime::failure::Error};

impl From<render::Refused> for Error {
    fn from(error: render::Refused) -> Self {
        Self::Other { category: "render", message: error.to_string() }
    }
}

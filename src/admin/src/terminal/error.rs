//! Why a subcommand failed.

use crate::register::apply;
use mczk_runtime::process::CannotListen;

/// Why a subcommand failed: one line on standard error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong. The text names the flag and what to do. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The attempt failed. Exit code 1.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl From<apply::Error> for Error {
    fn from(error: apply::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CannotListen> for Error {
    fn from(error: CannotListen) -> Self {
        Self::Usage(error.to_string())
    }
}

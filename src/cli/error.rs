//! Why a subcommand failed.

use crate::runtime::process::CannotListen;

/// Why a subcommand failed: one line on standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The configuration is wrong. The text names the flag and what to do. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The attempt failed. Exit code 1.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl From<CannotListen> for Error {
    fn from(error: CannotListen) -> Self {
        Self::Usage(error.to_string())
    }
}

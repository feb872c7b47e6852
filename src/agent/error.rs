//! Why a reconcile failed.

use std::time::Duration;

use crate::{
    agent::{control_client, render},
    runtime::reconcile::is_conflict,
};

/// A reconcile that takes longer is cancelled and tried again.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a reconcile failed. [`Error::category`] is the bounded label for metrics.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("{action}: {source}")]
    Api {
        /// The attempted action.
        action: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// A value cannot be converted to or from JSON.
    #[error("{action}: {source}")]
    Json {
        /// The attempted action.
        action: String,
        /// Why it failed.
        source: serde_json::Error,
    },
    /// A request to a server failed.
    #[error(transparent)]
    Server(#[from] control_client::Error),
    /// The spec cannot be rendered.
    #[error(transparent)]
    Render(#[from] render::Refused),
    /// The reconcile took too long.
    #[error("the reconcile took longer than {} s", ATTEMPT_TIMEOUT.as_secs())]
    Timeout,
    /// A defect: the reconcile panicked. Other objects are not affected.
    #[error("a defect: {0}")]
    Panic(String),
}

impl Error {
    /// One of a few words, for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if is_conflict(source) => "conflict",
            Self::Api { source: kube::Error::Api(_), .. } => "api",
            Self::Api { .. } => "connection",
            Self::Json { .. } => "json",
            Self::Server(_) => "server",
            Self::Render(_) => "render",
            Self::Timeout => "timeout",
            Self::Panic(_) => "panic",
        }
    }
}

/// Adds the attempted action to errors of libraries.
pub(super) trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for kube::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Api { action: action(), source })
    }
}

impl<T> During<T> for serde_json::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Json { action: action(), source })
    }
}

//! Why a server refuses a request of an agent.

use zookeeper_client::Error as ZkError;

use mczk_api::contract::control_api::{Problem, UNAVAILABLE};

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortRefusal {
    /// The request makes no sense. A retry does not help.
    Invalid(Problem),
    /// The ensemble is in another state than the request assumes. The agent must observe and decide again.
    Conflict(Problem),
    /// The server could not try the request, or its result is unknown. The agent must observe again.
    Unavailable(Problem),
}

impl PortRefusal {
    pub(super) fn invalid(reason: &str, message: impl Into<String>) -> Self {
        Self::Invalid(Problem { reason: reason.to_owned(), message: message.into() })
    }

    pub(super) fn conflict(reason: &str, message: impl Into<String>) -> Self {
        Self::Conflict(Problem { reason: reason.to_owned(), message: message.into() })
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(Problem { reason: UNAVAILABLE.to_owned(), message: message.into() })
    }
}

impl std::fmt::Display for PortRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Invalid(problem) | Self::Conflict(problem) | Self::Unavailable(problem)) = self;
        formatter.write_str(&problem.message)
    }
}

impl From<ZkError> for PortRefusal {
    fn from(error: ZkError) -> Self {
        // The client has no names for -13, no connected majority of the new configuration, and -14, another reconfiguration
        // in progress.
        match error {
            ZkError::BadVersion => Self::conflict("version", "the version changed meanwhile"),
            ZkError::UnexpectedErrorCode(-13) => {
                Self::conflict("noQuorum", "no majority of the new configuration is connected and synced")
            }
            ZkError::UnexpectedErrorCode(-14) => Self::conflict("inProgress", "another reconfiguration is in progress"),
            ZkError::BadArguments(_) => Self::invalid("arguments", error.to_string()),
            other => Self::unavailable(format!("ZooKeeper: {other}")),
        }
    }
}

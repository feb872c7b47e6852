//! Why a reconcile failed.

use std::time::Duration;

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
    /// The API server accepted a request, and stored something else: a webhook or a policy changes it.
    #[error("{action}: {why}")]
    Altered {
        /// The attempted action.
        action: String,
        /// What is stored instead.
        why: String,
    },
    /// A value cannot be converted to or from JSON.
    #[error("{action}: {source}")]
    Json {
        /// The attempted action.
        action: String,
        /// Why it failed.
        source: serde_json::Error,
    },
    /// A failure apart from the API server.
    #[error("{message}")]
    Other {
        /// One of a few words, for metrics.
        category: &'static str,
        /// The attempted action, and why it failed.
        message: String,
    },
    /// The attempt took too long.
    #[error("the attempt took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// A defect: the attempt panicked. Other objects are not affected.
    #[error("a defect: {0}")]
    Panic(String),
}

impl Error {
    /// One of a few words, for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Api { source, .. } if is_conflict(source) => "conflict",
            Self::Api { source: kube::Error::Api(_), .. } | Self::Altered { .. } => "api",
            Self::Api { .. } => "connection",
            Self::Json { .. } => "json",
            Self::Other { category, .. } => category,
            Self::Timeout(_) => "timeout",
            Self::Panic(_) => "panic",
        }
    }

    /// True if the API server does not keep up: other requests fail too, and more of them do not help.
    #[must_use]
    pub(crate) fn is_overload(&self) -> bool {
        match self {
            Self::Api { source: kube::Error::Api(status), .. } => [429, 503, 504].contains(&status.code),
            Self::Api { .. } | Self::Timeout(_) => true,
            Self::Altered { .. } | Self::Json { .. } | Self::Other { .. } | Self::Panic(_) => false,
        }
    }

    /// True if another client changed the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_conflict(source))
    }

    /// Why the API server refuses the request as it is. `None` for a failure that may pass.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Api { source, .. } => refusal(source),
            Self::Altered { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Why a write failed that the next attempt most likely fails too: it is refused, or nothing answered the API server in its
    /// 34 seconds. That is mostly an admission webhook, which other writes need not pass.
    #[must_use]
    pub fn write_refusal(&self) -> Option<&str> {
        match self {
            Self::Api { source: kube::Error::Api(status), .. } if status.code == 504 => Some(&status.message),
            _ => self.refusal(),
        }
    }
}

/// Adds the attempted action to errors of libraries.
pub trait During<T> {
    /// The value, or an error with the action.
    ///
    /// # Errors
    /// If there is no value.
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

/// True if another client changed the object first.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    // 422 with this message: an object exists that was not observed.
    matches!(error, kube::Error::Api(status) if !is_denied(&status.message) && (status.code == 409
        || status.code == 422 && status.message.contains("must be specified for an update")))
}

/// True if a precondition of a request did not hold: the uid or the version of the object is another one. A webhook can also
/// answer with this code, and other words.
#[must_use]
pub fn is_precondition(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.message.contains("recondition"))
}

/// True if nothing can be created because the namespace is being deleted.
#[must_use]
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let terminating = |details: &kube::core::response::StatusDetails| {
        details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    };
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.details.as_ref().is_some_and(terminating))
}

/// True if the caller has no right to the request.
#[must_use]
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Why the API server refuses a request as it is: schema, quota, admission, a missing right, or a webhook that does not
/// answer. The agent reports that, and tries again. An expired credential, an overloaded API server and the write of another
/// client are no refusals: they may pass.
#[must_use]
pub fn refusal(error: &kube::Error) -> Option<&str> {
    match error {
        kube::Error::Api(status) if is_denied(&status.message) => Some(&status.message),
        kube::Error::Api(_) if is_conflict(error) => None,
        kube::Error::Api(status) if !matches!(status.code, 401 | 429 | 503 | 504) => Some(&status.message),
        _ => None,
    }
}

/// True if an admission webhook or an admission policy has denied a request. It chooses the code, which can be any.
fn is_denied(message: &str) -> bool {
    ["denied the request", "denied request"].iter().any(|words| message.contains(words))
}

/// True if the object does not exist any more.
#[must_use]
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The words of an API server whose webhooks with `failurePolicy: Ignore` do not answer.
    const HANGS: &str = "Timeout: request did not complete within requested timeout - context deadline exceeded";

    /// Such an error ended the reconcile before the status was written.
    #[rstest]
    #[case::quota(403, "exceeded quota: compute", true)]
    #[case::schema(422, "Service \"zk\" is invalid", true)]
    #[case::unknown_member(500, ".spec.x: field not declared in schema", true)]
    #[case::webhook_that_does_not_answer(500, "failed calling webhook: EOF", true)]
    #[case::webhook_with_any_code(503, "admission webhook \"x\" denied the request: no", true)]
    #[case::webhook_with_the_code_of_a_conflict(409, "admission webhook \"x\" denied the request: no", true)]
    #[case::policy(401, "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", true)]
    #[case::too_large(413, "Request entity too large", true)]
    #[case::no_namespace(404, "namespaces \"n\" not found", true)]
    #[case::conflict(409, "the object has been modified", false)]
    #[case::unobserved(422, "metadata.resourceVersion: must be specified for an update", false)]
    #[case::unavailable(503, "the server is currently unable to handle the request", false)]
    #[case::too_many_requests(429, "too many requests", false)]
    #[case::credential(401, "Unauthorized", false)]
    #[case::webhook_that_hangs(504, HANGS, false)]
    fn a_refusal_lasts(#[case] code: u16, #[case] message: &str, #[case] expected: bool) {
        let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
        let source = kube::Error::Api(Box::new(status));
        assert_eq!(refusal(&source), expected.then_some(message));
        assert!(!(expected && is_conflict(&source)), "the shell would repeat it at once, for ever");
        let write = Error::Api { action: "writing".to_owned(), source };
        assert_eq!(write.write_refusal(), (expected || code == 504).then_some(message));
    }
}

//! Why the webhook refuses a question.

/// Why the webhook refuses a question. Karmada shows the message in an event of the object and in its own log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Status as in HTTP: 400 if the question is not for this webhook, 422 if the object cannot be read.
    pub code: u16,
    /// Text for the user.
    pub message: String,
}

impl Refusal {
    /// The question is not for this webhook.
    #[must_use]
    pub(crate) fn misdirected(message: impl Into<String>) -> Self {
        Self { code: 400, message: message.into() }
    }

    /// The object cannot be read.
    #[must_use]
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self { code: 422, message: message.into() }
    }
}

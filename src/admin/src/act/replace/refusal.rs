//! Why a volume is not replaced.

/// Why a volume is not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// State and cause.
    pub(super) why: String,
    /// What the user does.
    pub(super) action: &'static str,
}

/// A refusal as a result.
pub(super) fn refuse<T>(why: impl Into<String>, action: &'static str) -> Result<T, Refusal> {
    Err(Refusal { why: why.into(), action })
}

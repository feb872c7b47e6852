//! What the command finds, area by area.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FindingSeverity {
    /// Something does not work, or stops to work without an action of the user.
    Fault,
    /// Something is at risk, or cannot be examined.
    Warning,
    /// The user has not asked for this part.
    Skipped,
}

impl FindingSeverity {
    /// The word in the table.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Warning => "warning",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DoctorFinding {
    pub(super) severity: FindingSeverity,
    /// The cluster or the object.
    pub(super) subject: String,
    /// State and cause.
    pub(super) message: String,
    /// What the user does: a command if possible.
    pub(super) remedy: String,
}

impl DoctorFinding {
    pub(super) fn fault(subject: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(FindingSeverity::Fault, subject, message, remedy)
    }

    pub(super) fn warning(subject: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(FindingSeverity::Warning, subject, message, remedy)
    }

    /// A finding of this severity.
    pub(super) fn new(
        severity: FindingSeverity,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { severity, subject: subject.into(), message: message.into(), remedy: remedy.into() }
    }
}

/// An area with what was found in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Examination {
    /// Name of the area.
    pub(super) area: &'static str,
    /// What was checked: all of it is as it should be, except the findings.
    pub(super) checked: &'static str,
    pub(super) findings: Vec<DoctorFinding>,
}

/// Everything that the command found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) faults: usize,
    pub(super) warnings: usize,
    pub(super) areas: Vec<Examination>,
}

impl Report {
    /// The report with these areas.
    pub(super) fn of(areas: Vec<Examination>) -> Self {
        let count = |severity| {
            areas.iter().flat_map(|area| &area.findings).filter(|finding| finding.severity == severity).count()
        };
        Self { faults: count(FindingSeverity::Fault), warnings: count(FindingSeverity::Warning), areas }
    }
}

//! When the coming end of a certificate or token becomes a warning. Operator, webhook and agent use this rule. Pure.

use jiff::{SignedDuration, Timestamp};

/// Longest notice before the end.
const LONGEST_NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Part of the validity that the notice covers at most. Every automatic renewal is due earlier: that of the operator's
/// certificates and of cert-manager when a third is left, that of the operator's token when half is left.
const PART: i32 = 4;

/// Begin and end of the validity of a certificate or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The begin.
    pub begin: Timestamp,
    /// The end.
    pub end: Timestamp,
}

impl Validity {
    /// The validity of a certificate, from its end and its length.
    #[must_use]
    pub fn ending(end: Timestamp, length: SignedDuration) -> Self {
        Self { begin: end.checked_sub(length).unwrap_or(Timestamp::MIN), end }
    }

    /// True once a renewal is overdue: less than 30 days and less than a quarter of the validity are left.
    #[must_use]
    pub fn is_ending(self, now: Timestamp) -> bool {
        let notice = (self.end.duration_since(self.begin) / PART).min(LONGEST_NOTICE);
        self.end.duration_since(now) < notice
    }
}

/// Why a peer would refuse a certificate now; `None` if it is valid.
#[must_use]
pub fn invalid(validity: Validity, now: Timestamp) -> Option<String> {
    let begins = || format!("is valid only from {}", validity.begin.strftime("%Y-%m-%d %H:%M:%S UTC"));
    if validity.end <= now { Some(phrase(validity.end, now)) } else { (now < validity.begin).then(begins) }
}

/// A text that the message about an end begins with: that it comes, or that it has come.
#[must_use]
pub fn phrase(end: Timestamp, now: Timestamp) -> String {
    // Whole days: the text of a condition must not change with every reconcile.
    let day = end.strftime("%Y-%m-%d %H:%M UTC");
    if end <= now { format!("has expired on {day}") } else { format!("expires on {day}") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::valid(-1, 1, None)]
    #[case::over(-2, -1, Some("has expired on 2023-11-13 22:13 UTC"))]
    #[case::too_early(1, 2, Some("is valid only from 2023-11-15 22:13:20 UTC"))]
    fn an_invalid_certificate_names_its_end_or_its_begin(
        #[case] begin: i64,
        #[case] end: i64,
        #[case] why: Option<&str>,
    ) {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let at = |days: i64| now + SignedDuration::from_hours(24 * days);
        assert_eq!(invalid(Validity { begin: at(begin), end: at(end) }, now).as_deref(), why);
    }

    #[rstest]
    #[case::a_year(365, 29, true)]
    #[case::a_year_with_a_renewal_due(365, 31, false)]
    #[case::ninety_days(90, 22, true)]
    #[case::renewed_by_cert_manager(90, 30, false)]
    #[case::token(30, 14, false)]
    #[case::token_not_renewed(30, 7, true)]
    #[case::new(1, 1, false)]
    #[case::over(90, -1, true)]
    #[case::ten_years(3650, 30, false)]
    fn the_notice_is_30_days_or_a_quarter(#[case] length: i64, #[case] left: i64, #[case] ends: bool) {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let day = SignedDuration::from_hours(24);
        let end = now + day * i32::try_from(left).unwrap();
        let validity = Validity::ending(end, day * i32::try_from(length).unwrap());
        assert_eq!(validity.is_ending(now), ends);
        assert_eq!(phrase(end, now).starts_with("expires on "), left > 0);
    }
}

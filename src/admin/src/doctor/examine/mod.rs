//! The rules: one file for each area, each a pure function of what was observed.

mod agents;
mod autoscalers;
mod certificates;
mod clusters;
mod definitions;
mod ensembles;
mod host;
mod incarnations;
mod interpreters;
mod network;
mod operator;
mod policies;
mod quorum;
mod registration;
mod rights;
mod storage;
mod versions;

use jiff::Timestamp;

use super::{
    finding::{DoctorFinding, Examination, Report},
    observed::DoctorObserved,
};

/// Name of an area, what its rule checks, and the rule.
type Area = (&'static str, &'static str, fn(&DoctorObserved, Timestamp) -> Vec<DoctorFinding>);

/// The areas, in the order in which a user repairs them: one may be the cause of those below it.
const AREAS: [Area; 17] = [
    ("clusters", clusters::CHECKED, clusters::examine),
    ("versions", versions::CHECKED, versions::examine),
    ("definitions", definitions::CHECKED, definitions::examine),
    ("rights", rights::CHECKED, rights::examine),
    ("operator", operator::CHECKED, operator::examine),
    ("host", host::CHECKED, host::examine),
    ("registration", registration::CHECKED, registration::examine),
    ("certificates", certificates::CHECKED, certificates::examine),
    ("agents", agents::CHECKED, agents::examine),
    ("policies", policies::CHECKED, policies::examine),
    ("interpreters", interpreters::CHECKED, interpreters::examine),
    ("autoscalers", autoscalers::CHECKED, autoscalers::examine),
    ("network", network::CHECKED, network::examine),
    ("storage", storage::CHECKED, storage::examine),
    ("quorum", quorum::CHECKED, quorum::examine),
    ("ensembles", ensembles::CHECKED, ensembles::examine),
    ("incarnations", incarnations::CHECKED, incarnations::examine),
];

/// Examines every area. `now` is the clock of this machine: certificates have a time of day, and no other rule uses it.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Report {
    let area = |(area, checked, examine): Area| Examination { area, checked, findings: examine(observed, now) };
    Report::of(AREAS.map(area).into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{healthy, now};

    #[test]
    fn a_healthy_installation_has_no_finding() {
        let report = examine(&healthy(), now());
        for area in &report.areas {
            assert_eq!(area.findings, [], "{}", area.area);
        }
        assert_eq!((report.faults, report.warnings), (0, 0));
    }
}

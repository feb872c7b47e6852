//! What an ensemble waits for, from its conditions, with the action that the reference names for each reason.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use mczk_api::contract::conditions::{ConditionOwner, ConditionStatus, ConditionType, Reason, Remedy};

/// One thing that waits, or that a user should know.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `ensemble`, or the cluster.
    pub subject: String,
    /// Type and status of the condition, such as `Progressing=False`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Reason of the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// State and cause.
    pub message: String,
    /// What the user does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// True if it is advice: nothing waits for it.
    pub advice: bool,
}

impl Finding {
    /// A finding for which no condition stands.
    pub fn new(subject: impl Into<String>, message: impl Into<String>, action: Option<&str>) -> Self {
        Self {
            subject: subject.into(),
            condition: None,
            reason: None,
            message: message.into(),
            action: action.map(plain),
            advice: false,
        }
    }

    /// A finding with a reason whose condition no status holds.
    pub fn of_reason(subject: &str, reason: Reason, message: impl Into<String>) -> Self {
        Self { reason: Some(reason.to_string()), action: action(reason.remedy()), ..Self::new(subject, message, None) }
    }
}

/// The subject of findings about the whole ensemble.
pub const ENSEMBLE: &str = "ensemble";

/// The order in which conditions of an ensemble explain it.
const EXPLAINING: [ConditionType; 11] = [
    ConditionType::Progressing,
    ConditionType::Scheduled,
    ConditionType::Degraded,
    ConditionType::QuorumSafe,
    ConditionType::FailedOver,
    ConditionType::FailoverReady,
    ConditionType::CertificatesExpire,
    ConditionType::UnsafeVersion,
    ConditionType::UntestedVersion,
    ConditionType::Paused,
    ConditionType::Ready,
];

/// What the conditions of a MultiClusterZooKeeper say that is not as it should be.
#[must_use]
pub fn of_ensemble(conditions: &[Condition]) -> Vec<Finding> {
    let rank = |condition: &Condition| EXPLAINING.iter().position(|type_| type_.as_str() == condition.type_);
    let mut sorted: Vec<&Condition> = conditions.iter().collect();
    sorted.sort_by_key(|condition| rank(condition).unwrap_or(EXPLAINING.len()));
    of_conditions(ENSEMBLE, sorted, ConditionOwner::MultiClusterZooKeeper)
}

/// What the conditions say that an agent reports.
pub(crate) fn of_cluster(cluster: &str, conditions: &[Condition]) -> Vec<Finding> {
    of_conditions(cluster, conditions.iter().collect(), ConditionOwner::ZooKeeper)
}

fn of_conditions(subject: &str, conditions: Vec<&Condition>, owner: ConditionOwner) -> Vec<Finding> {
    let all = conditions.into_iter().filter_map(|condition| of_condition(subject, condition, owner));
    let (references, explained): (Vec<_>, Vec<_>) = all.partition(|(_, is_reference)| *is_reference);
    let mut said = BTreeSet::new();
    // One cause shows in several conditions: the first one explains it.
    let mut new = |finding: &Finding| said.insert((finding.message.clone(), finding.action.clone()));
    let explained: Vec<Finding> = explained.into_iter().map(|(finding, _)| finding).filter(|f| new(f)).collect();
    // A reference counts only while the condition that it names is silent.
    let is_explained = explained.iter().any(|finding| !finding.advice);
    references.into_iter().map(|(finding, _)| finding).filter(|_| !is_explained).chain(explained).collect()
}

/// What a condition says that is not as it should be, and whether it only names another condition.
fn of_condition(subject: &str, condition: &Condition, owner: ConditionOwner) -> Option<(Finding, bool)> {
    let type_ = ConditionType::ALL.iter().copied().find(|t| t.owner() == owner && t.as_str() == condition.type_);
    let reason: Option<Reason> = condition.reason.parse().ok();
    let remedy = reason.map(Reason::remedy);
    if remedy == Some(Remedy::None) || (reason.is_none() && is_good(type_, &condition.status)) {
        return None;
    }
    let finding = Finding {
        subject: subject.to_owned(),
        condition: Some(format!("{}={}", condition.type_, condition.status)),
        reason: Some(condition.reason.clone()),
        message: condition.message.clone(),
        action: remedy.and_then(action),
        advice: is_good(type_, &condition.status),
    };
    Some((finding, matches!(remedy, Some(Remedy::See(_)))))
}

/// What the user does, as text.
#[must_use]
pub fn action(remedy: Remedy) -> Option<String> {
    (remedy != Remedy::None).then(|| plain(&remedy.to_string()))
}

/// What a condition of a MultiClusterZooKeeper says of the ensemble: true if all is well, false if not, and nothing for
/// `Progressing` and for a condition that is `Unknown`.
pub(crate) fn verdict(condition: &Condition) -> Option<bool> {
    let owner = ConditionOwner::MultiClusterZooKeeper;
    let type_ = ConditionType::ALL.iter().copied().find(|t| t.owner() == owner && t.as_str() == condition.type_)?;
    let says = type_ != ConditionType::Progressing && condition.status != ConditionStatus::Unknown.as_str();
    says.then(|| is_good(Some(type_), &condition.status))
}

/// True if a status of a condition means that all is well. The status of `Progressing` does not say.
fn is_good(type_: Option<ConditionType>, status: &str) -> bool {
    use ConditionType::{AgentProgressing, FailoverReady, Progressing, QuorumSafe, Ready, Scheduled};
    let good = match type_ {
        None | Some(Progressing | AgentProgressing) => return false,
        Some(Ready | QuorumSafe | FailoverReady | Scheduled) => ConditionStatus::True,
        Some(_) => ConditionStatus::False,
    };
    good.as_str() == status
}

/// A help text without the links of the reference.
fn plain(help: &str) -> String {
    let mut text = String::new();
    let mut rest = help;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        let split = link.split_once("](").and_then(|(label, target)| Some((label, target.split_once(')')?.1)));
        if let Some((label, after)) = split {
            text.push_str(label);
            rest = after;
        } else {
            text.push('[');
            rest = link;
        }
    }
    text + rest
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, status: &str, reason: &str) -> Condition {
        serde_json::from_value(json!({
            "type": type_, "status": status, "reason": reason, "message": format!("M {reason}"),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn found(conditions: &[Condition]) -> Vec<(String, bool)> {
        let findings = of_ensemble(conditions);
        findings.into_iter().map(|finding| (finding.reason.unwrap(), finding.advice)).collect()
    }

    #[test]
    fn an_ensemble_that_serves_has_no_finding() {
        let all = [
            condition("Ready", "True", "Serving"),
            condition("Progressing", "False", "Done"),
            condition("Degraded", "False", "Healthy"),
            condition("QuorumSafe", "True", "Spread"),
            condition("Scheduled", "True", "Placed"),
            condition("UnsafeVersion", "False", "NoKnownLoss"),
            condition("Paused", "False", "NotPaused"),
        ];
        assert_eq!(of_ensemble(&all), []);
    }

    #[test]
    fn the_cause_comes_before_conditions_that_refer_to_it() {
        let all = [
            condition("Ready", "False", "RollingOut"),
            condition("Progressing", "False", "WaitingForSchedule"),
            condition("Scheduled", "False", "KindsNotServed"),
        ];
        assert_eq!(found(&all), [("KindsNotServed".to_owned(), false)]);
    }

    #[test]
    fn one_cause_is_one_finding() {
        let both = [condition("Ready", "False", "TooLarge"), condition("Progressing", "False", "TooLarge")];
        let findings = of_ensemble(&both);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].condition.as_deref(), Some("Progressing=False"));
    }

    #[rstest]
    #[case::advice("QuorumSafe", "True", "EvenVoters", Some(true))]
    #[case::waits("Progressing", "True", "Deploying", Some(false))]
    #[case::reference_alone("Ready", "False", "RollingOut", Some(false))]
    #[case::newer_version_good("Degraded", "False", "OfTheFuture", None)]
    #[case::newer_version_bad("Degraded", "True", "OfTheFuture", Some(false))]
    fn one_condition(#[case] type_: &str, #[case] status: &str, #[case] reason: &str, #[case] expected: Option<bool>) {
        let advice = of_ensemble(&[condition(type_, status, reason)]).first().map(|finding| finding.advice);
        assert_eq!(advice, expected);
    }

    #[test]
    fn the_conditions_of_an_agent() {
        let all = [condition("Progressing", "False", "Complete"), condition("Blocked", "True", "SpecRefused")];
        let findings = of_cluster("m1", &all);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].subject, "m1");
    }

    /// The status of a condition stands for itself: the reference lists what each reason means.
    #[test]
    fn every_reason_of_an_ensemble_is_good_advice_or_waits() {
        for reason in Reason::ALL {
            for (type_, status) in reason.conditions() {
                let findings = of_ensemble(&[condition(type_.as_str(), status.as_str(), reason.as_str())]);
                assert_eq!(findings.is_empty(), reason.remedy() == Remedy::None, "{reason} in {type_}");
            }
        }
    }

    #[rstest]
    #[case("Do it", "Do it")]
    #[case("The [table](versions.md) has it", "The table has it")]
    #[case("status.records[] holds it", "status.records[] holds it")]
    fn links(#[case] help: &str, #[case] expected: &str) {
        assert_eq!(plain(help), expected);
    }
}

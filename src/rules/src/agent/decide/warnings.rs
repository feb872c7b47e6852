//! The warnings of a cluster, from its conditions and from what was sent before.
//!
//! A condition holds one message at a time. The difference of two statuses would show neither the next server with the
//! same problem nor, without a bound, anything but a flood from a condition that flaps.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::agent::decide::events::{AgentEvent, AgentEventReason};
use mczk_api::contract::conditions::{ConditionStatus, ConditionType, Reason, find};

/// Least time between two warnings of one condition and reason.
const REPEATS_AFTER: Duration = Duration::from_secs(60);

/// The conditions that are warnings while they are true, with the reasons of their events.
const WARNINGS: [(ConditionType, AgentEventReason); 7] = [
    (ConditionType::Blocked, AgentEventReason::Blocked),
    (ConditionType::Contested, AgentEventReason::ObjectContested),
    (ConditionType::VolumeUnusable, AgentEventReason::VolumeUnusable),
    (ConditionType::DiskPressure, AgentEventReason::DiskPressure),
    (ConditionType::Draining, AgentEventReason::DrainBlocked),
    (ConditionType::ClientCertificatesKept, AgentEventReason::ClientCertificatesRefused),
    (ConditionType::AgentCertificatesExpire, AgentEventReason::CertificatesExpire),
];

/// The last warning of each condition, by type and reason. An entry lasts as long as it bounds the rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent(BTreeMap<(&'static str, String), Last>);

/// The last warning of one condition and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    message: String,
    at: Instant,
    /// True if the condition has ended since.
    ended: bool,
}

/// The warnings that are due. `old` are the conditions before this reconcile: after a restart of the agent they tell
/// what the former process has sent.
pub fn warnings(old: &[Condition], new: &[Condition], sent: &mut Sent, now: Instant) -> Vec<AgentEvent> {
    let mut due = Vec::new();
    let mut holding = Vec::new();
    for (type_, event) in WARNINGS {
        let Some(condition) = warning(new, type_) else { continue };
        let key = (type_.as_str(), condition.reason.clone());
        holding.push(key.clone());
        let before = warning(old, type_).filter(|before| before.reason == condition.reason);
        let is_due = match (sent.0.get(&key), before) {
            (Some(last), _) => {
                (last.ended || last.message != condition.message) && now.duration_since(last.at) >= REPEATS_AFTER
            }
            (None, Some(before)) => {
                sent.0.insert(key.clone(), Last { message: before.message.clone(), at: now, ended: false });
                false
            }
            (None, None) => true,
        };
        if is_due {
            sent.0.insert(key, Last { message: condition.message.clone(), at: now, ended: false });
            due.push(AgentEvent { reason: event, message: format!("{}: {}", condition.reason, condition.message) });
        }
    }
    sent.0.retain(|key, last| {
        last.ended |= !holding.contains(key);
        !last.ended || now.duration_since(last.at) < REPEATS_AFTER
    });
    due
}

/// The condition of a type, if it is a warning. A drain that continues is none.
fn warning(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    let condition = find(conditions, type_, ConditionStatus::True)?;
    let needs_user = type_ != ConditionType::Draining || condition.reason == Reason::ServerStays.as_str();
    needs_user.then_some(condition)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, reason: &str, message: &str) -> Condition {
        let time = "2026-11-21T08:00:00Z";
        let condition = json!({ "type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time });
        serde_json::from_value(condition).unwrap()
    }

    fn lost(message: &str) -> Vec<Condition> {
        vec![condition("VolumeUnusable", "VolumeLost", message)]
    }

    /// An agent that reconciles at these seconds, and the messages that it sends.
    struct Agent {
        begun: Instant,
        conditions: Vec<Condition>,
        sent: Sent,
    }

    impl Agent {
        fn new() -> Self {
            Self { begun: Instant::now(), conditions: Vec::new(), sent: Sent::default() }
        }

        fn at(&mut self, seconds: u64, conditions: &[Condition]) -> Vec<String> {
            let now = self.begun + Duration::from_secs(seconds);
            let events = warnings(&self.conditions, conditions, &mut self.sent, now);
            self.conditions = conditions.to_vec();
            events.into_iter().map(|event| format!("{} {}", event.reason.as_str(), event.message)).collect()
        }
    }

    const NONE: [String; 0] = [];

    #[test]
    fn a_problem_is_sent_once() {
        let mut agent = Agent::new();
        assert_eq!(agent.at(0, &lost("zk-0")), ["VolumeUnusable VolumeLost: zk-0"]);
        assert_eq!(agent.at(3, &lost("zk-0")), NONE);
        assert_eq!(agent.at(3000, &lost("zk-0")), NONE);
    }

    #[test]
    fn the_same_problem_of_another_server_is_sent() {
        let mut agent = Agent::new();
        agent.at(0, &lost("zk-0"));
        assert_eq!(agent.at(100, &lost("zk-1")), ["VolumeUnusable VolumeLost: zk-1"]);
        assert_eq!(agent.at(103, &lost("zk-1")), NONE);
    }

    #[test]
    fn a_problem_that_returns_is_sent_again() {
        let mut agent = Agent::new();
        agent.at(0, &lost("zk-0"));
        assert_eq!(agent.at(100, &[]), NONE);
        assert_eq!(agent.at(103, &lost("zk-0")), ["VolumeUnusable VolumeLost: zk-0"]);
    }

    /// None is lost: what is true at the end of the interval is sent.
    #[test]
    fn a_condition_that_flaps_is_sent_once_a_minute() {
        let mut agent = Agent::new();
        let mut count = 0;
        for second in 0..600_u64 {
            let conditions = if second % 2 == 0 { lost(&format!("zk-{second}")) } else { Vec::new() };
            count += agent.at(second, &conditions).len();
        }
        assert_eq!(count, 10);
        agent.at(600, &lost("zk-0"));
        assert_eq!(agent.at(630, &lost("zk-1")), NONE);
        assert_eq!(agent.at(661, &lost("zk-1")), ["VolumeUnusable VolumeLost: zk-1"]);
    }

    #[test]
    fn another_reason_or_condition_is_sent_at_once() {
        let mut agent = Agent::new();
        agent.at(0, &lost("zk-0"));
        let corrupt = [condition("VolumeUnusable", "VolumeCorrupt", "zk-0")];
        assert_eq!(agent.at(1, &corrupt), ["VolumeUnusable VolumeCorrupt: zk-0"]);
        let both = [lost("zk-0"), vec![condition("Blocked", "SpecRefused", "m")]].concat();
        assert_eq!(agent.at(2, &both), ["Blocked SpecRefused: m"]);
    }

    #[test]
    fn only_a_drain_that_needs_the_user_is_a_warning() {
        let mut agent = Agent::new();
        assert_eq!(agent.at(0, &[condition("Draining", "NodeDrained", "zk-0")]), NONE);
        assert_eq!(agent.at(1, &[condition("Draining", "ServerStays", "zk-0")]), ["DrainBlocked ServerStays: zk-0"]);
        assert_eq!(agent.at(2, &[condition("CertificatesExpire", "QuorumCertificateExpires", "m")]).len(), 1);
    }

    #[test]
    fn a_restarted_agent_repeats_nothing_and_misses_nothing() {
        let mut agent = Agent { conditions: lost("zk-0"), ..Agent::new() };
        assert_eq!(agent.at(0, &lost("zk-0")), NONE);
        let mut agent = Agent { conditions: lost("zk-0"), ..Agent::new() };
        assert_eq!(agent.at(0, &lost("zk-1")), NONE);
        assert_eq!(agent.at(60, &lost("zk-1")), ["VolumeUnusable VolumeLost: zk-1"]);
    }
}

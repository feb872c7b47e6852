//! What the agent reports of the network check, within the bounds of the schema: the API server would refuse the whole
//! status.
//!
//! Texts come from other programs, such as a pod's answer or an admission policy. They are cut, and never left out:
//! less would be a pass.

use crate::agent::decide::probe::Probe;
use mczk_api::{
    contract::preflight::{MAX_CLUSTER, MAX_HOST, MAX_MORE, MAX_PROBLEMS, MAX_ROUND_TRIP},
    preflight::{NetworkProblem, Preflight, PreflightReport, RoundTrip},
};

/// Length of the longest failure in characters. The schema allows 1024.
const MAX_FAILURE: usize = 1000;
/// Length of a round in characters.
const MAX_ROUND: usize = 16;
/// What stands for an empty text.
const UNKNOWN: &str = "unknown";

/// The report of a check that does not run.
pub(super) fn failed(request: &Preflight, why: &str) -> PreflightReport {
    PreflightReport { failure: Some(bounded(why, MAX_FAILURE)), ..empty(request) }
}

/// The report of the problems that a probe found, of its round trip, and of the mesh that has a proxy in its pod.
pub(super) fn found(request: &Preflight, problems: &[NetworkProblem], probe: &Probe) -> PreflightReport {
    let more = i32::try_from(problems.len().saturating_sub(MAX_PROBLEMS)).unwrap_or(MAX_MORE).min(MAX_MORE);
    PreflightReport {
        problems: problems.iter().take(MAX_PROBLEMS).map(problem).collect(),
        more: (more > 0).then_some(more),
        mesh: probe.mesh.map(str::to_owned),
        round_trip: probe.round_trip.as_ref().map(round_trip),
        ..empty(request)
    }
}

fn empty(request: &Preflight) -> PreflightReport {
    PreflightReport { round: bounded(&request.round, MAX_ROUND), ..PreflightReport::default() }
}

fn problem(problem: &NetworkProblem) -> NetworkProblem {
    NetworkProblem {
        to: bounded(&problem.to, MAX_CLUSTER),
        host: bounded(&problem.host, MAX_HOST),
        port: problem.port.filter(|port| (1..=65535).contains(port)),
        problem: problem.problem,
        answered: problem.answered.as_ref().map(|cluster| bounded(cluster, MAX_CLUSTER)),
        bytes_per_second: problem.bytes_per_second.filter(|rate| *rate >= 0),
    }
}

fn round_trip(longest: &RoundTrip) -> RoundTrip {
    let milliseconds = longest.milliseconds.clamp(1, MAX_ROUND_TRIP);
    RoundTrip { to: bounded(&longest.to, MAX_CLUSTER), milliseconds }
}

/// The beginning of a text. The schema counts characters and allows no empty text.
fn bounded(text: &str, longest: usize) -> String {
    if text.is_empty() { UNKNOWN.to_owned() } else { text.chars().take(longest).collect() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::Value;

    use super::*;
    use mczk_api::{contract::preflight::MAX_FOUND, crd::definitions, preflight::ProblemKind};

    /// The schema of `status.preflight`.
    fn schema() -> Value {
        let definitions = serde_json::to_value(definitions().unwrap()).unwrap();
        let definitions = definitions.as_array().unwrap().clone();
        let zookeeper = definitions.into_iter().find(|definition| definition["spec"]["names"]["kind"] == "ZooKeeper");
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/preflight/properties";
        zookeeper.unwrap().pointer(status).unwrap().clone()
    }

    fn limit(schema: &Value, pointer: &str) -> u64 {
        schema.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {schema}"))
    }

    fn is_within(text: &str, schema: &Value, field: &str) -> bool {
        let length = u64::try_from(text.chars().count()).unwrap();
        length >= limit(schema, &format!("{field}/minLength")) && length <= limit(schema, &format!("{field}/maxLength"))
    }

    /// A status that breaks one bound is refused as a whole, and the operator would wait for ever.
    #[test]
    fn no_report_breaks_a_bound_of_the_schema() {
        let schema = schema();
        let request = Preflight { round: "é".repeat(40), ..Preflight::default() };
        for text in [String::new(), "é".repeat(5000)] {
            let found_one = NetworkProblem {
                to: text.clone(),
                host: text.clone(),
                port: Some(70_000),
                problem: ProblemKind::Refused,
                answered: Some(text.clone()),
                bytes_per_second: Some(-1),
            };
            let failed = failed(&request, &text);
            assert!(is_within(failed.failure.as_deref().unwrap(), &schema, "/failure"));
            assert!(is_within(&failed.round, &schema, "/round"));
            let probe = Probe {
                name: String::new(),
                uid: String::new(),
                incarnation: String::new(),
                hash: None,
                ends: false,
                failure: None,
                mesh: None,
                problems: None,
                round_trip: Some(RoundTrip { to: text.clone(), milliseconds: i32::MAX }),
            };
            let found = found(&request, &vec![found_one; MAX_FOUND], &probe);
            let longest = found.round_trip.unwrap();
            assert!(is_within(&longest.to, &schema, "/roundTrip/properties/to"));
            let maximum = schema.pointer("/roundTrip/properties/milliseconds/maximum").and_then(Value::as_f64).unwrap();
            assert!(f64::from(longest.milliseconds) <= maximum);
            assert_eq!(u64::try_from(found.problems.len()).unwrap(), limit(&schema, "/problems/maxItems"));
            let items = "/problems/items/properties";
            for problem in &found.problems {
                assert!(is_within(&problem.to, &schema, &format!("{items}/to")));
                assert!(is_within(&problem.host, &schema, &format!("{items}/host")));
                assert!(is_within(problem.answered.as_deref().unwrap(), &schema, &format!("{items}/answered")));
                assert_eq!(problem.port, None);
            }
            let more = found.more.unwrap();
            assert_eq!(usize::try_from(more).unwrap(), MAX_FOUND - MAX_PROBLEMS, "each problem counts");
            assert!(f64::from(more) <= schema.pointer("/more/maximum").and_then(Value::as_f64).unwrap());
        }
    }
}

//! The network check: the hash of a request, and what probes say to each other.

use serde::{Deserialize, Serialize};

use crate::{
    contract::{
        canonical_json::short_hash,
        pod_layout::{CONTROL_PORT, ELECTION_PORT, QUORUM_PORT},
    },
    preflight::{NetworkProblem, Preflight, RoundTrip, ServerName},
};

/// The ports on which servers of other clusters must reach a server.
pub const PORTS: [u16; 3] = [QUORUM_PORT, ELECTION_PORT, CONTROL_PORT];
/// Most problems that a cluster reports, by the schema.
pub const MAX_PROBLEMS: usize = 64;
/// Most further problems that a cluster counts, by the schema.
pub const MAX_MORE: i32 = 1024;
/// Longest round trip that a cluster reports, in milliseconds, by the schema.
pub const MAX_ROUND_TRIP: i32 = 60_000;
/// Most problems that a probe finds: one for each port of the first server of each cluster, of which the schema allows
/// 254.
pub const MAX_FOUND: usize = 254 * PORTS.len();
/// First word of a probe's answer.
const GREETING: &str = "mczk-preflight";
/// Length of the longest name of a cluster.
pub const MAX_CLUSTER: usize = 48;
/// Length of the longest name of a server.
pub const MAX_HOST: usize = 253;

/// What a probe answers to its agent. An address may belong to another pod by now, so the answer names what it is
/// about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightAnswer {
    /// Round of the request that the probe checks.
    pub round: String,
    /// Cluster of the probe.
    pub cluster: String,
    /// What the last check found. Absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<NetworkProblem>>,
    /// The longest of the round trips to the clusters. Absent until one is measured; older probes measure none.
    #[serde(default, rename = "roundTrip", skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
}

/// A request with its round.
///
/// # Errors
/// Never for these types.
pub fn request(
    incarnation: &str,
    names: Vec<ServerName>,
    bytes_per_second: Option<i64>,
) -> serde_json::Result<Preflight> {
    let request = Preflight { incarnation: incarnation.to_owned(), names, bytes_per_second, round: String::new() };
    Ok(Preflight { round: round_of(&request)?, ..request })
}

/// True if the content of a request matches its round.
#[must_use]
pub fn is_intact(request: &Preflight) -> bool {
    round_of(request).is_ok_and(|round| round == request.round)
}

fn round_of(request: &Preflight) -> serde_json::Result<String> {
    match request.bytes_per_second {
        None => short_hash(&(&request.incarnation, &request.names)),
        rate => short_hash(&(&request.incarnation, &request.names, rate)),
    }
}

/// A name that would belong to a server, and that no server has. `None` if the name of a server does not contain that of its pod.
#[must_use]
pub fn impossible_name(host: &str, incarnation: &str) -> Option<String> {
    let (before, after) = host.split_once(&format!("{incarnation}-"))?;
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (rest.len() < after.len()).then(|| format!("{before}{incarnation}-none{rest}"))
}

/// The line that the probe of a cluster sends to each connection.
#[must_use]
pub fn greeting(incarnation: &str, cluster: &str) -> String {
    format!("{GREETING} {incarnation} {cluster}\n")
}

/// The cluster whose probe sent a line, if a probe of the incarnation did.
#[must_use]
pub fn greeted_by<'a>(line: &'a str, incarnation: &str) -> Option<&'a str> {
    let mut words = line.strip_suffix('\n')?.split(' ');
    let (greeting, of, cluster) = (words.next()?, words.next()?, words.next()?);
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // Any host may answer, and users read the name on terminals.
    let is_name = (1..=MAX_CLUSTER).contains(&cluster.len()) && cluster.bytes().all(is_legal) && words.next().is_none();
    (greeting == GREETING && of == incarnation && is_name).then_some(cluster)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::own(&greeting("abc123", "m1"), Some("m1"))]
    #[case::other_incarnation(&greeting("fedcba", "m1"), None)]
    #[case::cut_off("mczk-preflight abc123 m", None)]
    #[case::no_cluster("mczk-preflight abc123 \n", None)]
    #[case::control_characters("mczk-preflight abc123 m\x1b[2J\n", None)]
    #[case::another_program("HTTP/1.1 400 Bad Request\n", None)]
    fn a_greeting_names_its_cluster(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(greeted_by(line, "abc123"), expected);
    }

    #[rstest]
    #[case::mcs(
        "zk-abc123-0.m1.zk-abc123.ns.svc.clusterset.local",
        Some("zk-abc123-none.m1.zk-abc123.ns.svc.clusterset.local")
    )]
    #[case::next("zk-abc123-12.m1.zk-abc123.ns", Some("zk-abc123-none.m1.zk-abc123.ns"))]
    #[case::custom("m1-zk-abc123-0.example.org", Some("m1-zk-abc123-none.example.org"))]
    #[case::without_the_pod("m1.example.org", None)]
    fn no_server_has_the_impossible_name(#[case] host: &str, #[case] expected: Option<&str>) {
        assert_eq!(impossible_name(host, "abc123").as_deref(), expected);
    }

    #[test]
    fn a_changed_request_does_not_match_its_round() {
        let name = ServerName { cluster: "m1".into(), host: "zk-abc123-0.m1".into(), ordinal: None };
        let whole = request("abc123", vec![name], Some(1 << 20)).unwrap();
        assert!(is_intact(&whole));
        assert!(!is_intact(&Preflight { names: Vec::new(), ..whole.clone() }));
        assert!(!is_intact(&Preflight { bytes_per_second: None, ..whole.clone() }));
        assert!(!is_intact(&Preflight { incarnation: "fedcba".into(), ..whole }));
    }
}

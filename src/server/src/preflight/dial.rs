//! Tries one name on every port of a server.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::future::join_all;

use crate::resolver::Resolver;
use mczk_api::{
    contract::{
        pod_layout::QUORUM_PORT,
        preflight::{PORTS, greeted_by, impossible_name},
    },
    preflight::{NetworkProblem, ProblemKind, ServerName},
};
use mczk_runtime::conversation::{Heard, hear};

/// Most addresses of one name that a probe tries.
const MAX_ADDRESSES: usize = 16;

/// What a probe tries.
pub struct Targets {
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// A name in each cluster.
    pub names: Vec<ServerName>,
    /// Source of addresses.
    pub resolver: Resolver,
    /// Bytes per second that the path to the quorum port of each name must carry.
    pub bytes_per_second: Option<u64>,
}

/// Every problem of a name and its ports, and the shortest round trip to them.
pub(super) async fn problems(targets: &Targets, name: &ServerName) -> (Vec<NetworkProblem>, Option<Duration>) {
    let addresses = match targets.resolver.resolve(&name.host).await {
        Ok(addresses) => addresses,
        Err(error) => {
            let kind =
                if error.kind() == io::ErrorKind::TimedOut { ProblemKind::TimedOut } else { ProblemKind::NoSuchName };
            return (vec![problem(name, None, (kind, None, None))], None);
        }
    };
    if let Some(impossible) = impossible_name(&name.host, &targets.incarnation)
        && targets.resolver.resolve(&impossible).await.is_ok()
    {
        return (vec![problem(name, None, (ProblemKind::AnyNameResolves, None, None))], None);
    }
    let mut problems = Vec::new();
    let mut shortest: Option<Duration> = None;
    for port in PORTS {
        // Servers copy snapshots through this port.
        let rate = targets.bytes_per_second.filter(|_| port == QUORUM_PORT);
        let (found, round_trip) = of_port(&addresses, port, targets, (&name.cluster, rate)).await;
        problems.extend(found.map(|found| problem(name, Some(port), found)));
        shortest = shortest.into_iter().chain(round_trip).min();
    }
    (problems, shortest)
}

fn problem(name: &ServerName, port: Option<u16>, (problem, answered, rate): Wrong) -> NetworkProblem {
    // A status that changes with every measurement would never rest.
    let bytes_per_second = rate.map(|rate| rate.checked_ilog2().map_or(0, |power| 1 << power.min(62)));
    let (to, host, port) = (name.cluster.clone(), name.host.clone(), port.map(i32::from));
    NetworkProblem { to, host, port, problem, answered, bytes_per_second }
}

/// What is wrong, the cluster that answered instead, and the rate of a path that is too slow.
type Wrong = (ProblemKind, Option<String>, Option<u64>);

/// The problem of a port, over all addresses of the name, and the shortest round trip to one that answers as it should.
async fn of_port(
    addresses: &[IpAddr],
    port: u16,
    targets: &Targets,
    (cluster, rate): (&str, Option<u64>),
) -> (Option<Wrong>, Option<Duration>) {
    let tries = addresses.iter().copied().take(MAX_ADDRESSES).map(|address| async move {
        let (seen, round_trip) = hear(SocketAddr::new(address, port), rate).await;
        let wrong = judge(&seen, &targets.incarnation, cluster);
        let round_trip = round_trip.filter(|_| wrong.is_none());
        (wrong, round_trip)
    });
    let (found, round_trips): (Vec<_>, Vec<_>) = join_all(tries).await.into_iter().unzip();
    (verdict(found), round_trips.into_iter().flatten().min())
}

/// The problem of several addresses. Servers try all of them, so one that answers as it should suffices if no other one
/// answers. Another server behind the name is always a problem: two clusters may have one cluster id, and DNS
/// then alternates between them.
fn verdict(found: Vec<Option<Wrong>>) -> Option<Wrong> {
    let is_reached = found.iter().any(Option::is_none);
    let problems: Vec<Wrong> = found.into_iter().flatten().collect();
    let other = problems.iter().position(|(kind, ..)| *kind == ProblemKind::WrongServer);
    let at = other.or((!is_reached).then_some(0))?;
    problems.into_iter().nth(at)
}

/// What is wrong with a connection that was meant for a cluster, and the cluster that answered instead.
fn judge(seen: &Heard, incarnation: &str, cluster: &str) -> Option<Wrong> {
    match seen {
        Heard::All(line) | Heard::TextAlone(line) | Heard::TooSlow(line, _) => match greeted_by(line, incarnation) {
            Some(answered) if answered == cluster => match seen {
                Heard::TextAlone(_) => Some((ProblemKind::LargePacketsLost, None, None)),
                Heard::TooSlow(_, rate) => Some((ProblemKind::TooSlow, None, Some(*rate))),
                Heard::All(_) | Heard::Nothing(_) => None,
            },
            answered => Some((ProblemKind::WrongServer, answered.map(str::to_owned), None)),
        },
        Heard::Nothing(io::ErrorKind::ConnectionRefused) => Some((ProblemKind::Refused, None, None)),
        Heard::Nothing(io::ErrorKind::TimedOut) => Some((ProblemKind::TimedOut, None, None)),
        // Another program ended the connection, or speaks no TLS.
        Heard::Nothing(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => {
            Some((ProblemKind::WrongServer, None, None))
        }
        Heard::Nothing(_) => Some((ProblemKind::Unreachable, None, None)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use tokio::net::TcpListener;

    use super::*;
    use crate::preflight::answer;
    use mczk_api::contract::preflight::greeting;
    use mczk_runtime::{conversation, shutdown};

    #[rstest]
    #[case::own(Heard::All(greeting("abc123", "m2")), None)]
    #[case::another_cluster(Heard::All(greeting("abc123", "m3")), Some((ProblemKind::WrongServer, Some("m3".into()), None)))]
    #[case::another_ensemble(Heard::All(greeting("fedcba", "m2")), Some((ProblemKind::WrongServer, None, None)))]
    #[case::another_program(Heard::All(String::new()), Some((ProblemKind::WrongServer, None, None)))]
    #[case::small_packets_alone(Heard::TextAlone(greeting("abc123", "m2")), Some((ProblemKind::LargePacketsLost, None, None)))]
    #[case::slow(Heard::TooSlow(greeting("abc123", "m2"), 9), Some((ProblemKind::TooSlow, None, Some(9))))]
    #[case::another_ensemble_alone(Heard::TextAlone(greeting("fedcba", "m2")), Some((ProblemKind::WrongServer, None, None)))]
    #[case::no_tls(Heard::Nothing(io::ErrorKind::InvalidData), Some((ProblemKind::WrongServer, None, None)))]
    #[case::reset(Heard::Nothing(io::ErrorKind::ConnectionReset), Some((ProblemKind::WrongServer, None, None)))]
    #[case::closed(Heard::Nothing(io::ErrorKind::ConnectionRefused), Some((ProblemKind::Refused, None, None)))]
    #[case::silent(Heard::Nothing(io::ErrorKind::TimedOut), Some((ProblemKind::TimedOut, None, None)))]
    #[case::no_route(Heard::Nothing(io::ErrorKind::HostUnreachable), Some((ProblemKind::Unreachable, None, None)))]
    fn a_connection_is_judged(#[case] seen: Heard, #[case] expected: Option<Wrong>) {
        assert_eq!(judge(&seen, "abc123", "m2"), expected);
    }

    /// With one cluster id for two clusters, DNS may have the addresses of both. A server would reach the wrong one now
    /// and then.
    #[rstest]
    #[case::one(vec![None], None)]
    #[case::one_family_is_closed(vec![Some(ProblemKind::Unreachable), None], None)]
    #[case::another_server_too(vec![None, Some(ProblemKind::WrongServer)], Some(ProblemKind::WrongServer))]
    #[case::another_server_after_a_timeout(
        vec![Some(ProblemKind::TimedOut), Some(ProblemKind::WrongServer)], Some(ProblemKind::WrongServer)
    )]
    #[case::none_answers(vec![Some(ProblemKind::Refused), Some(ProblemKind::TimedOut)], Some(ProblemKind::Refused))]
    fn every_address_of_a_name_counts(#[case] found: Vec<Option<ProblemKind>>, #[case] expected: Option<ProblemKind>) {
        let found = found.into_iter().map(|kind| kind.map(|kind| (kind, None, None))).collect();
        assert_eq!(verdict(found).map(|(kind, ..)| kind), expected);
    }

    /// One probe listens on two of three ports, and one with another cluster's name on all. Cluster m5 has another program,
    /// which speaks first and without TLS. In m6 every name has an address.
    #[tokio::test]
    async fn names_and_ports_are_tried() {
        let hosts = std::env::temp_dir().join(format!("mczk-probe-{}", std::process::id()));
        std::fs::write(
            &hosts,
            "127.81.0.2 m2-abc123-0.example\n127.81.0.3 m3-abc123-0.example\n127.81.0.5 m5-abc123-0.example\n\
             127.81.0.2 m6-abc123-0.example m6-abc123-none.example\n",
        )
        .unwrap();
        let (_trigger, shutdown) = shutdown::channel();
        for (address, cluster, ports) in [("127.81.0.2", "m2", &PORTS[..2]), ("127.81.0.3", "m9", &PORTS[..])] {
            for port in ports {
                let listener = TcpListener::bind((address, *port)).await.unwrap();
                let tls = Some(conversation::acceptor().unwrap());
                tokio::spawn(answer(listener, move || greeting("abc123", cluster), tls, shutdown.clone()));
            }
        }
        for port in PORTS {
            let listener = TcpListener::bind(("127.81.0.5", port)).await.unwrap();
            tokio::spawn(answer(listener, || greeting("abc123", "m5"), None, shutdown.clone()));
        }
        let resolver = Resolver::File(hosts.clone());
        let targets = Targets { incarnation: "abc123".into(), names: Vec::new(), resolver, bytes_per_second: Some(1) };
        let name = |cluster: &str| ServerName {
            cluster: cluster.into(),
            host: format!("{cluster}-abc123-0.example"),
            ordinal: None,
        };
        let found = async |cluster: &str| {
            let (problems, _) = problems(&targets, &name(cluster)).await;
            problems.into_iter().map(|p| (p.port, p.problem, p.answered)).collect::<Vec<_>>()
        };
        assert_eq!(found("m2").await, [(Some(8443), ProblemKind::Refused, None)]);
        let wrong = |port: u16| (Some(i32::from(port)), ProblemKind::WrongServer, Some("m9".to_owned()));
        assert_eq!(found("m3").await, PORTS.map(wrong));
        assert_eq!(found("m5").await, PORTS.map(|port| (Some(i32::from(port)), ProblemKind::WrongServer, None)));
        assert_eq!(found("m6").await, [(None, ProblemKind::AnyNameResolves, None)]);
        assert_eq!(found("m4").await, [(None, ProblemKind::NoSuchName, None)]);
        // Another server says nothing of the path to this one.
        let (to_own, to_other) = (problems(&targets, &name("m2")).await.1, problems(&targets, &name("m3")).await.1);
        assert!(to_own.is_some() && to_other.is_none(), "{to_own:?} {to_other:?}");
        // No path carries so much. Servers copy snapshots through one port.
        let targets = Targets { bytes_per_second: Some(u64::MAX), ..targets };
        let slow = problems(&targets, &name("m2")).await.0.into_iter().filter(|p| p.bytes_per_second.is_some());
        let slow: Vec<_> = slow.map(|p| (p.port, p.problem)).collect();
        assert_eq!(slow, [(Some(i32::from(QUORUM_PORT)), ProblemKind::TooSlow)]);
        std::fs::remove_file(hosts).unwrap();
    }
}

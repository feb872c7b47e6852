//! `mczk probe`: stands for the first server of a cluster while the network is checked.
//!
//! The probe greets every connection to a server's ports, and tries the names and ports of all clusters, its own too. It
//! holds no volume and no lock. [`Results`] has what the agent reads.

mod dial;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

pub use dial::Targets;

use mczk_api::{
    contract::preflight::{MAX_FOUND, MAX_ROUND_TRIP, PreflightAnswer},
    preflight::{NetworkProblem, RoundTrip},
};
use mczk_runtime::{conversation, shutdown::Shutdown};

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time in which other probes start. Problems are reported only after it.
const GRACE: Duration = Duration::from_secs(20);
/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Names that are tried at once. A connection needs 50 KiB on each side.
const MAX_NAMES: usize = 16;
/// Connections that are answered at once, on each port.
const MAX_CONNECTIONS: usize = 64;

/// What the last check found.
#[derive(Clone, Debug, Default)]
pub struct Results(Arc<Mutex<LastCheck>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LastCheck {
    /// Absent until it is known.
    problems: Option<Vec<NetworkProblem>>,
    round_trip: Option<RoundTrip>,
}

impl Results {
    /// The JSON that the agent reads: a [`PreflightAnswer`] about this round of the probe of this cluster.
    #[must_use]
    pub fn to_json(&self, round: &str, cluster: &str) -> String {
        let LastCheck { problems, round_trip } = self.0.lock().clone();
        let answer = PreflightAnswer { round: round.to_owned(), cluster: cluster.to_owned(), problems, round_trip };
        serde_json::to_string(&answer).unwrap_or_default()
    }

    fn set(&self, problems: Vec<NetworkProblem>, round_trip: Option<RoundTrip>, running_for: Duration) {
        let mut last = self.0.lock();
        let problems = next_results(last.problems.as_ref(), problems, running_for);
        let next = LastCheck { problems, round_trip };
        if *last != next {
            info!(problems = ?next.problems, round_trip = ?next.round_trip, "the network was checked");
        }
        *last = next;
    }
}

/// The results after a check. Problems right after the start are no result: other probes may have yet to start.
fn next_results(
    before: Option<&Vec<NetworkProblem>>,
    mut problems: Vec<NetworkProblem>,
    running_for: Duration,
) -> Option<Vec<NetworkProblem>> {
    problems.sort();
    problems.truncate(MAX_FOUND);
    (problems.is_empty() || before.is_some() || running_for >= GRACE).then_some(problems)
}

/// The shortest round trip to each cluster, in milliseconds, over all checks. Whatever holds up a probe, such as its small share
/// of a processor, only adds to a round trip. A number that never rises also lets the status rest.
#[derive(Debug, Default)]
struct ShortestRoundTrips(BTreeMap<String, i32>);

impl ShortestRoundTrips {
    fn add(&mut self, cluster: String, measured: Duration) {
        let milliseconds = i32::try_from(measured.as_micros().div_ceil(1000)).unwrap_or(MAX_ROUND_TRIP);
        let milliseconds = milliseconds.clamp(1, MAX_ROUND_TRIP);
        self.0.entry(cluster).and_modify(|known| *known = milliseconds.min(*known)).or_insert(milliseconds);
    }

    /// That to the farthest cluster.
    fn longest(&self) -> Option<RoundTrip> {
        let (to, milliseconds) = self.0.iter().max_by_key(|(_, milliseconds)| **milliseconds)?;
        Some(RoundTrip { to: to.clone(), milliseconds: *milliseconds })
    }
}

/// Checks the network again and again, until the shutdown.
pub async fn check(targets: Targets, results: Results, shutdown: Shutdown) {
    let started = Instant::now();
    let checks = async {
        let mut round_trips = ShortestRoundTrips::default();
        loop {
            let targets = &targets;
            let tries = stream::iter(targets.names.clone());
            let tries = tries.map(|name| async move {
                let (problems, round_trip) = dial::problems(targets, &name).await;
                (name.cluster, problems, round_trip)
            });
            // A path is measured alone: a server copies one snapshot.
            let at_once = if targets.bytes_per_second.is_some() { 1 } else { MAX_NAMES };
            let attempts: Vec<_> = tries.buffer_unordered(at_once).collect().await;
            let mut all = Vec::new();
            for (cluster, problems, round_trip) in attempts {
                all.extend(problems);
                if let Some(measured) = round_trip {
                    round_trips.add(cluster, measured);
                }
            }
            results.set(all, round_trips.longest(), started.elapsed());
            sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        () = shutdown.requested() => {}
        () = checks => {}
    }
}

/// Sends a text to each connection and closes it, until the shutdown. With `tls` it is the first line of the conversation
/// with another probe.
pub async fn answer(
    listener: TcpListener,
    text: impl Fn() -> String + Send + 'static,
    tls: Option<TlsAcceptor>,
    shutdown: Shutdown,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = async {
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((mut stream, _)) => {
                    let (text, tls) = (text(), tls.clone());
                    tokio::spawn(async move {
                        let sent = async {
                            if let Some(tls) = tls {
                                return conversation::answer(stream, &tls, &text).await;
                            }
                            stream.write_all(text.as_bytes()).await?;
                            stream.shutdown().await
                        };
                        let _ = timeout(ANSWER_TIMEOUT, sent).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    debug!(%error, "a connection was not accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = shutdown.requested() => {}
        () = connections => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;
    use mczk_api::preflight::ProblemKind;

    fn problem(to: &str) -> NetworkProblem {
        NetworkProblem {
            to: to.to_owned(),
            host: format!("zk-0.{to}"),
            port: Some(2888),
            problem: ProblemKind::Refused,
            answered: None,
            bytes_per_second: None,
        }
    }

    #[rstest]
    #[case::all_good_at_once(None, 0, 1, Some(0))]
    #[case::others_may_start(None, 2, 1, None)]
    #[case::others_had_time(None, 2, 20, Some(2))]
    #[case::broken_after_a_result(Some(0), 1, 5, Some(1))]
    #[case::mended(Some(2), 0, 30, Some(0))]
    #[case::all_are_kept(Some(0), 100, 30, Some(100))]
    #[case::bounded(Some(0), MAX_FOUND + 1, 30, Some(MAX_FOUND))]
    fn problems_count_once_other_probes_had_time_to_start(
        #[case] before: Option<usize>,
        #[case] found: usize,
        #[case] seconds: u64,
        #[case] expected: Option<usize>,
    ) {
        let problems = |count: usize| (0..count).map(|n| problem(&format!("m{n:03}"))).collect::<Vec<_>>();
        let next = next_results(before.map(problems).as_ref(), problems(found), Duration::from_secs(seconds));
        assert_eq!(next.map(|problems| problems.len()), expected);
    }

    #[test]
    fn an_answer_names_its_round_and_its_cluster() {
        let results = Results::default();
        assert_eq!(results.to_json("r", "m1"), r#"{"round":"r","cluster":"m1"}"#);
        results.set(Vec::new(), None, Duration::ZERO);
        assert_eq!(results.to_json("r", "m1"), r#"{"round":"r","cluster":"m1","problems":[]}"#);
        results.set(Vec::new(), Some(RoundTrip { to: "m2".to_owned(), milliseconds: 9 }), Duration::ZERO);
        let measured = r#"{"round":"r","cluster":"m1","problems":[],"roundTrip":{"to":"m2","milliseconds":9}}"#;
        assert_eq!(results.to_json("r", "m1"), measured);
    }

    #[rstest]
    #[case::none(&[], None)]
    #[case::rounded_up(&[("m1", 1)], Some(("m1", 1)))]
    #[case::the_farthest_cluster(&[("m1", 1000), ("m2", 8001), ("m3", 4000)], Some(("m2", 9)))]
    #[case::the_shortest_to_each(&[("m2", 90_000), ("m3", 5000), ("m2", 4000), ("m2", 70_000)], Some(("m3", 5)))]
    #[case::bounded(&[("m2", 61_000_000)], Some(("m2", MAX_ROUND_TRIP)))]
    fn the_longest_of_the_shortest_round_trips_counts(
        #[case] microseconds: &[(&str, u64)],
        #[case] expected: Option<(&str, i32)>,
    ) {
        let mut round_trips = ShortestRoundTrips::default();
        for (cluster, measured) in microseconds {
            round_trips.add((*cluster).to_owned(), Duration::from_micros(*measured));
        }
        let longest = round_trips.longest();
        assert_eq!(longest.as_ref().map(|longest| (longest.to.as_str(), longest.milliseconds)), expected);
    }

    #[test]
    fn the_same_problems_in_another_order_are_the_same_result() {
        let late = Duration::from_secs(60);
        let one = next_results(None, vec![problem("m2"), problem("m1")], late);
        assert_eq!(one, next_results(None, vec![problem("m1"), problem("m2")], late));
    }
}

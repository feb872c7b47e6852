//! `mczk probe`: stands for the first server of a cluster while the network is checked.
//!
//! The probe greets every connection to a server's ports, and tries the names and ports of all clusters, its own too. It
//! holds no volume and no lock. [`Results`] has what the agent reads.

mod dial;

use std::{sync::Arc, time::Duration};

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
    contract::preflight::{MAX_FOUND, PreflightAnswer},
    preflight::NetworkProblem,
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

/// What the last check found. Absent until it is known.
#[derive(Clone, Debug, Default)]
pub struct Results(Arc<Mutex<Option<Vec<NetworkProblem>>>>);

impl Results {
    /// The JSON that the agent reads: a [`PreflightAnswer`] about this round of the probe of this cluster.
    #[must_use]
    pub fn to_json(&self, round: &str, cluster: &str) -> String {
        let problems = self.0.lock().clone();
        let answer = PreflightAnswer { round: round.to_owned(), cluster: cluster.to_owned(), problems };
        serde_json::to_string(&answer).unwrap_or_default()
    }

    fn set(&self, problems: Vec<NetworkProblem>, running_for: Duration) {
        let mut results = self.0.lock();
        let next = next_results(results.as_ref(), problems, running_for);
        if *results != next {
            info!(problems = ?next, "the network was checked");
        }
        *results = next;
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

/// Checks the network again and again, until the shutdown.
pub async fn check(targets: Targets, results: Results, shutdown: Shutdown) {
    let started = Instant::now();
    let checks = async {
        loop {
            let targets = &targets;
            let tries = stream::iter(targets.names.clone());
            let tries = tries.map(|name| async move { dial::problems(targets, &name).await });
            // A path is measured alone: a server copies one snapshot.
            let at_once = if targets.bytes_per_second.is_some() { 1 } else { MAX_NAMES };
            let problems: Vec<_> = tries.buffer_unordered(at_once).collect().await;
            results.set(problems.concat(), started.elapsed());
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
        results.set(Vec::new(), Duration::ZERO);
        assert_eq!(results.to_json("r", "m1"), r#"{"round":"r","cluster":"m1","problems":[]}"#);
    }

    #[test]
    fn the_same_problems_in_another_order_are_the_same_result() {
        let late = Duration::from_secs(60);
        let one = next_results(None, vec![problem("m2"), problem("m1")], late);
        assert_eq!(one, next_results(None, vec![problem("m1"), problem("m2")], late));
    }
}

//! Reads probes: their pods, and what they found.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tracing::debug;

use crate::observe::pod_failure::failure;
use mczk_api::{
    contract::{
        labels::{APPLIED_HASH, INCARNATION_LABEL, PREFLIGHT_LABEL},
        mesh::mesh_of,
        pod_layout::{CONTROL_PORT, PROBE_PORT},
        preflight::{PreflightAnswer, greeted_by},
    },
    preflight::Preflight,
};
use mczk_rules::agent::decide::probe::Probe;
use mczk_runtime::conversation::{Heard, hear};

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer, in bytes: a problem with two names for each port of each cluster.
const MAX_ANSWER: u64 = 512 * 1024;
/// Time in which a started container opens its ports.
const ANSWERS_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Time in which a pod starts.
const STARTS_AFTER: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn is_probe(pod: &Pod) -> bool {
    pod.labels().contains_key(PREFLIGHT_LABEL)
}

/// The probes. It asks them only if the operator requests a check. `cluster` is the name of this cluster.
pub(super) async fn read(pods: &[Pod], request: Option<&Preflight>, cluster: Option<&str>) -> Vec<Probe> {
    let asked = request.zip(cluster);
    join_all(pods.iter().map(|pod| probe(pod, asked))).await.into_iter().flatten().collect()
}

async fn probe(pod: &Pod, asked: Option<(&Preflight, &str)>) -> Option<Probe> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let address = status.and_then(|status| status.pod_ip.as_deref()).filter(|_| phase == Some("Running"));
    let results = match (asked, address) {
        (Some((request, cluster)), Some(address)) => results(address, request, cluster).await.map(Some),
        _ => Ok(None),
    };
    let (answer, silent) = match results {
        Ok(answer) => (answer, None),
        Err(why) => (None, Some(why)),
    };
    let (problems, round_trip) = answer.map(|answer| (answer.problems, answer.round_trip)).unwrap_or_default();
    Some(Probe {
        name: pod.name_any(),
        uid: pod.uid()?,
        incarnation: pod.labels().get(INCARNATION_LABEL).cloned().unwrap_or_default(),
        hash: pod.annotations().get(APPLIED_HASH).cloned(),
        ends: pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded")),
        failure: failure(pod).map(|failure| failure.text()).or_else(|| overdue(pod, silent, Timestamp::now())),
        mesh: mesh(pod),
        problems,
        round_trip,
    })
}

/// The service mesh that has a proxy in a pod.
fn mesh(pod: &Pod) -> Option<&'static str> {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    mesh_of(containers.map(|container| container.name.as_str()).chain(pod.annotations().keys().map(String::as_str)))
}

/// Why a probe has no result, once it has had time to start and to open its ports.
fn overdue(pod: &Pod, silent: Option<String>, now: Timestamp) -> Option<String> {
    let lasts = |since: &Time, limit: SignedDuration| now.duration_since(since.0) > limit;
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let mut running = containers.iter().filter_map(|container| container.state.as_ref()?.running.as_ref());
    if let Some(running) = running.next() {
        return silent.filter(|_| running.started_at.as_ref().is_none_or(|at| lasts(at, ANSWERS_AFTER)));
    }
    let created = pod.metadata.creation_timestamp.as_ref().filter(|at| lasts(at, STARTS_AFTER));
    created.map(|_| format!("it has not started after {} s", STARTS_AFTER.as_secs()))
}

/// What a probe found. The agent asks servers on the control port later, so it tries that too.
///
/// # Errors
/// Which port does not answer as it should.
async fn results(address: &str, request: &Preflight, cluster: &str) -> Result<PreflightAnswer, String> {
    let other = || format!("another program answers the agent on its port {CONTROL_PORT}");
    let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let greeting = match hear(SocketAddr::new(address, CONTROL_PORT), None).await.0 {
        Heard::All(text) | Heard::TextAlone(text) | Heard::TooSlow(text, _) => text,
        Heard::Nothing(io::ErrorKind::InvalidData) => return Err(other()),
        Heard::Nothing(error) => return Err(unreached(CONTROL_PORT, error)),
    };
    if greeted_by(&greeting, &request.incarnation) != Some(cluster) {
        return Err(other());
    }
    findings(&answer(address, PROBE_PORT).await?, &request.round, cluster)
}

/// What the answer of a probe says. The address may belong to a pod of another ensemble by now.
///
/// # Errors
/// If another program answered, or the probe of another check.
fn findings(answer: &str, round: &str, cluster: &str) -> Result<PreflightAnswer, String> {
    let other = || format!("its answer on port {PROBE_PORT} is not about this check");
    let answer: PreflightAnswer = serde_json::from_str(answer).map_err(|_| other())?;
    if answer.round == round && answer.cluster == cluster { Ok(answer) } else { Err(other()) }
}

/// Everything that a port sends.
async fn answer(address: IpAddr, port: u16) -> Result<String, String> {
    let read = async {
        let stream = TcpStream::connect((address, port)).await?;
        let mut text = String::new();
        stream.take(MAX_ANSWER).read_to_string(&mut text).await?;
        Ok::<_, io::Error>(text)
    };
    let error = match timeout(TIMEOUT, read).await {
        Ok(Ok(text)) => return Ok(text),
        Ok(Err(error)) => error,
        Err(_) => io::ErrorKind::TimedOut.into(),
    };
    debug!(%address, port, %error, "the probe does not answer");
    Err(unreached(port, error.kind()))
}

/// Why the agent does not reach a port. The text of an error names the address, which changes.
fn unreached(port: u16, error: io::ErrorKind) -> String {
    format!("the agent does not reach its port {port}: {error}. Allow connections from the agent to the pod")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use mczk_api::{
        contract::preflight::{greeting, request},
        preflight::NetworkProblem,
    };
    use mczk_runtime::conversation;

    fn pod(status: &Value) -> Pod {
        let metadata = json!({ "name": "zk-abc-0", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn running() -> Value {
        let state = json!({ "running": { "startedAt": "2026-01-01T00:00:05Z" } });
        json!({ "phase": "Running", "containerStatuses": [{
            "name": "probe", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }]})
    }

    /// A probe that starts is no failure, and one that is silent for long is.
    #[rstest]
    #[case::opens_its_ports(running(), Some("port 8443"), 15, None)]
    #[case::silent(running(), Some("port 8443"), 16, Some("port 8443"))]
    #[case::knows_nothing_yet(running(), None, 600, None)]
    #[case::starts(json!({ "phase": "Pending" }), None, 60, None)]
    #[case::does_not_start(json!({ "phase": "Pending" }), None, 61, Some("it has not started after 60 s"))]
    fn a_silent_probe_is_reported(
        #[case] status: Value,
        #[case] silent: Option<&str>,
        #[case] seconds: i64,
        #[case] expected: Option<&str>,
    ) {
        let created: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = created + SignedDuration::from_secs(seconds);
        assert_eq!(overdue(&pod(&status), silent.map(str::to_owned), now).as_deref(), expected);
    }

    #[test]
    fn the_mesh_of_a_pod_is_known_by_its_containers_and_annotations() {
        let pod = |spec: Value| serde_json::from_value::<Pod>(spec).unwrap();
        let own = json!({ "name": "probe" });
        assert_eq!(mesh(&pod(json!({ "spec": { "containers": [own] } }))), None);
        let native = json!({ "containers": [own], "initContainers": [{ "name": "istio-proxy" }] });
        assert_eq!(mesh(&pod(json!({ "spec": native }))), Some("Istio"));
        let ambient = json!({ "annotations": { "ambient.istio.io/redirection": "enabled" } });
        assert_eq!(mesh(&pod(json!({ "metadata": ambient }))), Some("Istio (ambient)"));
    }

    #[rstest]
    #[case::passed(r#"{"round":"r","cluster":"m1","problems":[]}"#, Ok(Some(vec![])))]
    #[case::not_yet(r#"{"round":"r","cluster":"m1"}"#, Ok(None))]
    #[case::another_round(r#"{"round":"q","cluster":"m1","problems":[]}"#, Err(()))]
    #[case::another_cluster(r#"{"round":"r","cluster":"m2","problems":[]}"#, Err(()))]
    #[case::no_round("[]", Err(()))]
    #[case::another_program("HTTP/1.1 400 Bad Request", Err(()))]
    fn only_the_answer_of_this_check_counts(
        #[case] answer: &str,
        #[case] expected: Result<Option<Vec<NetworkProblem>>, ()>,
    ) {
        let found = findings(answer, "r", "m1").map(|answer| answer.problems);
        assert_eq!(found.map_err(|why| assert!(why.contains("8080"), "{why}")), expected);
    }

    #[rstest]
    #[case::measured(r#"{"round":"r","cluster":"m1","problems":[],"roundTrip":{"to":"m2","milliseconds":9}}"#, Some(9))]
    #[case::older_probe(r#"{"round":"r","cluster":"m1","problems":[]}"#, None)]
    #[case::newer_probe(r#"{"round":"r","cluster":"m1","problems":[],"jitter":3}"#, None)]
    fn an_answer_of_another_version_counts(#[case] answer: &str, #[case] expected: Option<i32>) {
        let answer = findings(answer, "r", "m1").unwrap();
        assert_eq!(answer.problems, Some(Vec::new()));
        assert_eq!(answer.round_trip.map(|longest| longest.milliseconds), expected);
    }

    /// The agent asks servers on port 8443, so a probe that it cannot reach there is a problem too.
    #[tokio::test]
    async fn a_port_that_does_not_answer_is_named() {
        const ADDRESS: &str = "127.81.1.2";
        let request = request("abc", Vec::new(), None).unwrap();
        let closed = results(ADDRESS, &request, "m1").await.unwrap_err();
        assert!(closed.contains("port 8443: connection refused"), "{closed}");
        let listener = TcpListener::bind((ADDRESS, CONTROL_PORT)).await.unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = conversation::acceptor().unwrap();
                conversation::answer(stream, &tls, &greeting("abc", "m1")).await.unwrap();
            }
        });
        let closed = results(ADDRESS, &request, "m1").await.unwrap_err();
        assert!(closed.contains("port 8080: connection refused"), "{closed}");
        let other = results(ADDRESS, &request, "m2").await.unwrap_err();
        assert!(other.contains("another program answers the agent on its port 8443"), "{other}");
        task.abort();
    }
}

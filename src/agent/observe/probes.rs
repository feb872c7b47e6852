//! Reads probes: their pods, and what they found.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tracing::debug;

use crate::{
    agent::{decide::probe::Probe, observe::pods::failure},
    api::preflight::NetworkProblem,
    contract::{
        labels::{APPLIED_HASH, INCARNATION_LABEL, PREFLIGHT_LABEL},
        pod_layout::PROBE_PORT,
    },
};

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer, in bytes: 64 problems with two names each.
const MAX_ANSWER: u64 = 64 * 1024;

/// True if a pod is a probe.
pub(super) fn is_probe(pod: &Pod) -> bool {
    pod.labels().contains_key(PREFLIGHT_LABEL)
}

/// The probes. It asks them only if the operator requests a check.
pub(super) async fn read(pods: &[Pod], requested: bool) -> Vec<Probe> {
    join_all(pods.iter().map(|pod| probe(pod, requested))).await.into_iter().flatten().collect()
}

async fn probe(pod: &Pod, requested: bool) -> Option<Probe> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let address = status.and_then(|status| status.pod_ip.as_deref()).filter(|_| requested && phase == Some("Running"));
    let problems = match address {
        Some(address) => results(address).await,
        None => None,
    };
    Some(Probe {
        name: pod.name_any(),
        uid: pod.uid()?,
        incarnation: pod.labels().get(INCARNATION_LABEL).cloned().unwrap_or_default(),
        hash: pod.annotations().get(APPLIED_HASH).cloned(),
        ends: pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded")),
        failure: failure(pod),
        problems,
    })
}

/// What a probe found. None while it does not know, or does not answer.
async fn results(address: &str) -> Option<Vec<NetworkProblem>> {
    let read = async {
        let stream = TcpStream::connect((address, PROBE_PORT)).await?;
        let mut text = String::new();
        stream.take(MAX_ANSWER).read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = match timeout(TIMEOUT, read).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            debug!(address, %error, "the probe does not answer");
            return None;
        }
        Err(_) => {
            debug!(address, "the probe does not answer in time");
            return None;
        }
    };
    serde_json::from_str(&text).ok().flatten()
}

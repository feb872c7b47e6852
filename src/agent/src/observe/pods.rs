//! Reads the pods of servers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    context::{AgentContext, Memory},
    observe::{
        nodes::PodNodes,
        objects::{of_ensemble, role},
        pod_failure::PodFailures,
    },
};
use mczk_api::contract::{
    labels::{INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, REVISION_LABEL},
    naming::claim_of,
    pod_layout::SERVER_CONTAINER,
};
use mczk_rules::agent::decide::{
    local_server::{ENDS_IN, LocalServer},
    observation::{Claim, Observation},
};
use mczk_runtime::failure::{During, Error};

/// Pods of one ensemble.
pub(super) async fn read(context: &AgentContext, key: &(String, String)) -> Result<Vec<Pod>, Error> {
    let (namespace, name) = key;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    Ok(pods.list(&of_ensemble(name)).await.during(|| "reading pods".to_owned())?.items)
}

/// Selects the pods of every ensemble.
pub(crate) fn of_agent() -> ListParams {
    ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"))
}

/// Addresses of pods, by uid.
pub(crate) fn addresses(pods: &[Pod]) -> BTreeMap<String, String> {
    pods.iter().filter_map(|pod| Some((pod.uid()?, pod.status.as_ref()?.pod_ip.clone()?))).collect()
}

/// True if the container of a server runs, as far as its kubelet has reported. A kubelet that is silent does not end it.
fn runs(pod: &Pod) -> bool {
    let Some(status) = pod.status.as_ref() else { return false };
    let container = status.container_statuses.iter().flatten().find(|container| container.name == SERVER_CONTAINER);
    let state = container.and_then(|container| container.state.as_ref());
    state.map_or_else(|| status.phase.as_deref() == Some("Running"), |state| state.running.is_some())
}

/// Takes over whether servers run from pods that were read later.
pub(crate) fn refresh(observation: &mut Observation, pods: &[Pod]) {
    for (_, server) in &mut observation.servers {
        if let Some(pod) = pods.iter().find(|pod| pod.metadata.uid.as_ref() == Some(&server.uid)) {
            server.runs = runs(pod) && !observation.gone.contains(&server.uid);
        }
    }
}

/// A pod as a server, with its incarnation.
pub(super) fn local_server(
    pod: &Pod,
    nodes: &PodNodes,
    (claims, failures): (&[Claim], &PodFailures),
    memory: &Memory,
) -> Option<(String, LocalServer)> {
    let labels = pod.labels();
    let name = pod.name_any();
    let uid = pod.uid()?;
    let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let begun = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let begun = begun.or(pod.metadata.creation_timestamp.as_ref());
    let claim = claims.iter().find(|claim| claim.name == claim_of(&name));
    // Kubernetes writes the time at which the grace period is over.
    let ends = pod.metadata.deletion_timestamp.as_ref();
    let server = LocalServer {
        role: role(labels)?,
        ordinal,
        id: None,
        revision: labels.get(REVISION_LABEL).cloned().unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        runs: runs(pod) && !nodes.gone.contains(&uid),
        terminating: ends.is_some(),
        orphaned: pod.owner_references().iter().all(|owner| owner.controller != Some(true)),
        overdue: ends.is_some_and(|ends| Timestamp::now().duration_since(ends.0) > ENDS_IN),
        drain: nodes.drains.get(&uid).cloned(),
        needs_mount: claim.zip(begun).is_some_and(|(claim, begun)| claim.size.needs_mount(begun.0, Timestamp::now())),
        failure: failures.get(&name).map(|(failure, _)| failure.text()),
        view: None,
        unready_for: memory.unready_since.get(&uid).map_or(Duration::ZERO, Instant::elapsed),
        pod: name,
        uid,
    };
    Some((labels.get(INCARNATION_LABEL)?.clone(), server))
}

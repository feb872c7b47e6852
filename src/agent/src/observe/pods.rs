//! Reads the pods of servers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    context::{AgentContext, Memory},
    observe::objects::{of_ensemble, role},
};
use mczk_api::contract::labels::{INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, REVISION_LABEL};
use mczk_rules::agent::decide::{drain::Drain, local_server::LocalServer};
use mczk_runtime::failure::{During, Error};

/// How long a pod may be unschedulable before the agent reports it. Every pod is unschedulable while its volume is created.
const UNSCHEDULABLE_FOR: SignedDuration = SignedDuration::from_secs(30);

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

/// A pod as a server, with its incarnation.
pub(super) fn local_server(
    pod: &Pod,
    drains: &BTreeMap<String, Drain>,
    memory: &Memory,
) -> Option<(String, LocalServer)> {
    let labels = pod.labels();
    let name = pod.name_any();
    let uid = pod.uid()?;
    let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let server = LocalServer {
        role: role(labels)?,
        ordinal,
        id: None,
        revision: labels.get(REVISION_LABEL).cloned().unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        drain: drains.get(&uid).cloned(),
        failure: failure(pod),
        view: None,
        unready_for: memory.unready_since.get(&uid).map_or(Duration::ZERO, Instant::elapsed),
        pod: name,
        uid,
    };
    Some((labels.get(INCARNATION_LABEL)?.clone(), server))
}

/// Why a pod does not start. The text is the same for every attempt, so that the status stays the same.
pub(super) fn failure(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    for container in containers {
        let reason = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
        let failure = match reason {
            Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
                format!("image {} cannot be pulled", container.image)
            }
            Some("CrashLoopBackOff") => format!("its container {} exits repeatedly", container.name),
            Some("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                format!("its container {} cannot be created", container.name)
            }
            _ => continue,
        };
        return Some(failure);
    }
    let lasts = |since: &Time| Timestamp::now().duration_since(since.0) > UNSCHEDULABLE_FOR;
    let unschedulable = |c: &PodCondition| {
        c.type_ == "PodScheduled"
            && c.status == "False"
            && c.reason.as_deref() == Some("Unschedulable")
            && c.last_transition_time.as_ref().is_some_and(lasts)
    };
    status.conditions.iter().flatten().any(unschedulable).then(|| "no node fits its pod".to_owned())
}

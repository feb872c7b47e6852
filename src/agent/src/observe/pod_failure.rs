//! Why pods do not start, in the words of the scheduler, the kubelet, the container runtime or a provisioner: partly in their
//! status, partly in events alone.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodCondition},
        events::v1::Event,
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tracing::debug;

use crate::write_history::shorten;
use mczk_api::contract::naming::claim_of;

/// How long a pod may be pending before the agent reports it.
const PENDING_FOR: SignedDuration = SignedDuration::from_secs(30);
/// How long words stay the same at least: each change is a write of the status, and a report to the control plane.
const WORDS_STAY: Duration = Duration::from_secs(60);

/// Why a pod does not start: the same for every attempt, and the words of whatever failed, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFailure {
    what: String,
    words: String,
}

impl PodFailure {
    fn new(what: impl Into<String>, words: &[Option<&str>]) -> Self {
        let words: Vec<&str> = words.iter().flatten().map(|words| words.trim()).collect();
        Self { what: what.into(), words: shorten(&words.join(": ")) }
    }

    pub(super) fn text(&self) -> String {
        if self.words.is_empty() { self.what.clone() } else { format!("{}: {}", self.what, self.words) }
    }

    /// The failure in the words that are reported, and since when in these.
    fn steady(self, before: Option<&(Self, Instant)>) -> (Self, Instant) {
        let is_young = |since: &Instant| self.words.is_empty() || since.elapsed() < WORDS_STAY;
        let stays = |(old, since): &&(Self, Instant)| old.what == self.what && !old.words.is_empty() && is_young(since);
        before.filter(stays).cloned().unwrap_or_else(|| (self, Instant::now()))
    }
}

/// Failures by the name of the pod.
pub(super) type PodFailures = BTreeMap<String, (PodFailure, Instant)>;

/// Why the pods of servers do not start. `before` are the failures of the last reconcile.
pub(super) async fn read(
    (pods, claims): (&[Pod], &[PersistentVolumeClaim]),
    before: &PodFailures,
    client: &Client,
) -> PodFailures {
    let mut failures = PodFailures::new();
    for pod in pods {
        let name = pod.name_any();
        let failure = match failure(pod) {
            None if is_pending(pod) => warning(pod, pod.uid(), "", client).await,
            // The scheduler only says that the claim has no volume.
            Some(unscheduled) if unscheduled.what == UNSCHEDULED => {
                let is_unbound = |claim: &&PersistentVolumeClaim| {
                    claim.name_any() == claim_of(&name) && claim.spec.as_ref().is_none_or(|s| s.volume_name.is_none())
                };
                let claim = claims.iter().find(is_unbound).and_then(ResourceExt::uid);
                warning(pod, claim, ",type=Warning", client).await.or(Some(unscheduled))
            }
            failure => failure,
        };
        failures.extend(failure.map(|failure| (name.clone(), failure.steady(before.get(&name)))));
    }
    failures
}

/// A pod that no node takes.
const UNSCHEDULED: &str = "no node fits its pod";

/// Why a pod does not start, as far as its status says so.
pub(super) fn failure(pod: &Pod) -> Option<PodFailure> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Failed") {
        let words = [status.reason.as_deref(), status.message.as_deref()];
        return Some(PodFailure::new("the kubelet has ended its pod", &words));
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    if let Some(failure) = containers.into_iter().find_map(of_container) {
        return Some(failure);
    }
    let unscheduled = |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
    let condition = status.conditions.iter().flatten().find(unscheduled).filter(|_| is_pending(pod))?;
    Some(PodFailure::new(UNSCHEDULED, &[condition.message.as_deref()]))
}

fn of_container(container: &ContainerStatus) -> Option<PodFailure> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref());
    Some(match reason {
        "ContainerCreating" | "PodInitializing" => return None,
        reason if ["Image", "Registry", "Signature"].iter().any(|part| reason.contains(part)) => {
            // The words of a pause name the cause only in newer versions of the kubelet.
            let pauses = |message: &&str| message.starts_with("Back-off");
            let cause = message.filter(pauses).map_or(message, |m| m.split_once("ErrImagePull: ").map(|(_, m)| m));
            PodFailure::new(format!("image {} cannot be pulled", container.image), &[cause])
        }
        "CrashLoopBackOff" => {
            let ended = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
            let code = ended.map(|ended| format!("exit code {}", ended.exit_code));
            let (reason, message) = (ended.and_then(|e| e.reason.as_deref()), ended.and_then(|e| e.message.as_deref()));
            let what = format!("its container {} exits repeatedly", container.name);
            PodFailure::new(what, &[code.as_deref(), reason, message])
        }
        // Whatever kubelet and runtime call it.
        reason => {
            let what = format!("its container {} cannot be created", container.name);
            PodFailure::new(what, &[Some(reason), message])
        }
    })
}

/// True if a pod was created a while ago, and has not started. Every pod is unscheduled while its volume is created.
fn is_pending(pod: &Pod) -> bool {
    let is_pending = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    let created = pod.metadata.creation_timestamp.as_ref();
    is_pending && created.is_some_and(|at| Timestamp::now().duration_since(at.0) > PENDING_FOR)
}

/// The newest of the selected events about an object, if it is a warning, as the cause that a pod does not start. Without the
/// right to list events there is none.
async fn warning(pod: &Pod, uid: Option<String>, selection: &str, client: &Client) -> Option<PodFailure> {
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace()?);
    let selected = ListParams::default().fields(&format!("regarding.uid={}{selection}", uid?)).limit(100);
    let events = events.list(&selected).await.inspect_err(|error| debug!(%error, "no events")).ok()?.items;
    let at = |event: &Event| {
        let series = event.series.as_ref().map(|series| series.last_observed_time.0);
        let last = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
        series.or(last).or(event.event_time.as_ref().map(|time| time.0))
    };
    let newest = events.into_iter().max_by_key(at)?;
    let warning = Some(newest).filter(|event| event.type_.as_deref() == Some("Warning"))?;
    Some(PodFailure::new("its pod is not started", &[warning.reason.as_deref(), warning.note.as_deref()]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)]
    fn pod(status: Value) -> Pod {
        let metadata = json!({ "name": "zk-0", "creationTimestamp": "2020-01-01T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    #[allow(clippy::needless_pass_by_value)]
    fn container(container: Value) -> Value {
        let mut status =
            json!({ "name": "zookeeper", "image": "zk:1", "imageID": "", "ready": false, "restartCount": 0 });
        json_patch::merge(&mut status, &container);
        json!({ "phase": "Pending", "containerStatuses": [status] })
    }

    fn waits(reason: &str, message: &str) -> Value {
        container(json!({ "state": { "waiting": { "reason": reason, "message": message } } }))
    }

    fn unscheduled(reason: &str, message: &str) -> Value {
        json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": reason,
            "message": message, "lastTransitionTime": "2020-01-01T00:00:00Z" }] })
    }

    #[rstest]
    #[case::pull(waits("ErrImagePull", "manifest unknown"), "image zk:1 cannot be pulled: manifest unknown")]
    #[case::old_pause(waits("ImagePullBackOff", "Back-off pulling image \"zk:1\""), "image zk:1 cannot be pulled")]
    #[case::new_pause(
        waits("ImagePullBackOff", "Back-off pulling image \"zk:1\": ErrImagePull: manifest unknown"),
        "image zk:1 cannot be pulled: manifest unknown"
    )]
    #[case::config(
        waits("CreateContainerConfigError", "secret \"s\" not found"),
        "its container zookeeper cannot be created: CreateContainerConfigError: secret \"s\" not found"
    )]
    #[case::runtime(
        waits("RunContainerError", "exec: no such file"),
        "its container zookeeper cannot be created: RunContainerError: exec: no such file"
    )]
    #[case::another_reason(
        waits("PreStartHookError", "no device"),
        "its container zookeeper cannot be created: PreStartHookError: no device"
    )]
    #[case::crash(
        container(json!({
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container" } },
            "lastState": { "terminated": { "exitCode": 128, "reason": "StartError", "message": "exec format error" } },
        })),
        "its container zookeeper exits repeatedly: exit code 128: StartError: exec format error"
    )]
    #[case::node(
        unscheduled("Unschedulable", "0/3 nodes are available"),
        "no node fits its pod: 0/3 nodes are available"
    )]
    #[case::gate(
        unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
        "no node fits its pod: Scheduling is blocked due to non-empty scheduling gates"
    )]
    #[case::kubelet(
        json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu" }),
        "the kubelet has ended its pod: OutOfcpu: Node didn't have enough resource: cpu"
    )]
    fn a_failure_is_reported_in_its_own_words(#[case] status: Value, #[case] expected: &str) {
        assert_eq!(failure(&pod(status)).unwrap().text(), expected);
    }

    #[test]
    fn a_pod_that_starts_has_no_failure_and_long_words_are_cut() {
        assert_eq!(failure(&pod(container(json!({ "state": { "waiting": { "reason": "PodInitializing" } } })))), None);
        assert_eq!(failure(&pod(json!({ "phase": "Running" }))), None);
        let long = failure(&pod(waits("CreateContainerError", &"x".repeat(5000)))).unwrap();
        assert!(long.text().len() < 600);
    }

    /// The kubelet alternates between the cause and its pause. Each change would be a write of the status.
    #[test]
    fn words_stay_while_the_failure_stays() {
        let cause = failure(&pod(waits("ErrImagePull", "manifest unknown"))).unwrap();
        let pause = failure(&pod(waits("ImagePullBackOff", "Back-off pulling image \"zk:1\""))).unwrap();
        let first = cause.steady(None);
        let second = pause.clone().steady(Some(&first));
        assert_eq!(second, first);
        let other = PodFailure::new(first.0.what.clone(), &[Some("unauthorized")]);
        assert_eq!(other.clone().steady(Some(&second)).0, first.0);
        let earlier = Instant::now().checked_sub(WORDS_STAY).unwrap();
        assert_eq!(other.clone().steady(Some(&(first.0, earlier))).0, other);
        assert_eq!(PodFailure::new("another", &[]).steady(Some(&second)).0.text(), "another");
    }
}

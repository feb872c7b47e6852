//! The size of a volume, as its claim shows it.

use std::time::Duration;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, jiff::Timestamp};

use crate::agent::render::amount::bytes;

/// How long the kubelet has to grow the file system of a volume that is in use. Most drivers can; others need a new mount.
const GROWS_IN_USE: Duration = Duration::from_secs(120);
/// The condition of a claim whose file system is smaller than its volume.
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";

/// The size of a volume, as its claim shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeSize {
    /// The size that the claim requests.
    pub requested: String,
    /// The size that the volume has. `None` before there is a volume.
    pub capacity: Option<String>,
    /// Name of its storage class.
    pub class: Option<String>,
    /// How its growth stands, in Kubernetes' words.
    pub growth: Vec<String>,
    /// True if Kubernetes reports that the growth failed.
    pub failed: bool,
    /// Since when its file system waits to grow.
    pub(crate) file_system_pending: Option<Timestamp>,
}

impl VolumeSize {
    /// Reads a claim.
    #[must_use]
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
        let requested = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
        let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
        let mut size = Self {
            requested: requested.map(|requested| requested.0.clone()).unwrap_or_default(),
            capacity: capacity.map(|capacity| capacity.0.clone()),
            class: spec.and_then(|spec| spec.storage_class_name.clone()),
            ..Self::default()
        };
        let resource = status.and_then(|status| status.allocated_resource_statuses.as_ref()?.get("storage"));
        size.failed = resource.is_some_and(|state| state.ends_with("Infeasible") || state.ends_with("Failed"));
        size.growth.extend(resource.cloned());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        for condition in conditions.iter().filter(|condition| condition.status == "True") {
            let type_ = condition.type_.as_str();
            let failed = type_.ends_with("ResizeError");
            if !failed && !["Resizing", FILE_SYSTEM_PENDING].contains(&type_) {
                continue;
            }
            size.failed |= failed;
            if type_ == FILE_SYSTEM_PENDING {
                size.file_system_pending = condition.last_transition_time.as_ref().map(|since| since.0);
            }
            let message = condition.message.as_deref().filter(|message| !message.is_empty());
            size.growth.push(message.map_or_else(|| type_.to_owned(), |message| format!("{type_}: {message}")));
        }
        size
    }

    /// True if the volume is smaller than this.
    #[must_use]
    pub(crate) fn is_below(&self, size: &str) -> bool {
        self.capacity.as_deref().is_some_and(|capacity| is_less(capacity, size))
    }

    /// True if the claim requests that size, or more.
    #[must_use]
    pub fn requests(&self, size: &str) -> bool {
        !is_less(&self.requested, size)
    }

    /// True if the volume may still become that large by the claim's request: storage has not refused a larger one.
    #[must_use]
    pub(crate) fn grows_to(&self, size: &str) -> bool {
        self.requests(size) && !(self.failed && is_less(size, &self.requested))
    }

    /// True if the file system does not grow before the pod of the volume, which began then, is replaced.
    #[must_use]
    pub fn needs_mount(&self, begun: Timestamp, now: Timestamp) -> bool {
        // A younger pod has mounted the volume since, and the kubelet grows the file system then.
        self.file_system_pending.is_some_and(|since| {
            begun < since && Duration::try_from(now.duration_since(since)).is_ok_and(|waited| waited >= GROWS_IN_USE)
        })
    }
}

fn is_less(one: &str, other: &str) -> bool {
    bytes(one).zip(bytes(other)).is_some_and(|(one, other)| one < other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn of(status: &Value) -> VolumeSize {
        let spec = json!({ "storageClassName": "fast", "resources": { "requests": { "storage": "2Gi" } } });
        VolumeSize::of(&serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap())
    }

    #[rstest]
    #[case::no_volume(json!({}), &[], false)]
    #[case::begun(json!({ "conditions": [{ "type": "Resizing", "status": "True" }] }), &["Resizing"], false)]
    #[case::ended(json!({ "conditions": [{ "type": "Resizing", "status": "False" }] }), &[], false)]
    #[case::of_the_file_system(
        json!({ "conditions": [{ "type": "FileSystemResizePending", "status": "True", "message": "restart a pod" }] }),
        &["FileSystemResizePending: restart a pod"],
        false
    )]
    #[case::by_the_controller(
        json!({ "conditions": [{ "type": "ControllerResizeError", "status": "True", "message": "no room" }] }),
        &["ControllerResizeError: no room"],
        true
    )]
    #[case::on_the_node(json!({ "conditions": [{ "type": "NodeResizeError", "status": "True" }] }), &["NodeResizeError"], true)]
    #[case::state(json!({ "allocatedResourceStatuses": { "storage": "NodeResizePending" } }), &["NodeResizePending"], false)]
    #[case::infeasible(
        json!({ "allocatedResourceStatuses": { "storage": "ControllerResizeInfeasible" } }),
        &["ControllerResizeInfeasible"],
        true
    )]
    #[case::of_other_attributes(
        json!({
            "allocatedResourceStatuses": { "example.com/iops": "ControllerResizeInfeasible" },
            "conditions": [{ "type": "ModifyVolumeError", "status": "True" }],
        }),
        &[],
        false
    )]
    fn growth_is_read_in_kubernetes_words(#[case] status: Value, #[case] growth: &[&str], #[case] failed: bool) {
        let size = of(&status);
        assert_eq!(
            (size.growth.iter().map(String::as_str).collect::<Vec<_>>(), size.failed),
            (growth.to_vec(), failed)
        );
        assert_eq!((size.requested.as_str(), size.class.as_deref(), size.capacity), ("2Gi", Some("fast"), None));
    }

    #[rstest]
    #[case::no_volume(None, "2Gi", false)]
    #[case::smaller(Some("1Gi"), "2Gi", true)]
    #[case::equal(Some("2048Mi"), "2Gi", false)]
    #[case::rounded_up(Some("3Gi"), "2500M", false)]
    #[case::unreadable(Some("much"), "2Gi", false)]
    fn the_volume_counts_and_not_the_request(#[case] capacity: Option<&str>, #[case] size: &str, #[case] below: bool) {
        let of = VolumeSize { capacity: capacity.map(str::to_owned), requested: "9Gi".into(), ..VolumeSize::default() };
        assert_eq!(of.is_below(size), below);
    }

    #[rstest]
    #[case::nothing_pending(None, 0, 900, false)]
    #[case::the_kubelet_may_grow_it_in_use(Some(100), 0, 219, false)]
    #[case::the_kubelet_did_not(Some(100), 0, 220, true)]
    #[case::the_pod_has_mounted_it_since(Some(100), 100, 900, false)]
    #[case::a_clock_is_wrong(Some(900), 0, 100, false)]
    fn a_pod_is_replaced_only_for_its_mount(
        #[case] since: Option<i64>,
        #[case] begun: i64,
        #[case] now: i64,
        #[case] expected: bool,
    ) {
        let at = |seconds| Timestamp::new(seconds, 0).unwrap();
        let size = VolumeSize { file_system_pending: since.map(at), ..VolumeSize::default() };
        assert_eq!(size.needs_mount(at(begun), at(now)), expected);
    }
}

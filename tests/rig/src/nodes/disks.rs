//! Volumes of the class `growing`: disks of a node, which are sparse files on loop devices. The kubelet makes a file system
//! there, mounts it and grows it. This process does what an external resizer and its driver do: it grows the disk when a
//! claim requests more, in the steps that Kubernetes has for that, and says why it does not.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::api::Api;
use crate::command::run_blocking;
use crate::layout::Layout;

/// The class.
pub(crate) const GROWING: &str = "growing";
/// The file system, since a kernel may grow a mounted ext4 only for a user with the right to reserved space.
pub(crate) const FILE_SYSTEM: &str = "xfs";
/// The folder of a node in which its kubelet mounts disks.
pub(crate) const MOUNTS: &str = "var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts";
/// The annotation of the class with the largest size of its volumes.
const LIMIT: &str = "/metadata/annotations/rig.local~1limit";
/// The annotation of the class that makes a file system grow only once the pod that had mounted it is gone.
const OFFLINE: &str = "/metadata/annotations/rig.local~1offline";
const SIZE: &str = "/resources/requests/storage";

/// The disks of a cluster's nodes, by volume. A device ends with its last user, also if all are killed: the kernel detaches
/// it from its file once neither this process nor a mount has it.
#[derive(Debug, Default)]
pub(crate) struct Disks(BTreeMap<String, File>);

impl Disks {
    /// Attaches a disk of at least this size, which it makes if there is none, and names its device in a folder of the node.
    pub(crate) fn attach(&mut self, layout: &Layout, name: &str, node: &Path, size: u64) -> Result<()> {
        if self.0.contains_key(name) {
            return Ok(());
        }
        let file = file(layout, name);
        for folder in file.parent().into_iter().chain([node]) {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let disk = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
        let disk = disk.with_context(|| format!("cannot make {}", file.display()))?;
        disk.set_len(size.max(disk.metadata()?.len()))?;
        // A mount has kept it if this process was killed.
        let device = match device(&file)? {
            Some(device) => device,
            None => losetup(&["--find", "--show"], &file)?,
        };
        let kept = File::open(&device).with_context(|| format!("cannot open {device}"))?;
        // A device that is open is detached when it is closed.
        losetup(&["--detach"], Path::new(&device))?;
        let link = node.join(name);
        if link.is_symlink() {
            fs::remove_file(&link)?;
        }
        symlink(&device, &link).with_context(|| format!("cannot make {}", link.display()))?;
        self.0.insert(name.to_owned(), kept);
        println!("attached {name} as {device}");
        Ok(())
    }

    /// True if the volume of a claim is one of the disks.
    pub(crate) fn has_volume_of(&self, claim: &Value) -> bool {
        claim.pointer("/spec/volumeName").and_then(Value::as_str).is_some_and(|volume| self.0.contains_key(volume))
    }

    /// Removes a disk. Its device ends once the kubelet has unmounted it.
    pub(crate) fn remove(&mut self, layout: &Layout, name: &str, node: &Path) -> Result<()> {
        self.0.remove(name);
        for path in [file(layout, name), node.join(name)] {
            if path.is_symlink() || path.exists() {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
                println!("removed {}", path.display());
            }
        }
        Ok(())
    }
}

/// The file of a disk. The path is the same on the machine and in all nodes.
fn file(layout: &Layout, name: &str) -> PathBuf {
    layout.nodes().join("disks").join(name)
}

/// The device of a file, if it is attached.
fn device(file: &Path) -> Result<Option<String>> {
    let devices = losetup(&["--noheadings", "--output", "NAME", "--associated"], file)?;
    Ok(devices.lines().next().map(str::to_owned))
}

fn losetup(flags: &[&str], path: &Path) -> Result<String> {
    let mut losetup = Command::new("losetup");
    losetup.args(flags).arg(path);
    Ok(run_blocking(losetup, Signal::SIGKILL)?.trim().to_owned())
}

/// Grows a disk, and tells the kernel.
fn enlarge(layout: &Layout, name: &str, size: u64) -> Result<()> {
    let file = file(layout, name);
    let device = device(&file)?.with_context(|| format!("{} has no device", file.display()))?;
    OpenOptions::new().write(true).open(&file)?.set_len(size)?;
    losetup(&["--set-capacity"], Path::new(&device)).map(drop)
}

/// What a growth needs next.
#[derive(Debug, PartialEq)]
enum Step {
    /// The controller takes the request.
    Begin,
    /// The class allows no such size.
    Refuse(String),
    /// The disk grows. Its file system then waits for the kubelet.
    Enlarge,
    /// The volume has the size, so that the kubelet grows the file system and completes the claim.
    Publish,
}

/// The next step of a claim's growth. None if it does not grow, or waits for others. `pods` are all of the cluster.
fn next(claim: &Value, class: &Value, pods: &[Value]) -> Option<Step> {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str);
    let wanted = text(&format!("/spec{SIZE}"))?;
    if bytes(wanted)? <= bytes(text("/status/capacity/storage")?)? {
        return None;
    }
    let limit = class.pointer(LIMIT).and_then(Value::as_str);
    let refused = limit.filter(|limit| bytes(limit) < bytes(wanted));
    let taken = text("/status/allocatedResources/storage") == Some(wanted);
    match text("/status/allocatedResourceStatuses/storage").filter(|_| taken) {
        Some("ControllerResizeInProgress") => Some(refused.map_or(Step::Enlarge, |limit| {
            Step::Refuse(format!("{wanted} is more than {limit}, the most that a disk of this class has"))
        })),
        // It tries again when it may.
        Some("ControllerResizeInfeasible") => refused.is_none().then_some(Step::Begin),
        Some("NodeResizePending") => {
            let waits = class.pointer(OFFLINE).is_some() && pods.iter().any(|pod| had_mounted(pod, claim));
            (!waits).then_some(Step::Publish)
        }
        // The kubelet is at work.
        Some(_) => None,
        None => Some(Step::Begin),
    }
}

/// True if a pod uses the claim since before its file system waits to grow.
fn had_mounted(pod: &Value, claim: &Value) -> bool {
    let text = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let same = |path: &str| text(pod, path) == text(claim, path);
    let name = text(claim, "/metadata/name");
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let uses = volumes.into_iter().flatten().any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name);
    let since = text(claim, "/status/conditions/0/lastTransitionTime");
    // Both are in seconds and in UTC, so that their texts have the order of time.
    same("/metadata/namespace") && uses && text(pod, "/metadata/creationTimestamp") <= since
}

/// Takes a growing claim one step further.
pub(crate) async fn grow(layout: &Layout, api: &Api, claim: &Value, class: &Value, pods: &[Value]) -> Result<()> {
    let Some(step) = next(claim, class, pods) else { return Ok(()) };
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (wanted, volume) = (text(&format!("/spec{SIZE}")), text("/spec/volumeName"));
    println!("{volume} grows to {wanted}: {step:?}");
    let (state, condition, message) = match step {
        Step::Begin => ("ControllerResizeInProgress", "Resizing", String::new()),
        Step::Refuse(why) => ("ControllerResizeInfeasible", "ControllerResizeError", why),
        Step::Enlarge => {
            enlarge(layout, volume, bytes(wanted).context("the size has no number")?)?;
            let message = "waits for the kubelet to grow the file system of the disk";
            ("NodeResizePending", "FileSystemResizePending", message.to_owned())
        }
        Step::Publish => {
            let path = format!("/api/v1/persistentvolumes/{volume}");
            return api.patch(&path, &json!({"spec": {"capacity": {"storage": wanted}}})).await;
        }
    };
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
    let status = json!({
        "allocatedResources": {"storage": wanted},
        "allocatedResourceStatuses": {"storage": state},
        "conditions": [{
            "type": condition, "status": "True", "message": message, "lastTransitionTime": now.to_string(),
        }],
    });
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status");
    // It fails if the claim has changed since, and the next round takes it as it is then.
    let version = json!({"resourceVersion": text("/metadata/resourceVersion")});
    api.patch(&path, &json!({"metadata": version, "status": status})).await
}

/// The number of bytes of a size with a suffix of powers of two, or with none.
pub(crate) fn bytes(size: &str) -> Option<u64> {
    let suffixes = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let suffix = suffixes.into_iter().find_map(|(suffix, shift)| Some((size.strip_suffix(suffix)?, shift)));
    let (number, shift) = suffix.unwrap_or((size, 0));
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Fails while a device has a file of this rig: its last mount has not ended.
pub(crate) fn ensure_none(layout: &Layout) -> Result<()> {
    for device in fs::read_dir("/sys/block").context("cannot read /sys/block")? {
        let file = fs::read_to_string(device?.path().join("loop/backing_file")).unwrap_or_default();
        ensure!(!file.starts_with(&layout.nodes().display().to_string()), "{} is still attached", file.trim());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn claim(state: &str) -> Value {
        json!({
            "metadata": {"name": "data-zk-0", "namespace": "n"},
            "spec": {"resources": {"requests": {"storage": "512Mi"}}},
            "status": {
                "capacity": {"storage": "320Mi"},
                "allocatedResources": {"storage": "512Mi"},
                "allocatedResourceStatuses": {"storage": state},
                "conditions": [{"lastTransitionTime": "2026-11-27T10:00:00Z"}],
            },
        })
    }

    fn pod(since: &str) -> Value {
        json!({
            "metadata": {"namespace": "n", "creationTimestamp": since},
            "spec": {"volumes": [{}, {"persistentVolumeClaim": {"claimName": "data-zk-0"}}]},
        })
    }

    #[test]
    fn a_disk_grows_in_the_steps_of_kubernetes() {
        let class = json!({});
        let mut first = claim("");
        first["status"] = json!({"capacity": {"storage": "320Mi"}});
        assert_eq!(next(&first, &class, &[]), Some(Step::Begin));
        assert_eq!(next(&claim("ControllerResizeInProgress"), &class, &[]), Some(Step::Enlarge));
        assert_eq!(next(&claim("NodeResizePending"), &class, &[]), Some(Step::Publish));
        assert_eq!(next(&claim("NodeResizeInProgress"), &class, &[]), None);
        first["status"]["capacity"]["storage"] = json!("512Mi");
        assert_eq!(next(&first, &class, &[]), None);
    }

    #[test]
    fn a_size_above_the_limit_is_refused_until_the_limit_or_the_request_changes() {
        let class = json!({"metadata": {"annotations": {"rig.local/limit": "400Mi"}}});
        let step = next(&claim("ControllerResizeInProgress"), &class, &[]);
        assert!(matches!(step, Some(Step::Refuse(why)) if why.contains("512Mi is more than 400Mi")));
        let mut refused = claim("ControllerResizeInfeasible");
        assert_eq!(next(&refused, &class, &[]), None);
        assert_eq!(next(&refused, &json!({}), &[]), Some(Step::Begin));
        refused["spec"]["resources"]["requests"]["storage"] = json!("400Mi");
        assert_eq!(next(&refused, &class, &[]), Some(Step::Begin));
    }

    #[test]
    fn offline_a_file_system_waits_for_the_end_of_the_pod_that_has_mounted_it() {
        let class = json!({"metadata": {"annotations": {"rig.local/offline": "true"}}});
        let claim = claim("NodeResizePending");
        let (old, new) = (pod("2026-11-27T09:59:00Z"), pod("2026-11-27T10:02:00Z"));
        assert_eq!(next(&claim, &class, &[new.clone(), old.clone()]), None);
        assert_eq!(next(&claim, &class, &[new]), Some(Step::Publish));
        assert_eq!(next(&claim, &json!({}), &[old]), Some(Step::Publish));
    }
}

//! Specs of ensembles on nodes.

use serde_json::{Value, json};

use crate::scene::IMAGE;

/// The version that the ensemble is upgraded from: the patch before.
pub const FORMER: &str = "zookeeper:3.9.4";
/// ZooKeeper purges nothing, so that all transactions can be compared at the end.
const KEEP_LOGS: (&str, &str) = ("autopurge.purgeInterval", "0");

/// A spec with these settings, and those that every spec has.
#[must_use]
pub fn settings(settings: &[(&str, &str)]) -> Value {
    let all = settings.iter().chain([&KEEP_LOGS]);
    let all: Vec<Value> = all.map(|(name, value)| json!({ "name": name, "value": value })).collect();
    json!({ "template": { "zooCfg": all } })
}

/// The other one of the two images.
#[must_use]
pub fn another(image: &str) -> &'static str {
    if image == FORMER { IMAGE } else { FORMER }
}

/// A spec with this placement.
#[must_use]
pub fn placement(clusters: &[String]) -> Value {
    json!({ "placement": { "clusterAffinity": { "clusterNames": clusters } } })
}

/// Class and size of volumes that are folders. They follow a pod to another node of its cluster.
pub const FOLDERS: (&str, &str) = ("network", "64Mi");

/// The first spec of an ensemble, without its voters. `storage` is class and size; `clusters` is empty for all.
#[must_use]
pub fn first(image: &str, (class, size): (&str, &str), clusters: &[String], quorum_tls: bool) -> Value {
    // For small machines: a bounded heap, and one thread for garbage collection.
    let template = json!({
        "image": image,
        "storage": { "size": size, "storageClassName": class },
        "jvmFlags": ["-Xmx64m", "-XX:+UseSerialGC"],
        "zooCfg": settings(&[]).pointer("/template/zooCfg"),
    });
    // The mode of names never changes. Other fields of the network may.
    let mut first = json!({
        "template": template, "network": { "mode": "MCS", "preflight": "Required" }, "tls": { "quorum": quorum_tls },
        // Steps count records, so none may leave the status.
        "recordHistoryLimit": 50,
    });
    if let (false, Some(spec), Value::Object(placement)) =
        (clusters.is_empty(), first.as_object_mut(), placement(clusters))
    {
        spec.extend(placement);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both were one version for a while: nothing was upgraded.
    #[test]
    fn an_upgrade_begins_with_the_patch_before() {
        let tagged = |image: &str| format!("docker.io/library/{image}");
        assert_eq!([tagged(FORMER), tagged(IMAGE)], [rig::ZOOKEEPER_BEFORE, rig::ZOOKEEPER]);
        assert_ne!(FORMER, IMAGE);
    }
}

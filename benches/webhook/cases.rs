//! The questions of each case: about a ZooKeeper object for mczk, and about a Workload of the same size for Karmada's
//! example. Fields have the order that Karmada writes.

use serde_json::{Value, json};

use crate::servers::Kind;

/// Numbers of clusters of `AggregateStatus`. The example reads at most 1 MiB of a question.
const CLUSTERS: [usize; 5] = [3, 20, 100, 254, 1000];
/// Bytes of a large question.
const LARGE: usize = 64_000;

const UID: &str = "6d3f1f52-9a3e-4a6c-8c0f-0b5f0e3c7d11";
const HASH: &str = "3-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const TIME: &str = "2026-01-02T03:04:05Z";

/// The connections of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Each has many requests.
    Kept,
    /// Each has one request, and resumes a TLS session.
    Resumed,
    /// Each has a full TLS handshake, and no request.
    Full,
}

/// One row of the tables for each server.
pub(crate) struct Case {
    /// Name in the tables.
    pub(crate) name: String,
    /// The connections.
    pub(crate) connections: Connections,
    zookeeper: String,
    workload: String,
}

impl Case {
    /// `size` is the smallest number of bytes, and 0 for those of the objects.
    fn new(name: &str, operation: &str, size: usize, clusters: usize) -> Self {
        Self {
            name: name.to_owned(),
            connections: Connections::Kept,
            zookeeper: body("mczk.io", "ZooKeeper", operation, size, (1..=clusters).map(zookeeper_status)),
            workload: body("workload.example.io", "Workload", operation, size, (1..=clusters).map(workload_status)),
        }
    }

    /// The question for a server.
    pub(crate) fn body(&self, kind: Kind) -> &str {
        match kind {
            Kind::Mczk | Kind::Null => &self.zookeeper,
            Kind::Example => &self.workload,
        }
    }
}

/// All cases, in the order of the tables.
pub(crate) fn all() -> Vec<Case> {
    let small = "ReviseReplica, 0.7 kB";
    let mut cases =
        vec![Case::new(small, "ReviseReplica", 0, 0), Case::new("ReviseReplica, 64 kB", "ReviseReplica", LARGE, 0)];
    cases
        .extend(["InterpretReplica", "InterpretHealth", "InterpretDependency"].map(|name| Case::new(name, name, 0, 0)));
    cases.extend(CLUSTERS.map(|clusters| Case::new(&aggregate(clusters), "AggregateStatus", 0, clusters)));
    let again = Case::new(&format!("{small}, new connections"), "ReviseReplica", 0, 0);
    cases.push(Case { connections: Connections::Resumed, ..again });
    let name = "full TLS handshakes".to_owned();
    let (zookeeper, workload) = (String::new(), String::new());
    cases.push(Case { name, connections: Connections::Full, zookeeper, workload });
    cases
}

/// Name of a case of `AggregateStatus`.
pub(crate) fn aggregate(clusters: usize) -> String {
    format!("AggregateStatus, {clusters} clusters")
}

fn body(group: &str, kind: &str, operation: &str, size: usize, items: impl Iterator<Item = Value>) -> String {
    let (items, mut managers) = (items.collect::<Vec<_>>(), Vec::new());
    loop {
        let mut request = vec![
            ("uid", json!(UID)),
            ("kind", json!({ "group": group, "version": "v1alpha1", "kind": kind })),
            ("name", json!("zk")),
            ("namespace", json!("prod")),
            ("operation", json!(operation)),
            ("object", object(group, kind, &managers)),
            ("replicas", json!(3)),
        ];
        if !items.is_empty() {
            request.push(("aggregatedStatus", json!(items)));
        }
        let request = ordered(&request);
        let body = format!(
            r#"{{"kind":"ResourceInterpreterContext","apiVersion":"config.karmada.io/v1alpha1","request":{request}}}"#
        );
        if body.len() >= size {
            return body;
        }
        managers.push(manager(managers.len()));
    }
}

/// Karmada writes the fields of a question in this order, and those of objects in that of the alphabet, as `json!` does.
fn ordered(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn object(group: &str, kind: &str, managers: &[Value]) -> Value {
    let mut metadata = json!({ "creationTimestamp": TIME, "generation": 3, "name": "zk", "namespace": "prod" });
    if let Some(metadata) = metadata.as_object_mut().filter(|_| !managers.is_empty()) {
        metadata.insert("managedFields".to_owned(), json!(managers));
    }
    let resources = json!({ "requests": { "cpu": "500m", "memory": "1Gi" } });
    let (spec, status) = if kind == "ZooKeeper" {
        let template = json!({ "image": "zookeeper:3.9.4", "resources": resources });
        let dependencies = json!([{ "kind": "ConfigMap", "name": "zk-extra" }]);
        (
            json!({ "replicas": 3, "template": template, "specHash": "aa", "dependencies": dependencies, "ensemble": {} }),
            json!({ "observedSpecHash": "aa", "completedSpecHash": "aa", "startedReplicas": 3, "readyReplicas": 3 }),
        )
    } else {
        let source = json!([{ "configMapRef": { "name": "zk-extra" } }]);
        let container = json!({ "name": "zk", "image": "zookeeper:3.9.4", "resources": resources, "envFrom": source });
        let pod = json!({ "metadata": { "labels": { "app": "zk" } }, "spec": { "containers": [container] } });
        (json!({ "replicas": 3, "template": pod }), json!({ "readyReplicas": 3 }))
    };
    json!({ "apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": metadata, "spec": spec, "status": status })
}

/// What the API server notes for a client that wrote fields: the usual reason for a large object.
fn manager(number: usize) -> Value {
    let owner = format!(r#"k:{{"uid":"6d3f1f52-9a3e-4a6c-8c0f-{number:012}"}}"#);
    json!({
        "manager": format!("manager-{number}"), "operation": "Update", "apiVersion": "v1alpha1", "time": TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {
                "f:annotations": { ".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {} },
                "f:ownerReferences": { ".": {}, (owner): {} },
            },
            "f:spec": {
                "f:replicas": {},
                "f:template": { "f:image": {}, "f:resources": { "f:requests": { ".": {}, "f:cpu": {}, "f:memory": {} } } },
            },
        },
    })
}

/// The status of a cluster with one server. The lists do not grow with the number of clusters.
fn zookeeper_status(cluster: usize) -> Value {
    json!({
        "clusterName": format!("member-{cluster}"), "applied": true, "health": "Healthy",
        "status": {
            "observedGeneration": 3, "observedSpecHash": HASH, "completedSpecHash": HASH, "publishedEpoch": 4,
            "replicas": 1, "startedReplicas": 1, "readyReplicas": 1,
            "servers": [{
                "id": cluster, "pod": format!("zk-a1-{cluster}"), "mode": "follower", "version": "3.9.4", "serving": true,
                "synced": true, "acceptedEpoch": 4, "volume": UID, "lost": false,
            }],
            "votingMembers": [1, 2, 3, 4, 5], "configVersion": 4_294_967_296_u64, "leader": 1, "writable": true,
        },
    })
}

fn workload_status(cluster: usize) -> Value {
    // As long as a status of ZooKeeper.
    let message =
        "All replicas of this generation are updated and ready, and no replica of an older generation is left over.";
    let condition = |name: &str, reason: &str| {
        json!({
            "type": name, "status": "True", "observedGeneration": 3, "lastTransitionTime": TIME, "reason": reason,
            "message": message,
        })
    };
    let conditions = [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "Complete")];
    json!({
        "clusterName": format!("member-{cluster}"), "applied": true, "health": "Healthy",
        "status": { "readyReplicas": 1, "conditions": conditions },
    })
}

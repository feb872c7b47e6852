//! The pod of a server: the user's stock image, with `mczk server` as the parent of ZooKeeper, under the restricted Pod
//! Security Standard.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::agent::render::{resources, source::Source};
use mczk_api::{
    contract::{
        labels::{MANAGED_BY_AGENT, MANAGED_BY_LABEL, REVISION_LABEL},
        pod_layout::{
            CLIENT_TLS, CONFIG_DIR, CONTROL_PORT, DATA, ELECTION_PORT, KEEPALIVE, KEYS, METRICS_PORT, PROBE_PORT,
            PROGRAM, QUORUM_PORT, QUORUM_TLS, SCRATCH, SERVER_CONFIG_FILE, SERVER_CONTAINER, SERVER_LIST_FILE, USER,
            client_ports,
        },
    },
    pod::{Scheduling, ServerTemplate},
    zookeeper::Role,
};

/// The folder of the program in the init container. Its own image may have the program elsewhere.
const INSTALLED: &str = "/installed";
/// Label by which monitoring tells ensembles apart.
pub(super) const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
/// Taints of nodes that do not answer. An eviction by such a taint asks no budget and no restart lock.
const LOST_NODE_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Size limit of the folder for keys. It holds certificates and short files alone.
const KEYS_SIZE: &str = "8Mi";
/// Seconds from SIGTERM to SIGKILL of a pod. `mczk server` kills ZooKeeper after 50 ms and stays for 6 s: the rest is a margin
/// for a node under load.
const GRACE_SECONDS: i64 = 60;

pub(super) fn template(source: &Source<'_>, role: Role) -> Value {
    let template = &source.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = metadata.labels;
    // The PodMonitor copies this label.
    labels.entry(INSTANCE_LABEL.to_owned()).or_insert_with(|| source.name.to_owned());
    labels.extend(source.role_selector(role).into_iter().map(|(key, value)| (key.to_owned(), value)));
    labels.insert(REVISION_LABEL.to_owned(), source.revision());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_AGENT.to_owned());
    let mut template_metadata = Map::from_iter([("labels".to_owned(), json!(labels))]);
    if !metadata.annotations.is_empty() {
        template_metadata.insert("annotations".to_owned(), json!(metadata.annotations));
    }
    json!({ "metadata": template_metadata, "spec": spec(source, role) })
}

fn spec(source: &Source<'_>, role: Role) -> Value {
    let template = &source.spec.template;
    let mut spec = json!({
        "serviceAccountName": source.base(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // ZooKeeper resolves the names of all servers during an election, one after the other. With the resolver's default
        // timeouts, the name of a server in a lost cluster would delay the election by 15 s.
        "dnsConfig": { "options": [{ "name": "timeout", "value": "1" }, { "name": "attempts", "value": "2" }] },
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
            "sysctls": KEEPALIVE.map(|(name, value)| json!({ "name": name, "value": value })),
        },
        "initContainers": [program_container(source)],
        "containers": [zookeeper_container(source)],
        "volumes": volumes(source, role),
        // Two servers on one node are better than one: the quorum survives a node that comes back.
        "topologySpreadConstraints": spread(source, role),
    });
    if let Some(members) = spec.as_object_mut() {
        add_scheduling(template, members);
        add_lost_node_tolerations(members);
    }
    spec
}

/// Spread over zones first, then over nodes.
fn spread(source: &Source<'_>, role: Role) -> Vec<Value> {
    let constraint = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": source.role_selector(role) },
        })
    };
    ["topology.kubernetes.io/zone", "kubernetes.io/hostname"].map(constraint).into()
}

/// Lets pods stay on nodes that do not answer, unless the user's tolerations say for how long.
fn add_lost_node_tolerations(members: &mut Map<String, Value>) {
    let tolerations = members.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in LOST_NODE_TAINTS {
        let is_chosen = |toleration: &Value| {
            let effect = toleration.get("effect").and_then(Value::as_str);
            toleration.get("key").and_then(Value::as_str) == Some(key)
                && matches!(effect, None | Some("" | "NoExecute"))
        };
        if !tolerations.iter().any(is_chosen) {
            tolerations.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute" }));
        }
    }
}

/// Scheduling and image pull secrets.
pub(super) fn add_scheduling(template: &ServerTemplate, members: &mut Map<String, Value>) {
    if !template.image_pull_secrets.is_empty() {
        let names: Vec<Value> = template.image_pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        members.insert("imagePullSecrets".to_owned(), Value::Array(names));
    }
    // A new field does not compile before it is rendered here.
    let Some(Scheduling { node_selector, tolerations, affinity, priority_class_name }) = &template.scheduling else {
        return;
    };
    if !node_selector.is_empty() {
        members.insert("nodeSelector".to_owned(), json!(node_selector));
    }
    if !tolerations.is_empty() {
        members.insert("tolerations".to_owned(), json!(tolerations));
    }
    if let Some(affinity) = affinity {
        members.insert("affinity".to_owned(), Value::Object(affinity.clone()));
    }
    if let Some(class) = priority_class_name {
        members.insert("priorityClassName".to_owned(), json!(class));
    }
}

pub(super) fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Copies the program into the stock image. The server image holds only the program, so the program copies itself.
fn program_container(source: &Source<'_>) -> Value {
    let mut container = json!({
        "name": "program",
        "image": source.spec.server_image,
        "args": ["install", INSTALLED],
        "securityContext": restricted(),
        "resources": resources::of_program(&source.resources()),
        "volumeMounts": [{ "name": "program", "mountPath": INSTALLED }],
    });
    add_pull_policy(source, &mut container);
    container
}

pub(super) fn add_pull_policy(source: &Source<'_>, container: &mut Value) {
    if let (Some(policy), Some(members)) = (source.spec.template.image_pull_policy, container.as_object_mut()) {
        members.insert("imagePullPolicy".to_owned(), json!(policy));
    }
}

fn zookeeper_container(source: &Source<'_>) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": { "path": path, "port": "probe" },
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        })
    };
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let port = |name: &str, number: u16| json!({ "name": name, "containerPort": number });
    let mut mounts = vec![
        json!({ "name": "data", "mountPath": DATA }),
        json!({ "name": "program", "mountPath": PROGRAM, "readOnly": true }),
        json!({ "name": "config", "mountPath": CONFIG_DIR, "readOnly": true }),
        json!({ "name": "scratch", "mountPath": SCRATCH }),
    ];
    if source.spec.tls.quorum {
        mounts.push(json!({ "name": "quorum-tls", "mountPath": QUORUM_TLS, "readOnly": true }));
    }
    if source.client_secret().is_some() {
        mounts.push(json!({ "name": "client-tls", "mountPath": CLIENT_TLS, "readOnly": true }));
    }
    mounts.push(json!({ "name": "keys", "mountPath": KEYS }));
    let servers = [
        ("quorum", QUORUM_PORT),
        ("election", ELECTION_PORT),
        ("metrics", METRICS_PORT),
        ("probe", PROBE_PORT),
        ("control", CONTROL_PORT),
    ];
    let ports: Vec<Value> = client_ports(source.spec.tls.client.as_ref())
        .iter()
        .copied()
        .chain(servers)
        .map(|(name, number)| port(name, number))
        .collect();
    // A suspended server must start even if the stock image cannot be pulled.
    let image = if source.list.phase.is_suspended() { &source.spec.server_image } else { &source.spec.template.image };
    let mut container = json!({
        "name": SERVER_CONTAINER,
        "image": image,
        "command": [format!("{PROGRAM}/mczk"), "server", format!("--scratch={KEYS}")],
        "env": [
            field("MCZK_POD", "metadata.name"),
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_UID", "metadata.uid"),
        ],
        "ports": ports,
        // The probe asks the parent process. The kubelet must not kill a server without a leader: it may wait for other
        // clusters.
        "startupProbe": probe("/livez", 2, 150),
        "livenessProbe": probe("/livez", 10, 6),
        "readinessProbe": probe("/readyz", 5, 2),
        "resources": source.resources(),
        "securityContext": restricted(),
        "volumeMounts": mounts,
    });
    add_pull_policy(source, &mut container);
    container
}

fn volumes(source: &Source<'_>, role: Role) -> Vec<Value> {
    let file = |map: String, key: &str| json!({ "configMap": { "name": map, "items": [{ "key": key, "path": key }] } });
    let mut volumes = vec![
        json!({ "name": "program", "emptyDir": {} }),
        json!({ "name": "config", "projected": { "sources": [
            file(source.base(), SERVER_LIST_FILE),
            file(source.server_config(role), SERVER_CONFIG_FILE),
        ]}}),
        json!({ "name": "scratch", "emptyDir": {} }),
        json!({ "name": "keys", "emptyDir": { "medium": "Memory", "sizeLimit": KEYS_SIZE } }),
    ];
    if source.spec.tls.quorum {
        volumes.push(
            json!({ "name": "quorum-tls", "secret": { "secretName": source.quorum_secret(), "defaultMode": 288 } }),
        );
    }
    if let Some(secret) = source.client_secret() {
        volumes.push(json!({ "name": "client-tls", "secret": { "secretName": secret, "defaultMode": 288 } }));
    }
    volumes
}

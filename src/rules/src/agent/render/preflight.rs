//! The probe: a pod that stands for a server of this cluster while the network is checked: the first one, or the next one if
//! servers run here.
//!
//! It has the name of that server, so that the very name is checked, and Kubernetes cannot start the server beside it. It lacks
//! the label of a role: no StatefulSet adopts it, and it counts as no server. It mounts nothing.

use std::collections::BTreeMap;

use kube_core::Resource;
use serde_json::{Value, json};

use crate::agent::render::{
    account, network_policy,
    object::Object,
    pod::{INSTANCE_LABEL, add_pull_policy, add_scheduling, restricted},
    resources, services,
    source::Source,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        canonical_json::short_hash,
        labels::{APPLIED_HASH, PREFLIGHT_LABEL, ROLE_LABEL},
        pod_layout::{CONTROL_PORT, ELECTION_PORT, PROBE_PORT, QUORUM_PORT, USER, client_ports},
    },
    pod::ServerTemplate,
    preflight::Preflight,
};

/// What the probe needs to be reached: as servers have it, with an owner. The agent writes these objects again without
/// the owner before any server starts: objects of servers must outlive the ZooKeeper object.
pub(crate) fn surroundings(source: &Source<'_>, owner: Option<&Value>) -> Vec<Object> {
    let mut objects = vec![account::account(source), services::headless(source), network_policy::policy(source)];
    for object in &mut objects {
        add_owner(&mut object.value, owner);
    }
    objects
}

fn add_owner(object: &mut Value, owner: Option<&Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), Some(owner)) = (metadata, owner) {
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
}

/// The reference by which Kubernetes removes a probe whose ZooKeeper object is gone, although a user removed its
/// finalizer. `blockOwnerDeletion` would need a right to `zookeepers/finalizers`, which the agent does not have. None
/// without a uid.
pub(crate) fn owner(object: &ZooKeeper) -> Option<Value> {
    Some(json!({
        "apiVersion": ZooKeeper::api_version(&()),
        "kind": ZooKeeper::kind(&()),
        "name": object.metadata.name.as_ref()?,
        "uid": object.metadata.uid.as_ref()?,
        "controller": true,
        "blockOwnerDeletion": false,
    }))
}

/// The pod, with the hash of its content.
///
/// # Errors
/// Never for these types.
pub(crate) fn pod(source: &Source<'_>, request: &Preflight, owner: Option<&Value>) -> serde_json::Result<Value> {
    let template = template(source);
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = metadata.labels;
    labels.entry(INSTANCE_LABEL.to_owned()).or_insert_with(|| source.name.to_owned());
    labels.extend(source.labels().into_iter().map(|(key, value)| (key.to_owned(), value)));
    labels.insert(PREFLIGHT_LABEL.to_owned(), "true".to_owned());
    labels.remove(ROLE_LABEL);
    let own = request.names.iter().find(|name| name.cluster == source.cluster);
    let name = format!("{}-{}", source.base(), own.and_then(|own| own.ordinal).unwrap_or(0));
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": source.namespace, "labels": labels, "annotations": metadata.annotations,
        },
        "spec": spec(source, &template, request, &name),
    });
    add_owner(&mut pod, owner);
    let hash = short_hash(&pod)?;
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(APPLIED_HASH.to_owned(), Value::String(hash));
    }
    Ok(pod)
}

/// The template with what differs in this cluster: the probe runs on the nodes of servers.
fn template(source: &Source<'_>) -> ServerTemplate {
    let mut template = source.spec.template.clone();
    let overrides = source.spec.source.iter().flat_map(|source| &source.overrides);
    for own in overrides.filter(|own| own.cluster == source.cluster) {
        if let Some(selector) = &own.node_selector {
            template.scheduling.get_or_insert_default().node_selector.clone_from(selector);
        }
        if let Some(tolerations) = &own.tolerations {
            template.scheduling.get_or_insert_default().tolerations.clone_from(tolerations);
        }
    }
    template
}

fn spec(source: &Source<'_>, template: &ServerTemplate, request: &Preflight, name: &str) -> Value {
    let mut arguments = vec![
        "probe".to_owned(),
        format!("--incarnation={}", request.incarnation),
        format!("--cluster={}", source.cluster),
    ];
    arguments.extend(request.names.iter().map(|name| {
        let ordinal = name.ordinal.map(|ordinal| format!("/{ordinal}")).unwrap_or_default();
        format!("--target={}={}{ordinal}", name.cluster, name.host)
    }));
    arguments.extend(request.bytes_per_second.map(|rate| format!("--bytes-per-second={rate}")));
    let servers =
        [("quorum", QUORUM_PORT), ("election", ELECTION_PORT), ("probe", PROBE_PORT), ("control", CONTROL_PORT)];
    let ports = client_ports(source.spec.tls.client.as_ref()).iter().copied().chain(servers);
    let ports: Vec<Value> = ports.map(|(name, number)| json!({ "name": name, "containerPort": number })).collect();
    let mut container = json!({
        "name": "probe",
        "image": source.spec.server_image,
        "args": arguments,
        "ports": ports,
        "securityContext": restricted(),
        "resources": resources::of_program(&source.resources()),
    });
    add_pull_policy(source, &mut container);
    let mut spec = json!({
        "hostname": name,
        "subdomain": source.base(),
        "serviceAccountName": source.base(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 1,
        // Names must resolve before servers are ready. No client sets this condition, so the pod is never ready.
        "readinessGates": [{ "conditionType": "mczk.io/server" }],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container],
    });
    if let Some(members) = spec.as_object_mut() {
        add_scheduling(template, members);
    }
    spec
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::{agent::render::statefulset, fixtures::zookeeper_spec};
    use mczk_api::{
        contract::preflight::request,
        zookeeper::{Ensemble, Role, ZooKeeperSpec},
    };

    fn rendered(test: impl FnOnce(&Source<'_>, &Value)) {
        let spec: ZooKeeperSpec = zookeeper_spec(json!({
            "template": {
                "metadata": { "labels": { "mczk.io/role": "voter", "team": "a" } },
                "scheduling": { "nodeSelector": { "disk": "ssd" } },
            },
            "source": { "overrides": [
                { "cluster": "m1", "nodeSelector": { "disk": "hdd" } }, { "cluster": "m2", "nodeSelector": {} },
            ]},
        }));
        let list = Ensemble { incarnation: Some("abc123".into()), ..Ensemble::default() };
        let source = Source {
            name: "zk",
            namespace: "ns",
            cluster: "m1",
            spec: &spec,
            list: &list,
            voters: 0,
            observers: 0,
            material: None,
            client: None,
            none_ready: false,
        };
        let names = serde_json::from_value(json!([{ "cluster": "m2", "host": "zk-abc123-0.m2.example" }])).unwrap();
        let owner = json!({ "kind": "ZooKeeper", "uid": "u" });
        let pod = pod(&source, &request("abc123", names, Some(1 << 20)).unwrap(), Some(&owner)).unwrap();
        test(&source, &pod);
    }

    /// A StatefulSet adopts an orphan that its selector selects. The Service must select the probe, so that it has the name.
    #[test]
    fn no_stateful_set_adopts_the_probe_and_the_service_names_it() {
        rendered(|source, pod| {
            let labels = pod["metadata"]["labels"].as_object().unwrap();
            let selects =
                |selector: &Value| selector.as_object().unwrap().iter().all(|(k, v)| labels.get(k) == Some(v));
            for role in [Role::Voter, Role::Observer] {
                let set = statefulset::set(source, role, 1).value;
                assert!(!selects(&set["spec"]["selector"]["matchLabels"]), "{role:?}");
            }
            let service = services::headless(source);
            assert!(selects(&service.value["spec"]["selector"]));
            assert!(selects(&network_policy::policy(source).value["spec"]["podSelector"]["matchLabels"]));
            let (hostname, subdomain) = (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]);
            assert_eq!((hostname, subdomain), (&json!("zk-abc123-0"), &json!(service.name)));
            assert_eq!(pod["metadata"]["name"], "zk-abc123-0");
        });
    }

    /// Kubernetes removes them with the ZooKeeper object, even if it has lost its finalizer. A reference that blocks
    /// the deletion of the owner would need a right that the agent lacks.
    #[test]
    fn everything_of_a_probe_has_an_owner() {
        rendered(|source, pod| {
            let object: ZooKeeper =
                crate::fixtures::zookeeper(json!({ "metadata": { "name": "zk", "uid": "u", "namespace": "ns" } }));
            let owner = owner(&object).unwrap();
            assert_eq!(
                (&owner["kind"], &owner["uid"], &owner["name"]),
                (&json!("ZooKeeper"), &json!("u"), &json!("zk"))
            );
            assert_eq!(owner["apiVersion"], "mczk.io/v1alpha1");
            assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(false)));
            assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u");
            for object in surroundings(source, Some(&owner)) {
                assert_eq!(object.value["metadata"]["ownerReferences"], json!([owner]), "{}", object.name);
            }
            assert!(services::headless(source).value["metadata"].get("ownerReferences").is_none());
        });
    }

    #[test]
    fn the_probe_holds_nothing_and_runs_where_servers_run() {
        rendered(|_, pod| {
            assert!(pod.pointer("/spec/volumes").is_none());
            assert!(pod.pointer("/spec/containers/0/volumeMounts").is_none());
            assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
            assert_eq!(pod["spec"]["nodeSelector"], json!({ "disk": "hdd" }));
            assert_eq!(pod["spec"]["containers"][0]["image"], "mczk:1");
            let target = "--target=m2=zk-abc123-0.m2.example";
            let arguments = ["probe", "--incarnation=abc123", "--cluster=m1", target, "--bytes-per-second=1048576"];
            assert_eq!(pod["spec"]["containers"][0]["args"], json!(arguments));
        });
    }
}

//! Everything that a member cluster holds for a ZooKeeper object. Pure: from the spec and the server list to objects.

mod account;
pub mod amount;
mod config;
mod disruption;
pub mod material;
mod network_policy;
pub mod object;
mod pod;
pub(super) mod preflight;
pub(crate) mod resources;
pub mod secret;
mod services;
pub mod source;
mod statefulset;
pub(super) mod version;

pub use material::Material;
pub use object::Kind;
pub use version::Refused;

use crate::agent::render::{object::Object, source::Source};

/// Every object of an incarnation in this cluster, in the order in which the agent writes them.
///
/// # Errors
/// If the agent does not know the spec's `renderVersion`.
pub fn render(source: &Source<'_>) -> Result<Vec<Object>, Refused> {
    version::known(source.spec.render_version)?(source)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        agent::render::{material::Material, object::Kind, version::VERSIONS},
        fixtures::{merged, zookeeper_spec},
        newer_list::of_newer_version,
    };
    use mczk_api::{
        contract::{
            labels::{REVISION_LABEL, ROLE_LABEL},
            server_list::with_hash,
        },
        yaml,
        zookeeper::{Ensemble, EnsemblePhase, ZooKeeperSpec},
    };

    fn spec(more: Value) -> ZooKeeperSpec {
        let typical = json!({ "replicas": 2, "cluster": "m1", "revision": "0123456789" });
        zookeeper_spec(merged(typical, more))
    }

    fn list() -> Ensemble {
        let servers = json!([
            { "id": 1, "cluster": "m1", "ordinal": 0, "host": "zk-abc123-0.m1", "role": "voter" },
            { "id": 2, "cluster": "m1", "ordinal": 1, "host": "zk-abc123-1.m1", "role": "voter" },
            { "id": 3, "cluster": "m2", "ordinal": 0, "host": "zk-abc123-0.m2", "role": "voter" },
        ]);
        let list = json!({ "incarnation": "abc123", "epoch": 3, "servers": servers });
        with_hash(serde_json::from_value(list).unwrap()).unwrap()
    }

    fn source<'a>(spec: &'a ZooKeeperSpec, list: &'a Ensemble, material: Option<&'a Material>) -> Source<'a> {
        Source {
            name: "zk",
            namespace: "ns",
            cluster: "m1",
            spec,
            list,
            voters: spec.replicas,
            observers: spec.observers.unwrap_or(0),
            material,
            client: material,
            none_ready: false,
        }
    }

    fn rendered(spec: &ZooKeeperSpec, material: Option<&Material>) -> Vec<Value> {
        let list = list();
        render(&source(spec, &list, material)).unwrap().into_iter().map(|object| object.value).collect()
    }

    /// A suspended pod must start even if the stock image cannot be pulled.
    #[test]
    fn a_suspended_pod_runs_only_our_image_and_has_its_own_revision() {
        let spec = spec(json!({}));
        let pod = |list: &Ensemble| {
            let all = render(&source(&spec, list, None)).unwrap();
            let set = all.into_iter().find(|object| object.kind == Kind::StatefulSet).unwrap();
            set.value.pointer("/spec/template").cloned().unwrap()
        };
        let (running, mut suspended) =
            (pod(&list()), pod(&with_hash(Ensemble { phase: EnsemblePhase::Suspended, ..list() }).unwrap()));
        let images = |pod: &Value| {
            let image = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
            (image("/spec/initContainers/0/image"), image("/spec/containers/0/image"))
        };
        assert_eq!(images(&running), ("mczk:1".into(), "zookeeper:3.9.4".into()));
        assert_eq!(images(&suspended), ("mczk:1".into(), "mczk:1".into()));
        let label =
            suspended.pointer_mut("/metadata/labels").and_then(|labels| labels.get_mut(REVISION_LABEL)).unwrap();
        assert_eq!(std::mem::take(label), json!("0123456789.suspended"));
    }

    /// A quota can demand limits of every container: a namespace with one refused the pods.
    #[test]
    fn every_container_has_the_limits_of_the_server() {
        let amounts = json!({ "cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi" });
        let spec = spec(json!({ "template": { "resources": { "requests": amounts, "limits": amounts } } }));
        let set = rendered(&spec, None).into_iter().find(|object| object["kind"] == "StatefulSet").unwrap();
        for container in
            ["initContainers", "containers"].map(|all| &set["spec"]["template"]["spec"][all][0]["resources"])
        {
            for part in ["requests", "limits"] {
                let names: Vec<&String> = container[part].as_object().unwrap().keys().collect();
                assert_eq!(names, ["cpu", "ephemeral-storage", "memory"], "{container}");
            }
        }
    }

    /// M4: the servers check the hash of the list that the agent writes.
    #[test]
    fn the_list_of_a_newer_version_is_written_as_it_arrived() {
        let newer = of_newer_version(&list());
        let (spec, list) = (spec(json!({})), serde_json::from_value(newer.clone()).unwrap());
        let objects = render(&source(&spec, &list, None)).unwrap();
        let text = objects.iter().find_map(|object| object.value.pointer("/data/server-list.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap(), newer);
    }

    /// What a version renders for voters and one observer.
    fn version(number: i32) -> Vec<Value> {
        rendered(&spec(json!({ "renderVersion": number, "observers": 1 })), None)
    }

    fn sets(objects: Vec<Value>) -> Vec<Value> {
        objects.into_iter().filter(|o| o["kind"] == "StatefulSet").collect()
    }

    #[test]
    fn typical() {
        let mut objects = version(1);
        objects.retain(|object| object["metadata"]["labels"][ROLE_LABEL] != "observer");
        assert_eq!(rendered(&spec(json!({})), None), objects);
    }

    /// A spec with every field.
    fn full_spec() -> ZooKeeperSpec {
        spec(json!({
            "observers": 1,
            "peerCIDRs": ["10.0.0.0/8", "192.168.0.0/16"],
            "tls": { "quorum": true, "client": { "mode": "Required", "secretName": "zk-client" } },
            "template": {
                "imagePullPolicy": "IfNotPresent",
                "imagePullSecrets": ["registry"],
                "resources": { "requests": { "cpu": "500m", "memory": "1Gi" }, "limits": { "memory": "2Gi" } },
                "storage": { "size": "10Gi", "storageClassName": "fast", "reclaim": "Delete" },
                "zooCfg": [{ "name": "tickTime", "value": "3000" }],
                "jvmFlags": ["-Xlog:gc"],
                "scheduling": {
                    "nodeSelector": { "disk": "nvme" },
                    "tolerations": [{ "key": "zk", "operator": "Exists", "effect": "NoSchedule" }],
                    "affinity": { "nodeAffinity": {} },
                    "priorityClassName": "high",
                },
                "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
            },
        }))
    }

    fn with_certificates(spec: &ZooKeeperSpec) -> Vec<Value> {
        let material = Material { certificate: "CERT\n".into(), key: "KEY\n".into(), authorities: "CA1\nCA2\n".into() };
        rendered(spec, Some(&material))
    }

    fn everything() -> Vec<Value> {
        with_certificates(&full_spec())
    }

    /// Paths of the fields in a schema that have no fields of their own. An affinity passes as a whole.
    fn leaves(schema: &Value, path: &str) -> Vec<String> {
        match schema["properties"].as_object() {
            Some(fields) if !path.ends_with("/affinity") => {
                fields.iter().flat_map(|(name, field)| leaves(field, &format!("{path}/{name}"))).collect()
            }
            _ => vec![path.to_owned()],
        }
    }

    /// The agent applies this field when the ensemble ends, and never before: volumes outlive their StatefulSet.
    const AT_THE_END: &str = "/template/storage/reclaim";

    #[test]
    fn every_field_of_the_template_has_an_effect() {
        let definitions = serde_json::to_value(mczk_api::crd::definitions().unwrap()).unwrap();
        let definition = definitions.as_array().unwrap().iter().find(|d| d["spec"]["names"]["kind"] == "ZooKeeper");
        let schema = definition.unwrap().pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap();
        let full = serde_json::to_value(full_spec()).unwrap();
        for path in leaves(&schema["properties"]["template"], "/template") {
            assert!(full.pointer(&path).is_some(), "full_spec lacks {path}");
            let (parent, name) = path.rsplit_once('/').unwrap();
            let mut without = full.clone();
            without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
            // A required field cannot be absent; the released version shows it.
            if let Ok(without) = serde_json::from_value(without) {
                let changes = with_certificates(&without) != everything();
                assert_eq!(changes, path != AT_THE_END, "{path} changes the objects");
            }
        }
    }

    #[test]
    fn full() {
        insta::assert_yaml_snapshot!(everything());
    }

    #[test]
    fn pods_mount_the_agents_copy_of_client_certificates() {
        let objects = everything();
        let copy = objects.iter().position(|o| o["kind"] == "Secret" && o["metadata"]["name"] == "zk-abc123-client");
        let set = objects.iter().position(|o| o["kind"] == "StatefulSet");
        assert!(copy < set, "the agent writes the copy before pods that mount it");
        assert_eq!(objects[copy.unwrap()]["data"]["tls.key"], STANDARD.encode("KEY\n"));
        let sets = sets(objects);
        assert_eq!(sets.len(), 2);
        for set in &sets {
            let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
            let mounted = volumes.iter().find(|volume| volume["name"] == "client-tls").unwrap();
            assert_eq!(mounted["secret"]["secretName"], "zk-abc123-client");
        }
    }

    #[test]
    fn observers_have_their_own_set_and_configuration() {
        let mut sets_of_one = sets(version(1));
        let sets_of_two = sets(rendered(&spec(json!({ "observers": 2 })), None));
        assert_eq!(sets_of_two.len(), 2);
        assert_eq!(sets_of_two[1]["metadata"]["name"], "zk-abc123-o");
        assert_eq!(sets_of_two[1]["spec"]["replicas"], 2);
        sets_of_one[1]["spec"]["replicas"] = json!(2);
        assert_eq!(sets_of_one, sets_of_two);
    }

    #[test]
    fn optional_client_tls_keeps_the_plain_port() {
        let spec = spec(json!({ "tls": { "client": { "mode": "Optional", "secretName": "s" } } }));
        let objects = rendered(&spec, None);
        let client = objects.iter().find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "zk").unwrap();
        assert_eq!(client["spec"]["ports"][0]["port"], 2181);
    }

    #[test]
    fn an_unknown_version_is_refused() {
        let spec = spec(json!({ "renderVersion": 2 }));
        let list = list();
        assert!(matches!(render(&source(&spec, &list, None)), Err(Refused::Newer { version: 2, .. })));
    }

    /// A released version never changes: servers of all clusters would restart. If it has to, add a version. The files are
    /// no snapshots, so that no setting of the snapshot tests accepts a change.
    #[test]
    fn released_versions_never_change() {
        let released = [include_str!("released/version_1.yaml")];
        assert_eq!(released.len(), VERSIONS.len(), "each version has a file");
        for ((number, _), file) in VERSIONS.iter().zip(released) {
            let objects: Value = yaml::read(file).unwrap().remove(0);
            assert_eq!(version(*number), *objects.as_array().unwrap(), "version {number}");
        }
    }

    /// A `kubectl delete statefulset` removes no data. The agent sets the policy when the ensemble ends.
    #[test]
    fn volumes_outlive_their_stateful_set() {
        let sets = sets(everything());
        let policies = sets.iter().map(|set| &set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"]);
        assert_eq!(policies.collect::<Vec<_>>(), ["Retain", "Retain"]);
    }

    /// The user's own tolerations, resources and labels count.
    #[test]
    fn defaults_yield_to_the_user() {
        let toleration = json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 30 });
        let chosen = spec(json!({ "template": {
            "resources": {},
            "scheduling": { "tolerations": [toleration] },
            "metadata": { "labels": { "app.kubernetes.io/instance": "mine" } },
        }}));
        let objects = rendered(&chosen, None);
        let template = &objects.iter().find(|o| o["kind"] == "StatefulSet").unwrap()["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/instance"], "mine");
        assert_eq!(template["spec"]["containers"][0]["resources"], json!({}));
        let unreachable =
            json!({ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" });
        assert_eq!(template["spec"]["tolerations"], json!([toleration, unreachable]));
    }

    #[test]
    fn the_operator_requests_the_newest_version() {
        assert_eq!(VERSIONS.last().unwrap().0, crate::rollout::render::RENDER_VERSION);
        assert!(VERSIONS.is_sorted_by_key(|(number, _)| *number));
    }

    #[test]
    fn the_size_of_the_volume_changes_no_pod() {
        let (small, large) = (spec(json!({})), spec(json!({ "template": { "storage": { "size": "2Gi" } } })));
        let pod = |spec: &ZooKeeperSpec| {
            let objects = rendered(spec, None);
            objects.iter().find(|o| o["kind"] == "StatefulSet").unwrap()["spec"]["template"].clone()
        };
        assert_eq!(pod(&small), pod(&large));
    }
}

//! What a member cluster should hold for a ZooKeeper object: pure, from the spec and the list of servers to objects.
//!
//! What `renderVersion` 1 renders never changes: a pod that is made again years later is the one that was rolled out. Whatever
//! would change a pod is a new version, so that an upgrade of mczk rolls cluster by cluster like any other change.

mod account;
mod amount;
mod config;
mod disruption;
mod network_policy;
mod pod;
mod secret;
mod services;
mod statefulset;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use amount::bytes;
pub(crate) use amount::thousandths;
pub use secret::{Material, client_copy, copied_client, quorum_secret};

use crate::{
    api::zookeeper::{Ensemble, Role, ZooKeeperSpec},
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, ROLE_LABEL},
        naming::Naming,
    },
};

/// The kinds of objects that are rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Without a token: servers do not talk to Kubernetes.
    ServiceAccount,
    /// The list of servers, or instructions.
    ConfigMap,
    /// Certificates.
    Secret,
    /// The headless one or that of clients.
    Service,
    /// None may be evicted: only the agent knows of the other clusters.
    PodDisruptionBudget,
    /// Who may talk to servers.
    NetworkPolicy,
    /// Voters or observers.
    StatefulSet,
}

impl Kind {
    /// All of them, in the order in which they are written.
    pub const ALL: &[Self] = &[
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Secret,
        Self::Service,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::StatefulSet,
    ];

    /// As in `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// As in `apiVersion`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::ServiceAccount | Self::ConfigMap | Self::Secret | Self::Service => "v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::StatefulSet => "apps/v1",
        }
    }

    /// As in URLs.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
            Self::NetworkPolicy => "networkpolicies",
            Self::StatefulSet => "statefulsets",
        }
    }
}

/// One object, as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// All of it.
    pub value: Value,
}

/// Why nothing can be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The control plane is newer than this agent.
    #[error(
        "renderVersion {version} is not known to this agent, which knows {known}: upgrade the agent (mczk agent) in this cluster"
    )]
    Newer {
        /// What was asked for.
        version: i32,
        /// What there is.
        known: String,
    },
    /// The control plane is older than anything that this agent knows.
    #[error(
        "renderVersion {version} is not known to this agent any more, which knows {known}: upgrade the operator (mczk operator) beside Karmada"
    )]
    Older {
        /// What was asked for.
        version: i32,
        /// What there is.
        known: String,
    },
    /// Something has no JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Revision of the pods of a spec, under a list.
#[must_use]
pub fn revision(spec: &ZooKeeperSpec, list: &Ensemble) -> String {
    if list.phase.is_suspended() { format!("{}.parked", spec.revision) } else { spec.revision.clone() }
}

/// What objects are rendered from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the ZooKeeper object.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Karmada's name of this cluster.
    pub cluster: &'a str,
    /// Its spec.
    pub spec: &'a ZooKeeperSpec,
    /// The list of servers that is obeyed.
    pub list: &'a Ensemble,
    /// Voters to run: the spec's number, or more while some may not leave.
    pub voters: i32,
    /// Observers to run.
    pub observers: i32,
    /// Certificates of the quorum, if there are any.
    pub material: Option<&'a Material>,
    /// Those that clients see, if there are any.
    pub client: Option<&'a Material>,
}

impl<'a> Source<'a> {
    /// The life of the ensemble.
    #[must_use]
    pub fn id(&self) -> &'a str {
        self.list.incarnation.as_deref().unwrap_or_default()
    }

    /// The names of servers and services.
    #[must_use]
    pub fn naming(&self) -> Naming<'a> {
        Naming { name: self.name, namespace: self.namespace, incarnation: self.id(), names: None }
    }

    /// Name of everything that there is once in a life, and of the headless Service and the voters' StatefulSet.
    #[must_use]
    pub fn base(&self) -> String {
        self.naming().service()
    }

    /// Name of the StatefulSet of a role.
    #[must_use]
    pub fn set(&self, role: Role) -> String {
        match role {
            Role::Voter => self.base(),
            Role::Observer => format!("{}-o", self.base()),
        }
    }

    /// Revision of the pods. While servers are parked it is another one than the spec's: their pods are other ones too.
    #[must_use]
    pub fn revision(&self) -> String {
        revision(self.spec, self.list)
    }

    /// Name of the ConfigMap with the instructions of a role. It has the revision in it: a server whose turn has not come
    /// is told what it was told before, also when its container starts anew.
    #[must_use]
    pub fn instructions(&self, role: Role) -> String {
        format!("{}-{}", self.set(role), self.spec.revision)
    }

    fn selector(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([(ENSEMBLE_LABEL, self.name.to_owned()), (INCARNATION_LABEL, self.id().to_owned())])
    }

    fn role_selector(&self, role: Role) -> BTreeMap<&'static str, String> {
        let mut labels = self.selector();
        labels.insert(ROLE_LABEL, role_name(role).to_owned());
        labels
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        let mut labels = self.selector();
        labels.insert(MANAGED_BY_LABEL, MANAGED_BY_AGENT.to_owned());
        labels
    }

    fn object(&self, kind: Kind, name: String, labels: &BTreeMap<&'static str, String>, rest: Value) -> Object {
        let mut value = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.name(),
            "metadata": { "name": name, "namespace": self.namespace, "labels": labels },
        });
        if let (Some(members), Value::Object(rest)) = (value.as_object_mut(), rest) {
            members.extend(rest);
        }
        Object { kind, name, value }
    }
}

/// The text of a role, as in labels.
#[must_use]
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Voter => "voter",
        Role::Observer => "observer",
    }
}

/// One way of turning the pod part into objects. Once it was released it never changes, byte for byte: else an upgrade of the
/// agent would restart servers out of turn.
type Version = fn(&Source<'_>) -> Result<Vec<Object>, Refused>;

/// All that are known, by `renderVersion`, the newest last. A version of mczk that renders differently adds one, and leaves
/// those before it as they are.
const VERSIONS: &[(i32, Version)] = &[(1, first), (2, second)];

/// The way of a `renderVersion`.
///
/// # Errors
/// If it is not known, with what is to be upgraded.
pub fn known(version: i32) -> Result<Version, Refused> {
    if let Some((_, way)) = VERSIONS.iter().find(|(number, _)| *number == version) {
        return Ok(*way);
    }
    let numbers: Vec<String> = VERSIONS.iter().map(|(number, _)| number.to_string()).collect();
    let known = numbers.join(", ");
    let newer = VERSIONS.iter().all(|(number, _)| version > *number);
    Err(if newer { Refused::Newer { version, known } } else { Refused::Older { version, known } })
}

/// Everything that the cluster should hold, in the order in which it is to be written.
///
/// # Errors
/// If the spec is of a version that is not known.
pub fn render(source: &Source<'_>) -> Result<Vec<Object>, Refused> {
    known(source.spec.render_version)?(source)
}

fn first(source: &Source<'_>) -> Result<Vec<Object>, Refused> {
    let with_observers = source.observers > 0;
    let mut objects = vec![account::account(source), config::list(source)?, config::instructions(source, Role::Voter)?];
    if with_observers {
        objects.push(config::instructions(source, Role::Observer)?);
    }
    objects.extend(secret::quorum(source));
    objects.push(services::headless(source));
    objects.push(services::client(source));
    objects.push(config::clients(source));
    objects.push(disruption::budget(source));
    objects.push(network_policy::policy(source));
    objects.push(statefulset::set(source, Role::Voter, source.voters));
    if with_observers {
        objects.push(statefulset::set(source, Role::Observer, source.observers));
    }
    Ok(objects)
}

/// As the first, but pods mount the agent's copy of the certificates that clients see.
fn second(source: &Source<'_>) -> Result<Vec<Object>, Refused> {
    let mut objects = first(source)?;
    let sets = objects.iter().position(|object| object.kind > Kind::Secret).unwrap_or(0);
    objects.splice(sets..sets, secret::client(source));
    Ok(objects)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;
    use crate::api::zookeeper::EnsemblePhase;
    use crate::contract::labels::REVISION_LABEL;
    use crate::contract::server_list::with_hash;

    fn spec(more: &Value) -> ZooKeeperSpec {
        let mut spec = json!({
            "replicas": 2, "cluster": "m1", "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false },
            "revision": "0123456789", "template": { "image": "zookeeper:3.9.4", "storage": { "size": "1Gi" } }, "ensemble": {},
        });
        json_patch::merge(&mut spec, more);
        serde_json::from_value(spec).unwrap()
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

    fn rendered(spec: &ZooKeeperSpec, material: Option<&Material>) -> Vec<Value> {
        let list = list();
        let observers = spec.observers.unwrap_or(0);
        let source = Source {
            name: "zk",
            namespace: "ns",
            cluster: "m1",
            spec,
            list: &list,
            voters: spec.replicas,
            observers,
            material,
            client: material,
        };
        render(&source).unwrap().into_iter().map(|object| object.value).collect()
    }

    /// So that it starts also where the stock image cannot be pulled.
    #[test]
    fn a_parked_pod_runs_our_image_alone_and_has_a_revision_of_its_own() {
        let spec = spec(&json!({}));
        let pod = |list: &Ensemble| {
            let source = Source {
                name: "zk",
                namespace: "ns",
                cluster: "m1",
                spec: &spec,
                list,
                voters: 2,
                observers: 0,
                material: None,
                client: None,
            };
            let all = render(&source).unwrap();
            let set = all.into_iter().find(|object| object.kind == Kind::StatefulSet).unwrap();
            set.value.pointer("/spec/template").cloned().unwrap()
        };
        let (runs, mut parked) =
            (pod(&list()), pod(&with_hash(Ensemble { phase: EnsemblePhase::Suspended, ..list() }).unwrap()));
        let images = |pod: &Value| {
            let image = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
            (image("/spec/initContainers/0/image"), image("/spec/containers/0/image"))
        };
        assert_eq!(images(&runs), ("mczk:1".into(), "zookeeper:3.9.4".into()));
        assert_eq!(images(&parked), ("mczk:1".into(), "mczk:1".into()));
        let label = parked.pointer_mut("/metadata/labels").and_then(|labels| labels.get_mut(REVISION_LABEL)).unwrap();
        assert_eq!(std::mem::take(label), json!("0123456789.parked"));
    }

    #[test]
    fn typical() {
        insta::assert_yaml_snapshot!(rendered(&spec(&json!({})), None));
    }

    /// With everything that may be said, and with certificates.
    fn everything(render_version: i32) -> Vec<Value> {
        let spec = spec(&json!({
            "renderVersion": render_version,
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
        }));
        let material = Material { certificate: "CERT\n".into(), key: "KEY\n".into(), authorities: "CA1\nCA2\n".into() };
        rendered(&spec, Some(&material))
    }

    #[test]
    fn full() {
        insta::assert_yaml_snapshot!(everything(1));
    }

    #[test]
    fn since_version_2_pods_mount_the_agents_copy_of_what_clients_see() {
        let (mut first, mut second) = (everything(1), everything(2));
        let copy = second.iter().position(|o| o["kind"] == "Secret" && o["metadata"]["name"] == "zk-abc123-client");
        let set = second.iter().position(|o| o["kind"] == "StatefulSet");
        assert!(copy < set, "what pods mount is there before them");
        assert_eq!(second.remove(copy.unwrap())["data"]["tls.key"], STANDARD.encode("KEY\n"));
        for (objects, secret) in [(&mut first, "zk-client"), (&mut second, "zk-abc123-client")] {
            for set in objects.iter_mut().filter(|o| o["kind"] == "StatefulSet") {
                let volumes = set["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
                let mounted = volumes.iter_mut().find(|volume| volume["name"] == "client-tls").unwrap();
                assert_eq!(mounted["secret"]["secretName"].take(), secret);
            }
        }
        assert_eq!(first, second, "and nothing else is different");
    }

    #[test]
    fn observers_have_a_set_and_instructions_of_their_own() {
        let objects = rendered(&spec(&json!({ "observers": 2 })), None);
        let sets: Vec<_> = objects.iter().filter(|o| o["kind"] == "StatefulSet").collect();
        assert_eq!(sets.len(), 2);
        assert_eq!(sets[1]["metadata"]["name"], "zk-abc123-o");
        assert_eq!(sets[1]["spec"]["replicas"], 2);
        insta::assert_yaml_snapshot!(sets[1]);
    }

    #[test]
    fn optional_client_tls_keeps_the_plain_port() {
        let spec = spec(&json!({ "tls": { "client": { "mode": "Optional", "secretName": "s" } } }));
        let objects = rendered(&spec, None);
        let client = objects.iter().find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "zk").unwrap();
        assert_eq!(client["spec"]["ports"][0]["port"], 2181);
    }

    #[test]
    fn a_version_that_is_not_known_is_refused() {
        let spec = spec(&json!({ "renderVersion": 3 }));
        let list = list();
        let source = Source {
            name: "zk",
            namespace: "ns",
            cluster: "m1",
            spec: &spec,
            list: &list,
            voters: 1,
            observers: 0,
            material: None,
            client: None,
        };
        assert!(matches!(render(&source), Err(Refused::Newer { version: 3, .. })));
    }

    /// Each that was ever released, as it was released. A snapshot that differs is a new version, and never a new snapshot.
    #[test]
    fn what_was_released_renders_as_it_did() {
        for (number, _) in VERSIONS {
            let spec = spec(&json!({ "renderVersion": number, "observers": 1 }));
            insta::assert_yaml_snapshot!(format!("version_{number}"), rendered(&spec, None));
        }
    }

    #[test]
    fn what_the_operator_asks_for_is_the_newest() {
        assert_eq!(VERSIONS.last().unwrap().0, crate::rollout::render::RENDER_VERSION);
        assert!(VERSIONS.is_sorted_by_key(|(number, _)| *number));
    }

    #[test]
    fn the_volume_is_in_no_pod() {
        let (small, large) = (spec(&json!({})), spec(&json!({ "template": { "storage": { "size": "2Gi" } } })));
        let pod = |spec: &ZooKeeperSpec| {
            let objects = rendered(spec, None);
            objects.iter().find(|o| o["kind"] == "StatefulSet").unwrap()["spec"]["template"].clone()
        };
        assert_eq!(pod(&small), pod(&large));
    }
}

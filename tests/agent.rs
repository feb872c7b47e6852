//! The agent of a member cluster against a real API server, with the rights that manifests/agent.yaml gives it and no more.
//!
//! The crate `simulator` plays the kubelets and servers, and this test the StatefulSet controller. Both check the invariants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apiserver;
mod fixtures;
mod patience;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::StatefulSet,
        coordination::v1::Lease,
        core::v1::{
            LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret, Service,
        },
        events::v1::Event,
        networking::v1::NetworkPolicy,
        rbac::v1::{ClusterRole, PolicyRule},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    client::Body,
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use mczk_admin::register::{Part, Settings, apply, rbac::Identity};
use mczk_agent::{AgentOptions, Metrics};
use mczk_api::{
    ZooKeeper,
    contract::{
        labels::{APPLIED_HASH, ENSEMBLE_LABEL, INCARNATION_LABEL},
        preflight,
        server_list::with_hash,
    },
    preflight::ServerName,
    yaml,
    zookeeper::{Dependency, DependencyKind, Ensemble, EnsemblePhase, FirstStart, Role, Server, ZooKeeperStatus},
};
use mczk_rules::rollout::cluster_spec;
use mczk_runtime::{
    election::{self, Candidate, rule::Timing},
    pki,
};
use patience::{PATIENCE, wait_for};
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use simulator::{
    Behaviour, Simulator, World,
    world::{self, PodKey},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// Incarnation of the ensemble.
const INCARNATION: &str = "abc123";
/// Name of its objects.
const SET: &str = "zk-abc123";

/// Key of a pod of the ensemble.
fn key(cluster: &str, ordinal: i32) -> PodKey {
    PodKey { cluster: cluster.into(), namespace: "default".into(), name: format!("{SET}-{ordinal}") }
}

async fn all<T: Clone + Debug + DeserializeOwned>(api: &Api<T>) -> Vec<T> {
    api.list(&ListParams::default()).await.unwrap().items
}

async fn create<T: Clone + Debug + DeserializeOwned + serde::Serialize>(api: &Api<T>, object: Value) -> T {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

async fn merge<T: Clone + Debug + DeserializeOwned>(api: &Api<T>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn names<T: Clone + Debug + DeserializeOwned + ResourceExt>(api: &Api<T>) -> Vec<String> {
    all(api).await.iter().map(ResourceExt::name_any).collect()
}

/// Plays the StatefulSet controller, and the scheduler.
async fn stateful_sets(client: Client, simulator: Simulator) {
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let nodes: Api<Node> = Api::all(client);
    loop {
        sleep(Duration::from_millis(100)).await;
        let (Ok(sets_now), Ok(live)) =
            (sets.list(&ListParams::default()).await, pods.list(&ListParams::default()).await)
        else {
            continue;
        };
        let mut wanted: BTreeMap<String, &StatefulSet> = BTreeMap::new();
        for set in &sets_now {
            let replicas = set.spec.as_ref().unwrap().replicas.unwrap_or(1);
            wanted.extend((0..replicas).map(|ordinal| (format!("{}-{ordinal}", set.name_any()), set)));
            if set.status.as_ref().and_then(|s| s.observed_generation) != set.metadata.generation {
                let status = json!({ "status": { "observedGeneration": set.metadata.generation, "replicas": 0 } });
                let _ = sets.patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
            }
        }
        for pod in &live {
            if wanted.remove(&pod.name_any()).is_none() {
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
            }
        }
        for (name, set) in wanted {
            let template = set.spec.as_ref().unwrap().template.clone();
            let mut spec = template.spec.unwrap();
            let volume = json!({ "name": "data", "emptyDir": {} });
            spec.volumes.get_or_insert_default().push(serde_json::from_value(volume).unwrap());
            spec.node_name = schedulable(&nodes).await;
            let mut metadata = template.metadata.unwrap();
            metadata.name = Some(name.clone());
            match pods.create(&PostParams::default(), &Pod { metadata, spec: Some(spec), status: None }).await {
                // A quota or a policy of a test, a pod that still ends, or a busy API server: the real controller tries again.
                Err(kube::Error::Api(status)) if [403, 409, 422, 429].contains(&status.code) || status.code >= 500 => {}
                Err(error) => simulator.change(|world| world.violate("default", format!("pod {name}: {error}"))),
                Ok(_) => {}
            }
        }
    }
}

/// The first node that is not cordoned.
async fn schedulable(nodes: &Api<Node>) -> Option<String> {
    let is_open = |node: &&Node| node.spec.as_ref().unwrap().unschedulable.is_none();
    nodes.list(&ListParams::default()).await.ok()?.iter().find(is_open).map(ResourceExt::name_any)
}

/// Servers 1 and 2 are in this cluster, and server 3 in another.
fn list(epoch: i64, ids: &[i32], phase: EnsemblePhase) -> Ensemble {
    let server = |id: &i32| {
        let (cluster, ordinal) = if *id == 3 { ("m2", 0) } else { ("m1", id - 1) };
        Server {
            id: *id,
            cluster: cluster.into(),
            ordinal,
            host: format!("{SET}-{ordinal}.{cluster}"),
            role: Role::Voter,
        }
    };
    let servers = ids.iter().map(server).collect();
    with_hash(Ensemble {
        incarnation: Some(INCARNATION.into()),
        epoch: Some(epoch),
        phase,
        servers,
        ..Ensemble::default()
    })
    .unwrap()
}

/// The list of the ensemble while it runs.
fn running(epoch: i64, ids: &[i32]) -> Ensemble {
    list(epoch, ids, EnsemblePhase::Running)
}

fn condition<'a>(status: &'a ZooKeeperStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

fn blocked(status: &ZooKeeperStatus) -> Option<&str> {
    condition(status, "Blocked").filter(|c| c.status == "True").map(|c| c.reason.as_str())
}

/// The object as Karmada writes it, and what the agent makes of it.
struct Cluster {
    object: ZooKeeper,
    simulator: Simulator,
    objects: Api<ZooKeeper>,
    sets: Api<StatefulSet>,
    pods: Api<Pod>,
    services: Api<Service>,
    secrets: Api<Secret>,
    claims: Api<PersistentVolumeClaim>,
    nodes: Api<Node>,
}

impl Cluster {
    fn new(client: &Client, simulator: Simulator) -> Self {
        Self {
            object: fixtures::zookeeper(json!({
                "metadata": { "namespace": "default", "uid": null, "labels": { "karmada.io/managed": "true" },
                    "annotations": { "work.karmada.io/namespace": "karmada-es-m1" } },
                "spec": { "template": { "resources": { "requests": { "cpu": "0.5" }, "limits": { "memory": "1024Mi" } } } },
            })),
            simulator,
            objects: Api::default_namespaced(client.clone()),
            sets: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            services: Api::default_namespaced(client.clone()),
            secrets: Api::default_namespaced(client.clone()),
            claims: Api::default_namespaced(client.clone()),
            nodes: Api::all(client.clone()),
        }
    }

    fn world<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        self.simulator.read(read)
    }

    /// Writes as Karmada does: the spec and its own marks, and no field of the agent.
    async fn apply(&self) {
        self.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&self.object)).await.unwrap();
    }

    /// Writes another list with the same spec hash. The other cluster has it too.
    async fn write_list(&mut self, list: Ensemble) {
        self.object.spec.ensemble = list.clone();
        self.simulator.change(|world| world.mount("m2", list));
        self.apply().await;
    }

    async fn write(&mut self, replicas: i32, revision: &str, list: Ensemble) {
        let spec = &mut self.object.spec;
        spec.revision = revision.into();
        spec.ensemble = Ensemble::default();
        *spec = cluster_spec::for_cluster(spec, "m1", replicas, spec.spec_hash.as_deref(), 0).unwrap();
        self.write_list(list).await;
    }

    /// Waits for a status, and checks the invariants.
    async fn until(&self, what: &str, is: impl Fn(&ZooKeeperStatus) -> bool) -> ZooKeeperStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            // A busy API server may fail once.
            let status = self.objects.get("zk").await.ok().and_then(|object| object.status).unwrap_or_default();
            self.assert_no_violation(what);
            if is(&status) {
                return status;
            }
            assert!(Instant::now() < end, "{what}: {status:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_complete(&self, what: &str) -> ZooKeeperStatus {
        self.until(what, |status| status.completed_spec_hash == self.object.spec.spec_hash).await
    }

    fn assert_no_violation(&self, what: &str) {
        let violations: Vec<String> = self.world(|world| world.violations("default").map(str::to_owned).collect());
        assert!(violations.is_empty(), "{what}: {violations:?}");
    }

    async fn until_gone(&self) {
        wait_for("the object is gone", async || self.objects.get_opt("zk").await.unwrap().is_none()).await;
    }

    /// No object of the ensemble is left.
    async fn assert_empty(&self) {
        assert!(all(&self.sets).await.is_empty());
        assert_eq!(names(&self.services).await, ["kubernetes"]);
    }

    async fn pod_uids(&self) -> BTreeSet<String> {
        all(&self.pods).await.iter().filter_map(ResourceExt::uid).collect()
    }

    async fn nodes_in_use(&self) -> BTreeSet<String> {
        all(&self.pods).await.into_iter().filter_map(|pod| pod.spec?.node_name).collect()
    }
}

/// Applies the manifest, with its rights for the agent.
async fn rights(client: &Client) {
    let file =
        std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("manifests/agent.yaml"))
            .unwrap();
    let mut kinds = Vec::new();
    for value in yaml::read(&file).unwrap() {
        let types: TypeMeta = serde_json::from_value(value.clone()).unwrap();
        let name = value["metadata"]["name"].as_str().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = match value["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(&value)).await.unwrap();
        if types.kind == "Deployment" {
            assert_eq!(value["spec"]["template"]["spec"]["containers"][0]["args"][0], "agent");
        }
        kinds.push(types.kind);
    }
    let expected =
        ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"];
    assert_eq!(kinds, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_agents_acts() {
    let server = ApiServer::start("lease").await;
    rights(&server.client).await;
    let candidate = |name| {
        let metrics = election::Metrics::new(&mut Registry::default(), "mczk_agent");
        let timing = Timing { duration: 2 * PATIENCE, ..Timing::default() };
        Candidate::new(server.agent(), "mczk-system/mczk-agent".parse().unwrap(), name, timing, metrics)
    };
    let one = candidate("one");
    assert_eq!(timeout(PATIENCE, one.leadership().begins(None)).await.unwrap(), 1);
    let two = candidate("two");
    let second = two.leadership();
    assert!(timeout(Duration::from_secs(4), second.begins(None)).await.is_err(), "two agents at once");
    one.release().await.unwrap();
    // After a release the other agent does not wait until the lease expires.
    assert_eq!(timeout(PATIENCE, second.begins(None)).await.unwrap(), 2);
    let leases: Api<Lease> = Api::namespaced(server.client.clone(), "mczk-system");
    let acquired = async || leases.get("mczk-agent").await.unwrap().spec.unwrap().acquire_time.unwrap();
    let first = acquired().await;
    let events: Api<Event> = Api::namespaced(server.client.clone(), "mczk-system");
    wait_for("an event names each leader", async || {
        let mut notes: Vec<_> = all(&events).await.into_iter().filter_map(|event| event.note).collect();
        notes.sort();
        notes == ["one became leader", "two became leader"]
    })
    .await;
    assert!(timeout(Duration::from_secs(4), second.ended(2)).await.is_err(), "the lease is held");
    assert_eq!(acquired().await, first, "a renewal is no takeover");
}

/// Why a write of the agent may reach an object that has changed since the agent read it, or another object of its name.
///
/// A pod changes all the time, and the agent means this very pod. Events are about an object, and change none.
fn rests_on_nothing(request: &http::request::Parts, body: &Value) -> Option<String> {
    let path = request.uri.path();
    let text = |pointer: &str| body.pointer(pointer).is_some_and(Value::is_string);
    let in_patch =
        |operation: &Value| operation["path"] == "/metadata/resourceVersion" && operation["value"].is_string();
    let rests = match request.method.as_str() {
        _ if path.contains("/events") => true,
        "PATCH" => text("/metadata/resourceVersion") || body.as_array().is_some_and(|all| all.iter().any(in_patch)),
        "DELETE" => text("/preconditions/uid") && (text("/preconditions/resourceVersion") || path.contains("/pods/")),
        // The API server creates an object only if none of its name exists.
        method => ["GET", "POST"].contains(&method),
    };
    (!rests).then(|| format!("{} {path} names no version: {body}", request.method))
}

/// A client that passes each request on after `before` has seen it.
fn watched<F: Future<Output = ()> + Send + 'static>(
    client: Client,
    before: impl Fn(&http::request::Parts, Value) -> F + Clone + Send + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, before) = (client.clone(), before.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let seen = before(&head, serde_json::from_slice(&body).unwrap_or_default());
            seen.await;
            client.send(Request::from_parts(head, Body::from(body))).await
        }
    });
    Client::new(service, "default")
}

/// An agent is paused before it writes a status. Another one records the first start of a server meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_status_erases_no_first_start() {
    let server = ApiServer::start("late-status").await;
    kinds(&server.client).await;
    rights(&server.client).await;
    let (paused, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let pause = (Arc::new(AtomicBool::new(true)), paused.clone(), resumed.clone());
    let client = watched(server.agent(), move |head, _| {
        let (is_first, paused, resumed) = pause.clone();
        let writes_status = head.uri.path().ends_with("/status");
        async move {
            if writes_status && is_first.swap(false, Ordering::Relaxed) {
                paused.notify_one();
                resumed.notified().await;
            }
        }
    });
    let simulator = Simulator::new(Behaviour::default());
    let options = AgentOptions { dial: simulator.dial(), ..AgentOptions::default() };
    let cluster = Cluster::new(&server.client, simulator);
    cluster.apply().await;
    let metrics = Metrics::new(&mut Registry::default());
    let agent = tokio::spawn(async move {
        let () = mczk_agent::run(client, options, metrics, || {}, std::future::pending()).await;
    });
    timeout(PATIENCE, paused.notified()).await.unwrap();
    let first = FirstStart { id: 1, volume: "n".to_owned() };
    let list = list(1, &[1, 2, 3], EnsemblePhase::Bootstrapping);
    let recorded = json!({ "observedSpecHash": "accepted", "ensemble": list, "firstStarts": [first] });
    let patch = Patch::Merge(json!({ "status": recorded }));
    cluster.objects.patch_status("zk", &PatchParams::default(), &patch).await.unwrap();
    resumed.notify_one();
    let status = cluster.until("written", |status| status.observed_generation == Some(1)).await;
    assert!(status.first_starts.contains(&first), "{status:#?}");
    sleep(Duration::from_secs(2)).await;
    // The agent itself records that its other server has not started before the first quorum.
    let unused = FirstStart { id: 2, volume: format!("unused-{INCARNATION}") };
    assert_eq!(cluster.until("at rest", |_| true).await.first_starts, [first, unused]);
    agent.abort();
}

/// Applies the definitions of the kinds.
async fn kinds(client: &Client) {
    let operator = Identity::User("operator".into());
    let settings =
        Settings { operator, namespaces: BTreeSet::new(), dashboard: false, interpreter: None, agents: None };
    for object in Part::Crds.objects(&settings).unwrap() {
        apply::apply(client, &object).await.unwrap();
        apply::served(client, &object).await.unwrap();
    }
}

/// An agent that is limited to namespaces reports an object in another one. It needs no right to its Secrets and Pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_in_another_namespace_is_reported() {
    let server = ApiServer::start("namespaces").await;
    kinds(&server.client).await;
    rights(&server.client).await;
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    let all = roles.get("mczk-agent").await.unwrap().rules.unwrap();
    let of_cluster = ["zookeepers", "zookeepers/status", "nodes", "persistentvolumes", "storageclasses", "namespaces"];
    assert_eq!(all.iter().take(6).flat_map(|rule| rule.resources.clone().unwrap()).collect::<Vec<_>>(), of_cluster);
    merge(&roles, "mczk-agent", json!({ "rules": all[..6] })).await;
    create(&Api::<Namespace>::all(server.client.clone()), json!({ "metadata": { "name": "other" } })).await;
    let objects: Api<ZooKeeper> = Api::namespaced(server.client.clone(), "other");
    let object: ZooKeeper = fixtures::zookeeper(json!({ "metadata": { "namespace": "other", "uid": null } }));
    objects.patch("zk", &PatchParams::apply("karmada"), &Patch::Apply(&object)).await.unwrap();
    let options = AgentOptions { namespaces: ["default".to_owned()].into(), ..AgentOptions::default() };
    let metrics = Metrics::new(&mut Registry::default());
    let task = tokio::spawn(async move {
        let () = mczk_agent::run(server.agent(), options, metrics, || {}, std::future::pending()).await;
    });
    wait_for("the object is reported", async || {
        let status = objects.get("zk").await.unwrap().status;
        status.is_some_and(|status| blocked(&status) == Some("NamespaceNotHandled"))
    })
    .await;
    task.abort();
}

/// The object of a spare: the agent asks its own API server, with its own rights, and creates nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_says_what_its_cluster_would_refuse() {
    let server = ApiServer::start("spare").await;
    let client = server.client.clone();
    kinds(&client).await;
    rights(&client).await;
    let objects: Api<ZooKeeper> = Api::default_namespaced(client.clone());
    let spec = json!({ "replicas": 0, "spareOf": "zk", "source": { "surveys": true } });
    let object: ZooKeeper = fixtures::zookeeper(json!({
        "metadata": { "name": "zk.spares", "namespace": "default", "uid": null }, "spec": spec,
    }));
    objects.patch("zk.spares", &PatchParams::apply("karmada"), &Patch::Apply(&object)).await.unwrap();
    let options = AgentOptions { cluster: Some("m4".to_owned()), ..AgentOptions::default() };
    let (metrics, agent) = (Metrics::new(&mut Registry::default()), server.agent());
    let task = tokio::spawn(async move {
        let () = mczk_agent::run(agent, options, metrics, || {}, std::future::pending()).await;
    });
    let says = async |reason: &str, part: &str| {
        wait_for(&format!("SpareFit {reason} {part}"), async || {
            let status = objects.get("zk.spares").await.unwrap().status.unwrap_or_default();
            condition(&status, "SpareFit").is_some_and(|c| c.reason == reason && c.message.contains(part))
        })
        .await;
    };
    // Each change of the object is a new question.
    let ask = async |overrides: Value, revision: &str| {
        let spec = json!({ "revision": revision, "source": { "overrides": overrides } });
        merge(&objects, "zk.spares", json!({ "spec": spec })).await;
    };
    says("NoStorageClass", "No storage class is the default one").await;
    let of_m4 = json!([{ "cluster": "m4", "storageClassName": "fast" }]);
    ask(of_m4.clone(), "0123456781").await;
    says("NoStorageClass", "The storage class fast does not exist").await;
    let fast = json!({ "metadata": { "name": "fast" }, "provisioner": "example.com/disks" });
    create(&Api::<StorageClass>::all(client.clone()), fast).await;
    ask(of_m4.clone(), "0123456782").await;
    says("ServersAccepted", "").await;

    let manual = json!([{ "cluster": "m4", "storageClassName": "manual" }]);
    ask(manual.clone(), "0123456785").await;
    says("NoStorageClass", "The storage class manual does not exist").await;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let spec = json!({
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
        "hostPath": { "path": "/v" },
    });
    create(&volumes, json!({ "metadata": { "name": "v" }, "spec": spec })).await;
    let free = json!({ "status": { "phase": "Available" } });
    volumes.patch_status("v", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    ask(manual, "0123456786").await;
    says("ServersAccepted", "").await;

    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let hard = json!({ "pods": "0" });
    create(&quotas, json!({ "metadata": { "name": "full" }, "spec": { "hard": hard } })).await;
    let full = json!({ "status": { "hard": hard, "used": hard } });
    quotas.patch_status("full", &PatchParams::default(), &Patch::Merge(&full)).await.unwrap();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let all_rules = roles.get("mczk-agent").await.unwrap().rules.unwrap();
    let without_writes = |mut rule: PolicyRule| {
        if rule.resources.iter().flatten().any(|resource| resource == "statefulsets") {
            rule.verbs.retain(|verb| ["list", "watch"].contains(&verb.as_str()));
        }
        rule
    };
    let reduced: Vec<PolicyRule> = all_rules.into_iter().map(without_writes).collect();
    merge(&roles, "mczk-agent", json!({ "rules": reduced })).await;
    ask(of_m4.clone(), "0123456783").await;
    let service = json!({ "metadata": { "name": "zk" }, "spec": { "ports": [{ "port": 1 }] } });
    let services: Api<Service> = Api::default_namespaced(client.clone());
    create(&services, service).await;
    ask(of_m4.clone(), "0123456784").await;
    for part in ["StatefulSet zk-", "Pod zk-", "Service zk exists and does not belong to the agent"] {
        says("ServersRefused", part).await;
    }
    services.delete("zk", &DeleteParams::default()).await.unwrap();
    assert!(names(&Api::<Service>::default_namespaced(client.clone())).await.iter().all(|name| name == "kubernetes"));
    for left in [
        names(&Api::<Pod>::default_namespaced(client.clone())).await,
        names(&Api::<StatefulSet>::default_namespaced(client)).await,
    ] {
        assert_eq!(left, Vec::<String>::new());
    }
    task.abort();
}

/// Checks that the agent writes nothing any more. On a slow machine what it does after half a minute comes later.
async fn at_rest(registry: &Registry) {
    sleep(Duration::from_secs(32)).await;
    wait_for("the agent writes nothing for 5 s", async || {
        let before = writes(registry);
        sleep(Duration::from_secs(5)).await;
        writes(registry) == before
    })
    .await;
}

fn writes(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mczk_agent_writes")).collect();
    lines.join("\n")
}

/// An agent in a new cluster, until the value is dropped.
struct Running {
    cluster: Cluster,
    registry: Registry,
    tasks: [tokio::task::JoinHandle<()>; 3],
    server: ApiServer,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn run_agent(name: &str) -> Running {
    let server = ApiServer::start(name).await;
    kinds(&server.client).await;
    rights(&server.client).await;
    let simulator = Simulator::new(Behaviour::default());
    let cluster = Cluster::new(&server.client, simulator.clone());
    for name in ["n1", "n2"] {
        create(&cluster.nodes, json!({ "metadata": { "name": name }, "spec": {} })).await;
    }
    let mut registry = Registry::default();
    let options = AgentOptions {
        dial: simulator.dial(),
        at_rest: Duration::from_millis(700),
        while_busy: Duration::from_millis(200),
        ..AgentOptions::default()
    };
    let metrics = Metrics::new(&mut registry);
    let observed = simulator.clone();
    let client = watched(server.agent(), move |head, body| {
        if let Some(violation) = rests_on_nothing(head, &body) {
            observed.change(|world| world.violate("default", violation));
        }
        std::future::ready(())
    });
    let tasks = [
        tokio::spawn(simulator.clone().kubelets("m1".into(), server.client.clone())),
        tokio::spawn(stateful_sets(server.client.clone(), simulator)),
        tokio::spawn(async move {
            let () = mczk_agent::run(client, options, metrics, || {}, std::future::pending()).await;
        }),
    ];
    Running { cluster, registry, tasks, server }
}

/// Another client creates each object right before the agent does: the agent takes none over, and names them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_appears_before_the_write_is_not_taken_over() {
    let server = ApiServer::start("appears").await;
    kinds(&server.client).await;
    rights(&server.client).await;
    let made: Arc<Mutex<BTreeMap<String, DynamicObject>>> = Arc::default();
    let (admin, seen) = (server.client.clone(), made.clone());
    let client = watched(server.agent(), move |head, body| {
        let is_apply = head.method == "PATCH" && head.headers["content-type"] == "application/apply-patch+yaml";
        let (admin, seen) = (admin.clone(), seen.clone());
        async move {
            let kind = body["kind"].as_str().unwrap_or_default().to_owned();
            let Some((plural, ..)) =
                REFUSED.iter().find(|(.., object)| is_apply && object.starts_with(&format!("{kind} ")))
            else {
                return;
            };
            let mut foreign = body.clone();
            foreign["metadata"] = json!({ "name": body["metadata"]["name"] });
            let types: TypeMeta = serde_json::from_value(body).unwrap();
            let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), plural);
            let api: Api<DynamicObject> = Api::default_namespaced_with(admin, &resource);
            let foreign: DynamicObject = serde_json::from_value(foreign).unwrap();
            if let Ok(created) = api.create(&PostParams::default(), &foreign).await {
                seen.lock().unwrap().insert(format!("{plural}/{}", created.name_any()), created);
            }
        }
    });
    let simulator = Simulator::new(Behaviour::default());
    let options = AgentOptions { dial: simulator.dial(), ..AgentOptions::default() };
    let mut cluster = Cluster::new(&server.client, simulator);
    cluster.apply().await;
    let metrics = Metrics::new(&mut Registry::default());
    let agent = tokio::spawn(async move {
        let () = mczk_agent::run(client, options, metrics, || {}, std::future::pending()).await;
    });
    cluster.write(2, "r1", list(1, &[1, 2, 3], EnsemblePhase::Bootstrapping)).await;
    cluster.until("a conflict", |status| blocked(status) == Some("NameConflict")).await;
    sleep(Duration::from_secs(3)).await;
    agent.abort();
    let made = made.lock().unwrap().clone();
    assert!(!made.is_empty(), "the agent writes objects");
    for (name, created) in made {
        let resource = ApiResource::from_gvk_with_plural(
            &created.types.as_ref().unwrap().try_into().unwrap(),
            name.split_once('/').unwrap().0,
        );
        let api: Api<DynamicObject> = Api::default_namespaced_with(server.client.clone(), &resource);
        let now = api.get(&created.name_any()).await.unwrap();
        assert_eq!(now.resource_version(), created.resource_version(), "{name}");
    }
}

/// A move that is called off, or a placement that changes back at once: Karmada brings the object and its Secrets, and releases
/// them before any server list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_never_had_a_server_list_leaves_no_certificate() {
    let mut agent = run_agent("released").await;
    let cluster = &mut agent.cluster;
    let of = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
    create(&cluster.secrets, of("zk-abc123-identity-1", json!({ INCARNATION_LABEL: "abc123" }))).await;
    create(&cluster.secrets, of("users-secret", json!({}))).await;
    let dependency = |name: &str| Dependency { kind: DependencyKind::Secret, name: name.into() };
    cluster.object.spec.dependencies = ["zk-abc123-identity-1", "users-secret"].map(dependency).into();
    cluster.object.spec.ensemble = Ensemble::default();
    cluster.object.metadata.labels = Some([(ENSEMBLE_LABEL.to_owned(), "zk".to_owned())].into());
    cluster.object.metadata.annotations = Some([(APPLIED_HASH.to_owned(), "hash".to_owned())].into());
    cluster.apply().await;
    cluster.until_gone().await;
    assert_eq!(names(&cluster.secrets).await, ["users-secret"]);
}

/// A kind of objects that a policy refuses, as the plural, the group, the version, and the object in the message.
type RefusedKind = (&'static str, &'static str, &'static str, &'static str);

const REFUSED: [RefusedKind; 9] = [
    ("serviceaccounts", "", "v1", "ServiceAccount zk-abc123"),
    ("configmaps", "", "v1", "ConfigMap zk-abc123"),
    ("secrets", "", "v1", "Secret zk-abc123-client"),
    ("services", "", "v1", "Service zk-abc123"),
    ("poddisruptionbudgets", "policy", "v1", "PodDisruptionBudget zk-abc123"),
    ("networkpolicies", "networking.k8s.io", "v1", "NetworkPolicy zk-abc123"),
    ("statefulsets", "apps", "v1", "StatefulSet zk-abc123"),
    ("pods", "", "v1", "Pod zk-abc123-0"),
    ("zookeepers", "mczk.io", "v1alpha1", "ZooKeeper zk"),
];

/// Each kind of object, refused by an admission policy and by a quota on its number: at the bootstrap, later, and at the end.
/// The status has the words of the API server, and what comes after the object is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_reported_in_the_words_of_the_api_server() {
    let mut agent = run_agent("refused").await;
    let cluster = &mut agent.cluster;
    cluster.put_secret(&certificates()).await;
    cluster.object.spec.tls.client =
        serde_json::from_value(json!({ "mode": "Optional", "secretName": "users-secret" })).unwrap();
    cluster.apply().await;
    for (epoch, kind) in (1..).step_by(2).zip(REFUSED) {
        let (plural, .., object) = kind;
        let counts = plural != "zookeepers";
        cluster.refuse(kind, counts).await;
        cluster.write(2, "r1", list(epoch, &[1, 2, 3], EnsemblePhase::Bootstrapping)).await;
        cluster.until_refused(object, "no more of these").await;
        match plural {
            "zookeepers" => cluster.assert_empty().await,
            "statefulsets" => {
                wait_for("the rest", async || cluster.services.get_opt("zk").await.unwrap().is_some()).await;
            }
            _ => wait_for(object, async || cluster.sets.get_opt(SET).await.unwrap().is_some()).await,
        }
        cluster.allow_in_turn(object, counts).await;
        cluster.until_complete(&format!("{object} is allowed")).await;
        // A server stops only with the restart lock: `refused_by_admission` and `refused_by_quota` have pods later.
        if plural != "pods" {
            cluster.refused_later(kind).await;
        }
        cluster.refused_end(kind, list(epoch + 1, &[1, 2, 3], EnsemblePhase::Decommissioning)).await;
        cluster.objects.delete("zk", &DeleteParams::default()).await.unwrap();
        cluster.until_gone().await;
        cluster.simulator.change(|world| world.forget(INCARNATION));
    }
}

/// Refusals of a running ensemble: of a change by schema, of the next pod by a quota and by admission, and of deletions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_serves_stops_for_a_pod_that_would_be_refused() {
    let mut agent = run_agent("quota").await;
    let cluster = &mut agent.cluster;
    cluster.apply().await;
    cluster.deployed().await;
    cluster.refused_probe().await;
    cluster.refused_by_schema().await;
    cluster.refused_by_admission().await;
    cluster.refused_beside_servers().await;
    cluster.refused_by_quota().await;
    cluster.refused_deletions().await;
    cluster.kubelet_refuses().await;
    cluster.assert_no_violation("the end");
}

/// An agent that has just started knows of no conflict when it decides first. The change was complete for a moment, and the next
/// cluster changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_of_the_first_pass_keeps_a_change_from_being_complete() {
    let mut agent = run_agent("first-pass").await;
    agent.cluster.apply().await;
    agent.cluster.deployed().await;
    agent.tasks[2].abort();
    let policies: Api<NetworkPolicy> = Api::default_namespaced(agent.server.client.clone());
    merge(&policies, SET, json!({ "metadata": { "labels": null } })).await;
    let cluster = &mut agent.cluster;
    cluster.object.spec.peer_cidrs = vec!["192.0.2.0/24".to_owned()];
    cluster.write(2, "r1", running(2, &[1, 2, 3])).await;
    let hash = cluster.object.spec.spec_hash.clone();
    let (client, metrics) = (agent.server.agent(), Metrics::new(&mut Registry::default()));
    let options = AgentOptions { dial: cluster.simulator.dial(), ..AgentOptions::default() };
    agent.tasks[2] = tokio::spawn(async move {
        let () = mczk_agent::run(client, options, metrics, || {}, std::future::pending()).await;
    });
    let conflict = |status: &ZooKeeperStatus| {
        assert_ne!(status.completed_spec_hash, hash, "{status:?}");
        blocked(status) == Some("NameConflict")
    };
    agent.cluster.until("the NetworkPolicy has lost its labels", conflict).await;
}

/// The StatefulSet controller of Kubernetes creates the claim before the pod, at the bootstrap and for a further server. What
/// the API server says of the claim is reported, and no other pod is.
#[rstest]
#[case::quota_then_admission("quota", "limit")]
#[case::admission_then_quota("policy", "quota")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_refused_is_reported_in_the_words_of_the_api_server(#[case] first: &str, #[case] later: &str) {
    let mut agent = run_agent(&format!("claims-{first}")).await;
    // Kubernetes' own controller takes over.
    agent.tasks[1].abort();
    let _controller = agent.server.stateful_sets();
    let cluster = &mut agent.cluster;
    let words = cluster.refuse_claims(first).await;
    cluster.write(1, "r1", list(1, &[1, 3], EnsemblePhase::Bootstrapping)).await;
    cluster.until_refused("PersistentVolumeClaim data-zk-abc123-0", words).await;
    if first == "quota" {
        // The controller says what is refused in events, and Kubernetes drops those after the first 25 for five minutes.
        sleep(Duration::from_secs(40)).await;
        cluster.quotas().delete("none", &DeleteParams::default()).await.unwrap();
    } else {
        cluster.allow("no-more").await;
    }
    cluster.until_complete("its claim is accepted").await;
    cluster.until("no longer refused", |status| blocked(status).is_none()).await;
    let words = cluster.refuse_claims(later).await;
    cluster.write(2, "r1", list(2, &[1, 2, 3], EnsemblePhase::Bootstrapping)).await;
    cluster.until_refused("PersistentVolumeClaim data-zk-abc123-1", words).await;
    // A correction of the spec does not wait for the controller. Server 3 runs in no cluster of this test, so there is no quorum.
    cluster.write(1, "r1", list(3, &[1, 3], EnsemblePhase::Bootstrapping)).await;
    let why = "Server zk-abc123-1 is not stopped: the agent sees no quorum";
    let rests = |status: &ZooKeeperStatus| status.conditions.iter().any(|condition| condition.message.contains(why));
    let status = cluster.until("only the stop waits", rests).await;
    assert!(!status.conditions.iter().any(|condition| condition.message.contains(words)), "{:?}", status.conditions);
}

/// A controller appends a toleration whenever the agent removes it. The agent wrote twice a second, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_writer_is_named_and_the_agent_backs_off() {
    let mut agent = run_agent("contested").await;
    let cluster = &mut agent.cluster;
    cluster.apply().await;
    cluster.deployed().await;
    let sets = cluster.sets.clone();
    let tuner = tokio::spawn(async move {
        let toleration = json!({ "key": "tuned", "operator": "Exists" });
        let params = PatchParams { field_manager: Some("tuner".into()), ..PatchParams::default() };
        loop {
            sleep(Duration::from_millis(50)).await;
            let Ok(set) = sets.get(SET).await else { continue };
            let mut all = set.spec.unwrap().template.spec.unwrap().tolerations.unwrap_or_default();
            if all.iter().all(|toleration| toleration.key.as_deref() != Some("tuned")) {
                all.push(serde_json::from_value(toleration.clone()).unwrap());
                let patch = json!({ "spec": { "template": { "spec": { "tolerations": all } } } });
                let _ = sets.patch(SET, &params, &Patch::Merge(patch)).await;
            }
        }
    });
    let named = |status: &ZooKeeperStatus| {
        let message = condition(status, "Contested").map(|c| c.message.as_str()).unwrap_or_default();
        message.contains("StatefulSet zk-abc123") && message.contains("tuner changes spec.template.spec.tolerations")
    };
    let status = cluster.until("the other writer is named", named).await;
    assert_eq!(status.completed_spec_hash, cluster.object.spec.spec_hash, "its servers are as declared");
    sleep(Duration::from_secs(15)).await;
    let count = || {
        let line = writes(&agent.registry).lines().find(|l| l.contains("StatefulSet")).unwrap_or_default().to_owned();
        line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = count();
    sleep(Duration::from_secs(10)).await;
    // Two: a slow pass may be late.
    assert!(count() - before <= 2, "{before} writes, then {}", count());
    tuner.abort();
}

/// The agent may not read something that its decision depends on. It reports that, and no longer that servers serve. Nothing
/// happens to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_refused_to_read_reports_it() {
    let mut agent = run_agent("blind").await;
    let cluster = &mut agent.cluster;
    cluster.apply().await;
    cluster.deployed().await;
    let before = cluster.pod_uids().await;
    let roles: Api<ClusterRole> = Api::all(cluster.nodes.clone().into_client());
    let granted = roles.get("mczk-agent").await.unwrap().rules.unwrap();
    for kind in ["pods", "statefulsets", "services", "secrets", "persistentvolumeclaims", "networkpolicies"] {
        let has = |rule: &&PolicyRule| rule.resources.iter().flatten().any(|resource| resource == kind);
        let (taken, rest): (Vec<&PolicyRule>, Vec<&PolicyRule>) = granted.iter().partition(has);
        let taken = taken.iter().flat_map(|rule| rule.resources.iter().flatten());
        merge(&roles, "mczk-agent", json!({ "rules": rest })).await;
        let is_refused = |c: &Condition| c.reason == "RequestRefused" && c.message.contains(" is forbidden: ");
        let is_blind = |status: &ZooKeeperStatus| condition(status, "Blocked").is_some_and(is_refused);
        let status = cluster.until(kind, is_blind).await;
        let message = &condition(&status, "Blocked").unwrap().message;
        assert!(message.contains("cluster m1") && message.contains("It is refused reading "), "{message}");
        let is_named = |resource: &String| message.contains(&format!("resource \"{resource}\""));
        assert!(taken.into_iter().any(is_named), "{message}");
        assert_eq!(status.completed_spec_hash, cluster.object.spec.spec_hash);
        assert_eq!((status.ready_replicas, status.writable, status.leader), (Some(0), Some(false), None));
        assert_eq!(status.conditions.len(), 1, "{:?}", status.conditions);
        let modes: Vec<_> =
            status.servers.iter().map(|server| (server.id, server.serving, server.mode.as_deref())).collect();
        assert_eq!(modes, [(1, false, Some("unknown")), (2, false, Some("unknown"))]);
        merge(&roles, "mczk-agent", json!({ "rules": granted })).await;
        let sees = |status: &ZooKeeperStatus| blocked(status).is_none() && status.ready_replicas == Some(2);
        cluster.until("it may read again", sees).await;
        assert_eq!(cluster.pod_uids().await, before, "nothing that serves stops");
    }
}

/// The steps of refusals.
impl Cluster {
    /// A policy that forbids operations on a kind, once the API server follows it.
    async fn forbid(&self, name: &str, (plural, group, version): (&str, &str, &str), operations: &[&str]) {
        let rule = |group: &str, version: &str, operations: &[&str], plural: &str| json!({ "apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": [plural] });
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.nodes.clone().into_client());
        // Controllers create pods and claims as this user.
        let exempt = "request.userInfo.username != 'admin' \
                      || request.kind.kind in ['Pod', 'PersistentVolumeClaim', 'LimitRange']";
        let spec = json!({
            "matchConstraints": { "resourceRules": [
                rule(group, version, operations, plural), rule("", "v1", &["CREATE"], "limitranges"),
            ] },
            "matchConditions": [{ "name": "not-karmada", "expression": exempt }],
            "validations": [{ "expression": "false", "message": "no more of these" }],
        });
        create(&policies, json!({ "metadata": { "name": name }, "spec": spec })).await;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.nodes.clone().into_client());
        let spec = json!({ "policyName": name, "validationActions": ["Deny"] });
        create(&bindings, json!({ "metadata": { "name": name }, "spec": spec })).await;
        self.until_followed("no more of these", true).await;
    }

    async fn allow(&self, name: &str) {
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.nodes.clone().into_client());
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.nodes.clone().into_client());
        bindings.delete(name, &DeleteParams::default()).await.unwrap();
        policies.delete(name, &DeleteParams::default()).await.unwrap();
        self.until_followed("no more of these", false).await;
    }

    /// Waits until the API server follows a policy or a quota, or no longer follows it: it refuses `LimitRanges` in these words.
    /// The agent never writes any.
    async fn until_followed(&self, words: &str, is_followed: bool) {
        let probes: Api<LimitRange> = Api::default_namespaced(self.nodes.clone().into_client());
        let probe =
            serde_json::from_value(json!({ "metadata": { "name": "probe" }, "spec": { "limits": [] } })).unwrap();
        let attempt = PostParams { dry_run: true, ..PostParams::default() };
        wait_for(&format!("the API server says {words:?}: {is_followed}"), async || {
            let refusal = probes.create(&attempt, &probe).await.err();
            refusal.is_some_and(|error| error.to_string().contains(words)) == is_followed
        })
        .await;
    }

    fn quotas(&self) -> Api<ResourceQuota> {
        Api::default_namespaced(self.nodes.clone().into_client())
    }

    /// A quota that is full, once the API server follows it. No controller counts here.
    async fn quota(&self, name: &str, hard: &Value) {
        let mut hard = hard.clone();
        hard["count/limitranges"] = "0".into();
        create(&self.quotas(), json!({ "metadata": { "name": name }, "spec": { "hard": hard } })).await;
        let full = json!({ "status": { "hard": hard, "used": hard } });
        self.quotas().patch_status(name, &PatchParams::default(), &Patch::Merge(&full)).await.unwrap();
        self.until_followed(&format!("exceeded quota: {name}"), true).await;
    }

    async fn until_refused(&self, object: &str, why: &str) {
        let words = format!("{object} is refused: ");
        let says = |c: &Condition| c.message.contains(&words) && c.message.contains(why);
        self.until(&format!("{words}{why}"), |status| condition(status, "Blocked").is_some_and(says)).await;
    }

    async fn until_blocked(&self, words: &str) -> ZooKeeperStatus {
        let says = |c: &Condition| c.reason == "ObjectRefused" && c.message.contains(words);
        self.until(words, |status| condition(status, "Blocked").is_some_and(says)).await
    }

    /// A policy refuses a kind, and so does a quota. The API server asks policies before quotas.
    async fn refuse(&self, (plural, group, version, _): RefusedKind, by_quota: bool) {
        if by_quota {
            let number = format!("count/{plural}{}{group}", if group.is_empty() { "" } else { "." });
            self.quota("none", &json!({ number.as_str(): "0" })).await;
        }
        self.forbid("no-more", (plural, group, version), &["CREATE", "UPDATE"]).await;
    }

    /// The policy goes, then the quota, in whose words the object is refused meanwhile.
    async fn allow_in_turn(&self, object: &str, by_quota: bool) {
        self.allow("no-more").await;
        if by_quota {
            self.until_refused(object, "exceeded quota: none").await;
            self.quotas().delete("none", &DeleteParams::default()).await.unwrap();
        }
    }

    /// Another client deletes an object that was complete, or changes it, and the agent may not write it again.
    async fn refused_later(&self, kind: RefusedKind) {
        let (plural, group, version, object) = kind;
        // Servers stop without their StatefulSet. Quotas count no changes.
        let goes = !["statefulsets", "zookeepers"].contains(&plural);
        self.refuse(kind, goes).await;
        let (type_, name) = object.split_once(' ').unwrap();
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, type_), plural);
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.nodes.clone().into_client(), &resource);
        let drift = json!({ "metadata": { "finalizers": null, "annotations": { APPLIED_HASH: null } } });
        if goes {
            merge(&self.sets, SET, drift).await;
            api.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        } else {
            merge(&api, name, drift).await;
        }
        self.until_refused(object, "no more of these").await;
        // Without a copy of its certificates a StatefulSet stays as it is.
        if goes && plural != "secrets" {
            self.until_set_is_written().await;
        }
        self.allow_in_turn(object, goes).await;
        self.until(&format!("{object} is back"), |status| blocked(status).is_none()).await;
        self.until_set_is_written().await;
    }

    /// The agent has written the StatefulSet after a change by another client.
    async fn until_set_is_written(&self) {
        let has_hash = async || self.sets.get(SET).await.unwrap().annotations().contains_key(APPLIED_HASH);
        wait_for("the StatefulSet is written", has_hash).await;
    }

    /// The ensemble ends, and a policy keeps the object for a while. The agent deletes no pod then, and no `ZooKeeper`.
    async fn refused_end(&mut self, (plural, group, version, object): RefusedKind, list: Ensemble) {
        let is_deleted = !["pods", "zookeepers"].contains(&plural);
        if is_deleted {
            self.forbid("no-end", (plural, group, version), &["DELETE"]).await;
        }
        self.write(2, "r1", list).await;
        if is_deleted {
            self.until_refused(&format!("The deletion of {object}"), "no more of these").await;
            self.allow("no-end").await;
        }
        self.until("decommissioned", |status| condition(status, "Decommissioned").is_some()).await;
    }

    /// The API server refuses every further claim, in the words that this returns.
    async fn refuse_claims(&self, by: &str) -> &'static str {
        if by == "quota" {
            self.quota("none", &json!({ "persistentvolumeclaims": "0" })).await;
            return "exceeded quota: none";
        }
        if by == "policy" {
            self.forbid("no-more", ("persistentvolumeclaims", "", "v1"), &["CREATE"]).await;
            return "no more of these";
        }
        let limits = json!([{ "type": "PersistentVolumeClaim", "max": { "storage": "512Mi" } }]);
        let small = json!({ "metadata": { "name": "small" }, "spec": { "limits": limits } });
        create(&Api::<LimitRange>::default_namespaced(self.nodes.clone().into_client()), small).await;
        let mut claim = self.claims.get("data-zk-abc123-0").await.unwrap();
        claim.metadata = ObjectMeta { name: Some("probe".to_owned()), ..ObjectMeta::default() };
        let attempt = PostParams { dry_run: true, ..PostParams::default() };
        wait_for("the limit holds", async || self.claims.create(&attempt, &claim).await.is_err()).await;
        "maximum storage usage per PersistentVolumeClaim is 512Mi"
    }

    /// Another pod has the name of the probe, then a policy forbids the probe. The servers are as declared all the time.
    async fn refused_probe(&mut self) {
        let name = format!("{SET}-2");
        // The StatefulSet controller of this test deletes every pod that it did not create.
        let metadata = json!({ "name": name, "finalizers": ["example.com/stays"] });
        create(&self.pods, json!({ "metadata": metadata, "spec": { "containers": [{ "name": "c", "image": "i" }] } }))
            .await;
        let target = ServerName { cluster: "m1".into(), host: format!("{name}.m1"), ordinal: Some(2) };
        self.object.spec.preflight = Some(preflight::request(INCARNATION, vec![target], None).unwrap());
        self.apply().await;
        self.until_probe_fails(&format!("Pod {name} exists and does not belong to the agent")).await;
        self.forbid("no-more", ("pods", "", "v1"), &["CREATE"]).await;
        merge(&self.pods, &name, json!({ "metadata": { "finalizers": null } })).await;
        self.until_probe_fails(&format!("Probe pod {name} is refused: ")).await;
        self.object.spec.preflight = None;
        self.apply().await;
        self.allow("no-more").await;
        self.until("no check", |status| status.preflight.is_none()).await;
    }

    async fn until_probe_fails(&self, why: &str) {
        let fails = |status: &ZooKeeperStatus| {
            assert_eq!(blocked(status), None, "servers do not need it");
            status
                .preflight
                .as_ref()
                .and_then(|report| report.failure.as_ref())
                .is_some_and(|failure| failure.contains(why))
        };
        self.until(why, fails).await;
    }

    /// An affinity that only the API server of the cluster refuses. The corrected spec is applied at once.
    async fn refused_by_schema(&mut self) {
        let before = self.pod_uids().await;
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } } });
        self.object.spec.template.scheduling = serde_json::from_value(json!({ "affinity": affinity })).unwrap();
        self.write(2, "r2", running(2, &[1, 2, 3])).await;
        let status = self.until_blocked("StatefulSet zk-abc123 is refused").await;
        assert_eq!(status.ready_replicas, Some(2), "the rest of the status is current");
        assert_eq!(self.pod_uids().await, before);
        self.object.spec.template.scheduling = None;
        let corrected = Instant::now();
        self.write(2, "r1", running(2, &[1, 2, 3])).await;
        self.until_complete("corrected").await;
        // The agent writes what was refused again after a minute at most, and the operator gives up after ten.
        assert!(corrected.elapsed() < Duration::from_secs(50), "{:?}", corrected.elapsed());
    }

    /// A priority class that does not exist: the API server refuses the next pod.
    async fn refused_by_admission(&mut self) {
        let before = self.pod_uids().await;
        self.object.spec.template.scheduling =
            serde_json::from_value(json!({ "priorityClassName": "absent" })).unwrap();
        self.write(2, "r3", running(2, &[1, 2, 3])).await;
        let status = self.until_blocked("no PriorityClass with name absent was found").await;
        assert!(condition(&status, "Blocked").unwrap().message.contains("Pod zk-abc123-"), "{:?}", status.conditions);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.pod_uids().await, before, "nothing that serves stops");
        assert!(self.world(|world| world.lock(INCARNATION).is_none()), "other clusters restart theirs");
        self.object.spec.template.scheduling = None;
        self.write(2, "r1", running(2, &[1, 2, 3])).await;
        self.until_complete("without the priority class").await;
        assert_eq!(self.pod_uids().await, before);
    }

    /// No pod changes, so every server is as declared at once. A cluster that reported that would let the next one change.
    async fn refused_beside_servers(&mut self) {
        self.forbid("no-policy", ("networkpolicies", "networking.k8s.io", "v1"), &["CREATE", "UPDATE"]).await;
        self.object.spec.peer_cidrs = vec!["192.0.2.0/24".to_owned()];
        self.write(2, "r1", running(2, &[1, 2, 3])).await;
        let hash = self.object.spec.spec_hash.clone();
        let refused = |status: &ZooKeeperStatus| {
            assert_ne!(status.completed_spec_hash, hash, "{status:?}");
            condition(status, "Blocked").is_some_and(|blocked| blocked.message.contains("no more of these"))
        };
        self.until("the NetworkPolicy is refused", refused).await;
        self.allow("no-policy").await;
        self.until_complete("the NetworkPolicy is allowed").await;
    }

    /// A quota that the running pods fill lets them restart. One that admits no larger pod keeps them, and so does one of pods
    /// alone if the next pod is larger: another quota may limit that.
    async fn refused_by_quota(&mut self) {
        self.quota("full", &json!({ "pods": "2", "requests.cpu": "1" })).await;
        let before = self.pod_uids().await;
        let larger = json!({ "requests": { "cpu": "2" }, "limits": { "memory": "1024Mi" } });
        self.object.spec.template.resources = serde_json::from_value(larger).unwrap();
        self.write(2, "r4", running(2, &[1, 2, 3])).await;
        self.until_blocked("exceeded quota: full").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.pod_uids().await, before, "nothing that serves stops");
        let larger = json!({ "requests": { "cpu": "0.5" }, "limits": { "memory": "1025Mi" } });
        self.object.spec.template.resources = serde_json::from_value(larger).unwrap();
        self.write(2, "r5", running(2, &[1, 2, 3])).await;
        self.until_blocked("is refused: pods").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.pod_uids().await, before, "nothing names the quota of memory");
        let smaller = json!({ "requests": { "cpu": "0.5" }, "limits": { "memory": "1023Mi" } });
        self.object.spec.template.resources = serde_json::from_value(smaller).unwrap();
        self.write(2, "r8", running(2, &[1, 2, 3])).await;
        // The first restart: its pod goes although the quota is full. No controller gives back what it used.
        wait_for("a pod goes", async || self.pod_uids().await != before).await;
        self.until_blocked("is refused: pods").await;
        self.quotas().delete("full", &DeleteParams::default()).await.unwrap();
        self.until_complete("without the quota").await;
    }

    /// An object that has to go stays, and servers go on.
    async fn refused_deletions(&mut self) {
        self.forbid("no-end", ("configmaps", "", "v1"), &["DELETE"]).await;
        self.write(2, "r6", running(2, &[1, 2, 3])).await;
        let stays = |c: &Condition| c.message.contains("ConfigMap zk-abc123") && c.message.contains("no more of these");
        let serves = |status: &ZooKeeperStatus| {
            condition(status, "Contested").is_some_and(stays) && status.ready_replicas == Some(2)
        };
        self.until("the ConfigMap stays", serves).await;
        self.until_complete("no server needs that").await;
        self.allow("no-end").await;
        self.until("allowed", |status| condition(status, "Contested").is_none()).await;
    }

    /// What a kubelet says only in an event, of a pod that waits for half a minute.
    async fn kubelet_refuses(&mut self) {
        self.object.spec.template.image = "zookeeper:silent".into();
        self.write(2, "r7", running(2, &[1, 2, 3])).await;
        wait_for("a pod is pending", async || {
            all(&self.pods).await.iter().any(|pod| pod.labels()["mczk.io/revision"] == "r7")
        })
        .await;
        let pods = all(&self.pods).await;
        let pod = pods.iter().find(|pod| pod.labels()["mczk.io/revision"] == "r7").unwrap();
        let events: Api<Event> = Api::default_namespaced(self.nodes.clone().into_client());
        let event = json!({
            "metadata": { "name": "mount" }, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Mounting",
            "reportingController": "kubelet", "reportingInstance": "n1", "reason": "FailedMount", "type": "Warning",
            "note": "secret \"keys\" not found",
            "regarding": { "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "namespace": "default", "uid": pod.uid() },
        });
        create(&events, event).await;
        let says = |status: &ZooKeeperStatus| {
            condition(status, "Progressing").is_some_and(|c| {
                c.reason == "ServerFailed" && c.message.contains("FailedMount: secret \"keys\" not found")
            })
        };
        self.until("the event is reported", says).await;
    }
}

/// One story, so that every step finds the ensemble as the step before left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_first_server_to_the_last() {
    let mut agent = run_agent("agent").await;
    let (cluster, registry) = (&mut agent.cluster, &agent.registry);

    cluster.unassigned().await;
    cluster.deployed().await;
    at_rest(registry).await;
    cluster.changed().await;
    cluster.client_certificates().await;
    cluster.drained().await;
    cluster.replaced().await;
    cluster.grown().await;
    cluster.obstacles().await;
    cluster.smaller().await;
    cluster.decommissioned().await;
    cluster.abandoned_and_back().await;
    cluster.restored_after_the_end().await;
    cluster.assert_no_violation("the end");
}

/// The steps of the story.
impl Cluster {
    /// The spec is not assigned to this cluster: nothing is created.
    async fn unassigned(&self) {
        self.apply().await;
        let status = self.until("unassigned", |status| status.observed_generation == Some(1)).await;
        let other_incarnations = Some(Vec::new());
        let namespaces: Api<Namespace> = Api::all(self.objects.clone().into_client());
        let cluster_id = namespaces.get("kube-system").await.unwrap().uid();
        assert_eq!(
            status,
            ZooKeeperStatus {
                observed_generation: Some(1),
                other_incarnations,
                cluster_id,
                ..ZooKeeperStatus::default()
            }
        );
        assert!(all(&self.sets).await.is_empty());
    }

    /// The rollout reaches the cluster: two of three servers, a majority. A foreign Service stays, and is reported.
    async fn deployed(&mut self) {
        let foreign = json!({ "metadata": { "name": "zk" }, "spec": { "ports": [{ "port": 1 }] } });
        let foreign = create(&self.services, foreign).await;
        self.write(2, "r1", list(1, &[1, 2, 3], EnsemblePhase::Bootstrapping)).await;
        self.until("blocked", |status| blocked(status) == Some("NameConflict")).await;
        let untouched = self.services.get("zk").await.unwrap();
        assert_eq!(untouched.metadata.resource_version, foreign.metadata.resource_version);
        self.services.delete("zk", &DeleteParams::default()).await.unwrap();
        let status = self.until_complete("deployed").await;
        assert_eq!((status.started_replicas, status.replicas), (Some(2), Some(2)));
        let object = self.objects.get("zk").await.unwrap();
        assert_eq!(object.finalizers(), ["mczk.io/agent"]);
        assert_eq!(object.annotations()["mczk.io/cluster"], "m1");
        let other = world::Pod {
            key: key("m2", 0),
            uid: "other".into(),
            incarnation: INCARNATION.into(),
            role: Role::Voter,
            ordinal: 0,
            revision: "r1".into(),
        };
        self.simulator.change(|world| world.start(other));
        self.write_list(running(2, &[1, 2, 3])).await;
        let serves = |status: &ZooKeeperStatus| {
            status.leader.is_some() && status.ready_replicas == Some(2) && status.epoch() == Some(2)
        };
        let status = self.until("serves", serves).await;
        assert_eq!((status.voting_members.as_slice(), status.writable), (&[1, 2, 3][..], Some(true)));
        assert_eq!(status.ensemble, Some(running(2, &[1, 2, 3])));
    }

    /// Drift is corrected. A change restarts both servers, one after the other, each under the restart lock.
    async fn changed(&mut self) {
        merge(&self.sets, SET, json!({ "spec": { "minReadySeconds": 0, "revisionHistoryLimit": 9 } })).await;
        wait_for("drift is corrected", async || {
            self.sets.get(SET).await.unwrap().spec.unwrap().revision_history_limit == Some(2)
        })
        .await;
        self.write(2, "r2", running(2, &[1, 2, 3])).await;
        self.until_complete("changed").await;
        for pod in all(&self.pods).await {
            assert_eq!(pod.labels()["mczk.io/revision"], "r2");
        }
        wait_for("the lock is released", async || self.world(|world| world.lock(INCARNATION).is_none())).await;
    }

    /// Servers leave a cordoned node one at a time, each under the restart lock, if another node fits them.
    async fn drained(&self) {
        let (first, second) = (BTreeSet::from(["n1".to_owned()]), BTreeSet::from(["n2".to_owned()]));
        assert_eq!(self.nodes_in_use().await, first);
        merge(&self.nodes, "n1", json!({ "spec": { "unschedulable": true } })).await;
        self.until_draining("no other node is ready", "ServerStays").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.nodes_in_use().await, first, "no other node is ready");
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        self.nodes.patch_status("n2", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        // A new node has the taint `not-ready`, which a controller removes.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(self.nodes_in_use().await, first, "the taint repels servers");
        merge(&self.nodes, "n2", json!({ "spec": { "taints": null } })).await;
        let draining = |status: &ZooKeeperStatus| condition(status, "Draining").is_some();
        self.until_draining("drained", "NodeDrained").await;
        let status = self.until("moved", |status| !draining(status) && status.ready_replicas == Some(2)).await;
        assert_eq!(self.nodes_in_use().await, second);
        assert_eq!(status.completed_spec_hash, self.object.spec.spec_hash, "the spec stays complete");
        // An autoscaler drains by a taint, without a cordon.
        merge(&self.nodes, "n1", json!({ "spec": { "unschedulable": null, "taints": null } })).await;
        self.nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        let taint = json!([{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }]);
        merge(&self.nodes, "n2", json!({ "spec": { "taints": taint } })).await;
        self.until_draining("drained by Karpenter", "NodeDrained").await;
        self.until("moved back", |status| !draining(status) && status.ready_replicas == Some(2)).await;
        assert_eq!(self.nodes_in_use().await, first);
    }

    async fn until_draining(&self, what: &str, reason: &str) {
        self.until(what, |status| condition(status, "Draining").is_some_and(|c| c.reason == reason)).await;
    }

    /// A user wants a volume replaced. The agent deletes the claim that the request names, and the pod, under the restart
    /// lock. It deletes no claim of another uid, and none without its labels.
    async fn replaced(&self) {
        let name = format!("data-{SET}-0");
        let labels = json!({
            "mczk.io/ensemble": "zk", "mczk.io/incarnation": INCARNATION, "mczk.io/role": "voter",
            "app.kubernetes.io/managed-by": "mczk-agent",
        });
        let foreign = self.claim(&name, json!({})).await;
        self.request(&format!("1/{foreign}")).await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.claims.get(&name).await.unwrap().uid(), Some(foreign), "the claim is not the agent's");
        merge(&self.claims, &name, json!({ "metadata": { "labels": labels } })).await;
        let uid = self.claims.get(&name).await.unwrap().uid().unwrap();
        self.request(&format!("2/{uid}")).await;
        let waits = |status: &ZooKeeperStatus| {
            condition(status, "Replacing")
                .is_some_and(|c| c.reason == "ReplacementWaits" && c.message.contains("server 1"))
        };
        self.until("the claim is of another server", waits).await;
        let before = self.pods.get(&format!("{SET}-0")).await.unwrap().uid();
        let policy = self.forbid_deletion(&name).await;
        self.request(&format!("1/{uid}")).await;
        let refused = |status: &ZooKeeperStatus| {
            condition(status, "Replacing").is_some_and(|c| c.message.contains("does not delete PersistentVolumeClaim"))
        };
        self.until("a policy keeps the claim", refused).await;
        let is_free = async || self.world(|world| world.lock(INCARNATION).is_none());
        wait_for("the lock is released although the claim stays", is_free).await;
        policy.delete("keep-claims", &DeleteParams::default()).await.unwrap();
        wait_for("the claim is gone", async || self.claims.get_opt(&name).await.unwrap().is_none()).await;
        let serves =
            |status: &ZooKeeperStatus| condition(status, "Replacing").is_none() && status.ready_replicas == Some(2);
        self.until("replaced", serves).await;
        wait_for("the lock is released", async || self.world(|world| world.lock(INCARNATION).is_none())).await;
        let after = self.pods.get(&format!("{SET}-0")).await.unwrap().uid();
        assert_ne!(before, after, "the pod goes with its claim");
        let next = self.claim(&name, labels).await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(self.claims.get(&name).await.unwrap().uid(), Some(next), "the request is void");
        assert_eq!(self.pods.get(&format!("{SET}-0")).await.unwrap().uid(), after);
        self.claims.delete(&name, &DeleteParams::default()).await.unwrap();
        merge(&self.objects, "zk", json!({ "metadata": { "annotations": { "mczk.io/replace-volume": null } } })).await;
        self.until_complete("after the replacement").await;
    }

    /// A policy that forbids every deletion of a claim, once the API server follows it.
    async fn forbid_deletion(&self, claim: &str) -> Api<ValidatingAdmissionPolicyBinding> {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["persistentvolumeclaims"] });
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.nodes.clone().into_client());
        let spec = json!({
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": "false", "message": "claims stay" }],
        });
        create(&policies, json!({ "metadata": { "name": "keep-claims" }, "spec": spec })).await;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.nodes.clone().into_client());
        let spec = json!({ "policyName": "keep-claims", "validationActions": ["Deny"] });
        create(&bindings, json!({ "metadata": { "name": "keep-claims" }, "spec": spec })).await;
        let attempt = DeleteParams { dry_run: true, ..DeleteParams::default() };
        wait_for("the policy holds", async || self.claims.delete(claim, &attempt).await.is_err()).await;
        bindings
    }

    async fn request(&self, request: &str) {
        merge(&self.objects, "zk", json!({ "metadata": { "annotations": { "mczk.io/replace-volume": request } } }))
            .await;
    }

    /// Creates a claim that ends as soon as it is deleted, and returns its uid.
    async fn claim(&self, name: &str, labels: Value) -> String {
        let claim = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        let created = create(&self.claims, claim).await;
        merge(&self.claims, name, json!({ "metadata": { "finalizers": null } })).await;
        created.uid().unwrap()
    }

    /// A server leaves: first the configuration, then the pod.
    async fn smaller(&mut self) {
        self.write(1, "r2", running(3, &[1, 3])).await;
        self.until_complete("smaller").await;
        let removed = self.world(|w| w.steps(INCARNATION).iter().filter_map(|step| step.remove).collect::<Vec<_>>());
        assert_eq!(removed, [2]);
        assert_eq!(self.world(|world| world.published(INCARNATION).and_then(|list| list.epoch)), Some(3));
    }

    /// The ensemble is decommissioned, and its object deleted.
    async fn decommissioned(&mut self) {
        self.write(1, "r2", list(4, &[1, 3], EnsemblePhase::Decommissioning)).await;
        let is_decommissioned = |status: &ZooKeeperStatus| {
            condition(status, "Decommissioned").is_some_and(|c| c.status == "True") && status.epoch() == Some(4)
        };
        self.until("decommissioned", is_decommissioned).await;
        self.assert_empty().await;
        self.objects.delete("zk", &DeleteParams::default()).await.unwrap();
        self.until_gone().await;
    }

    /// An abandoned cluster is back: all other clusters have ended, Karmada deletes its object, and a tombstone arrives.
    async fn abandoned_and_back(&mut self) {
        self.simulator.change(|world| world.forget(INCARNATION));
        self.write(1, "r2", list(5, &[1, 3], EnsemblePhase::Bootstrapping)).await;
        self.until_complete("declared again").await;
        self.simulator.change(|world| world.crash(&key("m2", 0)));
        self.until("alone", |status| status.ready_replicas == Some(0)).await;
        self.objects.delete("zk", &DeleteParams::default()).await.unwrap();
        self.until("deleted", |status| blocked(status) == Some("Deleted")).await;
        assert_eq!(self.sets.get(SET).await.unwrap().spec.unwrap().replicas, Some(1), "its servers may be needed");
        self.simulator.change(|world| world.end(INCARNATION));
        let tombstone = json!({ "metadata": {
            "name": format!("{SET}-tombstone"), "annotations": { "mczk.io/tombstone": "true" },
            "labels": { "mczk.io/ensemble": "zk", "mczk.io/incarnation": INCARNATION },
        }});
        create(&self.secrets, tombstone).await;
        self.until_gone().await;
        self.assert_empty().await;
    }

    /// An older copy of the control plane declares the incarnation whose tombstone is here.
    async fn restored_after_the_end(&mut self) {
        self.write(1, "r2", list(5, &[1, 3], EnsemblePhase::Bootstrapping)).await;
        let is_over =
            |status: &ZooKeeperStatus| condition(status, "Decommissioned").is_some_and(|c| c.status == "True");
        self.until("it is over", is_over).await;
        self.assert_empty().await;
    }

    /// Writes the Secret of the user, as Karmada does.
    async fn put_secret(&self, data: &Value) {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "users-secret" }, "stringData": data });
        let karmada = PatchParams::apply("karmada").force();
        self.secrets.patch("users-secret", &karmada, &Patch::Apply(&secret)).await.unwrap();
    }

    /// The agent's copy of the user's Secret.
    async fn copied_secret(&self) -> Option<BTreeMap<String, ByteString>> {
        self.secrets.get_opt(&format!("{SET}-client")).await.unwrap()?.data
    }

    async fn has_copied(&self, wanted: &Value) -> bool {
        let is = |(key, value): (&String, &ByteString)| wanted[key].as_str().map(str::as_bytes) == Some(&value.0);
        self.copied_secret().await.is_some_and(|data| data.len() == 3 && data.iter().all(is))
    }

    /// Pods mount a copy of the last sound certificates. No change of the user's Secret stops a server, and a renewal restarts none.
    async fn client_certificates(&mut self) {
        self.no_certificates_yet().await;
        let (first, second) = (certificates(), certificates());
        let before = self.pod_uids().await;
        self.put_secret(&first).await;
        self.until_complete("certificates for clients").await;
        assert!(self.has_copied(&first).await);
        let started = self.pod_uids().await;
        assert!(started.is_disjoint(&before));
        for pod in all(&self.pods).await {
            let volumes = pod.spec.unwrap().volumes.unwrap();
            let mounted = volumes.into_iter().find_map(|volume| volume.secret?.secret_name);
            assert_eq!(mounted, Some(format!("{SET}-client")));
        }

        self.put_secret(&second).await;
        wait_for("the renewal is copied", async || self.has_copied(&second).await).await;
        // Half of a change, then no Secret at all.
        self.put_secret(
            &json!({ "tls.crt": second["tls.crt"], "tls.key": first["tls.key"], "ca.crt": second["ca.crt"] }),
        )
        .await;
        let kept = |status: &ZooKeeperStatus| condition(status, "ClientCertificatesKept").map(|c| c.message.clone());
        let status = self.until("half of a change", |status| kept(status).is_some()).await;
        let message = kept(&status).unwrap();
        let reason = "Secret users-secret cannot be used: tls.crt and tls.key do not go together";
        assert!(message.contains(reason), "{message}");
        assert_eq!((&status.completed_spec_hash, blocked(&status)), (&self.object.spec.spec_hash, None));
        self.secrets.delete("users-secret", &DeleteParams::default()).await.unwrap();
        let is_deleted = |why: String| why.contains("users-secret does not exist");
        self.until("deleted", |status| kept(status).is_some_and(is_deleted)).await;
        assert!(self.has_copied(&second).await, "servers keep the last sound certificates");
        assert_eq!(self.pod_uids().await, started);

        // No pod mounts the copy any more. The user's Secret stays.
        self.put_secret(&second).await;
        self.object.spec.tls.client = None;
        self.write(2, "r2", running(2, &[1, 2, 3])).await;
        self.until_complete("plain again").await;
        wait_for("the copy is deleted", async || self.copied_secret().await.is_none()).await;
        assert!(self.secrets.get_opt("users-secret").await.unwrap().is_some());
    }

    /// The Secret has not arrived: no server restarts, since its new pod could not start.
    async fn no_certificates_yet(&mut self) {
        let before = self.pod_uids().await;
        let spec = &mut self.object.spec;
        spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "users-secret" })).unwrap();
        self.write(2, "r3", running(2, &[1, 2, 3])).await;
        let waits = |status: &ZooKeeperStatus| status.conditions.iter().any(|c| c.reason == "WaitingForCertificates");
        self.until("no certificates", waits).await;
        // A pod that Kubernetes recreates meanwhile comes back unchanged, and clients reach it as before.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(self.pod_uids().await, before);
        let set = self.sets.get(SET).await.unwrap().spec.unwrap();
        assert_eq!(set.template.metadata.unwrap().labels.unwrap()["mczk.io/revision"], "r2");
        let ports = self.services.get("zk").await.unwrap().spec.unwrap().ports.unwrap();
        assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [2181]);
    }

    /// Creates the claim of a server, with a volume of a class.
    async fn volume(&self, ordinal: i32, class: &str) {
        let labels = json!({
            "mczk.io/ensemble": "zk", "mczk.io/incarnation": INCARNATION, "app.kubernetes.io/managed-by": "mczk-agent",
        });
        let name = format!("data-{SET}-{ordinal}");
        let claim = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
                "storageClassName": class, "volumeName": format!("pv-{ordinal}") },
        });
        create(&self.claims, claim).await;
        merge(&self.claims, &name, json!({ "metadata": { "finalizers": null } })).await;
        self.resize(ordinal, json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } })).await;
    }

    /// Writes the status of a claim, as its driver's resizer and the kubelet do.
    async fn resize(&self, ordinal: i32, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.claims.patch_status(&format!("data-{SET}-{ordinal}"), &PatchParams::default(), &patch).await.unwrap();
    }

    /// The sizes that claims request.
    async fn requested(&self) -> Vec<String> {
        let of = |claim: PersistentVolumeClaim| Some(claim.spec?.resources?.requests?.remove("storage")?.0);
        all(&self.claims).await.into_iter().filter_map(of).collect()
    }

    /// Volumes grow one after another. The cluster is complete once their claims show it, and a refusal changes none of them.
    async fn grown(&mut self) {
        let classes: Api<StorageClass> = Api::all(self.nodes.clone().into_client());
        for (name, expands) in [("fast", true), ("fixed", false)] {
            let class = json!({ "metadata": { "name": name }, "provisioner": "example.com/disks", "allowVolumeExpansion": expands });
            create(&classes, class).await;
        }
        self.volume(0, "fast").await;
        self.volume(1, "fixed").await;
        self.object.spec.template.storage.size.0 = "2Gi".into();
        self.write(2, "r2", running(2, &[1, 2, 3])).await;
        let parts = ["data-zk-abc123-1", "template.storage.size 2Gi", "allowVolumeExpansion in storage class fixed"];
        let refused =
            |c: &Condition| c.reason == "VolumeNotResized" && parts.iter().all(|part| c.message.contains(part));
        self.until("refused", |status| condition(status, "Blocked").is_some_and(refused)).await;
        assert_eq!(self.requested().await, ["1Gi", "1Gi"], "the refusal of one changes no other");

        merge(&classes, "fixed", json!({ "allowVolumeExpansion": true })).await;
        let says = |status: &ZooKeeperStatus, type_: &str, words: &str| {
            condition(status, type_).is_some_and(|condition| condition.message.contains(words))
        };
        self.until("requested", |status| says(status, "Progressing", "data-zk-abc123-0 has 1Gi and not")).await;
        wait_for("the first one is requested", async || self.requested().await == ["2Gi", "1Gi"]).await;
        self.resize(0, json!({ "conditions": [{ "type": "Resizing", "status": "True" }] })).await;
        self.until("grows", |status| says(status, "Progressing", "2Gi: Resizing")).await;
        let error = json!({ "type": "ControllerResizeError", "status": "True", "message": "no room in the pool" });
        self.resize(0, json!({ "conditions": [error] })).await;
        self.until("failed", |status| says(status, "Blocked", "ControllerResizeError: no room in the pool")).await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(self.requested().await, ["2Gi", "1Gi"], "the second one waits for the first");
        self.mounted_again().await;

        self.resize(0, json!({ "capacity": { "storage": "2Gi" }, "conditions": null })).await;
        wait_for("the second one is requested", async || self.requested().await == ["2Gi", "2Gi"]).await;
        let status = self.until("grows", |status| says(status, "Progressing", "data-zk-abc123-1 has 1Gi")).await;
        assert_ne!(status.completed_spec_hash, self.object.spec.spec_hash, "a request alone grows nothing");
        self.resize(1, json!({ "capacity": { "storage": "2Gi" } })).await;
        self.until_complete("grown").await;
        for name in names(&self.claims).await {
            self.claims.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }

    /// The file system of a volume waits, and the kubelet has not grown it in use: one server restarts, once.
    async fn mounted_again(&self) {
        let ago = |minutes| (Timestamp::now() - SignedDuration::from_mins(minutes)).to_string();
        let pods: Vec<String> = (0..2).map(|ordinal| format!("{SET}-{ordinal}")).collect();
        for name in &pods {
            let patch = Patch::Merge(json!({ "status": { "startTime": ago(10) } }));
            self.pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
        let before = self.pod_uids().await;
        let uid = async |name: &str| self.pods.get_opt(name).await.unwrap().and_then(|pod| pod.uid());
        let (first, second) = (uid(&pods[0]).await, uid(&pods[1]).await);
        let pending = json!({ "type": "FileSystemResizePending", "status": "True", "lastTransitionTime": ago(5) });
        self.resize(0, json!({ "conditions": [pending] })).await;
        wait_for("the pod is deleted", async || uid(&pods[0]).await != first).await;
        self.until("it serves again", |status| status.ready_replicas == Some(2)).await;
        wait_for("the lock is released", async || self.world(|world| world.lock(INCARNATION).is_none())).await;
        let after = self.pod_uids().await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!((self.pod_uids().await, uid(&pods[1]).await), (after.clone(), second), "it restarts once");
        assert_eq!(after.difference(&before).count(), 1);
    }

    /// A volume that cannot grow is reported, and a refused spec changes nothing.
    async fn obstacles(&mut self) {
        let classes: Api<StorageClass> = Api::all(self.nodes.clone().into_client());
        create(&classes, json!({ "metadata": { "name": "local" }, "provisioner": "example.com/folders" })).await;
        self.volume(0, "local").await;
        self.object.spec.template.storage.size.0 = "3Gi".into();
        self.write(2, "r2", running(2, &[1, 2, 3])).await;
        let status = self.until("a volume", |status| blocked(status) == Some("VolumeNotResized")).await;
        assert_ne!(status.completed_spec_hash, self.object.spec.spec_hash);
        // A volume of a former incarnation is only listed.
        merge(
            &self.claims,
            "data-zk-abc123-0",
            json!({ "metadata": { "labels": { "mczk.io/incarnation": "former" } } }),
        )
        .await;
        let status = self.until_complete("the volume is of another incarnation").await;
        assert_eq!(status.volumes, ["data-zk-abc123-0"]);
        let whole = self.object.spec.clone();
        self.object.spec.replicas = 0;
        self.write_list(running(2, &[1, 2, 3])).await;
        self.until("damaged", |status| blocked(status) == Some("SpecRefused")).await;
        assert_eq!(self.sets.get(SET).await.unwrap().spec.unwrap().replicas, Some(2));
        self.object.spec = whole;
    }
}

/// Certificates for clients, of an authority of their own.
fn certificates() -> Value {
    let (now, validity) = (Timestamp::now(), SignedDuration::from_hours(1));
    let authority = pki::authority("a", now, validity).unwrap();
    let issued = pki::identity("i", (&authority.certificate, &authority.key), now, validity).unwrap();
    json!({ "tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.certificate })
}

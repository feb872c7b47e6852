//! The agent of a member cluster against a real API server, with the rights that manifests/agent.yaml gives it and no more.
//!
//! The test simulates the StatefulSet controller and the servers. The servers implement the control API of `mczk server` and
//! form one ensemble in memory. The simulated controller checks the invariants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apiserver;

use mczk::api::zookeeper::EnsemblePhase;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use axum::{
    Json, Router,
    extract::{ConnectInfo, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::IncomingStream,
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Node, PersistentVolumeClaim, Pod, Secret, Service},
};
use k8s_openapi::{
    ByteString,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use mczk::api::{
    ZooKeeper,
    zookeeper::{Ensemble, Role, Server, ZooKeeperStatus},
};
use mczk::register::{Part, Settings, apply, rbac::Identity};
use mczk::runtime::lease::Candidate;
use mczk::runtime::pki;
use mczk::{
    agent::{self, Metrics, Options, control_client},
    contract::control_api::{
        Configuration, ConfiguredServer, Mode, Phase, Problem, Reconfiguration, RestartLock, ServerReport,
    },
};
use mczk::{
    contract::server_list::{majority, with_hash},
    rollout::cluster_spec,
};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};

/// Address of the server in the other cluster.
const OTHER: &str = "127.77.2.1";

/// All servers, as one ensemble.
#[derive(Default)]
struct SimulatedEnsemble {
    /// Running servers: id and revision by address.
    up: BTreeMap<IpAddr, (i32, String)>,
    listed: Ensemble,
    configuration: Option<Configuration>,
    published: Option<Ensemble>,
    lock: Option<RestartLock>,
    /// Violated invariants.
    violations: Vec<String>,
    /// Successful reconfigurations.
    steps: Vec<Reconfiguration>,
}

type Shared = Arc<Mutex<SimulatedEnsemble>>;

impl SimulatedEnsemble {
    fn ids(&self) -> BTreeSet<i32> {
        self.up.values().map(|(id, _)| *id).collect()
    }

    fn quorum(&self) -> bool {
        let voters: BTreeSet<i32> = self.configuration.iter().flat_map(Configuration::voters).collect();
        !voters.is_empty() && self.ids().intersection(&voters).count() >= majority(voters.len())
    }

    /// Forms the first quorum, and drops the lock without a quorum.
    fn settle(&mut self) {
        if self.configuration.is_none() && self.ids().len() >= majority(self.listed.servers.len()) {
            let configured = |s: &Server| ConfiguredServer { id: s.id, host: s.host.clone(), role: s.role };
            let servers = self.listed.servers.iter().map(configured).collect();
            self.configuration = Some(Configuration { version: 1 << 32, servers });
        }
        if !self.quorum() {
            self.lock = None;
        }
    }

    fn view(&self, address: IpAddr) -> Option<ServerReport> {
        let (id, revision) = self.up.get(&address)?;
        let quorum = self.quorum();
        let leader = address.to_string() == OTHER;
        Some(ServerReport {
            id: Some(*id),
            pod: String::new(),
            incarnation: "abc123".into(),
            phase: Phase::Running,
            revision: revision.clone(),
            mode: Some(match (quorum, leader) {
                (false, _) => Mode::Looking,
                (true, true) => Mode::Leader,
                (true, false) => Mode::Follower,
            }),
            serving: quorum,
            synced: quorum,
            settled: quorum,
            zxid: Some(1),
            synced_voters: None,
            configuration: self.configuration.clone().filter(|_| quorum),
            accepted_epoch: i64::from(quorum),
            volume: format!("v{id}"),
            lost: false,
            server_list: self.published.clone(),
            restart_lock: self.lock.clone(),
            loaded: None,
        })
    }
}

#[derive(Clone)]
struct Local(IpAddr);

impl axum::extract::connect_info::Connected<IncomingStream<'_, TcpListener>> for Local {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().local_addr().unwrap().ip())
    }
}

fn refused(reason: &str) -> Response {
    (StatusCode::CONFLICT, Json(Problem { reason: reason.into(), message: reason.into() })).into_response()
}

async fn servers(shared: Shared) -> u16 {
    let report = async |State(shared): State<Shared>, ConnectInfo(at): ConnectInfo<Local>| {
        shared.lock().unwrap().view(at.0).map_or_else(|| refused("down"), |view| Json(view).into_response())
    };
    let reconfigure = async |State(shared): State<Shared>, Json(step): Json<Reconfiguration>| {
        let mut all = shared.lock().unwrap();
        let Some(mut configuration) = all.configuration.clone().filter(|_| all.quorum()) else {
            return refused("quorum");
        };
        if step.from_version != configuration.version || all.published.as_ref().and_then(|l| l.epoch) > Some(step.epoch)
        {
            return refused("stale");
        }
        let out = |s: &ConfiguredServer| Some(s.id) != step.remove && Some(s.id) != step.add.as_ref().map(|a| a.id);
        configuration.servers.retain(out);
        configuration.servers.extend(step.add.clone());
        configuration.version += 1;
        all.steps.push(step);
        all.configuration = Some(configuration.clone());
        Json(configuration).into_response()
    };
    let publish = async |State(shared): State<Shared>, Json(list): Json<Ensemble>| {
        let mut all = shared.lock().unwrap();
        if all.published.as_ref().is_none_or(|published| published.epoch < list.epoch) {
            all.published = Some(list);
        }
        Json(all.configuration.clone().unwrap()).into_response()
    };
    let take =
        async |State(shared): State<Shared>, ConnectInfo(at): ConnectInfo<Local>, Json(lock): Json<RestartLock>| {
            let mut all = shared.lock().unwrap();
            if all.up.get(&at.0).is_some_and(|(id, _)| *id == lock.server) {
                all.violations.push("the lock is acquired through the server that restarts".into());
            }
            match &all.lock {
                Some(held) if *held != lock => refused("held"),
                _ => {
                    all.lock = Some(lock);
                    StatusCode::NO_CONTENT.into_response()
                }
            }
        };
    let give = async |State(shared): State<Shared>, Json(lock): Json<RestartLock>| {
        shared.lock().unwrap().lock.take_if(|held| *held == lock);
        StatusCode::NO_CONTENT
    };
    let router = Router::new()
        .route("/v1/server", get(report))
        .route("/v1/reconfigure", post(reconfigure))
        .route("/v1/server-list", post(publish))
        .route("/v1/restart-lock", post(take).delete(give))
        .with_state(shared);
    // Each server has an address of this machine, by which the handler recognises it.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router.into_make_service_with_connect_info::<Local>()).await });
    port
}

/// Simulates the StatefulSet controller, with pods that run at once.
async fn controller(client: Client, shared: Shared) {
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let nodes: Api<Node> = Api::all(client);
    let mut pods_by_uid: BTreeMap<String, (String, i32)> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (Ok(all), Ok(live)) = (sets.list(&ListParams::default()).await, pods.list(&ListParams::default()).await)
        else {
            continue;
        };
        // As the kubelet does after a container has exited.
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for pod in live.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let _ = pods.delete(&pod.name_any(), &at_once).await;
        }
        let mut wanted: BTreeMap<String, (&StatefulSet, i32)> = BTreeMap::new();
        for set in &all.items {
            let spec = set.spec.as_ref().unwrap();
            for ordinal in 0..spec.replicas.unwrap_or(1) {
                wanted.insert(format!("{}-{ordinal}", set.name_any()), (set, ordinal));
            }
            if set.status.as_ref().and_then(|s| s.observed_generation) != set.metadata.generation {
                let status = json!({ "status": { "observedGeneration": set.metadata.generation, "replicas": 0 } });
                let _ = sets.patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
            }
        }
        {
            // The agent must not delete the pod of a voter without the lock.
            let mut all = shared.lock().unwrap();
            let here: BTreeSet<String> = live.items.iter().filter_map(ResourceExt::uid).collect();
            let deleted: Vec<String> = pods_by_uid.keys().filter(|uid| !here.contains(*uid)).cloned().collect();
            for uid in deleted {
                let (name, id) = pods_by_uid.remove(&uid).unwrap();
                let needed = all.configuration.as_ref().is_some_and(|c| c.voters().any(|voter| voter == id));
                let ends = all.listed.phase.is_ending();
                if needed && !ends && all.lock.as_ref().is_none_or(|lock| lock.server != id) {
                    all.violations.push(format!("{name} was deleted without the lock"));
                }
                let address = address(&name);
                all.up.remove(&address);
                if needed && !ends && !all.quorum() {
                    all.violations.push(format!("the quorum was lost with {name}"));
                }
            }
            all.settle();
        }
        for pod in live.items.iter().filter(|pod| !wanted.contains_key(&pod.name_any())) {
            let _ = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
        }
        for (name, (set, _)) in wanted.iter().filter(|(name, _)| !live.items.iter().any(|p| p.name_any() == **name)) {
            let template = set.spec.as_ref().unwrap().template.clone();
            let mut spec = template.spec.unwrap();
            spec.volumes
                .get_or_insert_default()
                .push(serde_json::from_value(json!({ "name": "data", "emptyDir": {} })).unwrap());
            spec.node_name = schedulable(&nodes).await;
            let mut metadata = template.metadata.unwrap();
            metadata.name = Some(name.clone());
            let pod = Pod { metadata, spec: Some(spec), status: None };
            let made = match pods.create(&PostParams::default(), &pod).await {
                Ok(made) => made,
                Err(error) => {
                    shared.lock().unwrap().violations.push(format!("pod {name}: {error}"));
                    continue;
                }
            };
            let ip = address(name);
            let status = json!({ "status": { "phase": "Running", "podIP": ip.to_string(),
                "conditions": [{ "type": "Ready", "status": "True" }] } });
            pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
            let mut all = shared.lock().unwrap();
            let ordinal: i32 = name.rsplit_once('-').unwrap().1.parse().unwrap();
            pods_by_uid.insert(made.uid().unwrap(), (name.clone(), ordinal + 1));
            all.up.insert(ip, (ordinal + 1, made.labels()["mczk.io/revision"].clone()));
            all.settle();
        }
    }
}

async fn two_nodes(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["n1", "n2"] {
        let node = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
}

/// The first node that is not cordoned.
async fn schedulable(nodes: &Api<Node>) -> Option<String> {
    let all = nodes.list(&ListParams::default()).await.unwrap();
    all.items.iter().find(|node| node.spec.as_ref().unwrap().unschedulable.is_none()).map(ResourceExt::name_any)
}

/// Servers leave a cordoned node one at a time, each under the restart lock, if another node fits them.
async fn drained(cluster: &Cluster, client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let cordon = json!({ "spec": { "unschedulable": true } });
    let on = async || -> BTreeSet<String> {
        let pods = pods.list(&ListParams::default()).await.unwrap();
        pods.items.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
    };
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]));
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&cordon)).await.unwrap();
    // No other node is ready: the servers stay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]));
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes.patch_status("n2", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    // A new node has the taint `not-ready`, which a controller removes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]), "the taint repels servers");
    let untaint = json!({ "spec": { "taints": null } });
    nodes.patch("n2", &PatchParams::default(), &Patch::Merge(&untaint)).await.unwrap();
    let draining = |status: &ZooKeeperStatus| status.conditions.iter().any(|c| c.type_ == "Draining");
    cluster.until("drained", draining).await;
    let object = cluster.until("moved", |status| !draining(status) && status.ready_replicas == Some(2)).await;
    assert_eq!(on().await, BTreeSet::from(["n2".to_owned()]));
    assert_eq!(object.status.unwrap().completed_spec_hash, cluster.object.spec.spec_hash, "the spec stays complete");
}

fn address(pod: &str) -> IpAddr {
    format!("127.77.1.{}", pod.rsplit_once('-').unwrap().1.parse::<i32>().unwrap() + 1).parse().unwrap()
}

fn list(epoch: i64, ids: &[i32], decommission: bool) -> Ensemble {
    let server = |id: &i32| match id {
        3 => Server { id: 3, cluster: "m2".into(), ordinal: 0, host: OTHER.into(), role: Role::Voter },
        id => Server {
            id: *id,
            cluster: "m1".into(),
            ordinal: id - 1,
            host: format!("zk-abc123-{}.m1", id - 1),
            role: Role::Voter,
        },
    };
    with_hash(Ensemble {
        incarnation: Some("abc123".into()),
        epoch: Some(epoch),
        phase: match epoch {
            _ if decommission => EnsemblePhase::Decommissioning,
            1 => EnsemblePhase::Bootstrapping,
            _ => EnsemblePhase::Running,
        },
        servers: ids.iter().map(server).collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

/// The object as Karmada writes it, with the simulated ensemble.
struct Cluster {
    objects: Api<ZooKeeper>,
    object: ZooKeeper,
    shared: Shared,
}

impl Cluster {
    /// Writes as Karmada does: the spec and its own marks, and no field of the agent.
    async fn write(&mut self, replicas: i32, revision: &str, list: Ensemble) {
        let spec = &mut self.object.spec;
        spec.revision = revision.into();
        spec.ensemble = Ensemble::default();
        *spec = cluster_spec::for_cluster(spec, "m1", replicas, spec.spec_hash.as_deref(), 0).unwrap();
        spec.ensemble = list.clone();
        {
            let mut all = self.shared.lock().unwrap();
            all.listed = list;
        }
        self.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&self.object)).await.unwrap();
    }

    /// Waits for a status, and checks the invariants.
    async fn until(&self, what: &str, is: impl Fn(&ZooKeeperStatus) -> bool) -> ZooKeeper {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let object = self.objects.get("zk").await.unwrap();
            let violations = self.shared.lock().unwrap().violations.clone();
            assert!(violations.is_empty(), "{what}: {violations:?}");
            if object.status.as_ref().is_some_and(&is) {
                return object;
            }
            assert!(Instant::now() < end, "{what}: {:#?}", object.status);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_complete(&self, what: &str) -> ZooKeeper {
        let spec_hash = self.object.spec.spec_hash.clone();
        self.until(what, move |status| status.completed_spec_hash == spec_hash).await
    }
}

/// Applies the manifest, with its rights for the agent.
async fn rights(client: &Client) {
    let file = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/agent.yaml")).unwrap();
    let mut kinds = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&file) {
        let value = Value::deserialize(document).unwrap();
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
    let lease = "mczk-system/mczk-agent".parse().unwrap();
    let candidate = async |name| Candidate::new(server.agent(), &lease, name).await.unwrap();
    // The other agent tries again after the lease would have expired.
    let soon = Duration::from_secs(30);
    let mut one = candidate("one").await;
    timeout(soon, one.elected()).await.unwrap().unwrap();
    let mut two = candidate("two").await;
    assert!(timeout(Duration::from_secs(2), two.elected()).await.is_err(), "two agents at once");
    one.release().await;
    timeout(soon, two.elected()).await.unwrap().unwrap();
    assert!(timeout(Duration::from_secs(1), two.lost()).await.is_err(), "the lease is held");
}

/// Checks that the agent writes nothing.
async fn at_rest(registry: &Registry) {
    tokio::time::sleep(Duration::from_secs(32)).await;
    let before = writes(registry);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(writes(registry), before);
}

fn writes(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mczk_agent_writes")).collect();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines)] // one story
async fn from_the_first_server_to_the_last() {
    let server = ApiServer::start("agent").await;
    let settings = Settings { operator: Identity::User("operator".into()), interpreter: None, agent_image: None };
    for object in Part::Crds.objects(&settings).unwrap() {
        apply::apply(&server.client, &object).await.unwrap();
        apply::served(&server.client, &object).await.unwrap();
    }
    rights(&server.client).await;
    two_nodes(&server.client).await;
    let shared = Shared::default();
    let port = servers(Arc::clone(&shared)).await;
    let controller = tokio::spawn(controller(server.client.clone(), Arc::clone(&shared)));
    let mut registry = Registry::default();
    let options = Options {
        dial: control_client::dial(port),
        at_rest: Duration::from_millis(700),
        while_busy: Duration::from_millis(200),
        ..Options::default()
    };
    let metrics = Metrics::new(&mut registry);
    let agent = tokio::spawn(agent::run(server.agent(), options, metrics, || {}, std::future::pending()));

    let object = serde_json::from_value(json!({
        "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
        "metadata": {
            "name": "zk", "namespace": "default", "labels": { "karmada.io/managed": "true" },
            "annotations": { "work.karmada.io/namespace": "karmada-es-m1" },
        },
        "spec": {
            "replicas": 0, "template": { "image": "zookeeper:3.9.4", "storage": { "size": "1Gi" },
                "resources": { "requests": { "cpu": "0.5" }, "limits": { "memory": "1024Mi" } } },
            "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r1", "ensemble": {},
        },
    }))
    .unwrap();
    let mut cluster =
        Cluster { objects: Api::default_namespaced(server.client.clone()), object, shared: shared.clone() };

    // The spec is not assigned to this cluster: nothing is created.
    cluster.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&cluster.object)).await.unwrap();
    let unassigned = cluster.until("unassigned", |status| status.observed_generation == Some(1)).await;
    assert_eq!(
        unassigned.status.unwrap(),
        ZooKeeperStatus { observed_generation: Some(1), ..ZooKeeperStatus::default() }
    );
    let sets: Api<StatefulSet> = Api::default_namespaced(server.client.clone());
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());

    // The rollout reaches the cluster: two of three servers, a majority. A foreign Service stays, and is reported.
    let services: Api<Service> = Api::default_namespaced(server.client.clone());
    let foreign = json!({ "metadata": { "name": "zk" }, "spec": { "ports": [{ "port": 1 }] } });
    let foreign = services.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    cluster.write(2, "r1", list(1, &[1, 2, 3], false)).await;
    cluster.until("blocked", |status| blocked(status) == Some("NameConflict")).await;
    let untouched = services.get("zk").await.unwrap();
    assert_eq!(untouched.metadata.resource_version, foreign.metadata.resource_version);
    services.delete("zk", &DeleteParams::default()).await.unwrap();
    let object = cluster.until_complete("deployed").await;
    let status = object.status.as_ref().unwrap();
    assert_eq!((status.started_replicas, status.replicas), (Some(2), Some(2)));
    assert_eq!(object.finalizers(), ["mczk.io/agent"]);
    assert_eq!(object.annotations()["mczk.io/cluster"], "m1");
    shared.lock().unwrap().up.insert(OTHER.parse().unwrap(), (3, "r1".into()));
    cluster.list_again(list(2, &[1, 2, 3], false)).await;
    let object = cluster
        .until("serves", |status| {
            status.leader == Some(3) && status.ready_replicas == Some(2) && status.epoch() == Some(2)
        })
        .await;
    let status = object.status.unwrap();
    assert_eq!((status.voting_members.as_slice(), status.writable), (&[1, 2, 3][..], Some(true)));
    assert_eq!(status.ensemble, Some(list(2, &[1, 2, 3], false)));

    at_rest(&registry).await;

    // Drift is corrected.
    sets.patch(
        "zk-abc123",
        &PatchParams::default(),
        &Patch::Merge(json!({ "spec": { "minReadySeconds": 0, "revisionHistoryLimit": 9 } })),
    )
    .await
    .unwrap();
    wait_for(async || sets.get("zk-abc123").await.unwrap().spec.unwrap().revision_history_limit == Some(2)).await;

    // A change restarts both servers, one after the other, each under the restart lock.
    cluster.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    cluster.until_complete("changed").await;
    let pods: Api<Pod> = Api::default_namespaced(server.client.clone());
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        assert_eq!(pod.labels()["mczk.io/revision"], "r2");
    }
    wait_for(async || shared.lock().unwrap().lock.is_none()).await;

    client_certificates(&mut cluster, &server.client).await;
    drained(&cluster, &server.client).await;
    obstacles(&mut cluster, &server.client).await;

    // A server leaves: first the configuration, then the pod.
    cluster.write(1, "r2", list(3, &[1, 3], false)).await;
    cluster.until_complete("smaller").await;
    let steps = shared.lock().unwrap().steps.clone();
    assert_eq!(steps.iter().filter_map(|step| step.remove).collect::<Vec<_>>(), [2]);
    assert_eq!(shared.lock().unwrap().published.as_ref().and_then(|list| list.epoch), Some(3));

    decommissioned(&mut cluster, &server.client).await;
    abandoned_and_back(&mut cluster, &server.client).await;
    assert_eq!(shared.lock().unwrap().violations, Vec::<String>::new());
    agent.abort();
    controller.abort();
}

/// The ensemble is decommissioned, and its object deleted.
async fn decommissioned(cluster: &mut Cluster, client: &Client) {
    let (sets, services): (Api<StatefulSet>, Api<Service>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    cluster.write(1, "r2", list(4, &[1, 3], true)).await;
    let is_decommissioned = |status: &ZooKeeperStatus| {
        status.conditions.iter().any(|c| c.type_ == "Decommissioned" && c.status == "True") && status.epoch() == Some(4)
    };
    cluster.until("decommissioned", is_decommissioned).await;
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
    let left: Vec<String> =
        services.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["kubernetes"]);
    cluster.objects.delete("zk", &DeleteParams::default()).await.unwrap();
    wait_for(async || cluster.objects.get_opt("zk").await.unwrap().is_none()).await;
}

/// An abandoned cluster is back: all other clusters have ended, Karmada deletes its object, and a tombstone arrives.
async fn abandoned_and_back(cluster: &mut Cluster, client: &Client) {
    {
        let mut all = cluster.shared.lock().unwrap();
        all.configuration = None;
        all.published = None;
    }
    cluster.write(1, "r2", list(5, &[1, 3], false)).await;
    cluster.until_complete("declared again").await;
    cluster.shared.lock().unwrap().up.remove(&OTHER.parse::<IpAddr>().unwrap());
    cluster.until("alone", |status| status.ready_replicas == Some(0)).await;
    cluster.objects.delete("zk", &DeleteParams::default()).await.unwrap();
    cluster.until("deleted", |status| blocked(status) == Some("Deleted")).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.get("zk-abc123").await.unwrap().spec.unwrap().replicas, Some(1), "its servers may be needed");
    // From here on its servers may stop.
    cluster.shared.lock().unwrap().listed.phase = EnsemblePhase::Decommissioning;
    let tombstone = json!({ "metadata": {
        "name": "zk-abc123-tombstone", "labels": { "mczk.io/ensemble": "zk", "mczk.io/incarnation": "abc123" },
        "annotations": { "mczk.io/tombstone": "true" },
    }});
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(tombstone).unwrap()).await.unwrap();
    wait_for(async || cluster.objects.get_opt("zk").await.unwrap().is_none()).await;
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let left: Vec<String> =
        services.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["kubernetes"]);
}

/// Pods mount a copy of the last sound certificates. No change of the user's Secret stops a server, and a renewal restarts none.
async fn client_certificates(cluster: &mut Cluster, client: &Client) {
    let (secrets, pods): (Api<Secret>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let made = || {
        let (now, validity) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, validity).unwrap();
        let issued = pki::identity("i", (&authority.certificate, &authority.key), now, validity).unwrap();
        json!({ "tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.certificate })
    };
    let copied = async || secrets.get_opt("zk-abc123-client").await.unwrap().and_then(|secret| secret.data);
    let is = |data: &BTreeMap<String, ByteString>, wanted: &Value| {
        data.iter().all(|(key, value)| wanted[key].as_str().map(str::as_bytes) == Some(&value.0)) && data.len() == 3
    };
    let uids = async || -> BTreeSet<String> {
        pods.list(&ListParams::default()).await.unwrap().items.iter().filter_map(ResourceExt::uid).collect()
    };
    let put = async |data: &Value| {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "users-secret" }, "stringData": data });
        secrets.patch("users-secret", &PatchParams::apply("karmada").force(), &Patch::Apply(&secret)).await.unwrap();
    };

    // The Secret has not arrived: no server restarts, since its new pod could not start.
    let before = uids().await;
    let spec = &mut cluster.object.spec;
    spec.render_version = 2;
    spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "users-secret" })).unwrap();
    cluster.write(2, "r3", list(2, &[1, 2, 3], false)).await;
    let waits = |status: &ZooKeeperStatus| status.conditions.iter().any(|c| c.reason == "WaitingForCertificates");
    cluster.until("no certificates", waits).await;
    // A pod that Kubernetes recreates meanwhile comes back unchanged, and clients reach it as before.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(uids().await, before);
    let (sets, services): (Api<StatefulSet>, Api<Service>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let set = sets.get("zk-abc123").await.unwrap().spec.unwrap();
    assert_eq!(set.template.metadata.unwrap().labels.unwrap()["mczk.io/revision"], "r2");
    let ports = services.get("zk").await.unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [2181]);
    let first = made();
    put(&first).await;
    cluster.until_complete("certificates for clients").await;
    assert!(is(&copied().await.unwrap(), &first));
    let started = uids().await;
    assert!(started.is_disjoint(&before));
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        let volumes = pod.spec.unwrap().volumes.unwrap();
        let mounted = volumes.into_iter().find_map(|volume| volume.secret?.secret_name);
        assert_eq!(mounted.as_deref(), Some("zk-abc123-client"));
    }

    let second = made();
    put(&second).await;
    wait_for(async || is(&copied().await.unwrap(), &second)).await;
    // Half of a change, then no Secret at all.
    put(&json!({ "tls.crt": second["tls.crt"], "tls.key": first["tls.key"], "ca.crt": second["ca.crt"] })).await;
    let kept_condition = |status: &ZooKeeperStatus| {
        status.conditions.iter().find(|c| c.type_ == "ClientCertificatesKept").map(|c| c.message.clone())
    };
    let object = cluster.until("half of a change", |status| kept_condition(status).is_some()).await;
    let status = object.status.unwrap();
    let message = kept_condition(&status).unwrap();
    assert!(
        message.contains("Secret users-secret cannot be used: tls.crt and tls.key do not go together"),
        "{message}"
    );
    assert_eq!((status.completed_spec_hash.as_ref(), blocked(&status)), (cluster.object.spec.spec_hash.as_ref(), None));
    secrets.delete("users-secret", &DeleteParams::default()).await.unwrap();
    cluster
        .until("deleted", |status| {
            kept_condition(status).is_some_and(|why| why.contains("users-secret does not exist"))
        })
        .await;
    assert!(is(&copied().await.unwrap(), &second), "servers keep the last sound certificates");
    assert_eq!(uids().await, started);

    // No pod mounts the copy any more. The user's Secret stays.
    put(&second).await;
    cluster.object.spec.render_version = 1;
    cluster.object.spec.tls.client = None;
    cluster.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    cluster.until_complete("plain again").await;
    wait_for(async || copied().await.is_none()).await;
    assert!(secrets.get_opt("users-secret").await.unwrap().is_some());
}

/// A volume that cannot grow is reported, and a refused spec changes nothing.
async fn obstacles(cluster: &mut Cluster, client: &Client) {
    let claim = json!({
        "metadata": { "name": "data-zk-abc123-0", "labels": { "mczk.io/ensemble": "zk", "mczk.io/incarnation": "abc123",
            "app.kubernetes.io/managed-by": "mczk-agent" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    cluster.object.spec.template.storage.size.0 = "2Gi".into();
    cluster.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    let object = cluster.until("a volume", |status| blocked(status) == Some("VolumeNotResized")).await;
    assert_ne!(object.status.unwrap().completed_spec_hash, cluster.object.spec.spec_hash);
    // A volume of a former incarnation is only listed.
    let former = json!({ "metadata": { "labels": { "mczk.io/incarnation": "former" } } });
    claims.patch("data-zk-abc123-0", &PatchParams::default(), &Patch::Merge(former)).await.unwrap();
    let object = cluster.until_complete("the volume is of another incarnation").await;
    assert_eq!(object.status.unwrap().volumes, ["data-zk-abc123-0"]);
    let whole = cluster.object.spec.clone();
    cluster.object.spec.replicas = 0;
    cluster.list_again(list(2, &[1, 2, 3], false)).await;
    cluster.until("damaged", |status| blocked(status) == Some("SpecRefused")).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.get("zk-abc123").await.unwrap().spec.unwrap().replicas, Some(2));
    cluster.object.spec = whole;
}

fn blocked(status: &ZooKeeperStatus) -> Option<&str> {
    status.conditions.iter().find(|c| c.type_ == "Blocked" && c.status == "True").map(|c| c.reason.as_str())
}

impl Cluster {
    /// Writes another list with the same spec hash.
    async fn list_again(&mut self, list: Ensemble) {
        self.object.spec.ensemble = list.clone();
        self.shared.lock().unwrap().listed = list;
        self.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&self.object)).await.unwrap();
    }
}

async fn wait_for(mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is().await {
        assert!(Instant::now() < end, "the condition is not reached");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

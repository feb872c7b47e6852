//! The agent of a member cluster against a real API server, with the rights that manifests/agent.yaml gives it and no more.
//!
//! Two things are played: the controller of StatefulSets, and the servers, which speak what `mczk server` speaks and make up
//! one ensemble in memory. The first of them keeps watch over what must never happen.
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

/// The server of the other cluster.
const OTHER: &str = "127.77.2.1";

/// All servers, as one ensemble.
#[derive(Default)]
struct Ensembles {
    /// Servers that run: id and revision by address.
    up: BTreeMap<IpAddr, (i32, String)>,
    listed: Ensemble,
    configuration: Option<Configuration>,
    kept: Option<Ensemble>,
    turn: Option<RestartLock>,
    /// What must not have happened.
    wrong: Vec<String>,
    /// Steps that were taken.
    steps: Vec<Reconfiguration>,
}

type Shared = Arc<Mutex<Ensembles>>;

impl Ensembles {
    fn ids(&self) -> BTreeSet<i32> {
        self.up.values().map(|(id, _)| *id).collect()
    }

    fn quorum(&self) -> bool {
        let voters: BTreeSet<i32> = self.configuration.iter().flat_map(Configuration::voters).collect();
        !voters.is_empty() && self.ids().intersection(&voters).count() >= majority(voters.len())
    }

    /// Elections.
    fn settle(&mut self) {
        if self.configuration.is_none() && self.ids().len() >= majority(self.listed.servers.len()) {
            let configured = |s: &Server| ConfiguredServer { id: s.id, host: s.host.clone(), role: s.role };
            let servers = self.listed.servers.iter().map(configured).collect();
            self.configuration = Some(Configuration { version: 1 << 32, servers });
        }
        if !self.quorum() {
            self.turn = None;
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
            server_list: self.kept.clone(),
            restart_lock: self.turn.clone(),
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
    let look = async |State(shared): State<Shared>, ConnectInfo(at): ConnectInfo<Local>| {
        shared.lock().unwrap().view(at.0).map_or_else(|| refused("down"), |view| Json(view).into_response())
    };
    let reconfigure = async |State(shared): State<Shared>, Json(step): Json<Reconfiguration>| {
        let mut all = shared.lock().unwrap();
        let Some(mut configuration) = all.configuration.clone().filter(|_| all.quorum()) else {
            return refused("quorum");
        };
        if step.from_version != configuration.version || all.kept.as_ref().and_then(|l| l.epoch) > Some(step.epoch) {
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
        if all.kept.as_ref().is_none_or(|kept| kept.epoch < list.epoch) {
            all.kept = Some(list);
        }
        Json(all.configuration.clone().unwrap()).into_response()
    };
    let take =
        async |State(shared): State<Shared>, ConnectInfo(at): ConnectInfo<Local>, Json(turn): Json<RestartLock>| {
            let mut all = shared.lock().unwrap();
            if all.up.get(&at.0).is_some_and(|(id, _)| *id == turn.server) {
                all.wrong.push("the turn is taken through the server that is to go".into());
            }
            match &all.turn {
                Some(held) if *held != turn => refused("held"),
                _ => {
                    all.turn = Some(turn);
                    StatusCode::NO_CONTENT.into_response()
                }
            }
        };
    let give = async |State(shared): State<Shared>, Json(turn): Json<RestartLock>| {
        shared.lock().unwrap().turn.take_if(|held| *held == turn);
        StatusCode::NO_CONTENT
    };
    let router = Router::new()
        .route("/v1/server", get(look))
        .route("/v1/reconfigure", post(reconfigure))
        .route("/v1/server-list", post(publish))
        .route("/v1/restart-lock", post(take).delete(give))
        .with_state(shared);
    // On every address of this machine: which one was called tells which server it is.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router.into_make_service_with_connect_info::<Local>()).await });
    port
}

/// Plays the controller of StatefulSets, with pods that run at once.
async fn controller(client: Client, shared: Shared) {
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let nodes: Api<Node> = Api::all(client);
    let mut known: BTreeMap<String, (String, i32)> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (Ok(all), Ok(live)) = (sets.list(&ListParams::default()).await, pods.list(&ListParams::default()).await)
        else {
            continue;
        };
        // As the kubelet does when a container has ended.
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
            // Whoever took a pod out must have been allowed to.
            let mut all = shared.lock().unwrap();
            let here: BTreeSet<String> = live.items.iter().filter_map(ResourceExt::uid).collect();
            let gone: Vec<String> = known.keys().filter(|uid| !here.contains(*uid)).cloned().collect();
            for uid in gone {
                let (name, id) = known.remove(&uid).unwrap();
                let needed = all.configuration.as_ref().is_some_and(|c| c.voters().any(|voter| voter == id));
                let ends = all.listed.phase.is_ending();
                if needed && !ends && all.turn.as_ref().is_none_or(|turn| turn.server != id) {
                    all.wrong.push(format!("{name} was taken out without the turn"));
                }
                let address = address(&name);
                all.up.remove(&address);
                if needed && !ends && !all.quorum() {
                    all.wrong.push(format!("the quorum was lost with {name}"));
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
                    shared.lock().unwrap().wrong.push(format!("pod {name}: {error}"));
                    continue;
                }
            };
            let ip = address(name);
            let status = json!({ "status": { "phase": "Running", "podIP": ip.to_string(),
                "conditions": [{ "type": "Ready", "status": "True" }] } });
            pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
            let mut all = shared.lock().unwrap();
            let ordinal: i32 = name.rsplit_once('-').unwrap().1.parse().unwrap();
            known.insert(made.uid().unwrap(), (name.clone(), ordinal + 1));
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

/// A cordoned node is left, one server at a time and each under the turn, if there is another one.
async fn drained(member: &Member, client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let cordon = json!({ "spec": { "unschedulable": true } });
    let on = async || -> BTreeSet<String> {
        let pods = pods.list(&ListParams::default()).await.unwrap();
        pods.items.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
    };
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]));
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&cordon)).await.unwrap();
    // There is no other node that is ready: they stay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]));
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes.patch_status("n2", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    // A new node has the taint of one that is not ready, which a controller takes away.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(on().await, BTreeSet::from(["n1".to_owned()]), "a taint keeps servers off");
    let untaint = json!({ "spec": { "taints": null } });
    nodes.patch("n2", &PatchParams::default(), &Patch::Merge(&untaint)).await.unwrap();
    let draining = |status: &ZooKeeperStatus| status.conditions.iter().any(|c| c.type_ == "Draining");
    member.until("drained", draining).await;
    let object = member.until("moved", |status| !draining(status) && status.ready_replicas == Some(2)).await;
    assert_eq!(on().await, BTreeSet::from(["n2".to_owned()]));
    assert_eq!(
        object.status.unwrap().completed_spec_hash,
        member.object.spec.spec_hash,
        "it was complete all the time"
    );
}

fn address(pod: &str) -> IpAddr {
    format!("127.77.1.{}", pod.rsplit_once('-').unwrap().1.parse::<i32>().unwrap() + 1).parse().unwrap()
}

fn list(epoch: i64, ids: &[i32], dissolve: bool) -> Ensemble {
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
            _ if dissolve => EnsemblePhase::Decommissioning,
            1 => EnsemblePhase::Bootstrapping,
            _ => EnsemblePhase::Running,
        },
        servers: ids.iter().map(server).collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

/// The object, as Karmada writes it, and what must hold while the agent is at it.
struct Member {
    objects: Api<ZooKeeper>,
    object: ZooKeeper,
    shared: Shared,
}

impl Member {
    /// Writes as Karmada does: the spec and its own marks, and nothing of what is the member's.
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

    /// Waits until the report is as it should be, and looks that nothing is wrong.
    async fn until(&self, what: &str, is: impl Fn(&ZooKeeperStatus) -> bool) -> ZooKeeper {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let object = self.objects.get("zk").await.unwrap();
            let wrong = self.shared.lock().unwrap().wrong.clone();
            assert!(wrong.is_empty(), "{what}: {wrong:?}");
            if object.status.as_ref().is_some_and(&is) {
                return object;
            }
            assert!(Instant::now() < end, "{what}: {:#?}", object.status);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_complete(&self, what: &str) -> ZooKeeper {
        let pin = self.object.spec.spec_hash.clone();
        self.until(what, move |status| status.completed_spec_hash == pin).await
    }
}

/// The rights of the manifest, given to whom the manifest names.
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
async fn one_of_two_acts() {
    let server = ApiServer::start("lease").await;
    rights(&server.client).await;
    let lease = "mczk-system/mczk-agent".parse().unwrap();
    let candidate = async |name| Candidate::new(server.agent(), &lease, name).await.unwrap();
    // The other one looks again when the lease would have ended.
    let soon = Duration::from_secs(30);
    let mut one = candidate("one").await;
    timeout(soon, one.elected()).await.unwrap().unwrap();
    let mut two = candidate("two").await;
    assert!(timeout(Duration::from_secs(2), two.elected()).await.is_err(), "two at once");
    one.release().await;
    timeout(soon, two.elected()).await.unwrap().unwrap();
    assert!(timeout(Duration::from_secs(1), two.lost()).await.is_err(), "it is held");
}

/// Not one write.
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
async fn from_the_first_server_to_the_last() {
    let server = ApiServer::start("member").await;
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
    let mut member = Member { objects: Api::default_namespaced(server.client.clone()), object, shared: shared.clone() };

    // Before its turn: held, and nothing is made.
    member.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&member.object)).await.unwrap();
    let held = member.until("held", |status| status.observed_generation == Some(1)).await;
    assert_eq!(held.status.unwrap(), ZooKeeperStatus { observed_generation: Some(1), ..ZooKeeperStatus::default() });
    let sets: Api<StatefulSet> = Api::default_namespaced(server.client.clone());
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());

    // Its turn: two of three servers, which make a majority. What is not the agent's stays, and is named.
    let services: Api<Service> = Api::default_namespaced(server.client.clone());
    let foreign = json!({ "metadata": { "name": "zk" }, "spec": { "ports": [{ "port": 1 }] } });
    let foreign = services.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    member.write(2, "r1", list(1, &[1, 2, 3], false)).await;
    member.until("blocked", |status| blocked(status) == Some("Foreign")).await;
    let untouched = services.get("zk").await.unwrap();
    assert_eq!(untouched.metadata.resource_version, foreign.metadata.resource_version);
    services.delete("zk", &DeleteParams::default()).await.unwrap();
    let object = member.until_complete("deployed").await;
    let status = object.status.as_ref().unwrap();
    assert_eq!((status.started_replicas, status.replicas), (Some(2), Some(2)));
    assert_eq!(object.finalizers(), ["mczk.io/agent"]);
    assert_eq!(object.annotations()["mczk.io/cluster"], "m1");
    shared.lock().unwrap().up.insert(OTHER.parse().unwrap(), (3, "r1".into()));
    member.list_again(list(2, &[1, 2, 3], false)).await;
    let object = member
        .until("serves", |status| {
            status.leader == Some(3) && status.ready_replicas == Some(2) && status.epoch() == Some(2)
        })
        .await;
    let status = object.status.unwrap();
    assert_eq!((status.voting_members.as_slice(), status.writable), (&[1, 2, 3][..], Some(true)));
    assert_eq!(status.ensemble, Some(list(2, &[1, 2, 3], false)));

    at_rest(&registry).await;

    // Drift is taken back.
    sets.patch(
        "zk-abc123",
        &PatchParams::default(),
        &Patch::Merge(json!({ "spec": { "minReadySeconds": 0, "revisionHistoryLimit": 9 } })),
    )
    .await
    .unwrap();
    wait_for(async || sets.get("zk-abc123").await.unwrap().spec.unwrap().revision_history_limit == Some(2)).await;

    // A change: both servers, one after the other, each under the turn.
    member.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    member.until_complete("changed").await;
    let pods: Api<Pod> = Api::default_namespaced(server.client.clone());
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        assert_eq!(pod.labels()["mczk.io/revision"], "r2");
    }
    wait_for(async || shared.lock().unwrap().turn.is_none()).await;

    clients_see(&mut member, &server.client).await;
    drained(&member, &server.client).await;
    what_stands_in_the_way(&mut member, &server.client).await;

    // One leaves: first the configuration, then the pod.
    member.write(1, "r2", list(3, &[1, 3], false)).await;
    member.until_complete("smaller").await;
    let steps = shared.lock().unwrap().steps.clone();
    assert_eq!(steps.iter().filter_map(|step| step.remove).collect::<Vec<_>>(), [2]);
    assert_eq!(shared.lock().unwrap().kept.as_ref().and_then(|list| list.epoch), Some(3));

    ended(&mut member, &server.client).await;
    given_up_and_back(&mut member, &server.client).await;
    assert_eq!(shared.lock().unwrap().wrong, Vec::<String>::new());
    agent.abort();
    controller.abort();
}

/// The end of the ensemble, and of the object.
async fn ended(member: &mut Member, client: &Client) {
    let (sets, services): (Api<StatefulSet>, Api<Service>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    member.write(1, "r2", list(4, &[1, 3], true)).await;
    let dissolved = |status: &ZooKeeperStatus| {
        status.conditions.iter().any(|c| c.type_ == "Decommissioned" && c.status == "True") && status.epoch() == Some(4)
    };
    member.until("dissolved", dissolved).await;
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
    let left: Vec<String> =
        services.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["kubernetes"]);
    member.objects.delete("zk", &DeleteParams::default()).await.unwrap();
    wait_for(async || member.objects.get_opt("zk").await.unwrap().is_none()).await;
}

/// A cluster that was given up comes back: nobody else is there, Karmada deletes its object, and a note says that this life is
/// over.
async fn given_up_and_back(member: &mut Member, client: &Client) {
    {
        let mut all = member.shared.lock().unwrap();
        all.configuration = None;
        all.kept = None;
    }
    member.write(1, "r2", list(5, &[1, 3], false)).await;
    member.until_complete("declared again").await;
    member.shared.lock().unwrap().up.remove(&OTHER.parse::<IpAddr>().unwrap());
    member.until("alone", |status| status.ready_replicas == Some(0)).await;
    member.objects.delete("zk", &DeleteParams::default()).await.unwrap();
    member.until("held", |status| blocked(status) == Some("Deleted")).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.get("zk-abc123").await.unwrap().spec.unwrap().replicas, Some(1), "it may be needed");
    // From here on its servers may go.
    member.shared.lock().unwrap().listed.phase = EnsemblePhase::Decommissioning;
    let note = json!({ "metadata": {
        "name": "zk-abc123-tombstone", "labels": { "mczk.io/ensemble": "zk", "mczk.io/incarnation": "abc123" },
        "annotations": { "mczk.io/tombstone": "true" },
    }});
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(note).unwrap()).await.unwrap();
    wait_for(async || member.objects.get_opt("zk").await.unwrap().is_none()).await;
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let left: Vec<String> =
        services.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["kubernetes"]);
}

/// Pods mount a copy of what was sound last: what happens to the person's Secret takes no server down, and a renewal rolls none.
async fn clients_see(member: &mut Member, client: &Client) {
    let (secrets, pods): (Api<Secret>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let made = || {
        let (now, life) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, life).unwrap();
        let issued = pki::identity("i", (&authority.certificate, &authority.key), now, life).unwrap();
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
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "person" }, "stringData": data });
        secrets.patch("person", &PatchParams::apply("karmada").force(), &Patch::Apply(&secret)).await.unwrap();
    };

    // It is not here yet: no server is taken out for what could not start.
    let before = uids().await;
    let spec = &mut member.object.spec;
    spec.render_version = 2;
    spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "person" })).unwrap();
    member.write(2, "r3", list(2, &[1, 2, 3], false)).await;
    let waits = |status: &ZooKeeperStatus| status.conditions.iter().any(|c| c.reason == "WaitsForCertificates");
    member.until("no certificates", waits).await;
    // Who is made anew meanwhile comes back as it was, and clients reach it as before.
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
    member.until_complete("certificates for clients").await;
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
    // Half of a change, then nothing at all.
    put(&json!({ "tls.crt": second["tls.crt"], "tls.key": first["tls.key"], "ca.crt": second["ca.crt"] })).await;
    let kept = |status: &ZooKeeperStatus| {
        status.conditions.iter().find(|c| c.type_ == "ClientCertificatesKept").map(|c| c.message.clone())
    };
    let object = member.until("half of a change", |status| kept(status).is_some()).await;
    let status = object.status.unwrap();
    let said = kept(&status).unwrap();
    assert!(said.contains("Secret person cannot be used: tls.crt and tls.key do not go together"), "{said}");
    assert_eq!((status.completed_spec_hash.as_ref(), blocked(&status)), (member.object.spec.spec_hash.as_ref(), None));
    secrets.delete("person", &DeleteParams::default()).await.unwrap();
    member.until("deleted", |status| kept(status).is_some_and(|why| why.contains("person is not here"))).await;
    assert!(is(&copied().await.unwrap(), &second), "servers go on with what was sound last");
    assert_eq!(uids().await, started);

    // Nobody mounts it any more. What is the person's stays.
    put(&second).await;
    member.object.spec.render_version = 1;
    member.object.spec.tls.client = None;
    member.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    member.until_complete("plain again").await;
    wait_for(async || copied().await.is_none()).await;
    assert!(secrets.get_opt("person").await.unwrap().is_some());
}

/// A volume that cannot grow is told, and what is refused changes nothing.
async fn what_stands_in_the_way(member: &mut Member, client: &Client) {
    let claim = json!({
        "metadata": { "name": "data-zk-abc123-0", "labels": { "mczk.io/ensemble": "zk", "mczk.io/incarnation": "abc123",
            "app.kubernetes.io/managed-by": "mczk-agent" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    member.object.spec.template.storage.size.0 = "2Gi".into();
    member.write(2, "r2", list(2, &[1, 2, 3], false)).await;
    let object = member.until("a volume", |status| blocked(status) == Some("Volume")).await;
    assert_ne!(object.status.unwrap().completed_spec_hash, member.object.spec.spec_hash);
    // Of a former life it is only listed.
    let former = json!({ "metadata": { "labels": { "mczk.io/incarnation": "former" } } });
    claims.patch("data-zk-abc123-0", &PatchParams::default(), &Patch::Merge(former)).await.unwrap();
    let object = member.until_complete("the volume is another life's").await;
    assert_eq!(object.status.unwrap().volumes, ["data-zk-abc123-0"]);
    let whole = member.object.spec.clone();
    member.object.spec.replicas = 0;
    member.list_again(list(2, &[1, 2, 3], false)).await;
    member.until("damaged", |status| blocked(status) == Some("SpecRefused")).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.get("zk-abc123").await.unwrap().spec.unwrap().replicas, Some(2));
    member.object.spec = whole;
}

fn blocked(status: &ZooKeeperStatus) -> Option<&str> {
    status.conditions.iter().find(|c| c.type_ == "Blocked" && c.status == "True").map(|c| c.reason.as_str())
}

impl Member {
    /// Another list, and the same pin.
    async fn list_again(&mut self, list: Ensemble) {
        self.object.spec.ensemble = list.clone();
        self.shared.lock().unwrap().listed = list;
        self.objects.patch("zk", &PatchParams::apply("karmada").force(), &Patch::Apply(&self.object)).await.unwrap();
    }
}

async fn wait_for(mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is().await {
        assert!(Instant::now() < end, "it does not come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

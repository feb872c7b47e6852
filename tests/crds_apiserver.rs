//! The CustomResourceDefinitions on a real API server: what no check of the files can tell is whether it takes them at all
//! (it estimates what each rule may cost), and what it then does with objects.
//!
//! Starts etcd and kube-apiserver, which the rig builds if they are not there: some 10 s, and some 12 minutes the first time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crd_cases;

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crd_cases::{CASES, Outcome, base};
use kube::{
    Client, Config,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use mczk::api::{MultiClusterZooKeeper, ZooKeeper};
use mczk::register::{
    Part, Settings,
    apply::{self, Change},
    rbac::Identity,
};
use serde_json::{Value, json};

/// A process that ends when this value is dropped, and also when the test is killed: a shell waits for the end of its
/// standard input, and then ends it.
struct Process(Child);

impl Process {
    fn start(program: &Path, flags: &[String], log: &Path) -> Self {
        let log = std::fs::File::create(log).unwrap();
        let child = Command::new("sh")
            .args(["-c", r#""$@" & child=$!; cat > /dev/null; kill -9 "$child"; wait "$child""#, "sh"])
            .arg(program)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// An API server, and etcd behind it. The fields are dropped in this order.
struct ApiServer {
    _apiserver: Process,
    _etcd: Process,
    folder: PathBuf,
    client: Client,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // etcd may still write: then the folder stays, below the target folder.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Ports below those of the rig, and far below those that the kernel hands out: the first free ones from a place that
/// differs from process to process.
fn ports<const N: usize>() -> [u16; N] {
    let start = u16::try_from(std::process::id() % 900).unwrap() * 10 + 10_000;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (start..20_000).filter(free).take(N).collect::<Vec<_>>().try_into().unwrap()
}

impl ApiServer {
    async fn start() -> Self {
        let tools = rig::tools(None).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [client_port, peer_port, port] = ports();
        let [etcd, peer] = [client_port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(folder.join("sa.key"), key.serialize_pem()).unwrap();
        std::fs::write(folder.join("sa.pub"), key.public_key_pem()).unwrap();
        std::fs::write(folder.join("tokens.csv"), "admin,admin,admin,\"system:masters\"\n").unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let etcd_process = Process::start(
            &tools.join("etcd"),
            &[
                format!("--data-dir={}", file("etcd")),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peer}"),
                "--unsafe-no-fsync".into(),
            ],
            &folder.join("etcd.log"),
        );
        let apiserver = Process::start(
            &tools.join("kube-apiserver"),
            &[
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=198.51.100.1".into(),
                format!("--cert-dir={}", file("certificates")),
                format!("--token-auth-file={}", file("tokens.csv")),
                "--authorization-mode=RBAC".into(),
                format!("--service-account-key-file={}", file("sa.pub")),
                format!("--service-account-signing-key-file={}", file("sa.key")),
                "--service-account-issuer=https://localhost".into(),
                "--service-cluster-ip-range=10.212.0.0/24".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
            ],
            &folder.join("apiserver.log"),
        );
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.auth_info.token = Some("admin".to_owned().into());
        // Its certificate is its own, made at its start.
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let server = Self { _apiserver: apiserver, _etcd: etcd_process, folder, client };
        let end = Instant::now() + Duration::from_secs(120);
        while !server.ready().await {
            assert!(Instant::now() < end, "the API server does not get ready: see {}", server.folder.display());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        server
    }

    async fn ready(&self) -> bool {
        let request = http::Request::get("/readyz").body(vec![]).unwrap();
        self.client.request_text(request).await.is_ok_and(|text| text == "ok")
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", resource)
    }
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn refusal<T>(result: kube::Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message),
        Err(other) => panic!("{other}"),
    }
}

/// One server for everything: its start takes longer than all that is asked of it.
#[tokio::test]
async fn a_real_api_server_takes_the_definitions_and_keeps_to_them() {
    let server = ApiServer::start().await;
    apply_twice(&server).await;
    every_case(&server).await;
    a_template_comes_back_as_it_was_written(&server).await;
    status_and_scale(&server).await;
}

async fn apply_twice(server: &ApiServer) {
    let operator = Identity::User("mczk-operator".into());
    let settings = Settings { operator, interpreter: None };
    for expected in [Change::Created, Change::Unchanged] {
        for part in [Part::Crds, Part::Rbac] {
            for object in part.objects(&settings).unwrap() {
                assert_eq!(apply::apply(&server.client, &object).await.unwrap(), expected, "{}", object.name());
                if part == Part::Crds {
                    apply::served(&server.client, &object).await.unwrap();
                }
            }
        }
    }
    // It is no Karmada, and `mczk register` would say so.
    let error = apply::ensure_karmada(&server.client, "https://here").await.unwrap_err().to_string();
    assert!(error.starts_with("https://here knows nothing of policy.karmada.io: is this karmada-apiserver"), "{error}");
}

async fn every_case(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    let mut wrong = String::new();
    for case in CASES {
        let (before, written) = case.objects();
        let name = written["metadata"]["name"].as_str().unwrap();
        let refused = match before {
            None => refusal(api.create(&PostParams::default(), &object(&written)).await),
            Some(before) => {
                let stored = api.create(&PostParams::default(), &object(&before)).await.unwrap();
                let mut written = object(&written);
                written.metadata.resource_version = stored.metadata.resource_version;
                refusal(api.replace(name, &PostParams::default(), &written).await)
            }
        };
        let fine = match (case.outcome, &refused) {
            (Outcome::Accepted, refused) => refused.is_none(),
            (Outcome::Rule(text) | Outcome::Schema(text), Some(message)) => message.contains(text),
            (_, None) => false,
        };
        if !fine {
            let _ = writeln!(wrong, "{}: {:?}, but {refused:?}", case.name, case.outcome);
        }
        let gone = refusal(api.delete(name, &DeleteParams::default()).await);
        assert_eq!(gone.is_some(), refused.is_some() && case.before.is_none(), "{}: {gone:?}", case.name);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A member may have a newer or an older definition than the control plane: it must not add to what is pinned.
async fn a_template_comes_back_as_it_was_written(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<ZooKeeper>(&()));
    let hash = "0123456789abcdef".repeat(4);
    for spec in [
        json!({
            "replicas": 0,
            "template": {"image": "zookeeper:3.9.4", "storage": {"size": "1Gi"}},
            "renderVersion": 1,
            "serverImage": "mczk:0.1.0",
            "tls": {"quorum": true},
            "revision": "r1",
            "ensemble": {},
        }),
        json!({
            "replicas": 3,
            "observers": 1,
            "cluster": "m1",
            "template": {
                "image": "zookeeper:3.9.4",
                "imagePullPolicy": "IfNotPresent",
                "imagePullSecrets": ["registry"],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                "storage": {"size": "10Gi", "storageClassName": "fast", "reclaim": "Retain"},
                "zooCfg": [{"name": "tickTime", "value": "2000"}],
                "jvmFlags": ["-Xlog:gc"],
                "scheduling": {
                    "nodeSelector": {"disk": "nvme"},
                    "tolerations": [{"key": "zk", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
                    "priorityClassName": "high",
                },
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            },
            "renderVersion": 1,
            "serverImage": "mczk:0.1.0",
            "tls": {"quorum": true, "client": {"mode": "Required", "secretName": "zk-tls"}},
            "revision": "r1",
            "peerCIDRs": ["10.0.0.0/8"],
            "pin": hash,
            "dependencies": [{"kind": "Secret", "name": "registry"}],
            "ensemble": {
                "hash": hash,
                "id": "abcde",
                "epoch": 7,
                "bootstrap": true,
                "park": false,
                "dissolve": false,
                "former": ["zzzzz"],
                "tls": {"identity": "identity-1", "trust": ["ca-1"]},
                "servers": [{"id": 1, "cluster": "m1", "ordinal": 0, "host": "a.m1", "role": "voter"}],
            },
        }),
    ] {
        let written = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "metadata": {"name": "zk"}, "spec": spec,
        });
        let stored = api.create(&PostParams::default(), &object(&written)).await.unwrap();
        assert_eq!(stored.data["spec"], spec);
        let typed: ZooKeeper = serde_json::from_value(written).unwrap();
        assert_eq!(serde_json::to_value(typed.spec).unwrap(), spec, "the type drops or adds something");
        api.delete("zk", &DeleteParams::default()).await.unwrap();
    }
}

async fn status_and_scale(server: &ApiServer) {
    let api: Api<MultiClusterZooKeeper> = Api::namespaced(server.client.clone(), "default");
    let created = api.create(&PostParams::default(), &serde_json::from_value(base()).unwrap()).await.unwrap();
    let time = "2026-01-02T03:04:05Z";
    let status = json!({
        "observedGeneration": 1,
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Waiting", "message": "waits", "lastTransitionTime": time,
            "observedGeneration": 1,
        }],
        "records": [{
            "observedGenerations": {"multiclusterzookeeper": 1, "zookeeper": 1},
            "order": ["m1", "m2"],
            "status": "Deploying",
            "currentState": {"pending": ["m2"], "deploying": ["m1"], "completed": []},
            "lastTransitionTime": time,
        }],
        "rollout": "Deploying m1 (0/2)",
        "replicas": 3,
        "readyReplicas": 0,
        "selector": "a=b",
    });
    let parameters = PatchParams::default();
    let stored = api.patch_status("ensemble", &parameters, &Patch::Merge(json!({"status": status}))).await.unwrap();
    assert_eq!(serde_json::to_value(stored.status).unwrap(), status);
    assert_eq!(stored.metadata.generation, created.metadata.generation, "a status makes no generation");

    let scaled =
        api.patch_scale("ensemble", &parameters, &Patch::Merge(json!({"spec": {"replicas": 7}}))).await.unwrap();
    assert_eq!(scaled.status.unwrap().selector.as_deref(), Some("a=b"));
    let read = api.get("ensemble").await.unwrap();
    assert_eq!(read.spec.replicas, 7);
    assert!(read.spec.tls.quorum);
    let too_many = api.patch_scale("ensemble", &parameters, &Patch::Merge(json!({"spec": {"replicas": 100}}))).await;
    assert!(refusal(too_many).unwrap().contains("spec.replicas"));
    // Null is no value: it is dropped, not stored.
    let patched = json!({"apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": {"name": "null"},
        "spec": {"replicas": 1, "template": {"image": "z", "storage": {"size": "1Gi", "reclaim": null}}, "rollout": null}});
    let raw = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    let stored = raw.create(&PostParams::default(), &object(&patched)).await.unwrap();
    assert_eq!(stored.data["spec"]["template"], json!({"image": "z", "storage": {"size": "1Gi"}}));
    assert!(stored.data["spec"].get("rollout").is_none());
}

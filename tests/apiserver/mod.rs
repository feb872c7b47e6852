//! A real API server for tests, with etcd behind it: no controllers, no kubelet.
#![allow(dead_code)] // Not every test needs all of it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Client, Config,
    api::{Api, DynamicObject},
    core::ApiResource,
};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::patience::wait_for;

/// A process that ends when this value is dropped, and when the test is killed: a shell ends it at the end of its standard
/// input.
pub struct Process(Child);

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

/// API servers that run at once. Each takes seconds of a processor to start.
static ROOM: Semaphore = Semaphore::const_new(3);

/// An API server, and etcd behind it. The fields are dropped in this order.
pub struct ApiServer {
    _apiserver: Process,
    _etcd: Process,
    _room: SemaphorePermit<'static>,
    folder: PathBuf,
    pub client: Client,
    port: u16,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // If etcd still writes, the folder stays below the target folder.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The user of the token `agent`.
pub const AGENT: &str = "system:serviceaccount:mczk-system:mczk-agent";

fn client(port: u16, token: &str) -> Client {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    // Its certificate is self-signed, created at its start.
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Free ports below those of the rig, and far below those that the kernel assigns. The search begins at a number that differs
/// between processes and servers, because a port is not in use yet when it is chosen.
fn ports<const N: usize>() -> [u16; N] {
    static SERVERS: AtomicU16 = AtomicU16::new(0);
    let start =
        u16::try_from(std::process::id() % 90).unwrap() * 100 + SERVERS.fetch_add(1, Ordering::Relaxed) * 5 + 10_000;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (start..20_000).filter(free).take(N).collect::<Vec<_>>().try_into().unwrap()
}

impl ApiServer {
    /// Starts a server for the test of this name.
    pub async fn start(name: &str) -> Self {
        let room = ROOM.acquire().await.unwrap();
        let tools = rig::tools(None).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [client_port, peer_port, port] = ports();
        let [etcd, peer] = [client_port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(folder.join("sa.key"), key.serialize_pem()).unwrap();
        std::fs::write(folder.join("sa.pub"), key.public_key_pem()).unwrap();
        std::fs::write(
            folder.join("tokens.csv"),
            format!("admin,admin,admin,\"system:masters\"\nagent,{AGENT},agent\n"),
        )
        .unwrap();
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
        let client = client(port, "admin");
        let server = Self { _apiserver: apiserver, _etcd: etcd_process, _room: room, folder, client, port };
        wait_for(&format!("the API server is ready: see {}", server.folder.display()), async || server.ready().await)
            .await;
        let namespaces: Api<Namespace> = Api::all(server.client.clone());
        let is_there = async |name| namespaces.get_opt(name).await.is_ok_and(|found| found.is_some());
        wait_for("its namespaces", async || is_there("default").await && is_there("kube-system").await).await;
        server
    }

    async fn ready(&self) -> bool {
        let request = http::Request::get("/readyz").body(vec![]).unwrap();
        self.client.request_text(request).await.is_ok_and(|text| text == "ok")
    }

    /// A client with only the rights of the agent.
    pub fn agent(&self) -> Client {
        client(self.port, "agent")
    }

    /// Kubernetes' StatefulSet controller, until the value is dropped.
    pub fn stateful_sets(&self) -> Process {
        let kubeconfig = self.kubeconfig("admin", "admin").display().to_string();
        let flags = [
            format!("--kubeconfig={kubeconfig}"),
            "--controllers=statefulset-controller".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let program = rig::tools(None).unwrap().join("kube-controller-manager");
        Process::start(&program, &flags, &self.folder.join("controllers.log"))
    }

    /// A kubeconfig of the user of a token.
    pub fn kubeconfig(&self, user: &str, token: &str) -> PathBuf {
        let path = self.folder.join(format!("{user}.kubeconfig"));
        let cluster = serde_json::json!({ "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true });
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    pub fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", resource)
    }
}

//! The control plane of the test, and the programs that serve the page.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use mczk_admin::register::{
    Part, Settings,
    apply::{apply, served},
    rbac::Identity,
};
use serde_json::{Value, json};

use crate::{
    VOTERS,
    apiserver::ApiServer,
    patience::wait_for,
    program,
    scenes::{binding, cluster, definition, ensemble, moved, status},
};

const NAMESPACE: &str = "shop";

/// An API server with two ensembles in the namespace `shop`: `orders` in a rollout, and `sessions` at rest.
pub struct Cluster {
    server: ApiServer,
}

impl Cluster {
    pub async fn start() -> Self {
        let this = Self { server: ApiServer::start("dashboard").await };
        for definition in [
            definition("work.karmada.io", "v1alpha2", "ResourceBinding", "Namespaced"),
            definition("cluster.karmada.io", "v1alpha1", "Cluster", "Cluster"),
        ] {
            this.apply(None, definition).await;
        }
        let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        for name in ["mczk-system", "karmada-system", NAMESPACE] {
            this.apply(None, namespace(name)).await;
        }
        this.register().await;
        this.users().await;
        for (name, reachable) in [("berlin", true), ("paris", true), ("rome", false), ("oslo", true)] {
            this.apply(None, cluster(name, reachable)).await;
        }
        this.apply(Some(NAMESPACE), ensemble("orders", 5)).await;
        this.write("orders", &VOTERS, 1, Some(4), "Server 4 restarts in paris").await;
        this.apply(Some(NAMESPACE), ensemble("sessions", 3)).await;
        let voters: [(&str, &[i32]); 3] = [("berlin", &[1]), ("paris", &[2]), ("rome", &[3])];
        this.write("sessions", &voters, 3, None, "").await;
        this
    }

    /// The definitions, and the operator's rights with those for the page.
    async fn register(&self) {
        let operator = Identity::ServiceAccount { namespace: "mczk-system".into(), name: "operator".into() };
        let settings =
            Settings { operator, namespaces: BTreeSet::new(), dashboard: true, interpreter: None, agents: None };
        for part in [Part::Crds, Part::Rbac] {
            for object in part.objects(&settings).unwrap() {
                apply(&self.server.client, &object).await.unwrap();
                if part == Part::Crds {
                    served(&self.server.client, &object).await.unwrap();
                }
            }
        }
    }

    /// The operator, and a user who may see the ensembles of one namespace.
    async fn users(&self) {
        let account =
            |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        self.apply(Some("mczk-system"), account("operator")).await;
        self.apply(Some(NAMESPACE), account("viewer")).await;
        let rule = json!({ "apiGroups": ["mczk.io"], "resources": ["multiclusterzookeepers"], "verbs": ["get"] });
        let reader = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "viewer" }, "rules": [rule],
        });
        self.apply(Some(NAMESPACE), reader).await;
        let bound = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "viewer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer" },
            "subjects": [{ "kind": "ServiceAccount", "name": "viewer", "namespace": NAMESPACE }],
        });
        self.apply(Some(NAMESPACE), bound).await;
    }

    /// Takes the right from the user.
    pub async fn revoke(&self) {
        let api: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(self.server.client.clone(), NAMESPACE);
        api.delete("viewer", &DeleteParams::default()).await.unwrap();
    }

    /// A token of a service account.
    pub async fn token(&self, namespace: &str, account: &str) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.server.client.clone(), namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let request = api.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        request.status.unwrap().token
    }

    /// Writes what the operator and the agents report of an ensemble.
    pub async fn write(
        &self,
        name: &str,
        voters: &[(&str, &[i32])],
        completed: usize,
        off: Option<i32>,
        message: &str,
    ) {
        let api = self.api(Some(NAMESPACE), "mczk.io/v1alpha1", "MultiClusterZooKeeper");
        let status = json!({ "status": status(voters, completed, off, message) });
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        self.apply(Some(NAMESPACE), binding(name, voters, off)).await;
    }

    /// Writes that the voters of a home are at a spare: `voters` has those of the spare.
    pub async fn write_moved(&self, name: &str, voters: &[(&str, &[i32])], (home, spare): (&str, &str)) {
        self.write(name, voters, voters.len(), None, "").await;
        let api = self.api(Some(NAMESPACE), "mczk.io/v1alpha1", "MultiClusterZooKeeper");
        let patch: json_patch::Patch = serde_json::from_value(moved(home, spare)).unwrap();
        api.patch_status(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
    }

    /// Deletes an ensemble.
    pub async fn delete(&self, name: &str) {
        let api = self.api(Some(NAMESPACE), "mczk.io/v1alpha1", "MultiClusterZooKeeper");
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    fn api(&self, namespace: Option<&str>, version: &str, kind: &str) -> Api<DynamicObject> {
        let gvk =
            GroupVersionKind::try_from(TypeMeta { api_version: version.to_owned(), kind: kind.to_owned() }).unwrap();
        let resource = ApiResource::from_gvk(&gvk);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.server.client.clone(), namespace, &resource),
            None => Api::all_with(self.server.client.clone(), &resource),
        }
    }

    /// Applies an object, once its kind is served.
    async fn apply(&self, namespace: Option<&str>, object: Value) {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let api = self.api(namespace, &text("apiVersion"), &text("kind"));
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        wait_for(&format!("{} {name} is applied", text("kind")), async || {
            api.patch(name, &parameters, &Patch::Apply(&object)).await.is_ok()
        })
        .await;
    }
}

/// A program that serves the page. It ends when this value is dropped.
pub struct Page {
    process: Child,
    pub url: String,
    /// Scheme, host and port of the URL.
    pub origin: String,
}

impl Page {
    fn mczk(arguments: &[&str]) -> Command {
        let mut command = Command::new(program::mczk());
        command.args(arguments).env_clear().stdin(Stdio::null());
        command
    }

    /// `mczk dashboard` of an administrator.
    pub fn local(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.server.kubeconfig("administrator", "admin");
        let flags = ["dashboard", "-A", "--poll-seconds", "1", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let mut process = Self::mczk(&flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let (origin, _) = url.split_once("/#token=").expect("the command prints a URL");
        Self { process, origin: origin.to_owned(), url: url.trim().to_owned() }
    }

    /// The page of an operator without a controller, whose user has only the rights of an operator.
    pub async fn of_operator(cluster: &Cluster) -> Self {
        let token = cluster.token("mczk-system", "operator").await;
        let kubeconfig = cluster.server.kubeconfig("operator", &token);
        let folder = kubeconfig.parent().unwrap();
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        std::fs::write(&certificate, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        let [webhook, probes, page] = addresses();
        let process =
            Self::mczk(&["operator", "--controller=false", "--shutdown-delay-seconds=0", "--log-format=text"])
                .arg(format!("--kubeconfig={}", kubeconfig.display()))
                .arg(format!("--tls-cert-file={}", certificate.display()))
                .arg(format!("--tls-private-key-file={}", key.display()))
                .arg(format!("--webhook-address={webhook}"))
                .arg(format!("--probe-address={probes}"))
                .arg(format!("--dashboard-address={page}"))
                .arg("--dashboard-poll-seconds=1")
                .spawn()
                .unwrap();
        wait_for("the operator listens", async || tokio::net::TcpStream::connect(&page).await.is_ok()).await;
        let origin = format!("https://{page}");
        Self { process, url: format!("{origin}/"), origin }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Free addresses of this machine.
fn addresses() -> [String; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string())
}

//! Member clusters with nodes: the agent runs in pods, from its manifest, and so do real ZooKeeper servers.

pub mod actions;
pub mod java;
pub mod logs;
mod quorum;
pub mod run;
pub mod spec;
pub mod steps;
pub mod stories;
pub mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::labels::{MANAGED_BY_AGENT, MANAGED_BY_LABEL, PREFLIGHT_LABEL},
};
use mczk_rules::agent::render::Kind;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    federation::Federation,
    patience::wait_for,
    programs,
    scene::{Scene, conditions, kind},
};

/// The longest time until Karmada has propagated the agent to a member cluster.
const PROPAGATION: Duration = Duration::from_secs(60);
/// The member cluster with two nodes, so that one can be drained.
pub const TWO_NODES: &str = "m1";
/// The longest wait for the API server of a cluster, which may be down.
const ANSWER: Duration = Duration::from_secs(1);
/// The time between two polls.
const PACE: Duration = Duration::from_millis(400);
/// Characters of a progress line at most.
const LINE: usize = 240;
/// The longest time between two progress lines.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// A server's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Its uid, which a recreated pod does not keep.
    pub uid: String,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Its address, once it has one.
    pub address: Option<String>,
    /// True while it is being deleted.
    pub terminating: bool,
    /// True if the kubelet reports it ready, and it is not being deleted.
    pub ready: bool,
}

impl Server {
    /// Its mode, as it reports it: `leader`, `follower` or `observer`. None without an answer.
    pub async fn mode(&self) -> Option<String> {
        let request = async {
            let address = self.address.as_ref().context("the server has no address")?;
            let mut connection = TcpStream::connect(format!("{address}:2181")).await?;
            connection.write_all(b"srvr").await?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await?;
            let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
            mode.map(str::to_owned).context("the answer names no mode")
        };
        timeout(Duration::from_millis(500), request).await.ok()?.ok()
    }

    /// True if it reports that it leads.
    pub async fn leads(&self) -> bool {
        self.mode().await.as_deref() == Some("leader")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.cluster)
    }
}

/// The pods of one namespace, in all member clusters.
#[derive(Clone)]
pub struct Pods {
    members: BTreeMap<String, Client>,
    namespace: String,
}

impl Pods {
    /// The servers, by cluster and name; none of a cluster that does not answer.
    ///
    /// # Errors
    /// If an API server refuses the request.
    pub async fn servers(&self) -> Result<Vec<Server>> {
        let lists = self.members.iter().map(async |(cluster, client)| {
            let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
            let params =
                ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT},!{PREFLIGHT_LABEL}"));
            match timeout(ANSWER, api.list(&params)).await {
                Ok(Ok(list)) => Ok(list.items.iter().map(|pod| server(cluster, pod)).collect()),
                Ok(Err(kube::Error::Api(refused))) => Err(anyhow!("pods of {cluster}: {refused}")),
                Ok(Err(_)) | Err(_) => Ok(Vec::new()),
            }
        });
        let mut servers = futures::future::try_join_all(lists).await?.concat();
        servers.sort_by(|a, b| (&a.cluster, &a.name).cmp(&(&b.cluster, &b.name)));
        Ok(servers)
    }

    /// The number of servers that the kubelets report ready.
    ///
    /// # Errors
    /// If an API server refuses the request.
    pub async fn ready(&self) -> Result<usize> {
        Ok(self.servers().await?.iter().filter(|server| server.ready).count())
    }

    /// The addresses of all servers, also of those that are not ready: kubelets report late that a server serves again.
    ///
    /// # Errors
    /// If an API server refuses the request.
    pub async fn addresses(&self) -> Result<Vec<String>> {
        let servers = self.servers().await?.into_iter().filter(|server| !server.terminating);
        Ok(servers.filter_map(|server| server.address).map(|address| format!("{address}:2181")).collect())
    }
}

fn server(cluster: &str, pod: &Pod) -> Server {
    let status = pod.status.clone().unwrap_or_default();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    Server {
        cluster: cluster.to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        address: status.pod_ip,
        terminating,
        ready: ready && !terminating,
    }
}

/// A federation with nodes, and the report on standard output.
pub struct Members<'a> {
    /// The federation.
    pub federation: &'a Federation,
    begun: Instant,
    colour: bool,
}

impl<'a> Members<'a> {
    /// A federation. The report counts time from `begun`; `colour` is for a terminal.
    #[must_use]
    pub fn new(federation: &'a Federation, begun: Instant, colour: bool) -> Self {
        Self { federation, begun, colour }
    }

    /// Reports that a step begins, with the time.
    pub fn announce(&self, text: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        if self.colour {
            println!("\n\x1b[1m[{seconds:6.1} s] {text}\x1b[0m");
        } else {
            println!("[{seconds:6.1} s] START   {text}");
        }
    }

    /// Reports a line, with the time.
    pub fn report(&self, text: &str) {
        println!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    /// Runs `kubectl` with all rights in one cluster.
    ///
    /// # Errors
    /// Its output, if it fails.
    pub async fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.federation.rig.kubeconfig(cluster).display().to_string();
        let arguments = [&["--kubeconfig", kubeconfig.as_str()], arguments].concat();
        programs::run(&self.federation.rig.tool("kubectl"), &arguments).await
    }

    /// Has Karmada propagate the agent to all member clusters, and waits until every agent is ready.
    ///
    /// # Errors
    /// If an agent does not become ready.
    pub async fn install_agents(&self) -> Result<()> {
        self.federation.register_agents(rig::MCZK).await?;
        let each = self.federation.members.keys().map(async |cluster| {
            let deployment = || self.kubectl(cluster, &["get", "deployment/mczk-agent", "-n", "mczk-system"]);
            wait_for(&format!("Karmada propagates the agent to {cluster}"), PROPAGATION, deployment).await?;
            let wait = ["rollout", "status", "deployment/mczk-agent", "-n", "mczk-system", "--timeout=120s"];
            self.kubectl(cluster, &wait).await.with_context(|| format!("the agent of {cluster}"))
        });
        futures::future::try_join_all(each).await.map(drop)
    }

    /// Runs a line of the shell on every node of a cluster; `None` means those of all member clusters.
    ///
    /// # Errors
    /// If the cluster has no node, or the line fails on one.
    pub async fn on_nodes_of(&self, cluster: Option<&str>, line: &str) -> Result<()> {
        let federation = self.federation;
        // The first node has the name of its cluster.
        let of = |node: &str, cluster: &str| {
            node.strip_prefix(cluster).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let wanted = |node: &String| match cluster {
            Some(cluster) => of(node, cluster),
            None => federation.members.keys().any(|cluster| of(node, cluster)),
        };
        let nodes: Vec<String> = federation.rig.nodes().into_iter().filter(wanted).collect();
        ensure!(!nodes.is_empty(), "no node of {cluster:?} in {:?}", federation.rig.nodes());
        for node in nodes {
            let output = federation.rig.exec(&node, ["sh", "-c", line]).await?;
            ensure!(output.status.success(), "{node}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// The pods of a namespace.
    #[must_use]
    pub fn pods(&self, namespace: &str) -> Pods {
        Pods { members: self.federation.members.clone(), namespace: namespace.to_owned() }
    }

    /// Waits until a MultiClusterZooKeeper satisfies a condition, and reports its progress.
    ///
    /// # Errors
    /// If it does not in time, with its last status.
    pub async fn until(
        &self,
        scene: &Scene<'_>,
        name: &str,
        patience: Duration,
        mut is_done: impl FnMut(&MultiClusterZooKeeper) -> bool,
    ) -> Result<MultiClusterZooKeeper> {
        let end = Instant::now() + patience;
        let pods = self.pods(&scene.namespace);
        let (mut last, mut at) = (String::new(), Instant::now());
        loop {
            let object = scene.get(name).await?;
            let (line, done) = (self.progress(&object, &pods.servers().await?), is_done(&object));
            if line != last || done || at.elapsed() > HEARTBEAT {
                self.report(&line);
                (last, at) = (line, Instant::now());
            }
            if done {
                return Ok(object);
            }
            if Instant::now() > end {
                bail!("not after {} s. Last state: {}", patience.as_secs(), conditions(&object));
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// The state of the rollout, in a line.
    fn progress(&self, object: &MultiClusterZooKeeper, servers: &[Server]) -> String {
        let status = object.status.clone().unwrap_or_default();
        let mut text = format!("{:18}", status.rollout.unwrap_or_else(|| "no record".to_owned()));
        for cluster in self.federation.members.keys() {
            let all: Vec<_> = servers.iter().filter(|server| server.cluster == *cluster).collect();
            let ready = all.iter().filter(|server| server.ready).count();
            // Writing to a String cannot fail.
            let _ = write!(text, "  {cluster} {ready}/{}", all.len());
        }
        let condition = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_);
        match (condition("Progressing"), condition("Ready")) {
            (Some(progressing), _) if progressing.reason != "Done" => {
                let _ = write!(text, "  {}: {}", progressing.reason, progressing.message);
            }
            (_, Some(ready)) => {
                let _ = write!(text, "  Ready={} {}", ready.status, ready.reason);
            }
            (_, None) => {}
        }
        let short: String = text.replace('\n', " ").chars().take(LINE).collect();
        if short.len() < text.len() { short + " ..." } else { text }
    }

    /// Objects of agents, and pods and volumes, that are left in a namespace of all member clusters.
    ///
    /// # Errors
    /// If an API server does not answer.
    pub async fn left(&self, namespace: &str) -> Result<Vec<String>> {
        let plural = |of: &Kind| ApiResource::from_gvk(&GroupVersionKind::gvk("", "", of.name())).plural;
        let mut kinds: Vec<ApiResource> =
            Kind::ALL.iter().map(|of| kind(of.api_version(), of.name(), &plural(of))).collect();
        kinds.extend([kind("v1", "Pod", "pods"), kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")]);
        let mut left = Vec::new();
        for (cluster, client) in &self.federation.members {
            for resource in &kinds {
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
                let list =
                    api.list(&ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"))).await?;
                left.extend(list.items.iter().map(|o| format!("{} {} in {cluster}", resource.kind, o.name_any())));
            }
        }
        Ok(left)
    }

    /// Deletes a MultiClusterZooKeeper, waits until only the volumes of its servers are left, and returns them. The user
    /// deletes volumes.
    ///
    /// # Errors
    /// Other objects that are left.
    pub async fn delete(&self, scene: &Scene<'_>, name: &str, patience: Duration) -> Result<Vec<String>> {
        scene.api::<MultiClusterZooKeeper>().delete(name, &DeleteParams::default()).await?;
        let end = Instant::now() + patience;
        let mut last = String::new();
        loop {
            let in_members = self.left(&scene.namespace).await?;
            let (volumes, others): (Vec<_>, Vec<_>) =
                in_members.into_iter().partition(|left| left.starts_with("PersistentVolumeClaim "));
            let mut left = [scene.left(name).await?, others].concat();
            // Tombstones stay if a cluster was down when its incarnation ended.
            left.retain(|object| !object.contains("-tombstone"));
            if left.is_empty() {
                return Ok(volumes);
            }
            let line = format!("{} objects are left, {}", left.len(), left.first().cloned().unwrap_or_default());
            if Instant::now() > end {
                let object = scene.get(name).await.map(|o| conditions(&o)).unwrap_or_default();
                bail!("not after {} s: {}; {object}", patience.as_secs(), left.join(", "));
            }
            if line != last {
                self.report(&line);
                last = line;
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// The output of kubectl under a title, for evidence.
    async fn section(&self, cluster: &str, arguments: &[&str]) -> String {
        let output = self.kubectl(cluster, arguments).await.unwrap_or_else(|error| format!("{error:#}\n"));
        format!("### kubectl {}\n{output}\n", arguments.join(" "))
    }

    /// Writes pods, events, and the ends of logs into a folder.
    pub async fn evidence(&self, folder: &Path) {
        for cluster in self.federation.members.keys() {
            let mut text = String::new();
            for arguments in [
                &["get", "pods,statefulsets,services,configmaps,pvc", "-A", "-o", "wide"][..],
                &["get", "secrets", "-A", "--show-labels"],
                &["get", "zookeepers.mczk.io", "-A", "-o", "yaml"],
                &["get", "events", "-A", "--sort-by=.lastTimestamp"],
                &["describe", "pods", "-A"],
                &["logs", "-n", "mczk-system", "--prefix", "--tail=2000", "-l", "app.kubernetes.io/name=mczk-agent"],
            ] {
                text += &self.section(cluster, arguments).await;
            }
            // `kubectl logs` reads one namespace.
            let of = "app.kubernetes.io/managed-by=mczk-agent";
            let path = "jsonpath={range .items[*]}{.metadata.namespace}{\"\\n\"}{end}";
            let pods = self.kubectl(cluster, &["get", "pods", "-A", "-l", of, "-o", path]).await.unwrap_or_default();
            for namespace in pods.lines().collect::<BTreeSet<_>>() {
                let arguments = ["logs", "-n", namespace, "--prefix", "--all-containers", "--tail=2000", "-l", of];
                text += &self.section(cluster, &arguments).await;
            }
            // The caller reports the error itself, also if this file cannot be written.
            let _ = std::fs::write(folder.join(format!("{cluster}.txt")), text);
        }
        // Only the volumes show why a server lacks a write.
        for (number, volumes) in self.federation.rig.volumes().iter().enumerate() {
            let copy = folder.join(format!("volumes-{number}")).display().to_string();
            let _ = programs::run(Path::new("cp"), &["-a", &volumes.display().to_string(), &copy]).await;
        }
        let mut text = String::new();
        for arguments in [
            &["get", "mczk,zookeepers.mczk.io,resourcebindings", "-A", "-o", "yaml"][..],
            &["get", "propagationpolicies,overridepolicies", "-A", "-o", "yaml"],
            &["get", "secrets", "-A", "-l", "mczk.io/ensemble", "--show-labels"],
            // Without the manifests: they hold private keys.
            &["get", "works", "-A", "-o", "jsonpath={range .items[*]}{.metadata}{\"\\n\"}{.status}{\"\\n\\n\"}{end}"],
        ] {
            text += &self.section("karmada", arguments).await;
        }
        let _ = std::fs::write(folder.join("karmada.txt"), text);
    }
}

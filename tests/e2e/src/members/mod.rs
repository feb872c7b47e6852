//! The members with nodes: the agent itself, installed from its manifest, and real servers in pods.

pub mod logs;
pub mod play;
pub mod plots;
pub mod steps;
pub mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams},
};
use mczk::{
    agent::render::Kind,
    api::MultiClusterZooKeeper,
    contract::labels::{MANAGED_BY_AGENT, MANAGED_BY_LABEL},
};

use tokio::time::timeout;

use crate::{
    federation::Federation,
    patience::wait_for,
    programs,
    scene::{Scene, kind, told},
};

/// How long Karmada may take to bring the agents to a member.
const BROUGHT: Duration = Duration::from_secs(60);
/// The member with two nodes, one of which can be drained.
pub const TWO_NODES: &str = "m1";
/// A cluster may have fallen silent: so long it is waited for.
const ANSWER: Duration = Duration::from_secs(1);
/// Between two looks.
const PACE: Duration = Duration::from_millis(400);
/// A line that is told has so many characters at most.
const LINE: usize = 240;
/// Without news, how it stands is told again after so long.
const SILENCE: Duration = Duration::from_secs(20);

/// A server's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Its uid: a pod that was made anew has another one.
    pub uid: String,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Its address, once it has one.
    pub address: Option<String>,
    /// Whether it is being deleted.
    pub going: bool,
    /// Whether the kubelet finds it ready, and it is not to go.
    pub ready: bool,
}

/// The pods of one namespace, in all members.
#[derive(Clone)]
pub struct Pods {
    members: BTreeMap<String, Client>,
    namespace: String,
}

impl Pods {
    /// The servers, by cluster and name; none of a cluster that does not answer.
    ///
    /// # Errors
    /// If a cluster refuses to tell.
    pub async fn servers(&self) -> Result<Vec<Server>> {
        let asked = self.members.iter().map(async |(cluster, client)| {
            let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
            let params = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"));
            match timeout(ANSWER, api.list(&params)).await {
                Ok(Ok(list)) => Ok(list.items.iter().map(|pod| server(cluster, pod)).collect()),
                Ok(Err(kube::Error::Api(refused))) => Err(anyhow!("pods of {cluster}: {refused}")),
                Ok(Err(_)) | Err(_) => Ok(Vec::new()),
            }
        });
        let mut servers = futures::future::try_join_all(asked).await?.concat();
        servers.sort_by(|a, b| (&a.cluster, &a.name).cmp(&(&b.cluster, &b.name)));
        Ok(servers)
    }

    /// How many serve, as the kubelets see it.
    ///
    /// # Errors
    /// If a cluster refuses to tell.
    pub async fn ready(&self) -> Result<usize> {
        Ok(self.servers().await?.iter().filter(|server| server.ready).count())
    }

    /// Where clients find servers, whether they serve or not: the kubelets notice late that one does again.
    ///
    /// # Errors
    /// If a cluster refuses to tell.
    pub async fn addresses(&self) -> Result<Vec<String>> {
        let there = self.servers().await?.into_iter().filter(|server| !server.going);
        Ok(there.filter_map(|server| server.address).map(|address| format!("{address}:2181")).collect())
    }
}

fn server(cluster: &str, pod: &Pod) -> Server {
    let status = pod.status.clone().unwrap_or_default();
    let going = pod.metadata.deletion_timestamp.is_some();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    Server {
        cluster: cluster.to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        address: status.pod_ip,
        going,
        ready: ready && !going,
    }
}

/// A federation whose members have nodes, and what is told of it.
pub struct Members<'a> {
    /// The federation.
    pub federation: &'a Federation,
    begun: Instant,
    colour: bool,
}

impl<'a> Members<'a> {
    /// Of this federation; times are told from `begun` on, to a terminal in colour.
    #[must_use]
    pub fn new(federation: &'a Federation, begun: Instant, colour: bool) -> Self {
        Self { federation, begun, colour }
    }

    /// Tells that something begins, with the time.
    pub fn begins(&self, text: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        if self.colour {
            println!("\n\x1b[1m[{seconds:6.1} s] {text}\x1b[0m");
        } else {
            println!("[{seconds:6.1} s] BEGINS  {text}");
        }
    }

    /// Tells something, with the time.
    pub fn say(&self, text: &str) {
        println!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    /// `kubectl`, with all rights in one cluster.
    ///
    /// # Errors
    /// What it says.
    pub async fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.federation.rig.kubeconfig(cluster).display().to_string();
        let arguments = [&["--kubeconfig", kubeconfig.as_str()], arguments].concat();
        programs::run(&self.federation.rig.tool("kubectl"), &arguments).await
    }

    /// Has Karmada bring the agent to every member, and waits until it is ready.
    ///
    /// # Errors
    /// If one is not.
    pub async fn install_agents(&self) -> Result<()> {
        self.federation.register_agents(rig::MCZK).await?;
        let each = self.federation.members.keys().map(async |cluster| {
            let there = || self.kubectl(cluster, &["get", "deployment/mczk-agent", "-n", "mczk-system"]);
            wait_for(&format!("Karmada brings the agent to {cluster}"), BROUGHT, there).await?;
            let wait = ["rollout", "status", "deployment/mczk-agent", "-n", "mczk-system", "--timeout=120s"];
            self.kubectl(cluster, &wait).await.with_context(|| format!("the agent of {cluster}"))
        });
        futures::future::try_join_all(each).await.map(drop)
    }

    /// The pods of a namespace.
    #[must_use]
    pub fn pods(&self, namespace: &str) -> Pods {
        Pods { members: self.federation.members.clone(), namespace: namespace.to_owned() }
    }

    /// Waits until a MultiClusterZooKeeper satisfies something, and tells what happens meanwhile.
    ///
    /// # Errors
    /// If it does not in time: how it stands.
    pub async fn until(
        &self,
        scene: &Scene<'_>,
        name: &str,
        patience: Duration,
        mut enough: impl FnMut(&MultiClusterZooKeeper) -> bool,
    ) -> Result<MultiClusterZooKeeper> {
        let end = Instant::now() + patience;
        let pods = self.pods(&scene.namespace);
        let (mut last, mut at) = (String::new(), Instant::now());
        loop {
            let object = scene.get(name).await?;
            let (news, done) = (self.news(&object, &pods.servers().await?), enough(&object));
            if news != last || done || at.elapsed() > SILENCE {
                self.say(&news);
                (last, at) = (news, Instant::now());
            }
            if done {
                return Ok(object);
            }
            if Instant::now() > end {
                bail!("not after {} s. Seen last: {}", patience.as_secs(), told(&object));
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// How it stands, in a line.
    fn news(&self, object: &MultiClusterZooKeeper, servers: &[Server]) -> String {
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
            (Some(goes_on), _) if goes_on.reason != "Done" => {
                let _ = write!(text, "  {}: {}", goes_on.reason, goes_on.message);
            }
            (_, Some(ready)) => {
                let _ = write!(text, "  Ready={} {}", ready.status, ready.reason);
            }
            (_, None) => {}
        }
        // In a line, and not a long one.
        let short: String = text.replace('\n', " ").chars().take(LINE).collect();
        if short.len() < text.len() { short + " ..." } else { text }
    }

    /// What agents and Kubernetes hold for ensembles in a namespace, in all members.
    ///
    /// # Errors
    /// If a member does not answer.
    pub async fn left(&self, namespace: &str) -> Result<Vec<String>> {
        let mut kinds: Vec<ApiResource> =
            Kind::ALL.iter().map(|of| kind(of.api_version(), of.name(), of.plural())).collect();
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

    /// Deletes a MultiClusterZooKeeper and waits until nothing of it is left but the servers' volumes, which are kept for a
    /// person. They are returned.
    ///
    /// # Errors
    /// What else is left.
    pub async fn delete(&self, scene: &Scene<'_>, name: &str, patience: Duration) -> Result<Vec<String>> {
        scene.api::<MultiClusterZooKeeper>().delete(name, &DeleteParams::default()).await?;
        let end = Instant::now() + patience;
        let mut last = String::new();
        loop {
            let in_members = self.left(&scene.namespace).await?;
            let (volumes, others): (Vec<_>, Vec<_>) =
                in_members.into_iter().partition(|left| left.starts_with("PersistentVolumeClaim "));
            let mut left = [scene.left(name).await?, others].concat();
            // Notes of lives that ended while a cluster was away stay for a person.
            left.retain(|object| !object.contains("-tombstone"));
            if left.is_empty() {
                return Ok(volumes);
            }
            let news = format!("{} objects are left, {}", left.len(), left.first().cloned().unwrap_or_default());
            if Instant::now() > end {
                let object = scene.get(name).await.map(|o| told(&o)).unwrap_or_default();
                bail!("not after {} s: {}; {object}", patience.as_secs(), left.join(", "));
            }
            if news != last {
                self.say(&news);
                last = news;
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// What a person needs who has to find out what went wrong: pods, events, and the ends of logs, into a folder.
    pub async fn evidence(&self, folder: &Path) {
        for cluster in self.federation.members.keys() {
            let mut text = String::new();
            for arguments in [
                &["get", "pods,statefulsets,services,configmaps,pvc", "-A", "-o", "wide"][..],
                &["get", "zookeepers.mczk.io", "-A", "-o", "yaml"],
                &["get", "events", "-A", "--sort-by=.lastTimestamp"],
                &["describe", "pods", "-A"],
                &["logs", "-n", "mczk-system", "deployment/mczk-agent", "--tail=2000"],
            ] {
                let said = self.kubectl(cluster, arguments).await.unwrap_or_else(|error| format!("{error:#}\n"));
                // Writing to a String cannot fail.
                let _ = writeln!(text, "### kubectl {}\n{said}", arguments.join(" "));
            }
            // Logs are read by namespace.
            let of = "app.kubernetes.io/managed-by=mczk-agent";
            let path = "jsonpath={range .items[*]}{.metadata.namespace}{\"\\n\"}{end}";
            let pods = self.kubectl(cluster, &["get", "pods", "-A", "-l", of, "-o", path]).await.unwrap_or_default();
            for namespace in pods.lines().collect::<BTreeSet<_>>() {
                let arguments = ["logs", "-n", namespace, "--prefix", "--all-containers", "--tail=2000", "-l", of];
                let said = self.kubectl(cluster, &arguments).await.unwrap_or_else(|error| format!("{error:#}\n"));
                let _ = writeln!(text, "### kubectl {}\n{said}", arguments.join(" "));
            }
            // What cannot be written is not there to be read; the failure itself is told elsewhere.
            let _ = std::fs::write(folder.join(format!("{cluster}.txt")), text);
        }
        let object = self.kubectl("karmada", &["get", "mczk", "-A", "-o", "yaml"]).await;
        let _ = std::fs::write(folder.join("karmada.txt"), object.unwrap_or_else(|error| format!("{error:#}\n")));
    }
}

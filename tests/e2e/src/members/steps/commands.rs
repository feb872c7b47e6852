//! Commands of users, run as users run them, against servers in pods: with an administrator's kubeconfig of
//! karmada-apiserver, whose cluster proxy reaches the member clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{NAME, PATIENCE, Step, StoryContext};
use crate::{
    members::{Pods, Server},
    patience::wait_for,
    programs,
    scene::is_settled,
};

/// A credential that a bundle must not hold.
const PLANTED: &str = "planted-h0rse-battery";
/// Lines that `mczk logs` prints of a server.
const TAIL: usize = 20;
/// Shortest line of a private key that is searched for.
const KEY_LINE: usize = 40;

pub const READ: Step = step!(
    "commands",
    commands_read,
    "mczk status, why, plan, logs and support-bundle show the ensemble, and the bundle holds no credential"
);
pub const RESTART: Step =
    step!("restart", commands_restart, "mczk restart restarts each server once, one at a time, while a client writes");
pub const REPLACE: Step =
    step!("replace", commands_replace, "mczk replace gives a server an empty volume, and the server joins again");

/// What happened to pods while servers restarted.
#[derive(Default)]
struct Watched {
    /// Uids of each pod, by cluster and name.
    uids: BTreeMap<(String, String), BTreeSet<String>>,
    /// The most pods that were being deleted at the same time.
    most_terminating: usize,
}

/// Watches pods until it is stopped.
async fn watch(pods: Pods, stop: Arc<AtomicBool>) -> Watched {
    let mut watched = Watched::default();
    while !stop.load(Ordering::Relaxed) {
        // An API server that does not answer in time says nothing about its pods.
        if let Ok(servers) = pods.servers().await {
            let terminating = servers.iter().filter(|server| server.terminating).count();
            watched.most_terminating = watched.most_terminating.max(terminating);
            for server in servers {
                watched.uids.entry((server.cluster, server.name)).or_default().insert(server.uid);
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    watched
}

impl StoryContext<'_> {
    /// Runs `mczk` about the ensemble.
    async fn mczk(&self, arguments: &[&str]) -> Result<String> {
        let federation = self.members.federation;
        let kubeconfig = federation.rig.kubeconfig("karmada").display().to_string();
        let connection = ["--kubeconfig", kubeconfig.as_str(), "--namespace", self.scene.namespace.as_str()];
        federation.run(&[arguments, &connection].concat()).await
    }

    async fn commands_read(&mut self) -> Result<()> {
        self.all_serve().await?;
        let status = wait_for("mczk status is Ready", Duration::from_secs(60), || async {
            let status: Value = serde_json::from_str(&self.mczk(&["status", NAME, "-o", "json"]).await?)?;
            let serving = status.get("serving").and_then(Value::as_u64).unwrap_or_default();
            ensure!(usize::try_from(serving)? == self.voters, "{serving} voters serve");
            Ok(status)
        })
        .await?;
        let servers = status.get("clusters").and_then(Value::as_array).into_iter().flatten();
        let servers = servers.filter_map(|cluster| cluster.get("servers")?.as_array());
        let servers: Vec<&Value> = servers.flatten().collect();
        ensure!(servers.len() == self.servers(), "mczk status shows {} servers", servers.len());
        ensure!(
            servers.iter().filter(|server| server["state"] == "leader").count() == 1,
            "mczk status shows no leader: {servers:?}"
        );
        let why = wait_for("nothing waits", Duration::from_secs(60), || self.mczk(&["why", NAME])).await?;
        ensure!(why.contains("waits for nothing"), "mczk why prints {why}");
        // 3 if the operator is about to write a status.
        if let Err(error) = self.mczk(&["plan", NAME]).await {
            ensure!(format!("{error:#}").contains("exit status: 3"), "{error:#}");
        }
        for server in self.pods().servers().await? {
            self.printed_log(&server).await?;
        }
        self.bundle().await
    }

    /// `mczk logs` prints the last lines of one server, and of no other.
    async fn printed_log(&self, server: &Server) -> Result<()> {
        let (one, tail) = (format!("{}/{}", server.cluster, server.name), TAIL.to_string());
        let log = self.mczk(&["logs", NAME, &one, "--tail", &tail]).await?;
        let lines: Vec<&str> = log.lines().collect();
        ensure!((1..=TAIL).contains(&lines.len()), "mczk logs {one} prints {} lines", lines.len());
        let foreign = lines.iter().find(|line| !line.starts_with(&format!("{one} ")));
        ensure!(foreign.is_none(), "mczk logs {one} prints {foreign:?}");
        Ok(())
    }

    /// `mczk support-bundle` collects the log of every server, and neither the keys of the quorum nor a password.
    async fn bundle(&self) -> Result<()> {
        let servers = self.pods().servers().await?;
        let marked = servers.first().context("there is no server")?;
        let secret = ["create", "secret", "generic", "planted"];
        let literal = format!("--from-literal=password={PLANTED}");
        self.in_karmada(&[&secret[..], &[literal.as_str()]].concat()).await?;
        let note = format!("example.io/password={PLANTED}");
        self.annotate(marked, &note).await?;
        let file = self.members.federation.folder.join("bundle.tar.gz");
        let made = self.mczk(&["support-bundle", NAME, "--file", &file.to_string_lossy()]).await;
        self.annotate(marked, "example.io/password-").await?;
        let checked = async {
            match made {
                Ok(text) => ensure!(text.contains("--host-context"), "the bundle does not say what it lacks: {text}"),
                // The log before a restart may be gone, and there may be more events than the bundle stores.
                Err(error) => ensure!(format!("{error:#}").contains("exit status: 3"), "{error:#}"),
            }
            self.without_credentials(&file, &servers).await
        };
        let checked = checked.await;
        self.in_karmada(&["delete", "secret", "planted"]).await?;
        checked
    }

    async fn without_credentials(&self, file: &Path, servers: &[Server]) -> Result<()> {
        let (tar, file) = (Path::new("tar"), file.to_string_lossy().into_owned());
        let names = programs::run(tar, &["-tzf", &file]).await?;
        let namespace = &self.scene.namespace;
        for Server { cluster, name, .. } in servers {
            let log = format!("/clusters/{cluster}/{namespace}/logs/{name}/zookeeper.log");
            ensure!(names.lines().any(|path| path.ends_with(&log)), "the bundle lacks {log}: {names}");
        }
        let text = programs::run(tar, &["-xzOf", &file]).await?;
        ensure!(text.contains("name: planted"), "the bundle lacks the name of the Secret");
        ensure!(!text.contains(PLANTED), "the bundle holds a planted password");
        ensure!(!text.contains("PRIVATE KEY"), "the bundle holds a private key");
        for line in self.key_lines().await? {
            ensure!(!text.contains(&line), "the bundle holds a part of a private key");
        }
        Ok(())
    }

    /// Lines of all private keys of the ensemble, as they are and in base64.
    async fn key_lines(&self) -> Result<Vec<String>> {
        let stored = "{{range .items}}{{range $name, $value := .data}}{{$name}} {{$value}}\n{{end}}{{end}}";
        let stored = self.in_karmada(&["get", "secrets", "-o", &format!("go-template={stored}")]).await?;
        let decoded = "{{range .items}}{{range .data}}{{. | base64decode}}\n{{end}}{{end}}";
        let decoded = self.in_karmada(&["get", "secrets", "-o", &format!("go-template={decoded}")]).await?;
        let mut is_key = false;
        let mut lines: Vec<String> = Vec::new();
        for line in decoded.lines() {
            if line.starts_with("-----") {
                is_key = line.contains("BEGIN") && line.contains("PRIVATE KEY");
            } else if is_key && line.len() >= KEY_LINE {
                lines.push(line.to_owned());
            }
        }
        let of_keys = stored.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| name.contains("key"));
        lines.extend(of_keys.map(|(_, value)| value.to_owned()).filter(|value| value.len() >= KEY_LINE));
        ensure!(!self.quorum_tls || !lines.is_empty(), "no Secret of the ensemble holds a private key");
        Ok(lines)
    }

    async fn in_karmada(&self, arguments: &[&str]) -> Result<String> {
        self.members.kubectl("karmada", &[arguments, &["--namespace", self.scene.namespace.as_str()]].concat()).await
    }

    /// Annotates the pod of a server. It does not restart for that.
    async fn annotate(&self, server: &Server, annotation: &str) -> Result<()> {
        let namespace = ["--namespace", self.scene.namespace.as_str()];
        let arguments = ["annotate", "pod", &server.name, annotation, "--overwrite"];
        self.members.kubectl(&server.cluster, &[&arguments[..], &namespace].concat()).await.map(drop)
    }

    async fn commands_restart(&mut self) -> Result<()> {
        self.all_serve().await?;
        let before = self.uids().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watch(self.pods(), stop.clone()));
        let requested = self.mczk(&["restart", NAME]).await?;
        let generation = requested.rsplit_once("generation ").and_then(|(_, number)| number.trim().strip_suffix('.'));
        let generation = generation.and_then(|number| number.parse().ok()).with_context(|| requested.clone())?;
        let records = self.records;
        let rolled = self.rolled_out(generation, |_| {}).await;
        stop.store(true, Ordering::Relaxed);
        let watched = watching.await?;
        rolled?;
        ensure!(self.records == records + 1, "the status has {} records", self.records);
        let most = watched.most_terminating;
        ensure!(most <= 1, "{most} servers ended at the same time");
        for (server, uid) in &before {
            let uids = watched.uids.get(server).map(BTreeSet::len).unwrap_or_default();
            ensure!(uids == 2, "{server:?} had {uids} pods during the restart");
            ensure!(self.uids().await?.get(server) != Some(uid), "{server:?} was not restarted");
        }
        self.all_serve().await
    }

    async fn commands_replace(&mut self) -> Result<()> {
        self.all_serve().await?;
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let victim = servers.into_iter().find(|server| *server != leader).context("no server but the leader exists")?;
        let status = self.scene.member(&victim.cluster, NAME).await?.status.unwrap_or_default();
        let reported = status.servers.iter().find(|server| server.pod.as_deref() == Some(victim.name.as_str()));
        let id = reported.context("the status names no id of the server")?.id;
        // The last step compares also the log of the volume that is replaced.
        self.gather()?;
        let begun = Instant::now();
        let one = format!("{}/{}", victim.cluster, victim.name);
        let text = wait_for("mczk replace accepts the server", Duration::from_secs(60), || async {
            self.mczk(&["replace", NAME, &one, "--dry-run"]).await
        });
        let text = text.await?;
        ensure!(text.contains("nothing is requested"), "mczk replace --dry-run prints {text}");
        let text = self.mczk(&["replace", NAME, &one, "--yes", "--wait", "--wait-seconds", "600"]).await?;
        ensure!(text.contains("serves from an empty volume"), "mczk replace --wait prints {text}");
        let voters = self.voters;
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                let ensemble = object.status.clone().unwrap_or_default().ensemble;
                let now = ensemble.map(|ensemble| ensemble.voters).unwrap_or_default();
                is_settled(object) && now.len() == voters && !now.contains(&id)
            })
            .await?;
        self.records = super::records(&settled).len();
        self.all_serve().await?;
        ensure!(!self.uids().await?.values().any(|uid| *uid == victim.uid), "the pod of {one} was not replaced");
        self.members.report(&format!("{one} serves with an empty volume after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }
}

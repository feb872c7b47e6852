//! Clients of another make: ZooKeeper's own, in pods, through what mczk gives to applications.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{NAME, Step, Story};
use crate::{
    members::{Server, writer::children},
    patience::wait_for,
    programs,
};

/// So many writes of ZooKeeper's own client, and the one after which the leader is killed.
const WRITES: usize = 120;
/// Where the servers' certificates for clients are mounted.
const AUTHORITY: &str = "/etc/mczk-client/ca.crt";
/// How long it may take until servers show other certificates: the kubelet brings them when it looks again.
const RENEWAL: Duration = Duration::from_secs(240);
/// The Secret with the certificates that clients see. It is a person's, and stays when the ensemble is deleted.
const SECRET: &str = "client-certificates";

pub const SERVICE: Step = Step {
    name: "service",
    shows: "what a pod of each cluster writes through the client Service is read there",
    always: false,
    run: |story| Box::pin(story.service()),
};
pub const JAVA: Step = Step {
    name: "java-client",
    shows: "ZooKeeper's own client writes by the ConfigMap's connection string while the leader is killed; nothing is lost",
    always: false,
    run: |story| Box::pin(story.java()),
};
pub const TLS: Step = Step {
    name: "client-tls",
    shows: "TLS for clients is switched on beside plain text, renewed without a restart, and outlives its Secret",
    always: false,
    run: |story| Box::pin(story.client_tls()),
};
pub const OBSERVERS: Step = Step {
    name: "observers",
    shows: "an observer joins one cluster, serves reads without a vote, and leaves",
    always: false,
    run: |story| Box::pin(story.observe()),
};

impl Story<'_> {
    async fn service(&mut self) -> Result<()> {
        for server in self.pods().servers().await? {
            let cluster = &server.cluster;
            let commands = format!(r"create /from-{cluster} {cluster}-wrote-this\nsync /\nget /from-{cluster}\n");
            let line = format!("printf '{commands}' | zkCli.sh -server {NAME}:2181");
            // The last server became ready just now, and its node has still to learn that: zkCli.sh does not try again.
            wait_for("the Service is there", Duration::from_secs(30), || async {
                let said = self.shell(&server, &line).await?;
                ensure!(said.lines().any(|line| line == format!("{cluster}-wrote-this")), "{cluster}: {said}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn java(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let beside = servers.into_iter().find(|server| *server != leader).context("there is a leader alone")?;
        let of = "jsonpath={.data.connectionString}";
        let namespace = self.scene.namespace.as_str();
        let map = format!("{NAME}-client");
        let string =
            self.members.kubectl(&beside.cluster, &["get", "configmap", "-n", namespace, &map, "-o", of]).await?;
        self.members.say(&format!("zkCli.sh in {} connects to {string}", beside.cluster));
        let line = format!(
            "for i in $(seq {WRITES}); do echo \"create /java-$i $i\"; sleep 0.1; done | zkCli.sh -server {string} 2>&1 | \
             grep -o 'Created /java-[0-9]*'"
        );
        let kill = async {
            // The Java process begins, connects, and has written some of them.
            wait_for("it writes", Duration::from_secs(60), || async {
                let address = format!("{}:2181", beside.address.as_ref().context("it has no address")?);
                let there = children(&address, "/").await?;
                ensure!(there.contains("java-20"), "{} znodes", there.len());
                Ok(())
            })
            .await?;
            self.kill(&leader).await?;
            self.members.say(&format!("kill -9 of the leader, in {}", leader.cluster));
            anyhow::Ok(())
        };
        let (said, killed) = tokio::join!(self.shell(&beside, &line), kill);
        killed?;
        let acknowledged: BTreeSet<String> =
            said?.lines().filter_map(|line| line.strip_prefix("Created /")).map(str::to_owned).collect();
        ensure!(acknowledged.len() > WRITES / 2, "only {} of {WRITES} writes were acknowledged", acknowledged.len());
        self.all_serve().await?;
        for address in self.addresses().await? {
            let held = children(&address, "/").await?;
            let lost: Vec<_> = acknowledged.difference(&held).collect();
            ensure!(lost.is_empty(), "LOST: {lost:?} are not at {address}");
        }
        self.members.say(&format!(
            "{} of its {WRITES} writes were acknowledged, all of them are at every server; LOST: 0",
            acknowledged.len()
        ));
        self.nothing_rolled().await
    }

    async fn client_tls(&mut self) -> Result<()> {
        self.certificates("first").await?;
        let tls =
            json!({ "tls": { "client": { "mode": "Optional", "secretName": SECRET, "certificates": "Ignored" } } });
        self.rolls(tls).await?;
        // As above: the last server became ready just now.
        wait_for("every server serves by TLS", Duration::from_secs(30), || self.served_by_tls()).await?;
        self.members.say("every cluster's Service is used with TLS, while the client goes on in plain text");
        let running = self.uids().await?;
        let authority = self.certificates("second").await?;
        for server in self.pods().servers().await? {
            wait_for("the kubelet brings the renewal", RENEWAL, || async {
                let there = self.shell(&server, &format!("cat {AUTHORITY}")).await?;
                ensure!(there.trim() == authority.trim(), "{} of {} has the former", server.name, server.cluster);
                Ok(())
            })
            .await?;
        }
        // A client trusts what is mounted beside it: it is the other authority by now.
        wait_for("every server shows the renewal", RENEWAL, || self.served_by_tls()).await?;
        ensure!(self.uids().await? == running, "a renewal restarts nobody");
        self.members.say("the certificates are renewed under another authority, and no server was restarted");
        self.without_their_secret().await?;
        self.rolls(json!({ "tls": { "client": null } })).await?;
        self.all_serve().await
    }

    /// The Secret is deleted in the control plane, which Karmada answers by letting go of it, then where the leader is, which has
    /// to start anew.
    async fn without_their_secret(&mut self) -> Result<()> {
        let namespace = self.scene.namespace.clone();
        self.members.kubectl("karmada", &["delete", "secret", SECRET, "-n", &namespace]).await?;
        let (server, _) = self.leader().await?;
        self.degraded(Some("is not kept by Karmada any more")).await?;
        self.members.kubectl(&server.cluster, &["delete", "secret", SECRET, "-n", &namespace]).await?;
        self.members
            .kubectl(&server.cluster, &["delete", "pod", "-n", &namespace, &server.name, "--wait=false"])
            .await?;
        wait_for("the server is made anew", Duration::from_secs(120), || async {
            let pods = self.pods().servers().await?;
            ensure!(pods.iter().all(|pod| pod.uid != server.uid), "{} is still there", server.name);
            Ok(())
        })
        .await?;
        self.all_serve().await?;
        wait_for("it serves by TLS", RENEWAL, || self.served_by_tls()).await?;
        self.degraded(Some("is not here")).await?;
        self.members.say(&format!(
            "without its Secret {} of {} starts with the certificates that it had, and the status says so",
            server.name, server.cluster
        ));
        // It is brought where there is none, and taken back where there is one.
        self.certificates("third").await?;
        self.degraded(None).await?;
        self.nothing_rolled().await
    }

    /// Waits until the status says this of the Secret; or that all is well.
    async fn degraded(&self, why: Option<&str>) -> Result<()> {
        wait_for("the status tells of the Secret", Duration::from_secs(60), || async {
            let conditions = self.scene.get(NAME).await?.status.unwrap_or_default().conditions;
            let degraded = conditions.iter().find(|c| c.type_ == "Degraded").context("nothing is said")?;
            let said = match why {
                Some(why) => degraded.status == "True" && degraded.message.contains(&format!("Secret {SECRET} {why}")),
                None => degraded.status == "False",
            };
            ensure!(said, "{degraded:?}");
            Ok(())
        })
        .await
    }

    /// Puts new certificates, under an authority of their own, into the Secret. Answers the authority.
    async fn certificates(&self, which: &str) -> Result<String> {
        let folder = self.members.federation.folder.join("client-tls").join(which);
        let dir = folder.display().to_string();
        self.members.federation.run(&["certs", "--dir", &dir, "--dns", NAME]).await?;
        let namespace = self.scene.namespace.as_str();
        let secret = folder.join("secret.json");
        let text = |file: &str| std::fs::read_to_string(folder.join(file));
        let authority = text("ca.crt")?;
        let data = json!({ "tls.crt": text("tls.crt")?, "tls.key": text("tls.key")?, "ca.crt": authority });
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": { "name": SECRET, "namespace": namespace } });
        std::fs::write(&secret, object.to_string())?;
        self.members.kubectl("karmada", &["apply", "-f", &secret.display().to_string()]).await?;
        Ok(authority)
    }

    /// A pod of each server reads, by TLS, what it wrote.
    async fn served_by_tls(&self) -> Result<()> {
        for server in self.pods().servers().await? {
            let said = self.secure(&server).await?;
            let cluster = &server.cluster;
            ensure!(said.lines().any(|line| line == format!("{cluster}-by-tls")), "{cluster}: {said}");
        }
        Ok(())
    }

    /// What ZooKeeper's own client reads of what it wrote, over TLS, through the client Service.
    async fn secure(&self, server: &Server) -> Result<String> {
        let cluster = &server.cluster;
        let flags = [
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty".to_owned(),
            "zookeeper.client.secure=true".to_owned(),
            format!("zookeeper.ssl.trustStore.location={AUTHORITY}"),
            "zookeeper.ssl.trustStore.type=PEM".to_owned(),
        ];
        let flags: Vec<String> = flags.iter().map(|flag| format!("-D{flag}")).collect();
        let commands = format!(r"create /tls-{cluster} {cluster}-by-tls\nget /tls-{cluster}\n");
        let flags = flags.join(" ");
        self.shell(server, &format!("printf '{commands}' | CLIENT_JVMFLAGS='{flags}' zkCli.sh -server {NAME}:2281"))
            .await
    }

    async fn observe(&mut self) -> Result<()> {
        let cluster = self.members.federation.members.keys().next().context("there is no cluster")?.clone();
        (self.observers, self.volumes) = (1, self.volumes + 1);
        let generation = self.declare(json!({ "observers": [{ "cluster": cluster, "count": 1 }] })).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.all_serve().await?;
        let status = self.scene.get(NAME).await?.status.unwrap_or_default();
        let voters = status.ensemble.map(|ensemble| ensemble.voters).unwrap_or_default();
        ensure!(voters.len() == self.voters, "the voters are {voters:?}");
        let mut modes = Vec::new();
        for server in self.pods().servers().await? {
            let said = self.shell(&server, "echo srvr | nc 127.0.0.1 2181 | grep Mode").await?;
            modes.push((server.name, said.trim().to_owned()));
        }
        let observing = modes.iter().filter(|(_, mode)| mode == "Mode: observer").count();
        ensure!(observing == 1, "the servers say {modes:?}");
        self.nothing_is_lost().await?;
        self.members.say(&format!("an observer serves in {cluster}; the voters are {voters:?}"));
        self.observers = 0;
        let generation = self.declare(json!({ "observers": [] })).await?;
        self.rolled_out(generation, |_| {}).await
    }

    /// Runs a line of a shell in a pod of its own, of ZooKeeper's image, in a cluster that need not have servers, beside
    /// the ensemble's namespace.
    pub(super) async fn elsewhere(&self, cluster: &str, line: &str) -> Result<String> {
        let kubeconfig = self.members.federation.rig.kubeconfig(cluster).display().to_string();
        let image = format!("--image={}", self.image);
        let run = ["--kubeconfig", &kubeconfig, "run", "-n", "default", "client", &image, "--image-pull-policy=Never"];
        let how = ["--restart=Never", "--rm", "--attach", "--quiet", "--pod-running-timeout=60s"];
        let what = ["--command", "--", "sh", "-c", line];
        programs::run(&self.members.federation.rig.tool("kubectl"), &[&run[..], &how, &what].concat()).await
    }
}

//! ZooKeeper's own client, in pods, through the Service and the ConfigMap for applications.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{NAME, Step, StoryContext};
use crate::{
    members::{Server, writer::children},
    patience::wait_for,
    programs,
};

/// Number of writes of ZooKeeper's own client.
const WRITES: usize = 120;
/// The mounted authority of the client certificates.
const AUTHORITY: &str = "/etc/mczk-client/ca.crt";
/// The longest time until servers show renewed certificates. The kubelet updates mounted Secrets about every minute.
const RENEWAL: Duration = Duration::from_secs(240);
/// The user's Secret with the client certificates. It outlives the ensemble.
pub(super) const SECRET: &str = "client-certificates";

pub const SERVICE: Step =
    step!("service", service, "a pod of each cluster writes and reads through the client Service");
pub const JAVA_CLIENT: Step = step!(
    "java-client",
    java,
    "ZooKeeper's own client uses the ConfigMap's connection string while the leader is killed; no write is lost"
);
pub const CLIENT_TLS: Step = step!(
    "client-tls",
    client_tls,
    "TLS for clients starts beside plain text, is renewed without a restart, and works without its Secret"
);
pub const OBSERVERS: Step =
    step!("observers", observe, "an observer joins one cluster, serves reads without a vote, and leaves");

impl StoryContext<'_> {
    async fn service(&mut self) -> Result<()> {
        for server in self.pods().servers().await? {
            let cluster = &server.cluster;
            let commands = format!(r"create /from-{cluster} {cluster}-wrote-this\nsync /\nget /from-{cluster}\n");
            let line = format!("printf '{commands}' | zkCli.sh -server {NAME}:2181");
            // The last server became ready just now, and its node may not know yet. zkCli.sh does not try again.
            wait_for("the Service works", Duration::from_secs(30), || async {
                let output = self.shell(&server, &line).await?;
                ensure!(output.lines().any(|line| line == format!("{cluster}-wrote-this")), "{cluster}: {output}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn java(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let client = servers.into_iter().find(|server| *server != leader).context("no server but the leader exists")?;
        let of = "jsonpath={.data.connectionString}";
        let namespace = self.scene.namespace.as_str();
        let map = format!("{NAME}-client");
        let string =
            self.members.kubectl(&client.cluster, &["get", "configmap", "-n", namespace, &map, "-o", of]).await?;
        self.members.report(&format!("zkCli.sh in {} connects to {string}", client.cluster));
        let line = format!(
            "for i in $(seq {WRITES}); do echo \"create /java-$i $i\"; sleep 0.1; done | zkCli.sh -server {string} 2>&1 | \
             grep -o 'Created /java-[0-9]*'"
        );
        let kill = async {
            // The Java process starts, connects, and makes some writes.
            wait_for("the client writes", Duration::from_secs(60), || async {
                let address = format!("{}:2181", client.address.as_ref().context("the server has no address")?);
                let znodes = children(&address, "/").await?;
                ensure!(znodes.contains("java-20"), "{} znodes", znodes.len());
                Ok(())
            })
            .await?;
            self.kill(&leader).await?;
            self.members.report(&format!("kill -9 of the leader in {}", leader.cluster));
            anyhow::Ok(())
        };
        let (output, killed) = tokio::join!(self.shell(&client, &line), kill);
        killed?;
        let acknowledged: BTreeSet<String> =
            output?.lines().filter_map(|line| line.strip_prefix("Created /")).map(str::to_owned).collect();
        ensure!(acknowledged.len() > WRITES / 2, "only {} of {WRITES} writes were acknowledged", acknowledged.len());
        self.all_serve().await?;
        for address in self.addresses().await? {
            let held = children(&address, "/").await?;
            let lost: Vec<_> = acknowledged.difference(&held).collect();
            ensure!(lost.is_empty(), "LOST: {address} does not hold {lost:?}");
        }
        self.members.report(&format!(
            "{} of {WRITES} writes of the client are acknowledged, and every server holds them; LOST: 0",
            acknowledged.len()
        ));
        self.nothing_rolled().await
    }

    async fn client_tls(&mut self) -> Result<()> {
        self.certificates("first").await?;
        let tls =
            json!({ "tls": { "client": { "mode": "Optional", "secretName": SECRET, "certificates": "Ignored" } } });
        self.roll(tls).await?;
        // As above: a node may not know yet that the last server is ready.
        wait_for("every server serves over TLS", Duration::from_secs(30), || self.serves_tls()).await?;
        self.members.report("the Service of every cluster serves TLS, and the client continues in plain text");
        let running = self.uids().await?;
        let authority = self.certificates("second").await?;
        for server in self.pods().servers().await? {
            wait_for("the kubelet updates the mounted Secret", RENEWAL, || async {
                let mounted = self.shell(&server, &format!("cat {AUTHORITY}")).await?;
                ensure!(mounted.trim() == authority.trim(), "{} of {} has the former", server.name, server.cluster);
                Ok(())
            })
            .await?;
        }
        // The client in a pod trusts the mounted authority, which is the new one by now.
        wait_for("every server shows the renewed certificates", RENEWAL, || self.serves_tls()).await?;
        ensure!(self.uids().await? == running, "the renewal restarted a server");
        self.members.report("the certificates are renewed under another authority without a restart");
        self.without_their_secret().await?;
        self.roll(json!({ "tls": { "client": null } })).await?;
        self.all_serve().await
    }

    /// Deletes the Secret in the control plane, upon which Karmada no longer manages it in member clusters. Then deletes it in
    /// the leader's cluster, and restarts the leader.
    async fn without_their_secret(&mut self) -> Result<()> {
        let namespace = self.scene.namespace.clone();
        self.members.kubectl("karmada", &["delete", "secret", SECRET, "-n", &namespace]).await?;
        let (server, _) = self.leader().await?;
        self.degraded(Some("is not renewed any more")).await?;
        self.members.kubectl(&server.cluster, &["delete", "secret", SECRET, "-n", &namespace]).await?;
        self.members
            .kubectl(&server.cluster, &["delete", "pod", "-n", &namespace, &server.name, "--wait=false"])
            .await?;
        wait_for("the server is recreated", Duration::from_secs(120), || async {
            let pods = self.pods().servers().await?;
            ensure!(pods.iter().all(|pod| pod.uid != server.uid), "{} still exists", server.name);
            Ok(())
        })
        .await?;
        self.all_serve().await?;
        wait_for("it serves over TLS", RENEWAL, || self.serves_tls()).await?;
        self.degraded(Some("does not exist")).await?;
        self.members.report(&format!(
            "without the Secret {} of {} starts with its former certificates, and the status reports that",
            server.name, server.cluster
        ));
        // Karmada creates the Secret where it is missing, and adopts it where it exists.
        self.certificates("third").await?;
        self.degraded(None).await?;
        self.nothing_rolled().await
    }

    /// Waits until `Degraded` has this message about the Secret, or is false.
    async fn degraded(&self, why: Option<&str>) -> Result<()> {
        wait_for("the status reports the Secret", Duration::from_secs(60), || async {
            let conditions = self.scene.get(NAME).await?.status.unwrap_or_default().conditions;
            let degraded =
                conditions.iter().find(|c| c.type_ == "Degraded").context("the status has no condition Degraded")?;
            let is_as_expected = match why {
                Some(why) => degraded.status == "True" && degraded.message.contains(&format!("Secret {SECRET} {why}")),
                None => degraded.status == "False",
            };
            ensure!(is_as_expected, "{degraded:?}");
            Ok(())
        })
        .await
    }

    /// Writes new certificates, of a new authority, into the Secret; returns the authority.
    pub(super) async fn certificates(&self, which: &str) -> Result<String> {
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

    /// Checks in every pod that a client writes and reads over TLS.
    async fn serves_tls(&self) -> Result<()> {
        for server in self.pods().servers().await? {
            let output = self.over_tls(&server).await?;
            let cluster = &server.cluster;
            ensure!(output.lines().any(|line| line == format!("{cluster}-over-tls")), "{cluster}: {output}");
        }
        Ok(())
    }

    /// Writes and reads with ZooKeeper's own client over TLS, through the client Service; returns its output.
    async fn over_tls(&self, server: &Server) -> Result<String> {
        let cluster = &server.cluster;
        let flags = [
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty".to_owned(),
            "zookeeper.client.secure=true".to_owned(),
            format!("zookeeper.ssl.trustStore.location={AUTHORITY}"),
            "zookeeper.ssl.trustStore.type=PEM".to_owned(),
        ];
        let flags: Vec<String> = flags.iter().map(|flag| format!("-D{flag}")).collect();
        let commands = format!(r"create /tls-{cluster} {cluster}-over-tls\nget /tls-{cluster}\n");
        let flags = flags.join(" ");
        self.shell(server, &format!("printf '{commands}' | CLIENT_JVMFLAGS='{flags}' zkCli.sh -server {NAME}:2281"))
            .await
    }

    async fn observe(&mut self) -> Result<()> {
        let cluster = self.members.federation.members.keys().next().context("no cluster exists")?.clone();
        (self.observers, self.volumes) = (1, self.volumes + 1);
        let generation = self.declare(json!({ "observers": [{ "cluster": cluster, "count": 1 }] })).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.all_serve().await?;
        let status = self.scene.get(NAME).await?.status.unwrap_or_default();
        let voters = status.ensemble.map(|ensemble| ensemble.voters).unwrap_or_default();
        ensure!(voters.len() == self.voters, "the voters are {voters:?}");
        let mut modes = Vec::new();
        for server in self.pods().servers().await? {
            let output = self.shell(&server, "echo srvr | nc 127.0.0.1 2181 | grep Mode").await?;
            modes.push((server.name, output.trim().to_owned()));
        }
        let observing = modes.iter().filter(|(_, mode)| mode == "Mode: observer").count();
        ensure!(observing == 1, "the servers report {modes:?}");
        self.nothing_is_lost().await?;
        self.members.report(&format!("an observer serves in {cluster}; the voters are {voters:?}"));
        self.observers = 0;
        let generation = self.declare(json!({ "observers": [] })).await?;
        self.rolled_out(generation, |_| {}).await
    }

    /// Runs a shell command in a new pod with ZooKeeper's image, in another namespace of any cluster.
    pub(super) async fn in_new_pod(&self, cluster: &str, line: &str) -> Result<String> {
        let kubeconfig = self.members.federation.rig.kubeconfig(cluster).display().to_string();
        let image = format!("--image={}", self.image);
        let run = ["--kubeconfig", &kubeconfig, "run", "-n", "default", "client", &image, "--image-pull-policy=Never"];
        let options = ["--restart=Never", "--rm", "--attach", "--quiet", "--pod-running-timeout=60s"];
        let command = ["--command", "--", "sh", "-c", line];
        programs::run(&self.members.federation.rig.tool("kubectl"), &[&run[..], &options, &command].concat()).await
    }
}

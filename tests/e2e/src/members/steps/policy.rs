//! Enforced network policies. The network of the rig ignores `NetworkPolicy` objects, so nftables on every node enforce
//! their rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        networking::v1::{NetworkPolicy, NetworkPolicyPeer},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::json;
use tokio::{net::TcpStream, time::timeout};

use super::{Step, StoryContext};

/// A port for peers.
const ELECTION: u16 = 3888;
/// A port for clients.
const CLIENT: u16 = 2181;
/// The longest time until a port answers.
const ANSWER: Duration = Duration::from_secs(2);
/// The table of nftables.
const TABLE: &str = "mczk_policy";

pub const NETWORK_POLICY: Step = step!(
    "network-policy",
    policies,
    "NetworkPolicies are enforced: servers of all clusters connect to each other, other hosts only to the client port"
);

impl StoryContext<'_> {
    async fn policies(&mut self) -> Result<()> {
        // The addresses of a cluster's pods differ only in their last number.
        let network = |address: String| Some(format!("{}.0/24", address.rsplit_once('.')?.0));
        let servers = self.pods().servers().await?;
        let networks: BTreeSet<String> =
            servers.into_iter().filter_map(|server| server.address).filter_map(network).collect();
        ensure!(
            networks.len() == self.members.federation.members.len(),
            "the servers are in the networks {networks:?}"
        );
        let generation = self.declare(json!({ "network": { "peerCIDRs": networks } })).await?;
        self.rolled_out(generation, |_| {}).await?;
        let addresses: Vec<String> =
            self.pods().servers().await?.into_iter().filter_map(|server| server.address).collect();
        for address in &addresses {
            ensure!(
                answers(address, ELECTION).await,
                "{address}:{ELECTION} does not answer, though nothing is enforced yet"
            );
        }
        let enforced = self.enforce().await;
        let result = match enforced {
            Ok(()) => self.under_policies(&addresses).await,
            Err(error) => Err(error),
        };
        self.on_nodes(&format!("nft delete table inet {TABLE}")).await?;
        result?;
        let generation = self.declare(json!({ "network": { "peerCIDRs": [] } })).await?;
        self.rolled_out(generation, |_| {}).await
    }

    async fn under_policies(&mut self, addresses: &[String]) -> Result<()> {
        for address in addresses {
            ensure!(!answers(address, ELECTION).await, "another host reaches {address}:{ELECTION}");
            ensure!(answers(address, CLIENT).await, "no client reaches {address}:{CLIENT}");
        }
        self.members.report("another host reaches the client port of every server, and no port for peers");
        // After its restart a server opens new connections.
        for server in self.pods().servers().await? {
            self.kill(&server).await?;
            self.all_serve().await?;
        }
        self.members.report("every server was killed, and joined the others again");
        self.nothing_rolled().await
    }

    /// Makes every node drop what the policies of its cluster do not allow.
    async fn enforce(&self) -> Result<()> {
        for (cluster, client) in &self.members.federation.members {
            let rules = rules(client, &self.scene.namespace).await?;
            self.members.report(&format!("{cluster}: {} rules of nftables", rules.lines().count()));
            let table = format!(
                "table inet {TABLE} {{\n chain forward {{\n type filter hook forward priority 0; policy accept;\n{rules} }}\n}}\n"
            );
            self.members.on_nodes_of(Some(cluster), &format!("printf '%s' '{table}' | nft -f -")).await?;
        }
        Ok(())
    }

    async fn on_nodes(&self, line: &str) -> Result<()> {
        self.members.on_nodes_of(None, line).await
    }
}

async fn answers(address: &str, port: u16) -> bool {
    matches!(timeout(ANSWER, TcpStream::connect(format!("{address}:{port}"))).await, Ok(Ok(_)))
}

/// The rules of nftables for the network policies of a namespace.
async fn rules(client: &Client, namespace: &str) -> Result<String> {
    let policies = Api::<NetworkPolicy>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    let (mut accept, mut drop) = (String::new(), String::new());
    ensure!(!policies.items.is_empty(), "{namespace} has no NetworkPolicy");
    for policy in policies {
        let spec = policy.spec.context("a NetworkPolicy has no spec")?;
        let selector = spec.pod_selector.unwrap_or_default();
        let selected = pods.iter().filter(|pod| pod.namespace().as_deref() == Some(namespace));
        for pod in addresses(selected, &selector)? {
            for rule in spec.ingress.iter().flatten() {
                let mut ports = Vec::new();
                for port in rule.ports.iter().flatten() {
                    let Some(IntOrString::Int(number)) = port.port else { bail!("{port:?} is not supported here") };
                    ports.push(number.to_string());
                }
                let ports = ports.join(", ");
                let mut from = Vec::new();
                for peer in rule.from.iter().flatten() {
                    from.extend(sources(peer, &pods, namespace)?);
                }
                let sources = match (rule.from.is_some(), from.is_empty()) {
                    (false, _) => String::new(),
                    (true, true) => continue,
                    (true, false) => format!("ip saddr {{ {} }} ", from.join(", ")),
                };
                writeln!(accept, "{sources}ip daddr {pod} tcp dport {{ {ports} }} accept")?;
            }
            writeln!(drop, "ip daddr {pod} drop")?;
        }
    }
    ensure!(!drop.is_empty(), "the NetworkPolicies of {namespace} select no pod");
    Ok(format!("ct state established,related accept\n{accept}{drop}"))
}

fn sources(peer: &NetworkPolicyPeer, pods: &[Pod], namespace: &str) -> Result<Vec<String>> {
    if let Some(block) = &peer.ip_block {
        ensure!(block.except.is_none(), "{block:?} is not supported here");
        return Ok(vec![block.cidr.clone()]);
    }
    let selector = peer.pod_selector.clone().unwrap_or_default();
    let everywhere = match &peer.namespace_selector {
        None => false,
        Some(all) if *all == LabelSelector::default() => true,
        Some(other) => bail!("{other:?} is not supported here"),
    };
    addresses(pods.iter().filter(|pod| everywhere || pod.namespace().as_deref() == Some(namespace)), &selector)
}

fn addresses<'p>(pods: impl Iterator<Item = &'p Pod>, selector: &LabelSelector) -> Result<Vec<String>> {
    ensure!(selector.match_expressions.is_none(), "{selector:?} is not supported here");
    let wanted: BTreeMap<String, String> = selector.match_labels.clone().unwrap_or_default();
    let fits = |pod: &&Pod| wanted.iter().all(|(label, value)| pod.labels().get(label) == Some(value));
    Ok(pods.filter(fits).filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect())
}

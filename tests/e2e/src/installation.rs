//! The story of an installation: `mczk install` from nothing to a serving ensemble, again, `mczk uninstall` under a client that
//! writes, and again.

mod load;
mod used_rights;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, Service},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use mczk_api::MultiClusterZooKeeper;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::{
    load::{Calls, Load},
    used_rights::Granted,
};
use crate::{
    agent::Behaviour,
    federation::{Federation, Options},
    members::{Members, spec, writer::Writer},
    patience::wait_for,
    programs,
    scene::{IMAGE, POD_SECURITY, Scene, ensemble, is_settled},
};

/// The cluster in which the operator runs.
const HOST: &str = "m1";
/// Its node's port of the webhook: Karmada runs elsewhere, and reaches no Service.
const PORT: u16 = 30_443;
const NAME: &str = "zoo";
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the client writes without mczk.
const WITHOUT: Duration = Duration::from_secs(20);
/// How long clients call the webhook after a change of it. Former pods have ended by then.
const AFTER_CHANGE: Duration = Duration::from_secs(30);

/// Runs the story in a federation of its own.
///
/// # Errors
/// The first error, with the folder of the evidence.
pub async fn run() -> Result<()> {
    let begun = Instant::now();
    let options = Options { nodes: true, audit_members: true, ..Options::default() };
    let federation = Federation::up(options).await?;
    let members = Members::new(&federation, begun, false);
    let result = story(&federation, &members).await;
    let folder = federation.folder.clone();
    if result.is_err() {
        members.evidence(&folder).await;
    }
    federation.down(result.is_err()).await.context("taking everything down")?;
    result.with_context(|| format!("evidence: {}", folder.display()))
}

async fn story(federation: &Federation, members: &Members<'_>) -> Result<()> {
    let scene = Scene::new(federation, "install", Behaviour::default()).await?;
    expose(federation).await?;

    members.announce("mczk install, from nothing");
    let begun = Instant::now();
    let first = mczk(federation, "install", &[]).await?;
    ensure!(first.contains("created    Deployment mczk-system/mczk\n"), "{first}");
    ensure!(first.contains("agents: ready after"), "{first}");
    members.report(&format!("everything runs after {:.0} s", begun.elapsed().as_secs_f64()));
    scene.create(&declared()).await?;
    members.until(&scene, NAME, PATIENCE, is_settled).await?;
    members.report(&format!(
        "an ensemble serves {:.0} s after the begin of the installation",
        begun.elapsed().as_secs_f64()
    ));

    namespaces_are_restricted(federation).await?;
    let granted = Granted::read(federation).await?;

    members.announce("a second mczk install changes nothing");
    for flags in [&[][..], &["--dry-run"]] {
        let again = mczk(federation, "install", flags).await?;
        ensure!(!again.contains("  created ") && !again.contains("  changed "), "{again}");
    }

    members.announce("both operators are replaced, while clients call the webhook");
    let calls = under_load(federation, members, async {
        members.kubectl(HOST, &["rollout", "restart", "deployment/mczk", "-n", "mczk-system"]).await?;
        let wait = ["rollout", "status", "deployment/mczk", "-n", "mczk-system", "--timeout=240s"];
        members.kubectl(HOST, &wait).await.map(drop)
    });
    ensure!(calls.await?.authorities == 0, "the registration has another authority");
    granted.none_is_missing(federation)?;

    members.announce("the webhook gets another authority, while clients call it");
    let calls = under_load(federation, members, async {
        members.kubectl(HOST, &["delete", "secret", "mczk-webhook-authority", "-n", "mczk-system"]).await?;
        mczk(federation, "install", &[]).await.map(drop)
    });
    // Both together, and then the new one alone.
    ensure!(calls.await?.authorities >= 2, "the registration did not change twice");

    members.announce("mczk uninstall of a wrong namespace or control plane is refused, and removes nothing");
    refused(federation, "uninstall", &["--host-namespace", "elsewhere"], "--without-operator").await?;
    let own = control_plane(members, None).await?;
    control_plane(members, Some("another")).await?;
    for command in ["install", "uninstall"] {
        refused(federation, command, &[], "belongs to another control plane of Karmada").await?;
    }
    control_plane(members, Some(&own)).await?;
    let again = mczk(federation, "install", &["--dry-run"]).await?;
    ensure!(!again.contains("  created ") && !again.contains("  changed "), "{again}");

    members.announce("mczk uninstall, while a client writes");
    let mut writer = Writer::start(members.pods(&scene.namespace), "/install").await?;
    let before = uids(members, &scene).await?;
    let removed = mczk(federation, "uninstall", &[]).await?;
    ensure!(removed.contains("removed    Deployment mczk-system/mczk\n"), "{removed}");
    ensure!(removed.contains("removed    Deployment mczk-system/mczk-agent\n"), "{removed}");
    wait_for("the agents are gone", Duration::from_secs(60), || agents_are_gone(federation)).await?;
    tokio::time::sleep(WITHOUT).await;
    ensure!(uids(members, &scene).await? == before, "servers were restarted or removed");

    members.announce("mczk install adopts the ensemble");
    mczk(federation, "install", &[]).await?;
    members.until(&scene, NAME, PATIENCE, |object| is_settled(object) && is_ready(object)).await?;
    ensure!(uids(members, &scene).await? == before, "servers were restarted or removed");
    let written = writer.lap().await?;
    let longest = written.longest.as_secs_f64();
    members.report(&format!("{} writes meanwhile, longest pause {longest:.2} s", written.acknowledged.len()));
    ensure!(written.longest < Duration::from_secs(3), "a client was without a server for {longest:.2} s");
    writer.stop().await?;

    members.announce("the end: the ensemble is deleted, then mczk");
    scene.delete(NAME).await?;
    granted.all_are_used(federation)?;
    let removed = mczk(federation, "uninstall", &[]).await?;
    ensure!(removed.contains("removed    CustomResourceDefinition multiclusterzookeepers.mczk.io\n"), "{removed}");
    let left = mczk(federation, "uninstall", &["--dry-run"]).await?;
    ensure!(!left.contains("  remove "), "{left}");
    Ok(())
}

/// Changes something while clients call the webhook, and checks that no call failed.
async fn under_load(
    federation: &Federation,
    members: &Members<'_>,
    change: impl Future<Output = Result<()>>,
) -> Result<Calls> {
    let load = Load::start(&federation.karmada).await?;
    change.await?;
    tokio::time::sleep(AFTER_CHANGE).await;
    let calls = load.stop().await;
    let failed = calls.failed.len();
    members.report(&format!("{} calls were answered meanwhile, {failed} failed", calls.answered));
    ensure!(calls.answered > 100, "only {} calls, which prove nothing", calls.answered);
    ensure!(
        failed == 0,
        "{failed} calls failed, the first ones: {:?}",
        calls.failed.iter().take(5).collect::<Vec<_>>()
    );
    Ok(calls)
}

/// Checks that every cluster admits only restricted pods in mczk's own namespace. The namespace of the ensemble has the label
/// since the scene began.
async fn namespaces_are_restricted(federation: &Federation) -> Result<()> {
    for (cluster, client) in &federation.members {
        let namespace = Api::<Namespace>::all(client.clone()).get("mczk-system").await?;
        let label = namespace.labels().get(POD_SECURITY).map(String::as_str);
        ensure!(label == Some("restricted"), "{cluster} admits any pod in mczk-system: {label:?}");
    }
    Ok(())
}

/// The ensemble: three voters, one in each cluster.
fn declared() -> Value {
    ensemble(NAME, 3, &spec::first(IMAGE, spec::FOLDERS, &[], true))
}

/// Runs `mczk install` or `mczk uninstall`.
async fn mczk(federation: &Federation, command: &str, more: &[&str]) -> Result<String> {
    let kubeconfig = |name: &str| federation.rig.kubeconfig(name).display().to_string();
    let (karmada, host) = (kubeconfig("karmada"), kubeconfig(HOST));
    let url = format!("https://{}:{PORT}", node_address(federation).await?);
    let mut all = vec![command, "--kubeconfig", &karmada, "--host-kubeconfig", &host];
    if command == "install" {
        all.extend(["--image", rig::MCZK, "--url", &url, "--namespaces", "e2e-install"]);
    }
    programs::run(&federation.mczk, &[&all[..], more].concat()).await
}

/// Checks that a command is refused with this text.
async fn refused(federation: &Federation, command: &str, more: &[&str], text: &str) -> Result<()> {
    let ended = mczk(federation, command, more).await;
    let why = ended.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(why.contains(text), "mczk {command} says {why:?}");
    Ok(())
}

/// The control plane that the operator's credential in the host names, after `new` is written.
async fn control_plane(members: &Members<'_>, new: Option<&str>) -> Result<String> {
    let secret = ["secret/mczk-karmada-kubeconfig", "-n", "mczk-system"];
    if let Some(new) = new {
        let annotation = format!("mczk.io/control-plane={new}");
        members.kubectl(HOST, &[&["annotate", "--overwrite"], &secret[..], &[&annotation]].concat()).await?;
    }
    let path = "jsonpath={.metadata.annotations.mczk\\.io/control-plane}";
    members.kubectl(HOST, &[&["get"], &secret[..], &["-o", path]].concat()).await
}

/// The address of the host's node.
async fn node_address(federation: &Federation) -> Result<String> {
    let host = federation.members.get(HOST).context("the host is a member cluster")?;
    let nodes: Api<Node> = Api::all(host.clone());
    let addresses = nodes.get(HOST).await?.status.and_then(|status| status.addresses).unwrap_or_default();
    let address = addresses.into_iter().find(|address| address.type_ == "InternalIP");
    Ok(address.context("the node has no address")?.address)
}

/// A port of the node for the webhook, as a user's load balancer would have it.
async fn expose(federation: &Federation) -> Result<()> {
    let host = federation.members.get(HOST).context("the host is a member cluster")?;
    let namespace: Namespace = object(json!({ "metadata": { "name": "mczk-system" } }))?;
    Api::<Namespace>::all(host.clone()).create(&PostParams::default(), &namespace).await?;
    let service: Service = object(json!({
        "metadata": { "name": "mczk-from-outside" },
        "spec": {
            "type": "NodePort", "selector": { "app.kubernetes.io/name": "mczk" },
            "ports": [{ "port": 8443, "targetPort": "webhook", "nodePort": PORT }],
        },
    }))?;
    Api::<Service>::namespaced(host.clone(), "mczk-system").create(&PostParams::default(), &service).await?;
    Ok(())
}

fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

fn is_ready(object: &MultiClusterZooKeeper) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn uids(members: &Members<'_>, scene: &Scene<'_>) -> Result<BTreeSet<String>> {
    let servers = members.pods(&scene.namespace).servers().await?;
    ensure!(servers.len() == 3, "{} servers run", servers.len());
    Ok(servers.into_iter().map(|server| server.uid).collect())
}

async fn agents_are_gone(federation: &Federation) -> Result<()> {
    for (cluster, client) in &federation.members {
        let api: Api<Deployment> = Api::namespaced(client.clone(), "mczk-system");
        let list = api.list(&ListParams::default()).await?;
        let left = list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        ensure!(left.is_empty(), "{cluster} still has {left:?}");
    }
    Ok(())
}

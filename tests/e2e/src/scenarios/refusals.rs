//! Admission policies that refuse what the operator, or Karmada, writes.

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use mczk_api::contract::{labels::REPLACE_AUTHORITY, naming::policy_name};
use serde_json::{Value, json};

use super::faults::SECOND;
use crate::{
    admission_policy::{MESSAGE, refusing},
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, conditions, ensemble},
};

const NAME: &str = "zoo";
/// Voters of an ensemble that changes.
const VOTERS: i32 = 3;
/// The operator asks once a minute that Karmada brings a Secret, or if another one is missing.
const MOST_WRITES: i64 = 6;

/// A kind of object: its name, its API group, and its plural.
type Kind = (&'static str, &'static str, &'static str);

const SECRET: Kind = ("Secret", "", "secrets");
const EXPORT: Kind = ("ServiceExport", "multicluster.x-k8s.io", "serviceexports");
const IMPORT: Kind = ("ServiceImport", "multicluster.x-k8s.io", "serviceimports");
pub(super) const OVERRIDE: Kind = ("OverridePolicy", "policy.karmada.io", "overridepolicies");
const PROPAGATION: Kind = ("PropagationPolicy", "policy.karmada.io", "propagationpolicies");
const TEMPLATE: Kind = ("ZooKeeper", "mczk.io", "zookeepers");

/// A policy that refuses all objects of a kind in a namespace.
pub(super) struct Refusal {
    client: Client,
    name: String,
}

impl Refusal {
    pub(super) async fn of(client: &Client, namespace: &str, (_, group, plural): Kind) -> Result<Self> {
        let refusal = Self { client: client.clone(), name: format!("{namespace}-{plural}") };
        let rule = |group: &str, plural: &str| json!({ "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [plural] });
        let rules = [rule(group, plural), rule("", "configmaps")];
        let [policy, binding] = refusing(&refusal.name, namespace, &rules);
        let create = PostParams::default();
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        policies.create(&create, &serde_json::from_value(policy)?).await?;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
        bindings.create(&create, &serde_json::from_value(binding)?).await?;
        // The API server reads it some moments later.
        let probes: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let probe: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "probe" } }))?;
        let dry = PostParams { dry_run: true, ..create };
        wait_for("the policy refuses", PATIENCE, || async {
            match probes.create(&dry, &probe).await {
                Err(error) if error.to_string().contains(MESSAGE) => Ok(()),
                other => bail!("{:?}", other.err()),
            }
        })
        .await?;
        Ok(refusal)
    }

    pub(super) async fn ends(self) -> Result<()> {
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        bindings.delete(&self.name, &DeleteParams::default()).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client);
        policies.delete(&self.name, &DeleteParams::default()).await.map(drop).context("deleting a policy")
    }
}

/// Waits until a condition names the kind of the refused object, and the words of the policy.
async fn is_named(scene: &Scene<'_>, words: &[&str]) -> Result<()> {
    wait_for(&format!("the status names the refusal of {words:?}"), PATIENCE, || async {
        let object = scene.get(NAME).await?;
        let all = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let all_words = || words.iter().chain([&MESSAGE]);
        let named = all.iter().any(|condition| all_words().all(|words| condition.message.contains(words)));
        ensure!(named, conditions(&object));
        Ok(())
    })
    .await
}

/// An ensemble whose objects of a kind are refused from the beginning.
async fn from_the_beginning(federation: &Federation, kind: Kind) -> Result<()> {
    let scene = Scene::new(federation, &format!("refused-{}", kind.2), Behaviour::default()).await?;
    let refusal = Refusal::of(&federation.karmada, &scene.namespace, kind).await?;
    let cluster = federation.members.keys().next().context("there is no cluster")?;
    let more = if kind == IMPORT { json!({ "network": { "importClusters": [cluster] } }) } else { json!({}) };
    // One voter: what is refused comes before the first server.
    scene.create(&ensemble(NAME, 1, &more)).await?;
    is_named(&scene, &[kind.0]).await?;
    refusal.ends().await?;
    scene.settled(NAME).await?;
    scene.delete(NAME).await
}

pub(super) async fn refused_at_first(federation: &Federation) -> Result<()> {
    let kinds = [SECRET, EXPORT, IMPORT, OVERRIDE, PROPAGATION, TEMPLATE];
    let each = kinds.map(|kind| async move { from_the_beginning(federation, kind).await.context(kind.0) });
    try_join_all(each).await.map(drop)
}

/// A change of a running ensemble that needs a write of a kind. The servers run on, and the change continues.
pub(super) async fn refused_later(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "refused-later", Behaviour::default()).await?;
    scene.create(&ensemble(NAME, VOTERS, &json!({}))).await?;
    scene.settled(NAME).await?;
    let clusters: Vec<&String> = federation.members.keys().take(3).collect();
    let image = json!({ "template": { "image": SECOND } });
    let import = json!({ "network": { "importClusters": clusters.get(..1) } });
    let placement = json!({ "placement": { "clusterAffinity": { "clusterNames": clusters } } });
    let other_image = json!({ "template": { "image": crate::scene::IMAGE } });
    for (kind, change) in [(OVERRIDE, image), (IMPORT, import), (PROPAGATION, placement), (TEMPLATE, other_image)] {
        refused_change(&scene, kind, change).await.context(kind.0)?;
    }
    let refusal = Refusal::of(&federation.karmada, &scene.namespace, SECRET).await?;
    scene.annotate(NAME, REPLACE_AUTHORITY, "1").await?;
    is_named(&scene, &[SECRET.0]).await?;
    refusal.ends().await?;
    wait_for("servers trust the new authority alone", PATIENCE, || async {
        let ensemble = scene.get(NAME).await?.status.and_then(|status| status.ensemble).context("no server list")?;
        let trust = ensemble.tls.context("no certificates")?.trust;
        ensure!(trust.len() == 1 && trust.iter().all(|name| name.ends_with("-trust-2")), "{trust:?}");
        Ok(())
    })
    .await?;
    wait_for("the former Secrets are gone", PATIENCE, || scene.members_match(NAME)).await?;
    scene.delete(NAME).await
}

async fn refused_change(scene: &Scene<'_>, kind: Kind, change: Value) -> Result<()> {
    let refusal = Refusal::of(&scene.federation.karmada, &scene.namespace, kind).await?;
    scene.change(NAME, change).await?;
    is_named(scene, &[kind.0]).await?;
    let objects = scene.in_members(NAME).await?;
    let servers: i32 = objects.values().filter_map(|object| object.status.as_ref()?.ready_replicas).sum();
    ensure!(servers == VOTERS, "{servers} servers are ready while the write is refused");
    refusal.ends().await?;
    scene.settled(NAME).await?;
    scene.members_match(NAME).await?;
    scene.one_after_the_other(NAME)
}

/// A member cluster refuses what Karmada brings.
async fn in_member(federation: &Federation, kind: Kind) -> Result<()> {
    let scene = Scene::new(federation, &format!("refused-in-member-{}", kind.2), Behaviour::default()).await?;
    let (cluster, client) = federation.members.iter().next().context("there is no cluster")?;
    let refusal = Refusal::of(client, &scene.namespace, kind).await?;
    let there = json!({ "placement": { "clusterAffinity": { "clusterNames": [cluster] } } });
    scene.create(&ensemble(NAME, 1, &there)).await?;
    is_named(&scene, &[cluster]).await?;
    let policies = scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
    let missing = policies.get_opt(&format!("{}.missing", policy_name(NAME))).await?;
    let writes = missing.and_then(|policy| policy.metadata.generation).unwrap_or_default();
    ensure!(writes <= MOST_WRITES, "the operator asks Karmada too often to bring the Secrets: {writes} times");
    refusal.ends().await?;
    scene.settled(NAME).await?;
    scene.members_match(NAME).await?;
    scene.delete(NAME).await
}

pub(super) async fn refused_in_member(federation: &Federation) -> Result<()> {
    let each = [SECRET, EXPORT, TEMPLATE].map(|kind| async move { in_member(federation, kind).await.context(kind.0) });
    try_join_all(each).await.map(drop)
}

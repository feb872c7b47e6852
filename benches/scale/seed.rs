//! Stores ensembles as a finished rollout leaves them: by the operator's own rules, and with uids of the API server.

use anyhow::{Context, Result, bail};
use e2e::scene::{ensemble, kind};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{certificate_names::Holds, labels::OPERATOR_FINALIZER},
    karmada::cluster::Cluster,
};
use mczk_rules::rollout::{
    certificates::{AUTHORITY_LIFE, IDENTITY_LIFE, Make},
    live::Live,
};
use serde_json::{Value, json};

use crate::{
    ground::{Ground, accept_existing, cluster_name, key},
    world::World,
};

/// Ensembles that are stored at once.
const AT_ONCE: usize = 16;
/// Longest rollout, in steps of the operator and the agents.
const MOST_STEPS: usize = 60;
/// The image of mczk that the operator runs by default.
const SERVER_IMAGE: &str = concat!("mczk:", env!("CARGO_PKG_VERSION"));
const MCS: &str = "multicluster.x-k8s.io/v1alpha1";
const POLICY: &str = "policy.karmada.io/v1alpha1";
const MCZK: &str = "mczk.io/v1alpha1";
const WORK: &str = "work.karmada.io/v1alpha2";

/// Ends of the names of further bindings of an ensemble: of its services and its Secret.
const PROPAGATED: [&str; 3] = ["serviceexport", "client-serviceexport", "secret"];

/// A divided ensemble: 5 voters over 3, 4 or 5 clusters.
fn division(number: usize) -> Vec<(String, i32)> {
    let counts: &[i32] = match number % 3 {
        0 => &[2, 2, 1],
        1 => &[2, 1, 1, 1],
        _ => &[1, 1, 1, 1, 1],
    };
    (number..).map(cluster_name).zip(counts.iter().copied()).collect()
}

/// An object of the benchmark, whose voters Karmada divides.
pub(crate) fn object(number: usize) -> Value {
    let (namespace, name) = key(number);
    let clusters: Vec<String> = division(number).into_iter().map(|(cluster, _)| cluster).collect();
    let mut object = ensemble(
        &name,
        5,
        &json!({ "placement": {
            "clusterAffinity": { "clusterNames": clusters },
            "replicaScheduling": { "weightPreference": { "dynamicWeight": "AvailableReplicas" } },
        } }),
    );
    if let Some(metadata) = object.get_mut("metadata") {
        *metadata = json!({ "name": name, "namespace": namespace, "finalizers": [OPERATOR_FINALIZER] });
    }
    object
}

/// The MultiClusterZooKeepers of a namespace.
pub(crate) fn ensembles(client: &Client, namespace: &str) -> Api<MultiClusterZooKeeper> {
    Api::namespaced(client.clone(), namespace)
}

/// Stores ensembles until there are this many.
///
/// # Errors
/// If the API server refuses an object.
pub(crate) async fn seed(ground: &Ground, ensembles: usize) -> Result<()> {
    let client = ground.client();
    let all: Api<MultiClusterZooKeeper> = Api::all(client.clone());
    let list = all.list_metadata(&ListParams::default()).await?;
    let clusters = ground.clusters().list(&ListParams::default()).await?;
    let clusters: Vec<Cluster> =
        clusters.into_iter().map(|c| serde_json::from_value(json!(c))).collect::<Result<_, _>>()?;
    let stored = list.items.len();
    let store = |number| store(number, &client, &clusters);
    let mut done = stored;
    let mut running = futures::stream::iter(stored..ensembles).map(store).buffer_unordered(AT_ONCE).boxed();
    while running.try_next().await?.is_some() {
        done += 1;
        if done % 500 == 0 {
            ground.report(&format!("{done} of {ensembles} ensembles are stored"));
        }
    }
    Ok(())
}

/// The ensemble after its rollout, and the Secrets that the operator has created.
fn settled(
    object: MultiClusterZooKeeper,
    clusters: &[Cluster],
    number: usize,
) -> Result<(World, Vec<(Make, Timestamp)>)> {
    let begin = Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_hours(1);
    let mut world = World::of(object, SERVER_IMAGE, begin);
    world.observed.clusters = clusters.to_vec();
    world.placed = division(number);
    let mut makes = Vec::new();
    for _ in 0..MOST_STEPS {
        let before = (world.observed.object.status.clone(), world.observed.overrides.clone());
        let plan = world.plan();
        let validity = |make: &Make| if make.holds == Holds::Identity { IDENTITY_LIFE } else { AUTHORITY_LIFE };
        makes.extend(plan.certificate.clone().map(|make| (make.clone(), world.now + validity(&make))));
        world.write(&plan);
        world.run_agents();
        world.wait(10);
        let after = (&world.observed.object.status, &world.observed.overrides);
        let is_done = plan.certificate.is_none() && world.state().starts_with("Ready");
        if is_done && (&before.0, &before.1) == after {
            return Ok((world, makes));
        }
    }
    bail!("ensemble {number} does not settle: {} {}", world.state(), world.condition("Progressing"))
}

async fn store(number: usize, client: &Client, clusters: &[Cluster]) -> Result<()> {
    let (namespace, _) = key(number);
    let api = ensembles(client, &namespace);
    let created = api.create(&PostParams::default(), &serde_json::from_value(object(number))?).await;
    let created = created.with_context(|| format!("ensemble {number}"))?;
    let (world, makes) = settled(created, clusters, number)?;
    let observed = &world.observed;
    let store = Store { client, namespace: &namespace };
    for (make, not_after) in makes {
        store.secret(&observed.object, &make, not_after).await?;
    }
    store.create(POLICY, "OverridePolicy", json!(observed.overrides.as_ref().map(Live::whole))).await?;
    store.create(POLICY, "PropagationPolicy", json!(observed.policy.as_ref().map(Live::whole))).await?;
    for (key, value) in &observed.services {
        let kind = key.split_once('/').map_or("", |(kind, _)| kind);
        store.create(if kind.starts_with("Service") { MCS } else { POLICY }, kind, value.clone()).await?;
    }
    let template = json!(observed.template.as_ref().map(Live::whole));
    let uid = store.create(MCZK, "ZooKeeper", template).await?;
    store.binding(&world, &uid).await?;
    let status = Patch::Merge(json!({ "status": observed.object.status }));
    api.patch_status(&observed.object.name_any(), &PatchParams::default(), &status).await?;
    Ok(())
}

/// Where the objects of one ensemble go.
struct Store<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl Store<'_> {
    fn api(&self, version: &str, name: &str) -> Api<DynamicObject> {
        let plural = name.to_lowercase() + "s";
        let plural = plural.strip_suffix("ys").map(|stem| format!("{stem}ies")).unwrap_or(plural);
        Api::namespaced_with(self.client.clone(), self.namespace, &kind(version, name, &plural))
    }

    /// Creates an object, and returns its uid.
    async fn create(&self, version: &str, kind: &str, mut object: Value) -> Result<String> {
        if let Some(all) = object.as_object_mut() {
            all.insert("apiVersion".to_owned(), json!(version));
            all.insert("kind".to_owned(), json!(kind));
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !["uid", "generation", "resourceVersion"].contains(&field.as_str()));
            metadata.insert("namespace".to_owned(), json!(self.namespace));
        }
        let created = self.api(version, kind).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        Ok(created.with_context(|| format!("creating {kind}"))?.uid().unwrap_or_default())
    }

    /// A Secret of a certificate. Nothing reads its content.
    async fn secret(&self, object: &MultiClusterZooKeeper, make: &Make, not_after: Timestamp) -> Result<()> {
        let secret = Secret {
            metadata: make.metadata(object, not_after),
            string_data: Some([("tls.crt".to_owned(), "x".repeat(1000))].into()),
            immutable: Some(true),
            ..Secret::default()
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        accept_existing(api.create(&PostParams::default(), &secret).await).map(drop)
    }

    /// Karmada's binding of the template, with the reports of all agents, and those of what it propagates with it.
    async fn binding(&self, world: &World, template: &str) -> Result<()> {
        let binding = world.observed.binding.as_ref().context("Karmada has not bound the template")?;
        let mut object = json!(binding);
        if let Some(resource) = object.pointer_mut("/spec/resource") {
            *resource = json!({
                "apiVersion": MCZK, "kind": "ZooKeeper", "namespace": self.namespace,
                "name": world.observed.object.name_any(), "uid": template,
            });
        }
        let status = object.get("status").cloned();
        self.create(WORK, "ResourceBinding", object.clone()).await?;
        for suffix in PROPAGATED {
            let mut other = object.clone();
            if let Some(name) = other.pointer_mut("/metadata/name") {
                *name = json!(format!("{}-{suffix}", world.observed.object.name_any()));
            }
            self.create(WORK, "ResourceBinding", other).await?;
        }
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(WORK, "ResourceBinding")
            .patch_status(&binding.metadata.name.clone().unwrap_or_default(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

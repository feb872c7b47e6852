//! What is measured of an operator beside settled ensembles.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use e2e::{
    api_proxy::{ApiProxy, Fault},
    federation::OPERATOR_USER,
};
use kube::api::{Patch, PatchParams, PostParams};
use mczk_api::{MultiClusterZooKeeper, ZooKeeper};
use serde_json::json;

use crate::{
    ground::{Ground, cluster_name, key},
    operator::{Operator, Requests},
    pages,
    report::Measured,
    seed,
};

/// Longest time until every ensemble is reconciled, which is far above the bar.
const RECONCILED: Duration = Duration::from_secs(900);
/// Longest time until the requests of a change end.
const QUIET: Duration = Duration::from_secs(600);
/// Namespace of the new ensemble.
const NEW_NAMESPACE: &str = "scale-0";
/// Name of an ensemble that the operator has not seen.
const NEW_NAME: &str = "zoo-new";
/// Requests per second at rest, if that stage did not run.
const ASSUMED_REST: f64 = 20.0;
/// A change is over once the rate is this close to that at rest.
const QUIET_MARGIN: f64 = 20.0;
/// A window that shows whether a change causes requests.
const MOMENT: Duration = Duration::from_secs(10);

/// A measurement after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// Requests while nothing happens.
    Rest,
    /// Requests after a status was written.
    Status,
    /// Requests for a new ensemble.
    New,
    /// Requests after the change of a member cluster.
    Clusters,
    /// Requests while the API server is overloaded.
    Overload,
    /// Memory while users have the web page open.
    Pages,
}

impl Stage {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Rest, Self::Status, Self::New, Self::Clusters, Self::Overload, Self::Pages];
}

/// Measures the operator beside this many ensembles.
///
/// # Errors
/// If a measurement is impossible.
pub(crate) async fn run(ground: &Ground, ensembles: usize, stages: &[Stage], seconds: u64) -> Result<Measured> {
    let kubeconfig = ground.federation.rig.kubeconfig(OPERATOR_USER);
    let operator = Operator::start(&ground.federation, &kubeconfig).await?;
    ground.report(&format!("{ensembles} ensembles: the operator is ready"));
    let (resync, start) = operator.reconciled(ensembles, RECONCILED).await?;
    let mut measured = Measured { ensembles, ready: operator.ready_after, resync, start, ..Measured::default() };
    ground.report(&format!("all are reconciled after {:.1} s", resync.as_secs_f64()));
    let window = Duration::from_secs(seconds);
    if stages.contains(&Stage::Rest) {
        // The requests of the last reconciles end.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let rest = operator.requests_in(window).await?;
        measured.rest = Some(rest.all() / window.as_secs_f64());
        measured.rest_writes = Some(rest.writes());
        ground.report("measured: at rest");
    }
    let resting = measured.rest.unwrap_or(ASSUMED_REST);
    // The loss of a Cluster comes last: it leaves ensembles that are read again soon.
    if stages.contains(&Stage::Status) {
        measured.status = Some(statuses(ground, &operator, resting).await?);
    }
    if stages.contains(&Stage::New) {
        measured.new = Some(new_ensemble(ground, &operator, resting).await?);
    }
    if stages.contains(&Stage::Clusters) {
        clusters(ground, &operator, resting, &mut measured).await?;
    }
    measured.resident = operator.memory("VmRSS:")?;
    measured.most = operator.memory("VmHWM:")?;
    operator.kill().await?;
    if stages.contains(&Stage::New) {
        remove_new(ground).await?;
    }
    if stages.contains(&Stage::Overload) {
        measured.overload = overload(ground, window).await?;
    }
    if stages.contains(&Stage::Pages) {
        measured.pages = Some(pages::memory(ground, ensembles, RECONCILED, window).await?);
    }
    Ok(measured)
}

/// All requests until the operator is quiet, and their number without those at rest.
async fn of_change(
    operator: &Operator,
    resting: f64,
    change: impl Future<Output = Result<()>>,
) -> Result<(Requests, f64)> {
    let (before, begin) = (operator.state().await?.requests, Instant::now());
    change.await?;
    let requests = operator.requests_until_quiet(before, resting + QUIET_MARGIN, QUIET).await?;
    let all = (requests.all() - resting * begin.elapsed().as_secs_f64()).max(0.0);
    Ok((requests, all))
}

async fn clusters(ground: &Ground, operator: &Operator, resting: f64, measured: &mut Measured) -> Result<()> {
    let label = format!("{}-{}", std::process::id(), measured.ensembles);
    let unused = of_change(operator, resting, ground.label_cluster("m1", &label)).await?;
    let used = of_change(operator, resting, ground.label_cluster(&cluster_name(0), &label)).await?;
    measured.unused_label = Some(unused.1);
    measured.label = Some(used.1);
    ground.report("measured: labels of Clusters");
    let lost = of_change(operator, resting, ground.set_cluster_status(&cluster_name(0), false)).await?;
    measured.flip = Some(lost.1);
    measured.flip_writes = Some(lost.0.writes());
    of_change(operator, resting, ground.set_cluster_status(&cluster_name(0), true)).await?;
    ground.report("measured: a Cluster that is lost and comes back");
    Ok(())
}

/// Karmada writes the status of the template at each report of an agent.
async fn statuses(ground: &Ground, operator: &Operator, resting: f64) -> Result<f64> {
    let (namespace, name) = key(1);
    let templates = kube::Api::<ZooKeeper>::namespaced(ground.client(), &namespace);
    let before = operator.state().await?.requests;
    let patch = Patch::Merge(json!({ "status": { "readyReplicas": 1 } }));
    templates.patch_status(&name, &PatchParams::default(), &patch).await.context("status of a template")?;
    tokio::time::sleep(MOMENT).await;
    let requests = operator.state().await?.requests - before;
    Ok((requests.all() - resting * MOMENT.as_secs_f64()).max(0.0))
}

async fn new_ensemble(ground: &Ground, operator: &Operator, resting: f64) -> Result<f64> {
    let mut object = seed::object(2);
    if let Some(metadata) = object.get_mut("metadata") {
        *metadata = json!({ "name": NEW_NAME, "namespace": NEW_NAMESPACE });
    }
    let object: MultiClusterZooKeeper = serde_json::from_value(object)?;
    let create = async {
        seed::ensembles(&ground.client(), NEW_NAMESPACE).create(&PostParams::default(), &object).await?;
        Ok(())
    };
    Ok(of_change(operator, resting, create).await?.1)
}

/// Removes the new ensemble as if it never was: no operator runs.
async fn remove_new(ground: &Ground) -> Result<()> {
    let ensembles = seed::ensembles(&ground.client(), NEW_NAMESPACE);
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    ensembles.patch(NEW_NAME, &PatchParams::default(), &patch).await?;
    ensembles.delete(NEW_NAME, &kube::api::DeleteParams::default()).await?;
    ground.remove_objects_of(NEW_NAMESPACE, NEW_NAME).await
}

/// Requests of an operator that must read every object, while the API server refuses or delays every request.
async fn overload(ground: &Ground, window: Duration) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for fault in [Fault::Status(429), Fault::Status(500), Fault::Delay(Duration::from_secs(5))] {
        let federation = &ground.federation;
        let proxy = ApiProxy::start(&federation.rig.kubeconfig(OPERATOR_USER), &federation.folder).await?;
        let operator = Operator::start(federation, &proxy.kubeconfig).await?;
        proxy.fail(Some(fault));
        let requests = operator.requests_in(window).await?;
        proxy.fail(None);
        operator.kill().await?;
        all.push(requests.all() * 60.0 / window.as_secs_f64());
        ground.report(&format!("measured: {fault}"));
    }
    Ok(all)
}

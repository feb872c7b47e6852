//! The benchmark of transitions, on a real Karmada: the time from the watch event of a cluster's report until the operator
//! has written the override of the next cluster, from the operator's histogram. It also measures the requests of a
//! transition alone, at the same time, to separate the time of the API server from that of the operator.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    federation::{Federation, OPERATOR_USER, Options, client},
    metrics::{self, Histogram},
    scene::{Scene, ensemble, kind},
};
use futures::future::try_join_all;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

const HISTOGRAM: &str = "mczk_cluster_transition_seconds";
/// The limit of the 99th percentile, in seconds.
const BOUND: f64 = 0.1;

/// Measures the time from a cluster's report to the override of the next cluster.
#[derive(Parser)]
struct Cli {
    /// Smallest number of transitions
    #[arg(long, default_value_t = 200)]
    transitions: u64,
    /// Number of ensembles with rollouts at the same time
    #[arg(long, default_value_t = 1)]
    ensembles: usize,
    /// Folder of a running rig, or of a new one
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match bench(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-transitions: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(cli: Cli) -> Result<()> {
    let load = machine_load();
    println!(
        "make bench-transitions: measures at least {} transitions on a real Karmada federation with three member clusters.\n\
         Takes about 3 minutes on 2 idle cores. The first time, Karmada and Kubernetes are built before, for about 12\n\
         minutes.",
        cli.transitions
    );
    let quick = Behaviour { start: Duration::from_millis(20), restart: Duration::from_millis(10) };
    let federation = Federation::up(Options { dir: cli.dir, agents: Some(quick), ..Options::default() }).await?;
    federation.register().await?;
    federation.start_operator().await?;
    let scene = Scene::new(&federation, "bench", quick).await?;
    let names: Vec<String> = (0..cli.ensembles).map(|i| format!("zoo-{i}")).collect();
    for name in &names {
        scene.create(&ensemble(name, 3, &json!({ "rollout": { "holdSeconds": 0 } }))).await?;
    }
    try_join_all(names.iter().map(|name| scene.settled(name))).await?;
    let first = names.first().context("--ensembles is 0")?;
    let mut trips = RoundTrips::new(&federation, &scene.namespace, first).await?;
    let read = async || Histogram::read(&metrics::get(federation.probes(), "/metrics").await?, HISTOGRAM);
    let (begun, before) = (Instant::now(), read().await.unwrap_or_default());
    let mut seen = before.since(&before);
    for round in 0.. {
        if seen.count() >= cli.transitions {
            break;
        }
        ensure!(round < 20 + cli.transitions, "{} transitions after {round} rollouts each", seen.count());
        try_join_all(names.iter().map(|name| async {
            scene.image(name, &format!("zookeeper:round-{round}")).await?;
            scene.settled(name).await
        }))
        .await?;
        seen = read().await?.since(&before);
        // Spread over the run, so that other load of the machine affects both measurements.
        trips.take(seen.count().min(cli.transitions), cli.transitions).await?;
    }
    let (elapsed, after) = (begun.elapsed(), machine_load());
    trips.end().await?;
    for name in &names {
        scene.one_after_the_other(name)?;
        scene.delete(name).await?;
    }
    federation.down(false).await?;

    report(&seen, elapsed, &names, &format!("{load}, then {after}"), &trips)
}

fn report(seen: &Histogram, elapsed: Duration, names: &[String], load: &str, trips: &RoundTrips) -> Result<()> {
    let count = seen.count();
    println!(
        "{count} transitions in {} s, {} ensembles at a time; load of the machine {load}",
        elapsed.as_secs(),
        names.len()
    );
    let mut below = 0;
    for (bound, n) in &seen.buckets {
        if *n > below {
            println!("  up to {:>8}: {:5}", milliseconds(*bound), n - below);
        }
        below = *n;
    }
    #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
    let mean = seen.sum / count.max(1) as f64;
    let (p50, p99) = (seen.quantile(500), seen.quantile(990));
    println!("p50 at most {}, p99 at most {}, mean {}", milliseconds(p50), milliseconds(p99), milliseconds(mean));
    trips.print(mean);
    ensure!(p99 <= BOUND, "p99 is above {}", milliseconds(BOUND));
    Ok(())
}

fn milliseconds(seconds: f64) -> String {
    if seconds.is_finite() { format!("{:.0} ms", seconds * 1000.0) } else { "more than all buckets".to_owned() }
}

/// The requests to measure: description, number in a run, and whether each transition makes the request.
const TRIPS: [(Trip, &str, u64, bool); 5] = [
    (Trip::Get, "read of the OverridePolicy", 200, false),
    (Trip::GetAll, "nine such reads at once, as before a decision", 50, true),
    (Trip::SameStatus, "status of the MultiClusterZooKeeper, unchanged", 50, true),
    (Trip::SamePolicy, "OverridePolicy applied, unchanged", 50, false),
    (Trip::Policy, "OverridePolicy applied, changed", 50, true),
];

/// The name of a policy that exists only for measurements.
const SPARE: &str = "bench-spare";

#[derive(Clone, Copy)]
enum Trip {
    Get,
    GetAll,
    SameStatus,
    SamePolicy,
    Policy,
}

/// Requests of the operator, and their times.
struct RoundTrips {
    policies: Api<DynamicObject>,
    ensembles: Api<DynamicObject>,
    ensemble: String,
    policy: String,
    /// A policy of the same size that selects nothing, so that changes have no effect.
    spare: Value,
    changes: u64,
    took: [Vec<Duration>; TRIPS.len()],
}

impl RoundTrips {
    async fn new(federation: &Federation, namespace: &str, ensemble: &str) -> Result<Self> {
        let client = client(&federation.rig.kubeconfig(OPERATOR_USER)).await?;
        let api = |version, name, plural| Api::namespaced_with(client.clone(), namespace, &kind(version, name, plural));
        let policies: Api<DynamicObject> = api("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies");
        let policy = mczk_api::contract::naming::policy_name(ensemble);
        let mut spec = policies.get(&policy).await?.data.get("spec").cloned().context("a policy without a spec")?;
        let select = spec.pointer_mut("/resourceSelectors/0/name").context("a policy that selects nothing")?;
        *select = json!("bench-nothing");
        let spare = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": { "name": SPARE, "annotations": {} }, "spec": spec,
        });
        let trips = Self {
            policies,
            ensembles: api("mczk.io/v1alpha1", "MultiClusterZooKeeper", "multiclusterzookeepers"),
            ensemble: ensemble.to_owned(),
            policy,
            spare,
            changes: 0,
            took: Default::default(),
        };
        trips.apply().await?;
        Ok(trips)
    }

    /// Removes the policy for measurements.
    async fn end(&self) -> Result<()> {
        self.policies.delete(SPARE, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Measures the share of all requests that belongs to `done` of `all` parts of the run.
    async fn take(&mut self, done: u64, all: u64) -> Result<()> {
        for (index, (trip, _, count, _)) in TRIPS.iter().enumerate() {
            loop {
                let taken = self.took.get(index).map_or(0, Vec::len);
                if u64::try_from(taken)? * all.max(1) >= count * done {
                    break;
                }
                let begun = Instant::now();
                self.make(*trip).await?;
                if let Some(took) = self.took.get_mut(index) {
                    took.push(begun.elapsed());
                }
            }
        }
        Ok(())
    }

    async fn make(&mut self, trip: Trip) -> Result<()> {
        match trip {
            Trip::Get => drop(self.policies.get(&self.policy).await?),
            Trip::GetAll => drop(try_join_all((0..9).map(|_| self.policies.get(&self.policy))).await?),
            Trip::SameStatus => {
                let patch = Patch::Merge(json!({ "status": {} }));
                self.ensembles.patch_status(&self.ensemble, &PatchParams::default(), &patch).await?;
            }
            Trip::SamePolicy => self.apply().await?,
            Trip::Policy => {
                self.changes += 1;
                if let Some(annotations) = self.spare.pointer_mut("/metadata/annotations") {
                    *annotations = json!({ "bench": self.changes.to_string() });
                }
                self.apply().await?;
            }
        }
        Ok(())
    }

    async fn apply(&self) -> Result<()> {
        let params = PatchParams::apply("mczk-bench").force();
        self.policies.patch(SPARE, &params, &Patch::Apply(&self.spare)).await?;
        Ok(())
    }

    /// Prints the times of requests, and their share of a transition.
    fn print(&self, transition: f64) {
        println!("requests to the same API server, between the rollouts:");
        let mut part = 0.0;
        for ((_, name, _, counts), took) in TRIPS.iter().zip(&self.took) {
            let mut seconds: Vec<f64> = took.iter().map(Duration::as_secs_f64).collect();
            seconds.sort_by(f64::total_cmp);
            let at = |per_mille: usize| {
                let rank = (seconds.len() * per_mille).div_ceil(1000).max(1);
                seconds.get(rank - 1).copied().unwrap_or_default() * 1000.0
            };
            #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
            let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
            println!(
                "  {:4} x {name:46} p50 {:5.1} ms, p99 {:5.1} ms, mean {:5.1} ms",
                seconds.len(),
                at(500),
                at(990),
                mean * 1000.0
            );
            if *counts {
                part += mean;
            }
        }
        println!(
            "A transition reads, writes the status and writes the OverridePolicy. By these means, the API server takes {:.1} ms\n\
             of its {:.1} ms. The rest is waiting, the operator, and Karmada at the same time.",
            part * 1000.0,
            transition * 1000.0
        );
    }
}

/// The load of the last minute, which shows whether the machine was idle.
fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

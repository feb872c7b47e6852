//! The states of tests/gitops are what the operator writes: its own rules render each of them again. `make test-gitops` runs
//! the health checks of Argo CD and Flux on them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::disallowed_methods)]
#![allow(dead_code)] // no test uses the whole world

#[path = "rules/world.rs"]
mod world;

use std::{collections::BTreeSet, env, fmt::Write as _, fs, path::PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk_api::{
    contract::{conditions::Reason, labels},
    yaml,
};
use serde_json::{Value, json};
use world::{World, rolling};

/// Variable that makes the test write the objects. The comment and the expected answers of a file stay.
const UPDATE: &str = "UPDATE_GITOPS";

/// A name of a file, and the world that shows its state.
type State = (&'static str, fn() -> World);

/// Every file with its state.
const STATES: [State; 20] = [
    ("bootstrapping", bootstrapping),
    ("cluster-failed", cluster_failed),
    ("cluster-unreachable", cluster_unreachable),
    ("deadline", deadline),
    ("deleting", || deleting(&[])),
    ("deleting-unreachable", || deleting(&["m3"])),
    ("disk-fills-up", disk_fills_up),
    ("holding", holding),
    ("name-conflict", name_conflict),
    ("new", || World::declared(&json!({}))),
    ("no-quorum", no_quorum),
    ("old-generation", old_generation),
    ("paused", paused),
    ("paused-at-rest", paused_at_rest),
    ("replacing-authority", replacing_authority),
    ("restarting", restarting),
    ("serving", || World::done(&json!({}))),
    ("two-clusters", two_clusters),
    ("unscheduled-at-rest", unscheduled_at_rest),
    ("waiting-for-schedule", waiting_for_schedule),
];

/// The world after one more pass of the operator.
fn passed(mut world: World) -> World {
    world.pass();
    world
}

/// Makes the servers of a cluster not serve, up to this number.
fn stop_serving(world: &mut World, cluster: &str, count: usize) {
    let report = world.report(cluster);
    let servers = report["servers"].as_array_mut().unwrap().iter_mut();
    servers.take(count).for_each(|server| server["serving"] = json!(false));
}

/// An agent reports this condition.
fn report_condition(world: &mut World, cluster: &str, type_: &str, status: &str, reason: &str, message: &str) {
    world.report(cluster)["conditions"] = json!([{
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
}

fn bootstrapping() -> World {
    let mut world = World::new(&json!({}));
    for _ in 0..3 {
        world.pass();
    }
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    world
}

fn cluster_failed() -> World {
    let mut world = rolling(&json!({}));
    let hash = world.overrides().cluster_specs["m1"].spec_hash.clone();
    world.report("m1")["observedSpecHash"] = json!(hash);
    report_condition(&mut world, "m1", "Progressing", "False", "ServerFailed", "zk-0 does not start: ErrImagePull");
    passed(world)
}

fn cluster_unreachable() -> World {
    let mut world = World::done(&json!({}));
    world.unreachable(&["m3"]);
    passed(world)
}

fn deadline() -> World {
    let mut world = rolling(&json!({ "rollout": { "progressDeadlineSeconds": 60 } }));
    stop_serving(&mut world, "m1", 1);
    world.wait(61);
    passed(world)
}

fn deleting(lost: &[&str]) -> World {
    let mut world = World::done(&json!({}));
    // The operator has noticed the loss before the deletion, and its condition stays.
    world.unreachable(lost);
    let mut world = passed(world);
    let metadata = &mut world.observed.object.metadata;
    metadata.deletion_timestamp = Some(Time(world.now));
    // The API server counts a deletion as a change.
    metadata.generation = Some(2);
    passed(world)
}

fn disk_fills_up() -> World {
    let mut world = World::done(&json!({}));
    let message = "These volumes are more than 80 % full: data-zk-0";
    report_condition(&mut world, "m1", "DiskPressure", "True", "DiskFillsUp", message);
    passed(world)
}

fn holding() -> World {
    let mut world = rolling(&json!({ "rollout": { "holdSeconds": 600 } }));
    world.stopped_agents.extend(["m2", "m3"].map(str::to_owned));
    world.run_agents();
    passed(world)
}

fn name_conflict() -> World {
    let mut ours = World::declared(&json!({}));
    ours.pass();
    let mut world = World::declared(&json!({}));
    world.observed.policy = ours.observed.policy;
    world.observed.object.metadata.uid = Some("another".to_owned());
    passed(world)
}

fn no_quorum() -> World {
    let mut world = World::done(&json!({}));
    for cluster in ["m1", "m2", "m3"] {
        stop_serving(&mut world, cluster, usize::MAX);
        let report = world.report(cluster);
        report["writable"] = json!(false);
        report["votingMembers"] = json!([]);
    }
    passed(world)
}

fn old_generation() -> World {
    let mut world = World::done(&json!({}));
    world.image("zoo:2");
    world
}

fn paused() -> World {
    let mut world = rolling(&json!({ "rollout": { "paused": false } }));
    world.edit("/rollout/paused", &json!(true));
    world.tick();
    world.tick();
    assert_eq!(world.state(), "Deploying m2,m3||m1");
    world
}

fn paused_at_rest() -> World {
    let mut world = World::done(&json!({ "rollout": { "paused": false } }));
    world.edit("/rollout/paused", &json!(true));
    world.settle();
    world
}

fn replacing_authority() -> World {
    let mut world = World::done(&json!({}));
    let annotations = world.observed.object.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REPLACE_AUTHORITY.to_owned(), "now".to_owned());
    for _ in 0..9 {
        world.tick();
        world.report("m2").as_object_mut().unwrap().remove("ensembleTls");
    }
    world
}

fn restarting() -> World {
    let mut world = rolling(&json!({}));
    stop_serving(&mut world, "m1", 1);
    passed(world)
}

fn two_clusters() -> World {
    let mut world = World::new(&json!({}));
    world.place(&[("m1", 3), ("m2", 2)]);
    world.settle();
    world
}

fn unscheduled_at_rest() -> World {
    let mut world = World::done(&json!({}));
    world.observed.binding.as_mut().unwrap().spec.clusters.clear();
    passed(world)
}

fn waiting_for_schedule() -> World {
    let mut world = World::done(&json!({}));
    world.edit("/replicas", &json!(7));
    passed(world)
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/gitops")
}

/// What a user sees of the object, as far as a health check reads it.
fn rendered(world: &World) -> Value {
    let whole = serde_json::to_value(&world.observed.object).unwrap();
    let metadata = ["name", "namespace", "generation", "deletionTimestamp", "finalizers"];
    let mut object = json!({
        "apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": {}, "spec": whole["spec"],
    });
    for name in metadata {
        object["metadata"][name].clone_from(&whole["metadata"][name]);
    }
    if let Some(status) = whole.get("status").filter(|status| !status.is_null()) {
        object["status"] =
            json!({ "observedGeneration": status["observedGeneration"], "conditions": status["conditions"] });
    }
    without_nulls(object)
}

/// An object as an API server stores it.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn every_state_is_what_the_operator_writes() {
    let mut wrong = String::new();
    for (name, state) in STATES {
        let path = folder().join(name).with_extension("yaml");
        let object = rendered(&state());
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut file: Value = yaml::read(&text).unwrap().remove(0);
        if env::var_os(UPDATE).is_some() {
            let comment = text.lines().next().unwrap_or_default();
            file["object"] = object;
            fs::write(&path, format!("{comment}\n{}", yaml::write(&file).unwrap())).unwrap();
        } else if file["object"] != object {
            let _ = writeln!(wrong, "{name}: the operator writes {object}");
        }
    }
    assert!(wrong.is_empty(), "run `make gitops-states`, and look at what changes:\n{wrong}");
}

#[test]
fn every_file_is_a_state() {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    let files: BTreeSet<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(files, BTreeSet::from(STATES.map(|(name, _)| name.to_owned())));
}

/// A check with a misspelt reason would wait for ever.
#[test]
fn every_reason_that_a_check_names_exists() {
    let read = |name: &str| fs::read_to_string(folder().join("../../examples/gitops").join(name)).unwrap();
    let lua = read("argocd-cm.yaml");
    let table = lua.split("local failures = {").nth(1).unwrap().split('}').next().unwrap();
    let failures: BTreeSet<&str> = table.split(',').filter_map(|entry| entry.trim().strip_suffix(" = true")).collect();
    let flux = read("flux-kustomization.yaml");
    let list = flux.rsplit("c.reason in [").next().unwrap().split(']').next().unwrap();
    let expected: BTreeSet<&str> = list.split(',').map(|entry| entry.trim().trim_matches('\'')).collect();
    assert_eq!(failures, expected, "the two checks name other failures");
    for reason in failures.iter().chain(&["Done", "ReplacingAuthority", "Paused"]) {
        assert!(reason.parse::<Reason>().is_ok(), "{reason} is no reason");
    }
}

//! Moments of an ensemble at which a changed field may make a difference.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk_api::{contract::labels::FAILOVER, zookeeper::Role};
use serde_json::{Value, json};

use crate::world::{World, at};

/// The plan of the operator at this moment, with another spec.
pub(crate) fn outcome(scene: &World, spec: &Value) -> String {
    let mut changed = scene.clone();
    changed.observed.object.spec = serde_json::from_value(spec.clone()).unwrap();
    format!("{:?}", changed.plan())
}

/// The moments.
pub(crate) fn scenes(spec: &Value) -> Vec<World> {
    let mut scenes = vec![World::new(spec)];
    // The operator has written everything, and the first record has not started.
    let mut world = World::new(spec);
    world.pass();
    scenes.push(world.clone());
    // The first record waits for its clusters.
    world.pass();
    scenes.push(world.clone());
    // The first cluster has just completed: hold.
    world.run_agents();
    scenes.push(world.clone());
    // Beyond the deadline without a report.
    let mut late = world.clone();
    late.now = at(300);
    scenes.push(late);
    let done = World::done(spec);
    scenes.push(done.clone());
    scenes.extend(failovers(&done));
    // Some records later.
    let mut later = done;
    for image in ["a", "b", "c"] {
        later.image(image);
        later.settle();
    }
    scenes.push(later);
    // Karmada does not reach the next cluster of a record.
    let mut lost = World::new(spec);
    lost.pass();
    lost.unreachable(&["m1", "m2", "m3"]);
    let mut waiting = lost.clone();
    waiting.pass();
    scenes.push(lost);
    scenes.push(waiting);
    // One cluster of a record is complete, and Karmada does not reach another one.
    let mut part = World::new(spec);
    for _ in 0..8 {
        step(&mut part);
        let state = part.records().last().map(|record| record.current_state.clone());
        if state.is_some_and(|s| s.completed.len() == 1 && s.pending.len() == 1) {
            break;
        }
    }
    part.unreachable(&["m1"]);
    scenes.push(part.clone());
    for _ in 0..4 {
        step(&mut part);
        scenes.push(part.clone());
    }
    scenes
}

/// One pass; then agents act; then more time than `holdSeconds` passes.
fn step(world: &mut World) {
    world.pass();
    world.run_agents();
    world.wait(40);
}

/// A cluster is lost, and a cluster whose voters are at the spare is Ready again.
fn failovers(done: &World) -> [World; 2] {
    let mut lost = done.clone();
    lost.unreachable(&["m1"]);
    let listed = lost.overrides().ensemble.servers;
    let voters = |cluster: &str| -> Vec<i32> {
        let own = listed.iter().filter(|server| server.cluster == cluster && server.role == Role::Voter);
        own.map(|server| server.id).collect()
    };
    for name in ["m2", "m3"] {
        let leader = voters("m3").first().copied();
        let status = lost.report(name);
        status["missingVoters"] = json!(voters("m1"));
        status["leader"] = json!(leader);
    }
    let mut moved = done.clone();
    for cluster in &mut moved.observed.clusters {
        cluster.status.conditions[0].last_transition_time = Some(Time(at(0)));
    }
    let request = [(FAILOVER.to_owned(), "m1=m4".to_owned())];
    moved.observed.object.metadata.annotations.get_or_insert_default().extend(request);
    for _ in 0..20 {
        step(&mut moved);
        let placed = moved.weights();
        let placed: Vec<(&str, i32)> = placed.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        if !placed.is_empty() && moved.placed.len() != placed.len() || placed.iter().any(|(name, _)| *name == "m4") {
            moved.place(&placed);
        }
    }
    moved.observed.object.metadata.annotations.get_or_insert_default().remove(FAILOVER);
    step(&mut moved);
    [lost, moved]
}

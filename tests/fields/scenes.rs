//! Moments in the life of one ensemble, in each of which a changed field may show.

use serde_json::Value;

use crate::world::{World, at};

/// What the operator would write, tell and wait for at this moment, with another spec.
pub(crate) fn outcome(scene: &World, spec: &Value) -> String {
    let mut changed = scene.clone();
    changed.observed.object.spec = serde_json::from_value(spec.clone()).unwrap();
    format!("{:?}", changed.look())
}

/// The moments.
pub(crate) fn scenes(spec: &Value) -> Vec<World> {
    let mut scenes = vec![World::new(spec)];
    // Everything is written, nothing scheduled yet; then scheduled: the first record is about to begin.
    let mut world = World::new(spec);
    world.pass();
    scenes.push(world.clone());
    // All clusters are being waited for.
    world.pass();
    scenes.push(world.clone());
    // The first cluster has just completed: hold.
    world.reports();
    scenes.push(world.clone());
    // Longer ago, and nothing was heard of it: deadline.
    let mut late = world.clone();
    late.now = at(300);
    scenes.push(late);
    let done = World::done(spec);
    scenes.push(done.clone());
    // Some records later: history.
    let mut later = done;
    for image in ["a", "b", "c"] {
        later.image(image);
        later.settle();
    }
    scenes.push(later);
    // The next cluster of a record cannot be reached.
    let mut lost = World::new(spec);
    lost.pass();
    lost.unreachable(&["m1", "m2", "m3"]);
    let mut waiting = lost.clone();
    waiting.pass();
    scenes.push(lost);
    scenes.push(waiting);
    // A record of which a part is done, and the rest cannot be reached.
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

/// One pass, then reports, then longer than clusters are held.
fn step(world: &mut World) {
    world.pass();
    world.reports();
    world.wait(40);
}

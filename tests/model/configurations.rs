//! The worlds that are searched to the end, the larger ones that are sampled, and the broken rules that both must find.

use std::time::Instant;

use mczk::{api::multiclusterzookeeper::MultiClusterZooKeeperSpec, mutation::Mutation};
use serde_json::{Value, json};
use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::{Fault, Setup, World, member::BAD_IMAGE};

fn spec(replicas: i32, image: &str, more: Value) -> MultiClusterZooKeeperSpec {
    let mut spec = json!({
        "replicas": replicas,
        "template": { "image": image, "storage": { "size": "1Gi" } },
        "recordHistoryLimit": 2,
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    serde_json::from_value(spec).expect("a spec of the model is one")
}

const V1: &str = "zookeeper:1";
const V2: &str = "zookeeper:2";
const V3: &str = "zookeeper:3";

fn plain(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({}))
}

fn without_c(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "placement": { "clusterAffinity": { "exclude": ["c"] } } }))
}

fn only_a(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "placement": { "clusterAffinity": { "clusterNames": ["a"] } } }))
}

fn going_on(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "rollout": { "onFailure": "Continue" } }))
}

/// A search that takes more steps than this is given up, and counts as failed.
const MOST_STATES: usize = 20_000_000;

/// All configurations that are searched to the end.
#[allow(clippy::too_many_lines)]
fn all() -> Vec<Setup> {
    use Fault::{
        Deadline, Disconnect, EmptySchedule, Evict, Lose, LoseVolume, OverridesDeleted, PolicyDeleted, Slow,
        StatusWiped, Unregister, WorkDeleted,
    };
    let base = Setup { clusters: 3, running: true, faults: 2, ..Setup::default() };
    vec![
        Setup {
            name: "first deployment, crashes",
            specs: vec![plain(5, V1)],
            running: false,
            kinds: vec![Slow],
            ..base.clone()
        },
        Setup {
            name: "first deployment, crashes, in every order",
            specs: vec![plain(3, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Slow],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "first deployment, late kinds and secret",
            specs: vec![plain(3, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Slow, Lose(1)],
            late_kinds: vec![1],
            late_secret: vec![0],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "first deployment, Karmada's faults",
            specs: vec![plain(1, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Unregister, EmptySchedule, WorkDeleted(0)],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "first deployment, scaled meanwhile",
            specs: vec![plain(3, V1), plain(5, V1)],
            running: false,
            faults: 1,
            kinds: vec![Deadline, Lose(1), Evict(1)],
            ..base.clone()
        },
        Setup {
            name: "first deployment, begun anew elsewhere",
            specs: vec![plain(3, V1), only_a(3, V1)],
            running: false,
            kinds: vec![Lose(1), Disconnect(2)],
            gone: vec![1],
            abandoned: vec![1],
            ..base.clone()
        },
        Setup {
            name: "first deployment, a cluster given up",
            specs: vec![plain(2, V1), plain(2, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Lose(1), Slow],
            gone: vec![1],
            abandoned: vec![1],
            ..base.clone()
        },
        Setup {
            name: "first deployment, begun anew elsewhere, crashes",
            specs: vec![plain(2, V1), only_a(1, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Slow, Disconnect(1)],
            ..base.clone()
        },
        Setup {
            name: "first deployment, begun anew elsewhere, memory lost",
            specs: vec![plain(2, V1), only_a(1, V1)],
            clusters: 2,
            running: false,
            kinds: vec![Disconnect(1), StatusWiped, OverridesDeleted],
            ..base.clone()
        },
        Setup {
            name: "first deployment, going on without a cluster",
            specs: vec![going_on(3, V1)],
            running: false,
            kinds: vec![Disconnect(1), Disconnect(2)],
            ..base.clone()
        },
        Setup {
            name: "new image, crashes",
            specs: vec![plain(5, V1), plain(5, V2)],
            kinds: vec![Slow],
            late: true,
            faults: 2,
            ..base.clone()
        },
        Setup {
            name: "new image, clusters lost",
            specs: vec![plain(3, V1), plain(3, V2)],
            kinds: vec![Lose(0), Lose(1), Disconnect(2)],
            ..base.clone()
        },
        Setup {
            name: "new image, going on without a cluster",
            specs: vec![going_on(3, V1), going_on(3, V2)],
            kinds: vec![Disconnect(0), Lose(1)],
            ..base.clone()
        },
        Setup {
            name: "a second image while one rolls",
            specs: vec![plain(3, V1), plain(3, V2), plain(3, V3)],
            kinds: vec![Slow, Deadline, Disconnect(1)],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "a second image, and back, while one rolls",
            specs: vec![plain(3, V1), plain(3, V2), plain(3, V1)],
            clusters: 2,
            kinds: vec![Deadline],
            late: true,
            faults: 2,
            ..base.clone()
        },
        Setup {
            name: "an image that fails, then one that works",
            specs: vec![plain(3, V1), plain(3, BAD_IMAGE), plain(3, V3)],
            kinds: vec![Slow, Deadline],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "new image, Karmada's faults",
            specs: vec![plain(3, V1), plain(3, V2)],
            kinds: vec![Unregister, EmptySchedule, WorkDeleted(1)],
            late: true,
            faults: 1,
            ..base.clone()
        },
        Setup {
            name: "new image, an eviction",
            specs: vec![plain(5, V1), plain(5, V2)],
            faults: 1,
            kinds: vec![Evict(1), Evict(2)],
            ..base.clone()
        },
        Setup {
            name: "new image, memory lost",
            specs: vec![plain(3, V1), plain(3, V2)],
            kinds: vec![StatusWiped, OverridesDeleted, PolicyDeleted],
            ..base.clone()
        },
        Setup {
            name: "first deployment, memory lost",
            specs: vec![plain(3, V1)],
            running: false,
            kinds: vec![StatusWiped, OverridesDeleted, PolicyDeleted],
            ..base.clone()
        },
        Setup {
            name: "fewer servers",
            specs: vec![plain(5, V1), plain(3, V1)],
            faults: 1,
            kinds: vec![Slow, Lose(1), OverridesDeleted, Evict(0)],
            ..base.clone()
        },
        Setup {
            name: "more servers",
            specs: vec![plain(3, V1), plain(5, V1)],
            faults: 1,
            kinds: vec![Slow, WorkDeleted(0), StatusWiped],
            ..base.clone()
        },
        Setup {
            name: "more servers, and back, while they join",
            specs: vec![plain(3, V1), plain(5, V1), plain(3, V1)],
            faults: 1,
            kinds: vec![Deadline, Slow],
            ..base.clone()
        },
        Setup {
            name: "a cluster lost for good while an image rolls",
            specs: vec![plain(3, V1), plain(3, V2), without_c(3, V2)],
            faults: 2,
            kinds: vec![Lose(2), Deadline, Slow],
            gone: vec![2],
            ..base.clone()
        },
        Setup {
            name: "one voter, two images",
            specs: vec![plain(1, V1), plain(1, V2), plain(1, V3)],
            clusters: 2,
            kinds: vec![Slow, Disconnect(0)],
            ..base.clone()
        },
        Setup {
            name: "two images of five, a cluster cut off",
            specs: vec![plain(5, V1), plain(5, V2), plain(5, V3)],
            faults: 2,
            kinds: vec![Disconnect(2), Deadline],
            ..base.clone()
        },
        Setup {
            name: "new image of five, memory lost",
            specs: vec![plain(5, V1), plain(5, V2)],
            kinds: vec![StatusWiped, OverridesDeleted],
            ..base.clone()
        },
        Setup {
            name: "more servers, clusters lost",
            specs: vec![plain(3, V1), plain(5, V1)],
            kinds: vec![Lose(0), Lose(1)],
            ..base.clone()
        },
        Setup {
            name: "fewer servers, clusters lost",
            specs: vec![plain(5, V1), plain(3, V1)],
            kinds: vec![Lose(1), Lose(2)],
            ..base.clone()
        },
        Setup {
            name: "away from a cluster",
            specs: vec![plain(3, V1), without_c(3, V1)],
            faults: 1,
            kinds: vec![Slow, Lose(2), OverridesDeleted],
            ..base.clone()
        },
        Setup {
            name: "to another cluster",
            specs: vec![without_c(3, V1), plain(3, V2)],
            faults: 1,
            kinds: vec![Slow, WorkDeleted(1)],
            ..base.clone()
        },
        Setup {
            name: "fewer here first, and to other clusters",
            specs: vec![
                spec(3, V1, json!({ "placement": { "clusterAffinity": { "exclude": ["c", "d"] } } })),
                spec(
                    3,
                    V2,
                    json!({
                        "placement": { "clusterAffinity": { "exclude": ["b"] } },
                        "rollout": { "order": "Listed", "clusters": ["a", "c", "d"] },
                    }),
                ),
            ],
            clusters: 4,
            faults: 1,
            kinds: vec![Slow, Deadline, StatusWiped],
            ..base.clone()
        },
        Setup {
            name: "a lost volume",
            specs: vec![plain(3, V1)],
            kinds: vec![LoseVolume(0), Slow, WorkDeleted(0)],
            ..base.clone()
        },
        Setup { name: "an end", specs: vec![plain(5, V1)], kinds: vec![Slow, Lose(1)], deleted: true, ..base.clone() },
        Setup {
            name: "an end, memory lost",
            specs: vec![plain(3, V1)],
            kinds: vec![StatusWiped, OverridesDeleted],
            deleted: true,
            ..base.clone()
        },
        Setup {
            name: "an end while a change rolls",
            specs: vec![plain(3, V1), plain(3, V2)],
            faults: 1,
            kinds: vec![Slow, OverridesDeleted, Unregister],
            deleted: true,
            ..base.clone()
        },
        Setup {
            name: "a foreign template",
            specs: vec![plain(3, V1), plain(3, V2)],
            running: false,
            kinds: vec![Slow],
            foreign: true,
            deleted: true,
            ..base
        },
    ]
}

/// Searches one world to the end.
fn search(setup: &Setup) -> Result<usize, String> {
    let began = Instant::now();
    let cap = std::env::var("MODEL_CAP").ok().and_then(|c| c.parse().ok()).unwrap_or(MOST_STATES);
    let checker = World::new(setup.clone(), None)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::Any)
        .target_state_count(cap)
        .spawn_bfs()
        .join();
    let states = checker.unique_state_count();
    println!("{}: {states} states, depth {}, {:.1} s", setup.name, checker.max_depth(), began.elapsed().as_secs_f64());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        return Err(told(setup, None, property, path));
    }
    if !checker.is_done() || checker.state_count() >= cap {
        return Err(format!("{}: the search did not end", setup.name));
    }
    Ok(states)
}

#[test]
fn every_reachable_state_is_safe_and_comes_to_a_good_end() {
    let only = std::env::var("MODEL_ONLY").ok();
    let began = Instant::now();
    let mut failures = Vec::new();
    let mut states = 0;
    for setup in all().iter().filter(|s| only.as_ref().is_none_or(|o| s.name.contains(o.as_str()))) {
        match search(setup) {
            Ok(count) => states += count,
            Err(failure) => {
                println!("  FAILED {failure}");
                failures.push(failure);
            }
        }
    }
    println!("all: {states} states, {:.1} s", began.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A failure, in a line: the rule and the way there.
fn told(
    setup: &Setup,
    mutation: Option<Mutation>,
    property: &str,
    path: Path<crate::state::State, crate::Action>,
) -> String {
    let world = World::new(setup.clone(), mutation);
    let last = path.last_state().clone();
    let rule = last.broken.or_else(|| world.settle(&last).err());
    let actions: Vec<_> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
    format!("{}: {property}: {rule:?} after {}", setup.name, actions.join(", "))
}

/// Which world shows that a rule is broken.
fn shown_by(mutation: Mutation) -> &'static str {
    match mutation {
        Mutation::LowerBeforeRemoved | Mutation::ReuseIds => "fewer servers",
        Mutation::ListWithoutQuorum => "more servers, clusters lost",
        Mutation::BeginWithoutQuorum | Mutation::BelieveUnreachable => "new image, clusters lost",
        Mutation::AllocateBeforeReports | Mutation::RecoverNextTemplate | Mutation::ForgetRecords => {
            "new image, memory lost"
        }
        Mutation::SameEpoch => "first deployment, memory lost",
        Mutation::ListDuringBootstrap => "first deployment, scaled meanwhile",
        Mutation::RebootstrapUnsuspended | Mutation::BelieveUnreported | Mutation::ForgetAccepted => {
            "first deployment, begun anew elsewhere"
        }
        Mutation::RunUnformed => "first deployment, going on without a cluster",
        Mutation::TemplateDuringRecord => "a second image while one rolls",
        Mutation::SameGeneration => "a second image, and back, while one rolls",
        Mutation::AdoptForeign => "a foreign template",
        Mutation::BelieveUnsettled | Mutation::NoPreserve => "new image, Karmada's faults",
        Mutation::NoZeroRule => "first deployment, Karmada's faults",
        Mutation::IgnoreEnablements => "first deployment, late kinds and secret",
        Mutation::ListByCluster => "to another cluster",
        Mutation::BeginElsewhere => "two images of five, a cluster cut off",
        Mutation::NoJoinersFirst => "fewer here first, and to other clusters",
        Mutation::ForgetUnscheduled => "a cluster lost for good while an image rolls",
        Mutation::DeleteBeforeDecommissioned | Mutation::DeleteBeforeReleased => "an end",
        Mutation::DecommissionOnlyKnown => "an end, memory lost",
        Mutation::ServeBeforeMajority => "first deployment, crashes",
        Mutation::NextBeforeComplete
        | Mutation::AssignEveryCluster
        | Mutation::BelieveOtherSpecHash
        | Mutation::ContinueReadyRecord => "new image, crashes",
        other => panic!("{other:?} is not of the rollout"),
    }
}

#[test]
fn every_broken_rule_is_found() {
    let mut survivors = Vec::new();
    for mutation in Mutation::ROLLOUT {
        let began = Instant::now();
        let name = shown_by(*mutation);
        let setup = all().into_iter().find(|s| s.name == name).expect("the world exists");
        let checker = World::new(setup.clone(), Some(*mutation))
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::Any)
            .target_state_count(MOST_STATES)
            .spawn_bfs()
            .join();
        let found = checker.discoveries().into_iter().next();
        let (states, seconds) = (checker.unique_state_count(), began.elapsed().as_secs_f64());
        match found {
            Some((property, path)) => {
                println!(
                    "{mutation:?}: found, {states} states, {seconds:.1} s: {}",
                    told(&setup, Some(*mutation), property, path)
                );
            }
            None => {
                println!("{mutation:?}: SURVIVED {name}, {states} states, {seconds:.1} s");
                survivors.push(*mutation);
            }
        }
    }
    assert!(survivors.is_empty(), "these broken rules were not found: {survivors:?}");
}

/// Worlds too large to be searched: five clusters and nine voters, two changes, many faults of every kind.
fn large() -> Vec<Setup> {
    use Fault::{
        Deadline, Disconnect, EmptySchedule, Lose, OverridesDeleted, PolicyDeleted, Slow, StatusWiped, Unregister,
        WorkDeleted,
    };
    let base = Setup { clusters: 5, faults: 6, late: true, ..Setup::default() };
    vec![
        Setup {
            name: "first deployment of nine",
            specs: vec![plain(9, V1), plain(9, V2)],
            kinds: vec![Slow, Lose(1), Disconnect(3), WorkDeleted(0), Unregister, EmptySchedule, PolicyDeleted],
            ..base.clone()
        },
        Setup {
            name: "nine, two changes",
            specs: vec![plain(9, V1), plain(9, V2), plain(9, V3)],
            running: true,
            kinds: vec![
                Slow,
                Deadline,
                Lose(2),
                Disconnect(4),
                PolicyDeleted,
                WorkDeleted(1),
                Unregister,
                EmptySchedule,
            ],
            ..base.clone()
        },
        Setup {
            name: "nine, two changes, memory lost",
            specs: vec![plain(9, V1), plain(9, V2), plain(9, V3)],
            running: true,
            kinds: vec![
                Slow,
                StatusWiped,
                OverridesDeleted,
                PolicyDeleted,
                Disconnect(4),
                Lose(2),
                WorkDeleted(1),
                Unregister,
                EmptySchedule,
            ],
            ..base.clone()
        },
        Setup {
            name: "first deployment of nine, memory lost",
            specs: vec![plain(9, V1), plain(9, V2)],
            kinds: vec![Slow, StatusWiped, OverridesDeleted, Disconnect(4), Unregister, EmptySchedule],
            ..base.clone()
        },
        Setup {
            name: "nine, to five, to seven",
            specs: vec![plain(9, V1), plain(5, V1), plain(7, V2)],
            running: true,
            kinds: vec![Slow, Lose(2), WorkDeleted(1), PolicyDeleted],
            ..base
        },
    ]
}

/// A small generator of numbers, so that a seed means one walk for ever.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).expect("below a usize")
    }
}

/// Random walks through larger worlds, by fixed seeds: after each, without faults, all must come to a good end.
#[test]
fn larger_worlds_by_seeded_simulation() {
    const STEPS: usize = 300;
    let walks: u64 = std::env::var("MODEL_WALKS").ok().and_then(|w| w.parse().ok()).unwrap_or(200);
    let only: Option<u64> = std::env::var("MODEL_SEED").ok().and_then(|s| s.parse().ok());
    let mut failures = Vec::new();
    for setup in large() {
        let began = Instant::now();
        let world = World::new(setup.clone(), None);
        let start = world.init_states().remove(0);
        let mut steps = 0;
        for seed in 1..=walks {
            if only.is_some_and(|only| only != seed) {
                continue;
            }
            let mut numbers = Seeded(seed);
            let mut state = start.clone();
            let mut path = Vec::new();
            for _ in 0..STEPS {
                let mut actions = Vec::new();
                world.actions(&state, &mut actions);
                if actions.is_empty() {
                    break;
                }
                let action = actions[numbers.below(actions.len())];
                if let Some(next) = world.next_state(&state, action) {
                    path.push(format!("{action:?}"));
                    state = next;
                    steps += 1;
                }
                if state.broken.is_some() {
                    if std::env::var("MODEL_SHOW").is_ok() {
                        world.show(&state);
                    }
                    break;
                }
            }
            let rule = state.broken.or_else(|| world.settle(&state).err());
            if let Some(rule) = rule {
                failures.push(format!("{}, seed {seed}: {rule:?} after {}", setup.name, path.join(", ")));
            }
        }
        println!("{}: seeds 1 to {walks}, {steps} steps, {:.1} s", setup.name, began.elapsed().as_secs_f64());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

//! The worlds, and the tests: complete searches, random walks through larger worlds, and the broken rules that must be found.

use std::time::Instant;

use mczk::{api::multiclusterzookeeper::MultiClusterZooKeeperSpec, mutation::Mutation};
use serde_json::{Value, json};
use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::{
    Fault::{
        self, Deadline, Disconnect, EmptySchedule, Evict, Lose, LoseVolume, OverridesDeleted, PolicyDeleted, Slow,
        StatusWiped, Unregister, WorkDeleted,
    },
    Setup, World,
    member::BAD_IMAGE,
};

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

fn continuing(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "rollout": { "onFailure": "Continue" } }))
}

/// The greatest number of steps of a search. A search with more steps fails.
const MOST_STATES: usize = 20_000_000;

/// A world of three clusters in which the first spec is rolled out before the search begins.
fn world(name: &'static str, specs: &[MultiClusterZooKeeperSpec], kinds: &[Fault]) -> Setup {
    let (specs, kinds) = (specs.to_vec(), kinds.to_vec());
    Setup { name, specs, clusters: 3, running: true, faults: 2, kinds, ..Setup::default() }
}

/// A world in which the search begins before the first deployment.
fn first(name: &'static str, specs: &[MultiClusterZooKeeperSpec], kinds: &[Fault]) -> Setup {
    Setup { running: false, ..world(name, specs, kinds) }
}

/// All worlds that are searched completely.
fn all() -> Vec<Setup> {
    [first_deployments(), new_images(), other_changes(), ends()].concat()
}

fn first_deployments() -> Vec<Setup> {
    vec![
        first("first deployment, crashes", &[plain(5, V1)], &[Slow]),
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            ..first("first deployment, crashes, in every order", &[plain(3, V1)], &[Slow])
        },
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            late_kinds: vec![1],
            late_secret: vec![0],
            ..first("first deployment, late kinds and secret", &[plain(3, V1)], &[Slow, Lose(1)])
        },
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            ..first("first deployment, Karmada's faults", &[plain(1, V1)], &[Unregister, EmptySchedule, WorkDeleted(0)])
        },
        Setup {
            faults: 1,
            ..first("first deployment, scaled meanwhile", &[plain(3, V1), plain(5, V1)], &[Deadline, Lose(1), Evict(1)])
        },
        Setup {
            gone: vec![1],
            abandoned: vec![1],
            ..first(
                "first deployment, rebootstrapped elsewhere",
                &[plain(3, V1), only_a(3, V1)],
                &[Lose(1), Disconnect(2)],
            )
        },
        Setup {
            clusters: 2,
            gone: vec![1],
            abandoned: vec![1],
            ..first("first deployment, a cluster abandoned", &[plain(2, V1), plain(2, V1)], &[Lose(1), Slow])
        },
        Setup {
            clusters: 2,
            ..first(
                "first deployment, rebootstrapped elsewhere, crashes",
                &[plain(2, V1), only_a(1, V1)],
                &[Slow, Disconnect(1)],
            )
        },
        Setup {
            clusters: 2,
            ..first(
                "first deployment, rebootstrapped elsewhere, memory lost",
                &[plain(2, V1), only_a(1, V1)],
                &[Disconnect(1), StatusWiped, OverridesDeleted],
            )
        },
        first("first deployment, continued without a cluster", &[continuing(3, V1)], &[Disconnect(1), Disconnect(2)]),
        first("first deployment, memory lost", &[plain(3, V1)], &[StatusWiped, OverridesDeleted, PolicyDeleted]),
    ]
}

fn new_images() -> Vec<Setup> {
    vec![
        Setup { late: true, ..world("new image, crashes", &[plain(5, V1), plain(5, V2)], &[Slow]) },
        world("new image, clusters lost", &[plain(3, V1), plain(3, V2)], &[Lose(0), Lose(1), Disconnect(2)]),
        world(
            "new image, continued without a cluster",
            &[continuing(3, V1), continuing(3, V2)],
            &[Disconnect(0), Lose(1)],
        ),
        Setup {
            faults: 1,
            late: true,
            ..world(
                "a second image while one rolls",
                &[plain(3, V1), plain(3, V2), plain(3, V3)],
                &[Slow, Deadline, Disconnect(1)],
            )
        },
        Setup {
            clusters: 2,
            late: true,
            ..world(
                "a second image, and back, while one rolls",
                &[plain(3, V1), plain(3, V2), plain(3, V1)],
                &[Deadline],
            )
        },
        Setup {
            faults: 1,
            late: true,
            ..world(
                "an image that fails, then one that works",
                &[plain(3, V1), plain(3, BAD_IMAGE), plain(3, V3)],
                &[Slow, Deadline],
            )
        },
        Setup {
            faults: 1,
            late: true,
            ..world(
                "new image, Karmada's faults",
                &[plain(3, V1), plain(3, V2)],
                &[Unregister, EmptySchedule, WorkDeleted(1)],
            )
        },
        Setup { faults: 1, ..world("new image, an eviction", &[plain(5, V1), plain(5, V2)], &[Evict(1), Evict(2)]) },
        world("new image, memory lost", &[plain(3, V1), plain(3, V2)], &[StatusWiped, OverridesDeleted, PolicyDeleted]),
        Setup {
            gone: vec![2],
            ..world(
                "a cluster lost for good while an image rolls",
                &[plain(3, V1), plain(3, V2), without_c(3, V2)],
                &[Lose(2), Deadline, Slow],
            )
        },
        Setup {
            clusters: 2,
            ..world("one voter, two images", &[plain(1, V1), plain(1, V2), plain(1, V3)], &[Slow, Disconnect(0)])
        },
        world(
            "two images of five, a cluster cut off",
            &[plain(5, V1), plain(5, V2), plain(5, V3)],
            &[Disconnect(2), Deadline],
        ),
        world("new image of five, memory lost", &[plain(5, V1), plain(5, V2)], &[StatusWiped, OverridesDeleted]),
    ]
}

fn other_changes() -> Vec<Setup> {
    vec![
        Setup {
            faults: 1,
            ..world("fewer servers", &[plain(5, V1), plain(3, V1)], &[Slow, Lose(1), OverridesDeleted, Evict(0)])
        },
        Setup {
            faults: 1,
            ..world("more servers", &[plain(3, V1), plain(5, V1)], &[Slow, WorkDeleted(0), StatusWiped])
        },
        Setup {
            faults: 1,
            ..world(
                "more servers, and back, while they join",
                &[plain(3, V1), plain(5, V1), plain(3, V1)],
                &[Deadline, Slow],
            )
        },
        world("more servers, clusters lost", &[plain(3, V1), plain(5, V1)], &[Lose(0), Lose(1)]),
        world("fewer servers, clusters lost", &[plain(5, V1), plain(3, V1)], &[Lose(1), Lose(2)]),
        Setup {
            faults: 1,
            ..world("away from a cluster", &[plain(3, V1), without_c(3, V1)], &[Slow, Lose(2), OverridesDeleted])
        },
        Setup { faults: 1, ..world("to another cluster", &[without_c(3, V1), plain(3, V2)], &[Slow, WorkDeleted(1)]) },
        Setup {
            clusters: 4,
            faults: 1,
            ..world(
                "fewer here first, and to other clusters",
                &[
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
                &[Slow, Deadline, StatusWiped],
            )
        },
        world("a lost volume", &[plain(3, V1)], &[LoseVolume(0), Slow, WorkDeleted(0)]),
    ]
}

fn ends() -> Vec<Setup> {
    vec![
        Setup { deleted: true, ..world("an end", &[plain(5, V1)], &[Slow, Lose(1)]) },
        Setup { deleted: true, ..world("an end, memory lost", &[plain(3, V1)], &[StatusWiped, OverridesDeleted]) },
        Setup {
            faults: 1,
            deleted: true,
            ..world("an end while a change rolls", &[plain(3, V1), plain(3, V2)], &[Slow, OverridesDeleted, Unregister])
        },
        Setup { deleted: true, foreign: true, ..first("a foreign template", &[plain(3, V1), plain(3, V2)], &[Slow]) },
    ]
}
/// A complete search of a world, and its duration in seconds.
fn search(setup: &Setup, mutation: Option<Mutation>) -> (impl Checker<World>, f64) {
    let began = Instant::now();
    let cap = std::env::var("MODEL_CAP").ok().and_then(|c| c.parse().ok()).unwrap_or(MOST_STATES);
    let checker = World::new(setup.clone(), mutation).checker().threads(2).finish_when(HasDiscoveries::Any);
    (checker.target_state_count(cap).spawn_bfs().join(), began.elapsed().as_secs_f64())
}

#[test]
fn every_state_is_safe_and_can_complete() {
    let only = std::env::var("MODEL_ONLY").ok();
    let began = Instant::now();
    let mut failures = Vec::new();
    let mut all_states = 0;
    for setup in all().iter().filter(|s| only.as_ref().is_none_or(|o| s.name.contains(o.as_str()))) {
        let (checker, seconds) = search(setup, None);
        let states = checker.unique_state_count();
        println!("{}: {states} states, depth {}, {seconds:.1} s", setup.name, checker.max_depth());
        all_states += states;
        if let Some((property, path)) = checker.discoveries().into_iter().next() {
            failures.push(describe(setup, None, property, path));
        } else if !checker.is_done() || checker.state_count() >= MOST_STATES {
            failures.push(format!("{}: the search did not end", setup.name));
        }
    }
    println!("all: {all_states} states, {:.1} s", began.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A failure: the rule, and the actions that lead to it.
fn describe(
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

/// The world that shows that a rule is broken.
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
            "first deployment, rebootstrapped elsewhere"
        }
        Mutation::RunUnformed => "first deployment, continued without a cluster",
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
        let name = shown_by(*mutation);
        let setup = all().into_iter().find(|s| s.name == name).expect("the world exists");
        let (checker, seconds) = search(&setup, Some(*mutation));
        let (found, states) = (checker.discoveries().into_iter().next(), checker.unique_state_count());
        match found {
            Some((property, path)) => {
                println!(
                    "{mutation:?}: found, {states} states, {seconds:.1} s: {}",
                    describe(&setup, Some(*mutation), property, path)
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

/// Worlds that are too large for a search: five clusters, nine voters, two changes and many kinds of faults.
fn large() -> Vec<Setup> {
    let specs = [plain(9, V1), plain(9, V2), plain(9, V3)];
    let memory = [
        Slow,
        StatusWiped,
        OverridesDeleted,
        PolicyDeleted,
        Disconnect(4),
        Lose(2),
        WorkDeleted(1),
        Unregister,
        EmptySchedule,
    ];
    let worlds = [
        first(
            "first deployment of nine",
            &specs[..2],
            &[Slow, Lose(1), Disconnect(3), WorkDeleted(0), Unregister, EmptySchedule, PolicyDeleted],
        ),
        world(
            "nine, two changes",
            &specs,
            &[Slow, Deadline, Lose(2), Disconnect(4), PolicyDeleted, WorkDeleted(1), Unregister, EmptySchedule],
        ),
        world("nine, two changes, memory lost", &specs, &memory),
        first(
            "first deployment of nine, memory lost",
            &specs[..2],
            &[Slow, StatusWiped, OverridesDeleted, Disconnect(4), Unregister, EmptySchedule],
        ),
        world(
            "nine, to five, to seven",
            &[plain(9, V1), plain(5, V1), plain(7, V2)],
            &[Slow, Lose(2), WorkDeleted(1), PolicyDeleted],
        ),
    ];
    worlds.map(|world| Setup { clusters: 5, faults: 6, late: true, ..world }).to_vec()
}

/// A generator of random numbers whose sequence never changes, so that a seed always gives the same walk.
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

/// Random walks through larger worlds, with fixed seeds. After each walk the world must complete without faults.
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
                if let Some(rule) = state.broken {
                    world.show(&state, rule);
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

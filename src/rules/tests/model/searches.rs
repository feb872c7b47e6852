//! The tests: complete searches, random walks through larger worlds, and the broken rules that must be found.

use std::time::Instant;

use mczk_api::mutation::Mutation;
use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::{
    Setup, World,
    configurations::{all, large},
};

/// The greatest number of steps of a search. A search with more steps fails.
const MOST_STATES: usize = 20_000_000;

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

/// Broken rules of the agent about volumes. `src/rules/tests/ensemble` finds these too, and those of all other rules of the agent: here
/// an agent observes, decides and applies in one step.
const AGENT: &[Mutation] = &[Mutation::ReplaceOtherClaim, Mutation::ReplaceLastCopy];

/// The rules of the operator about what lived before its control plane. `src/rules/tests/adoption.rs` and the agent's tests find
/// the other broken ones.
const FORMER: &[Mutation] = &[Mutation::BeginBesideOther, Mutation::ForgetNewerList, Mutation::AcceptOlderSpec];

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
        Mutation::ForgetLeaving => "away from a cluster, and back",
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
        Mutation::KeepForeignFields | Mutation::BelieveEditedSpec | Mutation::BelieveEditedList => {
            "new image, edited policies"
        }
        Mutation::BelieveEditedPlacement => "declared weights, an edited policy",
        Mutation::BelieveEditedTemplate => "new image, an edited template",
        Mutation::BelieveOtherBinding | Mutation::KeepProtection => "new image, the template deleted",
        Mutation::SelectAgain => "new image, a cluster unjoined",
        Mutation::IgnoreLaterTerm | Mutation::ActUnclaimed => "new image, two operators, both slow",
        Mutation::WithoutVersion => "new image, two operators",
        Mutation::RestartUnseen => "first deployment, the template edited or deleted",
        Mutation::KeepEditedAtEnd | Mutation::BelieveReleased => "an end, edited and deleted objects",
        Mutation::LeaveUnscheduled => "an end, a cluster unscheduled",
        Mutation::SleepPastDeadline => "an image that fails, lost wake-ups",
        Mutation::BeginBesideOther => "a lost control plane, adopted",
        Mutation::ForgetNewerList => "an older copy, fewer servers since",
        Mutation::AcceptOlderSpec => "an older copy, more servers and an image since",
        Mutation::ReplaceOtherClaim | Mutation::ReplaceLastCopy => "a volume is replaced, a cluster lost",
        other => panic!("{other:?} is not searched for here"),
    }
}

#[test]
fn every_broken_rule_is_found() {
    let mut survivors = Vec::new();
    let only = std::env::var("MODEL_MUTATION").ok();
    for mutation in Mutation::ROLLOUT.iter().chain(AGENT).chain(FORMER) {
        if only.as_ref().is_some_and(|only| !format!("{mutation:?}").contains(only.as_str())) {
            continue;
        }
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

//! Random faults and requests: what holds after each pass, and what must come about once all faults are over.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use mczk_api::{mutation::Mutation, zookeeper::EnsemblePhase};
use proptest::{
    prelude::*,
    test_runner::{Config, TestError, TestRunner},
};
use serde_json::json;

use crate::{scene::Scene, world::SpareAnswer};

const HOMES: [&str; 2] = ["m1", "m2"];
const ALL: [&str; 4] = ["m1", "m2", "m3", "m4"];
/// What users ask for.
const REQUESTS: [Option<&str>; 6] =
    [None, Some("m1=m3"), Some("m1=m1"), Some("m1=m3,m2=m4"), Some("m2=m4"), Some("m1=m1,m2=m2")];

#[derive(Clone, Debug)]
enum Event {
    Lose(usize),
    Restore(usize),
    Hide(usize),
    Request(usize),
    Pause(bool),
    LoseOverrides,
    LosePolicy,
    LosePolicies,
    ReturnUnseen(usize),
    Stall(usize),
    Answer(usize, Option<SpareAnswer>),
    Backup,
    RestoreControlPlane,
    Wait(usize),
}

/// What the agent of a spare answers; `None` if it would accept servers.
fn answers() -> impl Strategy<Value = Option<SpareAnswer>> {
    let refused = [SpareAnswer::Refuses("no"), SpareAnswer::Blocked("no"), SpareAnswer::Silent].map(Some);
    proptest::sample::select([&[None, None, None][..], &refused].concat())
}

/// A walk: whether the voters are divided 4 and 1 by declared weights, or else 3 and 2 by the operator, and what happens.
fn walks() -> impl Strategy<Value = (bool, Vec<Event>)> {
    let event = prop_oneof![
        3 => (0..4usize).prop_map(Event::Lose),
        3 => (0..4usize).prop_map(Event::Restore),
        1 => (0..4usize).prop_map(Event::Hide),
        2 => (0..REQUESTS.len()).prop_map(Event::Request),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => Just(Event::LoseOverrides),
        1 => Just(Event::LosePolicy),
        1 => Just(Event::LosePolicies),
        1 => (0..4usize).prop_map(Event::ReturnUnseen),
        1 => (2..4usize).prop_map(Event::Stall),
        2 => (2..4usize, answers()).prop_map(|(of, answer)| Event::Answer(of, answer)),
        1 => Just(Event::Backup),
        1 => Just(Event::RestoreControlPlane),
        8 => (1..20usize).prop_map(Event::Wait),
    ];
    (any::<bool>(), proptest::collection::vec(event, 1..24))
}

/// A walk through a world, with what must stay as it was.
struct Walk {
    scene: Scene,
    /// The control plane, and whether the request did nothing then.
    backup: Option<(Scene, bool)>,
    requested: BTreeMap<String, String>,
    paused: bool,
    /// The cluster of each id that was ever listed.
    ids: BTreeMap<i32, String>,
    /// True after a restore: the request does nothing until it changes.
    is_outdated: bool,
    /// When each home got its place.
    decided: BTreeMap<&'static str, Timestamp>,
    /// Since when each home has been lost at every pass.
    lost: BTreeMap<&'static str, Timestamp>,
    counts: [usize; 2],
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(home, place)| (home.to_owned(), place.to_owned())).collect()
}

impl Walk {
    fn new(uneven: bool) -> Self {
        // The operator alone would divide 3 and 2.
        let weight = |name: &str, weight: i32| json!({ "targetCluster": { "clusterNames": [name] }, "weight": weight });
        let uneven_voters = json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": { "staticWeightList": [weight("m1", 4), weight("m2", 1)] },
        });
        let scheduling = if uneven { uneven_voters } else { json!(null) };
        let scene = Scene::of(&json!({
            "placement": { "clusterAffinity": { "clusterNames": HOMES }, "replicaScheduling": scheduling },
            "failover": { "spares": ["m3", "m4"], "moveAfterSeconds": 60, "moveBackAfterSeconds": 60 },
        }));
        let mut walk = Self {
            scene,
            backup: None,
            requested: BTreeMap::new(),
            paused: false,
            ids: BTreeMap::new(),
            is_outdated: false,
            decided: BTreeMap::new(),
            lost: BTreeMap::new(),
            counts: if uneven { [1, 4] } else { [2, 3] },
        };
        walk.ids.extend(walk.scene.listed());
        walk
    }

    fn apply(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Lose(of) => self.scene.lose(ALL[*of]),
            Event::Restore(of) => self.scene.restore(ALL[*of]),
            Event::Hide(of) => self.scene.hide(ALL[*of]),
            Event::Request(of) => {
                // One that comes before the operator sees the restore counts as one of the backup.
                for _ in 0..15 {
                    if self.recovers() {
                        self.tick()?;
                    }
                }
                self.is_outdated &= REQUESTS[*of].map(pairs).unwrap_or_default() == self.requested;
                self.scene.request(REQUESTS[*of]);
                self.requested = REQUESTS[*of].map(pairs).unwrap_or_default();
            }
            Event::Pause(paused) => {
                self.paused = *paused;
                self.scene.world.edit("/rollout", &json!({ "paused": paused }));
            }
            // By declared weights Karmada itself divides again, and leaves out what is not Ready: the schedule stands.
            Event::LoseOverrides | Event::LosePolicy | Event::LosePolicies
                if self.counts == [1, 4] && self.scene.some_are_away() => {}
            Event::LoseOverrides => {
                self.scene.world.observed.overrides = None;
                self.forget()?;
            }
            Event::LosePolicies => {
                (self.scene.world.observed.overrides, self.scene.world.observed.policy) = (None, None);
                self.forget()?;
            }
            Event::ReturnUnseen(of) => self.scene.return_unseen(ALL[*of]),
            Event::Stall(of) => self.scene.stalled.extend([ALL[*of]]),
            Event::Answer(of, answer) => {
                self.scene.world.spares.remove(ALL[*of]);
                self.scene.world.spares.extend(answer.map(|answer| (ALL[*of], answer)));
            }
            Event::LosePolicy => self.scene.world.observed.policy = None,
            Event::Backup => self.backup = Some((self.scene.clone(), self.is_outdated)),
            Event::RestoreControlPlane => self.restore(),
            Event::Wait(ticks) => {
                for _ in 0..*ticks {
                    self.tick()?;
                }
            }
        }
        Ok(())
    }

    /// The operator's own objects are gone, and with them what it has carried out.
    fn forget(&mut self) -> Result<(), String> {
        self.is_outdated |= !self.requested.is_empty();
        self.tick()
    }

    /// The objects of the backup, while member clusters have what they have.
    fn restore(&mut self) {
        let Some((backup, was_outdated)) = self.backup.clone() else { return };
        // Agents report only where the restored objects bring them, as far as this world goes.
        let stay = |cluster: &String| HOMES.contains(&cluster.as_str());
        if !self.scene.world.accepted.servers.iter().any(|server| stay(&server.cluster)) {
            return;
        }
        let live = &mut self.scene.world.observed;
        let (binding, clusters) = (live.binding.take(), std::mem::take(&mut live.clusters));
        *live = backup.world.observed;
        (live.binding, live.clusters) = (binding, clusters);
        // The status of the backup may say that a loss began long ago.
        self.lost = HOMES.map(|home| (home, Timestamp::MIN)).into();
        let annotation = live.object.metadata.annotations.clone().unwrap_or_default();
        self.requested = annotation.get("mczk.io/failover").map(|text| pairs(text)).unwrap_or_default();
        self.paused = live.object.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused == Some(true));
        self.is_outdated = was_outdated || self.recovers();
        self.scene.schedule();
    }

    /// True until the operator has taken over the list that the member clusters have.
    fn recovers(&self) -> bool {
        self.scene.world.overrides().ensemble.epoch < self.scene.world.accepted.epoch
    }

    fn tick(&mut self) -> Result<(), String> {
        let recovers = self.recovers();
        let (before, listed, time) = (pairs(&self.scene.moved()), self.scene.listed(), self.scene.world.now);
        for home in HOMES {
            if self.scene.is_lost(home) {
                self.lost.entry(home).or_insert(time);
            } else {
                self.lost.remove(home);
            }
        }
        let refused = self.scene.refused_by_spares();
        self.scene.tick();
        let (after, now) = (pairs(&self.scene.moved()), self.scene.listed());
        self.decided
            .extend(HOMES.into_iter().filter(|home| before.get(*home) != after.get(*home)).map(|home| (home, time)));
        if recovers || self.recovers() || listed.is_empty() || now.is_empty() {
            return Ok(());
        }
        self.check_pairs(&before, &after, &listed)?;
        self.check_moves(&before, &after, (time, &refused))?;
        for (id, cluster) in &now {
            let known = self.ids.entry(*id).or_insert_with(|| cluster.clone());
            if known != cluster {
                return Err(format!("id {id} of {known} is given to {cluster}"));
            }
        }
        self.check_second_look(&after, [&listed, &now], time)?;
        self.check_numbers(&after, &now)
    }

    /// F4: without a request, the list names a spare a minute after the decision at the earliest.
    fn check_second_look(
        &self,
        pairs: &BTreeMap<String, String>,
        [before, after]: [&[(i32, String)]; 2],
        time: Timestamp,
    ) -> Result<(), String> {
        let has = |list: &[(i32, String)], cluster: &str| list.iter().any(|(_, of)| of == cluster);
        let asked = |home: &str| !self.is_outdated && self.requested.contains_key(home);
        for (home, spare) in pairs.iter().filter(|(home, _)| !asked(home)) {
            let decided = self.decided.get(home.as_str()).map(|decided| time.as_second() - decided.as_second());
            if has(after, spare) && !has(before, spare) && decided.is_some_and(|seconds| seconds < 60) {
                return Err(format!("the list names {spare} for {home} {decided:?} s after the decision"));
            }
        }
        Ok(())
    }

    /// F1, F3, F9: who moves, and how many at once.
    fn check_pairs(
        &self,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
        listed: &[(i32, String)],
    ) -> Result<(), String> {
        let place = |pairs: &BTreeMap<String, String>, home: &str| pairs.get(home).cloned().unwrap_or(home.to_owned());
        let changed: Vec<&str> = HOMES.into_iter().filter(|home| place(before, home) != place(after, home)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        if changed.len() > 1 {
            return Err(format!("{changed:?} get another place at once"));
        }
        let home = changed[0];
        let to = place(after, home);
        let calls_off = listed.iter().any(|(_, cluster)| *cluster == to);
        if self.paused && !calls_off && self.scene.world.overrides().ensemble.phase == EnsemblePhase::Running {
            return Err(format!("{home} gets place {to} although the rollout is paused"));
        }
        match self.requested.get(home).filter(|_| !self.is_outdated) {
            Some(wanted) if *wanted != to => Err(format!("{home} gets place {to}, not {wanted} as requested")),
            Some(_) => Ok(()),
            None => {
                let seat = place(before, home);
                let own = listed.iter().filter(|(_, cluster)| *cluster == seat);
                let follows = |id: i32| self.scene.world.running.values().any(|running| *running == id);
                let is_away = to != home && listed.iter().all(|(_, cluster)| *cluster != to);
                match own.into_iter().find(|(id, _)| is_away && follows(*id)) {
                    Some((id, _)) => Err(format!("the voters of {home} go to {to} although {id} follows")),
                    None => Ok(()),
                }
            }
        }
    }

    /// F7: voters leave a home without a request only after the declared time of an unbroken loss, and go to no spare that
    /// has refused them.
    fn check_moves(
        &self,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
        (time, refused): (Timestamp, &[String]),
    ) -> Result<(), String> {
        for (home, spare) in after.iter().filter(|(home, spare)| before.get(*home) != Some(*spare)) {
            let since = self.lost.get(home.as_str()).map(|since| time.as_second() - since.as_second());
            let is_asked = !self.is_outdated && self.requested.contains_key(home);
            if !is_asked && refused.contains(spare) {
                return Err(format!("the voters of {home} go to {spare}, which has refused them"));
            }
            if !is_asked && !before.contains_key(home) && since.is_none_or(|since| since < 60) {
                return Err(format!("the voters of {home} leave after {since:?} s"));
            }
        }
        Ok(())
    }

    /// F3, F5: each home has its number of voters in one place, and at most one is on its way.
    fn check_numbers(&self, pairs: &BTreeMap<String, String>, listed: &[(i32, String)]) -> Result<(), String> {
        let at = |cluster: &str| listed.iter().filter(|(_, of)| of == cluster).count();
        let mut counts: Vec<usize> = ALL.into_iter().map(at).filter(|count| *count > 0).collect();
        counts.sort_unstable();
        if counts != self.counts {
            return Err(format!("the voters are divided {counts:?}"));
        }
        let on_the_way =
            HOMES.into_iter().filter(|home| at(pairs.get(*home).map_or(*home, String::as_str)) == 0).count();
        if on_the_way > 1 { Err(format!("two homes are on their way: {pairs:?}")) } else { Ok(()) }
    }

    /// F10: when faults end, everything is as requested, or at home, and nothing is written any more.
    fn end(&mut self) -> Result<(), String> {
        self.paused = false;
        self.scene.world.edit("/rollout", &json!({}));
        self.scene.stalled.clear();
        self.scene.world.spares.clear();
        for cluster in ALL {
            self.scene.restore(cluster);
        }
        for _ in 0..60 {
            self.tick()?;
        }
        let (moved, state) = (pairs(&self.scene.moved()), self.scene.world.state());
        let wanted: BTreeMap<String, String> = if self.is_outdated {
            moved.clone()
        } else {
            self.requested.clone().into_iter().filter(|(home, place)| home != place).collect()
        };
        if moved != wanted || !state.starts_with("Ready") {
            let says = ["FailedOver", "FailoverReady", "Progressing"].map(|of| self.scene.world.message(of));
            return Err(format!("ends with {moved:?} instead of {wanted:?}, {state}: {says:?}"));
        }
        Ok(())
    }
}

fn walk(uneven: bool, events: &[Event]) -> Result<(), String> {
    let mut walk = Walk::new(uneven);
    for event in events {
        walk.apply(event)?;
    }
    walk.end()
}

/// The first walk of some that breaks a rule, as short as possible.
fn search(cases: u32) -> Option<String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config.clone(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    match runner.run(&walks(), |(uneven, events)| walk(uneven, &events).map_err(TestCaseError::fail)) {
        Ok(()) => None,
        Err(TestError::Fail(why, events)) => Some(format!("{why}\n{events:?}")),
        Err(TestError::Abort(why)) => Some(why.to_string()),
    }
}

#[test]
fn every_walk_is_safe_and_ends() {
    let found = search(150);
    assert!(found.is_none(), "{}", found.unwrap_or_default());
}

#[rstest::rstest]
#[case::f1(Mutation::MoveOnNotReady)]
#[case::f3(Mutation::MoveTwo)]
#[case::f4(Mutation::MoveBlind)]
#[case::spare(Mutation::BelieveSpare)]
#[case::f5(Mutation::DivideAgain)]
#[case::f10(Mutation::MoveForEver)]
#[case::f8(Mutation::ForgetMoved)]
#[case::f9_request(Mutation::IgnoreRequest)]
#[case::f9_pause(Mutation::IgnorePause)]
fn a_broken_rule_is_found(#[case] broken: Mutation) {
    let _active = broken.activate();
    let found = search(400);
    assert!(found.is_some(), "{broken:?} is not found");
}

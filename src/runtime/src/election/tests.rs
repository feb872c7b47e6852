//! A search over every order of requests, answers, losses, crashes and pauses of two candidates.

use std::sync::LazyLock;

use rstest::rstest;
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;
use mczk_api::mutation::Mutation;

/// Seconds that the search covers: a term, its end, and the begin of the next one.
const END: u64 = 5;
const TIMING: Timing = Timing {
    duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    retry_period: Duration::from_secs(1),
};
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn at(second: u64) -> Instant {
    *START + Duration::from_secs(second)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Found(Option<Stored>),
    Written(String),
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    candidacy: Candidacy,
    /// The request on its way, when it was sent, and its answer once the API server has processed it.
    sent: Option<(Request, u64, Option<Answer>)>,
    /// The second of the last attempt.
    began: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    second: u64,
    lease: Option<Stored>,
    versions: usize,
    places: Vec<Place>,
    /// A write whose sender waits no more. It may still arrive.
    late: Option<Write>,
    /// Crashes, deletions, and requests whose sender waited no more: one in a world.
    faults: usize,
    /// A term began that is not higher than the one before.
    repeats_a_term: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Tick,
    Begin(usize),
    Arrive(usize),
    ArriveLate,
    Answer(usize),
    GiveUp(usize),
    Crash(usize),
    Delete,
}

struct Election(Option<Mutation>);

impl World {
    fn store(&mut self, write: &Write) -> Answer {
        if self.lease.as_ref().map(|lease| &lease.version) != write.replaces.as_ref() {
            return Answer::Refused;
        }
        let before = self.lease.as_ref().map_or(0, |lease| lease.term);
        let changes = self.lease.as_ref().is_none_or(|lease| lease.holder != write.holder) && write.holder.is_some();
        self.repeats_a_term |= changes && write.term <= before;
        self.versions += 1;
        let version = self.versions.to_string();
        let Write { holder, term, .. } = write.clone();
        self.lease = Some(Stored { version: version.clone(), holder, term, duration: TIMING.duration });
        Answer::Written(version)
    }

    fn answer(&mut self, place: usize) {
        let now = at(self.second);
        let place = &mut self.places[place];
        let Some((request, sent, Some(answer))) = place.sent.take() else { return };
        match (request, answer) {
            (_, Answer::Found(found)) => {
                let next = place.candidacy.read(found.as_ref(), now);
                place.sent = (next != Request::Wait).then_some((next, self.second, None));
            }
            (Request::Write(write), Answer::Written(version)) => place.candidacy.wrote(&write, version, at(sent), now),
            _ => place.candidacy.failed(),
        }
    }
}

impl Model for Election {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let place = |name: &str| Place { candidacy: Candidacy::new(name.to_owned(), TIMING), sent: None, began: None };
        vec![World {
            second: 0,
            lease: None,
            versions: 0,
            places: vec![place("a"), place("b")],
            late: None,
            faults: 0,
            repeats_a_term: false,
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.second < END {
            events.push(Event::Tick);
        }
        if world.late.is_some() {
            events.push(Event::ArriveLate);
        }
        // A candidate that has never seen a Lease cannot know that there was one.
        let knows = |place: &Place| place.candidacy.seen.as_ref().is_some_and(|seen| seen.version.is_some());
        let all_know = world.places.iter().all(knows);
        if world.faults == 0 && world.lease.is_some() && all_know {
            events.push(Event::Delete);
        }
        for (index, place) in world.places.iter().enumerate() {
            match &place.sent {
                None if place.began < Some(world.second) => events.push(Event::Begin(index)),
                None => {}
                Some((_, _, None)) => {
                    events.push(Event::Arrive(index));
                    if world.faults == 0 {
                        events.push(Event::GiveUp(index));
                    }
                }
                Some((_, _, Some(_))) => events.push(Event::Answer(index)),
            }
            if world.faults == 0 {
                events.push(Event::Crash(index));
            }
        }
    }

    fn next_state(&self, before: &World, event: Event) -> Option<World> {
        let mut world = before.clone();
        let second = world.second;
        Mutation::with(self.0, || match event {
            Event::Tick => world.second += 1,
            Event::Delete => {
                world.lease = None;
                world.faults += 1;
            }
            Event::Begin(index) => {
                let place = &mut world.places[index];
                place.began = Some(second);
                place.sent = Some((place.candidacy.begin(at(second)), second, None));
            }
            Event::Arrive(index) => {
                let Some((request, sent, _)) = world.places[index].sent.take() else { return };
                let answer = match &request {
                    Request::Write(write) => world.store(write),
                    _ => Answer::Found(world.lease.clone()),
                };
                world.places[index].sent = Some((request, sent, Some(answer)));
            }
            Event::ArriveLate => {
                if let Some(write) = world.late.take() {
                    world.store(&write);
                }
            }
            Event::Answer(index) => world.answer(index),
            Event::GiveUp(index) => {
                let place = &mut world.places[index];
                place.candidacy.failed();
                if let Some((Request::Write(write), ..)) = place.sent.take() {
                    world.late = Some(write);
                }
                world.faults += 1;
            }
            Event::Crash(index) => {
                world.faults += 1;
                let place = &mut world.places[index];
                place.candidacy = Candidacy::new("c".to_owned(), TIMING);
                place.sent = None;
            }
        });
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one candidate acts", |model: &Self, world: &World| {
                let now = at(world.second);
                let acts = |place: &&Place| Mutation::with(model.0, || place.candidacy.term(now).is_some());
                world.places.iter().filter(acts).count() <= 1
            }),
            Property::always("terms rise", |_, world: &World| !world.repeats_a_term),
            Property::sometimes("another candidate takes over", |_, world: &World| {
                world.faults == 0
                    && world.lease.as_ref().is_some_and(|lease| lease.term > 1)
                    && world.places.iter().any(|place| place.candidacy.term(at(world.second)).is_some())
            }),
        ]
    }
}

fn search(broken: Option<Mutation>) -> (usize, Vec<&'static str>) {
    let checker = Election(broken)
        .checker()
        .threads(2)
        .finish_when(if broken.is_some() { HasDiscoveries::AnyFailures } else { HasDiscoveries::All })
        .spawn_bfs()
        .join();
    let failed = checker.discoveries().into_keys().filter(|name| *name != "another candidate takes over").collect();
    (checker.unique_state_count(), failed)
}

#[test]
fn one_candidate_acts_in_every_order_of_events() {
    let checker = Election(None).checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 100_000);
}

#[rstest]
fn the_search_finds_each_broken_rule(
    #[values(
        Mutation::TakeOverAtOnce,
        Mutation::ActWithoutRenewal,
        Mutation::CountFromAnswer,
        Mutation::ForgetDeleted
    )]
    broken: Mutation,
) {
    let (states, failed) = search(Some(broken));
    println!("{broken:?}: {states} states");
    assert!(failed.contains(&"one candidate acts"), "{broken:?}");
}

#[rstest]
#[case::longer_than_the_deadline([10, 10, 2], "the duration of the lease (10 s) must be longer than the renew deadline (10 s)")]
#[case::two_attempts([15, 3, 2], "the renew deadline (3 s) must be at least twice the retry period (2 s)")]
#[case::no_pause([15, 10, 0], "the retry period must not be 0")]
fn times_are_checked(#[case] seconds: [u64; 3], #[case] error: &str) {
    let [duration, renew_deadline, retry_period] = seconds.map(Duration::from_secs);
    assert_eq!(Timing { duration, renew_deadline, retry_period }.check(), Err(error.to_owned()));
    assert_eq!(Timing::default().check(), Ok(()));
}

fn lease(version: &str, holder: &str, term: i32) -> Stored {
    let holder = (!holder.is_empty()).then(|| holder.to_owned());
    Stored { version: version.to_owned(), holder, term, duration: TIMING.duration }
}

#[test]
fn a_released_lease_is_taken_at_once_under_the_next_term() {
    let mut candidacy = Candidacy::new("a".to_owned(), TIMING);
    assert_eq!(candidacy.read(Some(&lease("7", "b", 4)), at(0)), Request::Wait);
    let write = Write { replaces: Some("8".to_owned()), holder: Some("a".to_owned()), term: 5 };
    assert_eq!(candidacy.read(Some(&lease("8", "", 4)), at(1)), Request::Write(write.clone()));
    candidacy.wrote(&write, "9".to_owned(), at(1), at(1));
    assert_eq!(candidacy.term(at(2)), Some((5, at(3))));
    let release = Write { replaces: Some("9".to_owned()), holder: None, term: 5 };
    assert_eq!((candidacy.release(), candidacy.term(at(2))), (Some(release), None));
}

#[test]
fn a_term_rises_above_one_that_an_object_shows() {
    let mut candidacy = Candidacy::new("a".to_owned(), TIMING);
    let Request::Write(first) = candidacy.read(None, at(0)) else { panic!("the Lease is free") };
    candidacy.wrote(&first, "1".to_owned(), at(0), at(0));
    candidacy.rise_above(7);
    let renewal = Write { replaces: Some("1".to_owned()), holder: Some("a".to_owned()), term: 8 };
    assert_eq!(candidacy.begin(at(1)), Request::Write(renewal.clone()));
    candidacy.wrote(&renewal, "2".to_owned(), at(1), at(1));
    assert_eq!(candidacy.term(at(1)), Some((8, at(3))));
}

#[rstest]
#[case::highest_number(i32::MAX, 0, 1)]
#[case::beyond_the_bound(i32::MAX / 2 + 1, 0, 1)]
#[case::negative(-7, 0, 1)]
#[case::lowest_number(i32::MIN, 0, 1)]
#[case::an_object_shows_a_term(i32::MAX, 12, 13)]
fn a_number_that_no_leader_wrote_is_no_term(#[case] shown: i32, #[case] above: i32, #[case] next: i32) {
    let mut candidacy = Candidacy::new("a".to_owned(), TIMING);
    candidacy.rise_above(above);
    let write = Write { replaces: Some("8".to_owned()), holder: Some("a".to_owned()), term: next };
    assert_eq!(candidacy.read(Some(&lease("8", "", shown)), at(0)), Request::Write(write));
}

#[test]
fn a_holder_writes_its_own_term_over_a_changed_one() {
    let mut candidacy = Candidacy::new("a".to_owned(), TIMING);
    let Request::Write(first) = candidacy.read(None, at(0)) else { panic!("the Lease is free") };
    candidacy.wrote(&first, "1".to_owned(), at(0), at(0));
    candidacy.failed();
    let renewal = Write { replaces: Some("2".to_owned()), holder: Some("a".to_owned()), term: 1 };
    assert_eq!(candidacy.read(Some(&lease("2", "a", i32::MAX)), at(1)), Request::Write(renewal));
}

#[test]
fn a_version_that_does_not_change_renews_nothing() {
    let mut candidacy = Candidacy::new("a".to_owned(), TIMING);
    let Request::Write(first) = candidacy.read(None, at(0)) else { panic!("the Lease is free") };
    candidacy.wrote(&first, "1".to_owned(), at(0), at(0));
    let Request::Write(renewal) = candidacy.begin(at(1)) else { panic!("it renews") };
    candidacy.wrote(&renewal, "1".to_owned(), at(1), at(1));
    assert_eq!(candidacy.term(at(2)), None);
}

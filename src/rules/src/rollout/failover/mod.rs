//! Where the voters of each cluster are: at home, or at a spare.
//!
//! A move puts the name of a spare in the place of a selected cluster, its home, and a move back puts the home's name there again.
//! Everything else is an ordinary change of the placement: schedule, record, server list. So there is no state but the pairs of
//! [`ClusterSelection::moved`]. A move is decided by the annotation [`FAILOVER`], or by the times that `spec.failover` declares.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use crate::rollout::{cluster_selection::ClusterSelection, known::Known};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::FAILOVER,
    },
    mutation::broken,
    zookeeper::{EnsemblePhase, Role},
};

mod lost;
mod pairs;
mod request;
mod spare;

use lost::Loss;

/// Seconds between a settled schedule and the server list of a move that no user asked for. A control plane that was frozen has
/// woken by then, and shows whether the voters follow.
const SECOND_LOOK: i64 = 60;

/// Where the voters of each cluster shall be, and what stands against it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FailoverDecision {
    /// The spare of each home whose voters shall not be there.
    pub(super) moved: BTreeMap<String, String>,
    /// The cluster that has the listed voters of each home.
    pub(super) seats: BTreeMap<String, String>,
    /// As in [`ClusterSelection::outdated_request`].
    pub(super) outdated_request: Option<String>,
    /// When each home got its place that is at a spare, or that the server list does not name yet.
    pub(super) moved_since: BTreeMap<String, Timestamp>,
    /// Since when Karmada has not reached each home, and none of its voters has followed.
    pub(super) lost_since: BTreeMap<String, Timestamp>,
    /// Since when each home is Ready whose voters are at a spare.
    pub(super) ready_since: BTreeMap<String, Timestamp>,
    /// Why the annotation is not followed.
    pub(super) refused: Option<String>,
    /// What stands against moves that are due.
    pub(super) waits: Vec<String>,
    /// When the voters of lost clusters move.
    pub(super) lost: Vec<String>,
    /// Why each spare that holds no voters could hold none now.
    pub(super) spares: BTreeMap<String, Option<String>>,
    /// The homes that the annotation names.
    pub(super) requested: BTreeSet<String>,
    /// Seconds until a time that is running ends.
    pub(super) due_in: Option<i64>,
}

impl FailoverDecision {
    /// Time until one that is running ends.
    pub(super) fn requeue_after(&self) -> Option<Duration> {
        self.due_in.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
    }

    fn requeue_in(&mut self, seconds: i64) {
        self.due_in = self.due_in.into_iter().chain([seconds]).min();
    }
}

/// Decides where the voters shall be. `may_change` is true if the selection may change now. At most one home gets another place.
pub(super) fn decide(known: &Known<'_>, may_change: bool) -> FailoverDecision {
    let mut failover = FailoverDecision {
        moved: pairs::current(known),
        outdated_request: request::outdated(known),
        ..FailoverDecision::default()
    };
    let Some(selection) = known.selection.as_ref().filter(|_| !known.incarnation.is_next) else {
        failover.seats = failover.moved.clone();
        return failover;
    };
    let seats = Seats { known, selection, moved: failover.moved.clone() };
    failover.seats = seats.homes().into_iter().map(|home| (home.clone(), seats.seat(&home).to_owned())).collect();
    failover.spares = spare::unused(&seats);
    let mut requested = match request::read(known, &seats.homes()) {
        Ok(requested) => requested,
        Err(why) => {
            // The annotation may name a home that no rule may move.
            failover.refused = Some(format!("Nothing moves: {why}"));
            return failover;
        }
    };
    failover.refused = request::refusal(known, failover.outdated_request.as_ref());
    if failover.refused.is_some() {
        requested = requested.into_keys().map(|home| (home.clone(), seats.place(&home).to_owned())).collect();
    }
    failover.requested = requested.keys().cloned().collect();
    failover.moved_since = seats.moved_since();
    let mut decided = false;
    for home in seats.homes() {
        let wanted = match requested.get(&home) {
            Some(place) if !broken!(IgnoreRequest) => Some(place.clone()),
            _ => lost::wanted(&seats, &home, &mut failover),
        };
        let Some(to) = wanted.filter(|to| to != seats.place(&home)) else { continue };
        match seats.obstacle(&home, &to, may_change) {
            _ if decided && !broken!(MoveTwo) => {
                failover.waits.push(format!("{home} to {to}: another cluster is first"));
            }
            Some(why) => failover.waits.push(format!("{home} to {to}: {why}")),
            None => {
                decided = true;
                failover.moved_since.insert(home.clone(), known.now);
                failover.moved.remove(&home);
                if to != home {
                    failover.moved.insert(home, to);
                }
            }
        }
    }
    failover
}

/// Why the server list does not name a place yet: no user asked for the move, and the last look at the voters is to come.
///
/// Takes the failover of this pass, and whether its schedule is settled.
pub(super) fn second_look(known: &Known<'_>, failover: &mut FailoverDecision, is_settled: bool) -> Option<Cause> {
    let selection = known.selection.as_ref().filter(|_| is_settled && !broken!(MoveBlind))?;
    let seats = Seats { known, selection, moved: failover.moved.clone() };
    let unasked = |home: &&String| !failover.requested.contains(*home) && seats.moves(home);
    let homes = seats.homes();
    let home = homes.iter().find(unasked)?;
    let (seat, place) = (seats.seat(home), seats.place(home));
    let leaves_a_loss = Loss::of(&seats, home).is_some() || lost::is_stuck(&seats, seat);
    // A spare that serves gives its voters back by the declared time alone, which has been awaited.
    if place == home && !leaves_a_loss {
        return None;
    }
    let settled = find(&known.status.conditions, ConditionType::Scheduled, ConditionStatus::True);
    let since = settled.map(|settled| known.now.as_second() - settled.last_transition_time.0.as_second());
    let left = SECOND_LOOK - since.unwrap_or(0).max(0);
    let is_paused = known.rollout.paused == Some(true);
    if left <= 0 && leaves_a_loss && !is_paused {
        return None;
    }
    failover.requeue_in(left.max(1));
    let message = if is_paused {
        format!(
            "The voters of {home} move to {place} once rollout.paused is removed, unless one of them follows until then"
        )
    } else {
        format!(
            "The voters of {home} move to {place} at {}, unless one of them follows until then",
            due_at(known, left)
        )
    };
    Some(Cause::new(Reason::SecondLook, message))
}

/// A moment, for a message: a number of seconds would be another one in each pass.
fn due_at(known: &Known<'_>, seconds: i64) -> Timestamp {
    Timestamp::from_second(known.now.as_second() + seconds.max(0)).unwrap_or(known.now)
}

/// The places of the voters, as selected and as listed.
struct Seats<'a> {
    known: &'a Known<'a>,
    selection: &'a ClusterSelection,
    moved: BTreeMap<String, String>,
}

impl Seats<'_> {
    fn homes(&self) -> Vec<String> {
        self.selection.homes()
    }

    /// The cluster in which the voters of a home shall be.
    fn place<'h>(&'h self, home: &'h str) -> &'h str {
        self.moved.get(home).map_or(home, String::as_str)
    }

    /// Ids of the listed voters of a cluster.
    fn voters(&self, cluster: &str) -> BTreeSet<i32> {
        let listed = self.known.list_or_reported().servers.iter();
        listed.filter(|s| s.cluster == cluster && s.role == Role::Voter).map(|server| server.id).collect()
    }

    /// True if a cluster gets no voters by the selection.
    fn holds_none(&self, place: &str) -> bool {
        let voters = self.selection.voters();
        voters.is_some_and(|voters| voters.get(place).copied().unwrap_or(0) == 0)
    }

    /// The cluster that has the listed voters of a home: its place once the server list names it, before that the home, or a spare
    /// that is the place of no home any more.
    fn seat<'h>(&'h self, home: &'h str) -> &'h str {
        let place = self.place(home);
        let homes = self.selection.homes();
        // A changed placement selects other homes: their voters leave no spare.
        let is_on_its_way = self.moved.contains_key(home) || self.recorded_since(home).is_some();
        let is_left = |cluster: &&str| {
            is_on_its_way
                && !self.holds_none(place)
                && !homes.iter().any(|home| home == cluster)
                && !self.moved.values().any(|place| place == cluster)
        };
        let left = self.known.list_or_reported().servers.iter().map(|server| server.cluster.as_str()).filter(is_left);
        let mut all = [place, home].into_iter().chain(left);
        all.find(|cluster| !self.voters(cluster).is_empty()).unwrap_or(home)
    }

    /// When a home got its place, by the status: absent if it is at home.
    fn recorded_since(&self, home: &str) -> Option<Timestamp> {
        let recorded = self.known.status.clusters.iter().find(|cluster| cluster.name == home)?;
        recorded.moved_since.as_ref().map(|since| since.0)
    }

    /// When each home got its place, as far as that is not at home already.
    fn moved_since(&self) -> BTreeMap<String, Timestamp> {
        let away = |home: &String| self.moves(home) || self.place(home) != home;
        let since = |home: String| {
            let since = self.recorded_since(&home).unwrap_or(self.known.now).min(self.known.now);
            (home, since)
        };
        self.homes().into_iter().filter(away).map(since).collect()
    }

    /// True if the server list is to name the place of a home, and does not yet.
    fn moves(&self, home: &str) -> bool {
        let seat = self.seat(home);
        seat != self.place(home) && !self.voters(seat).is_empty()
    }

    /// What stands against a move of a home's voters to a place.
    fn obstacle(&self, home: &str, to: &str, may_change: bool) -> Option<String> {
        let known = self.known;
        let list = known.newest_list();
        // A move that has not begun is called off: nothing moves.
        let is_call_off = to == self.seat(home);
        let is_paused = known.rollout.paused == Some(true) && !is_call_off && !broken!(IgnorePause);
        let says = |text: &str| Some(text.to_owned());
        if known.takes_over_list() || list.servers.is_empty() {
            return says("the operator takes the server list over first");
        }
        if !known.incarnation.formed || list.phase != EnsemblePhase::Running {
            return says("the ensemble has not formed yet");
        }
        // One that reports a configuration proves a quorum, even if not all of its voters are visible.
        if known.quorum.voters.is_empty() {
            return says("no cluster reports a quorum that serves. Bring servers back until a majority serves");
        }
        if is_paused {
            return says("rollout.paused is set");
        }
        if !may_change {
            return says("a record is being rolled out");
        }
        let others = self.selection.homes().into_iter();
        if let Some(other) = others.filter(|other| other != home && !broken!(MoveTwo)).find(|other| self.moves(other)) {
            return Some(format!("the server list does not name the voters of {other} in {} yet", self.place(&other)));
        }
        if let Some((other, _)) = self.moved.iter().find(|(other, place)| *other != home && *place == to) {
            return Some(format!("{to} is for the voters of {other}"));
        }
        (!is_call_off).then(|| spare::unusable(self, to)).flatten()
    }
}

/// What the annotation asks for, for a message.
fn annotation() -> String {
    format!("the annotation {FAILOVER}")
}

//! Where the voters of each cluster are: at home, or at a spare.
//!
//! A move puts the name of a spare in the place of a selected cluster, its home, and a move back puts the home's name there again.
//! Everything else is an ordinary change of the placement: schedule, record, server list. So there is no state but the pairs of
//! `ClusterSelection::moved`. A move is decided by the annotation `mczk.io/failover`, or by the times that `spec.failover` declares.

use crate::rollout::known::Known;
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
    },
    mutation::broken,
    zookeeper::EnsemblePhase,
};

pub(super) mod decision;
mod lost;
mod pairs;
mod request;
mod seats;
mod spare;

use decision::FailoverDecision;
use lost::Loss;
use seats::{SECOND_LOOK, Seats, due_at};

/// Seconds after which a move that waits is decided again. No event may say that the obstacle is gone, such as the end of a Work in a
/// cluster that has left.
const WAITING_PACE: i64 = 20;

/// Decides where the voters shall be. `may_change` is true if the selection may change now. At most one home gets another place.
pub(super) fn decide(known: &Known<'_>, may_change: bool) -> FailoverDecision {
    let mut failover = FailoverDecision::default();
    failover.moved = pairs::current(known);
    failover.outdated_request = request::outdated(known);
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
        match obstacle(&seats, &home, &to, may_change) {
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
    if !failover.waits.is_empty() {
        failover.requeue_in(WAITING_PACE);
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

/// What stands against a move of a home's voters to a place.
fn obstacle(seats: &Seats<'_>, home: &str, to: &str, may_change: bool) -> Option<String> {
    let known = seats.known;
    let list = known.newest_list();
    // A move that has not begun is called off: nothing moves.
    let is_call_off = to == seats.seat(home);
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
    let others = seats.selection.homes().into_iter();
    if let Some(other) = others.filter(|other| other != home && !broken!(MoveTwo)).find(|other| seats.moves(other)) {
        return Some(format!("the server list does not name the voters of {other} in {} yet", seats.place(&other)));
    }
    if let Some((other, _)) = seats.moved.iter().find(|(other, place)| *other != home && *place == to) {
        return Some(format!("{to} is for the voters of {other}"));
    }
    (!is_call_off).then(|| spare::unusable(seats, to)).flatten()
}

//! Moves that no user asks for: away from a lost cluster, and home again.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::{
    decision::FailoverDecision,
    seats::{SECOND_LOOK, Seats, due_at},
    spare,
};
use crate::rollout::stuck;
use mczk_api::{karmada::cluster::Cluster, multiclusterzookeeper::Failover, mutation::broken};

/// The loss of the cluster that has the voters of a home.
pub(super) struct Loss {
    /// Since when it may have lasted, as far as Karmada says.
    earliest: Option<Timestamp>,
}

impl Loss {
    /// The loss, if both signals show it: Karmada does not reach the cluster, and by a fresh report of the leader's cluster none of
    /// its listed voters follows.
    pub(super) fn of(seats: &Seats<'_>, home: &str) -> Option<Self> {
        let known = seats.known;
        let seat = seats.seat(home);
        let voters = seats.voters(seat);
        let cluster = known.clusters.iter().find(|cluster| cluster.name() == seat);
        if voters.is_empty() || cluster.is_some_and(Cluster::ready) {
            return None;
        }
        let is_missing = broken!(MoveOnNotReady) || missing(seats)?.is_superset(&voters);
        let earliest = cluster.filter(|cluster| !cluster.has_no_ready_node()).and_then(Cluster::ready_changed);
        is_missing.then(|| Self { earliest: earliest.map(|time| time.0) })
    }
}

/// The listed voters that do not follow, or have no vote, by a fresh report of the leader's cluster. `None` without one.
fn missing(seats: &Seats<'_>) -> Option<BTreeSet<i32>> {
    let known = seats.known;
    let leader = known.quorum.leader?;
    let server = known.newest_list().servers.iter().find(|server| server.id == leader)?;
    let status = known.reports.get(&server.cluster)?.fresh_status()?;
    let listed = known.newest_list().servers.iter().map(|server| server.id);
    let follows = |id: &i32| known.quorum.serving.contains(id);
    let is_missing = |id: &i32| status.missing_voters.contains(id) || !status.voting_members.contains(id);
    Some(listed.filter(|id| is_missing(id) && !follows(id)).collect())
}

/// The place that the declared times give to the voters of a home now. Records since when it is lost, and what is awaited.
pub(super) fn wanted(seats: &Seats<'_>, home: &str, failover: &mut FailoverDecision) -> Option<String> {
    let known = seats.known;
    let recorded =
        seats.recorded(home).and_then(|cluster| cluster.lost_since.as_ref()).map(|since| since.0.min(known.now));
    let Some(loss) = Loss::of(seats, home) else {
        failover.lost_since.extend(recorded.filter(|_| broken!(KeepLoss)).map(|since| (home.to_owned(), since)));
        return without_loss(seats, home, failover);
    };
    let since = recorded.unwrap_or(known.now).max(loss.earliest.unwrap_or(Timestamp::MIN)).min(known.now);
    failover.lost_since.insert(home.to_owned(), since);
    let (seat, place) = (seats.seat(home), seats.place(home));
    let Some(least) = declared(seats, |failover| failover.move_after_seconds) else {
        failover.lost.push(format!("{seat} (its voters move by command alone)"));
        return (place != seat).then(|| seat.to_owned());
    };
    let left = least - (known.now.as_second() - since.as_second());
    if left > 0 {
        failover.requeue_in(left);
        failover.lost.push(format!("{seat} (its voters move at {})", due_at(known, left)));
        return None;
    }
    // A place that the server list does not name yet stays, as long as it can take the voters.
    if place != seat && spare::unusable(seats, place).is_none() && !is_refused(seats, home, failover) {
        return None;
    }
    next_place(seats, home, failover)
}

/// True if the server list has not named the place of a home for so long that Karmada, or the check of names and ports, refuses it.
fn is_refused(seats: &Seats<'_>, home: &str, failover: &FailoverDecision) -> bool {
    let since = failover.moved_since.get(home).map(|since| seats.known.now.as_second() - since.as_second());
    since.is_some_and(|since| since > SECOND_LOOK + stuck::deadline(&seats.known.rollout))
}

/// The first place that can take the voters of a lost cluster: the home, if they are at a spare, then the spares in order.
fn next_place(seats: &Seats<'_>, home: &str, failover: &mut FailoverDecision) -> Option<String> {
    let next = first_usable(seats, home, seats.known.spares().iter());
    if next.is_none() {
        let causes = failover.spares.values().flatten();
        let causes: Vec<String> = causes.map(|cause| format!(". {}", cause.message)).collect();
        failover.waits.push(format!("{home}: no spare can take its voters{}", causes.concat()));
    }
    next
}

/// The first other place that is free and can take the voters of a home: the home, if they are at a spare, then these spares.
fn first_usable<'a>(seats: &Seats<'_>, home: &'a str, spares: impl Iterator<Item = &'a String>) -> Option<String> {
    let place = seats.place(home);
    let away = (place != home).then_some(home);
    let mut all =
        away.into_iter().chain(spares.map(String::as_str)).filter(|to| *to != place && *to != seats.seat(home));
    let is_free = |to: &str| !seats.moved.values().any(|used| used == to);
    let is_fit = |to: &str| spare::unusable(seats, to).is_none() && !spare::is_unfit(seats, to);
    all.find(|to| is_free(to) && is_fit(to)).map(ToOwned::to_owned)
}

/// A home whose voters are not lost: they stay, are called back from a move that has not begun, leave a spare that cannot take
/// them, or go home.
fn without_loss(seats: &Seats<'_>, home: &str, failover: &mut FailoverDecision) -> Option<String> {
    let (place, seat) = (seats.place(home), seats.seat(home));
    name_unknown(seats, seat, failover);
    if place != seat {
        let voters = seats.voters(seat);
        let of_leader = || missing(seats).is_some_and(|missing| !missing.is_superset(&voters));
        let follows = !voters.is_disjoint(&seats.known.quorum.serving) || of_leader();
        let stays = follows || seats.known.is_ready(seat) && !is_stuck(seats, seat);
        let returns = place == home && is_due_home(seats, home, failover);
        return (stays && !returns).then(|| seat.to_owned());
    }
    if place == home {
        return None;
    }
    if is_stuck(seats, place) && declared(seats, |failover| failover.move_after_seconds).is_some() {
        let later = seats.known.spares().iter().skip_while(|spare| *spare != place).skip(1);
        let next = first_usable(seats, home, later);
        if next.is_none() {
            failover
                .waits
                .push(format!("{home}: its voters in {place} do not start, and no later spare can take them"));
        }
        return next;
    }
    back_home(seats, home, failover)
}

/// Says that a declared move cannot be judged: Karmada does not reach the cluster, and no fresh report says who follows.
fn name_unknown(seats: &Seats<'_>, seat: &str, failover: &mut FailoverDecision) {
    let is_declared = declared(seats, |failover| failover.move_after_seconds).is_some();
    let has_voters = !seats.voters(seat).is_empty();
    if is_declared && has_voters && !seats.known.is_ready(seat) && missing(seats).is_none() {
        failover.lost.push(format!("{seat} (no fresh report of the leader's cluster says whether its voters follow)"));
    }
}

/// True if none of the spare's voters has a vote, and the record cannot go on because of the spare.
pub(super) fn is_stuck(seats: &Seats<'_>, spare: &str) -> bool {
    let known = seats.known;
    let votes = seats.voters(spare).intersection(&known.quorum.voters).next().is_some();
    !votes && !known.quorum.voters.is_empty() && known.stuck.as_ref().is_some_and(|stuck| stuck.cluster == spare)
}

/// The home, once it has been Ready for the declared time, and every listed voter serves.
fn back_home(seats: &Seats<'_>, home: &str, failover: &mut FailoverDecision) -> Option<String> {
    let serve = |home: &String| seats.voters(seats.seat(home)).is_subset(&seats.known.quorum.serving);
    (is_due_home(seats, home, failover) && seats.homes().iter().all(serve)).then(|| home.to_owned())
}

/// True if a home has been Ready for the declared time. Records since when it is Ready.
fn is_due_home(seats: &Seats<'_>, home: &str, failover: &mut FailoverDecision) -> bool {
    let known = seats.known;
    let cluster = known.clusters.iter().find(|cluster| cluster.name() == home).filter(|cluster| cluster.ready());
    let Some(changed) = cluster.and_then(Cluster::ready_changed) else { return false };
    let recorded =
        seats.recorded(home).and_then(|cluster| cluster.ready_since.as_ref()).map_or(known.now, |since| since.0);
    // Karmada may have reached a cluster all the time that had no Ready node.
    let since = recorded.max(changed.0).min(known.now);
    failover.ready_since.insert(home.to_owned(), since);
    let Some(least) = declared(seats, |failover| failover.move_back_after_seconds) else { return false };
    let left = least - (known.now.as_second() - since.as_second());
    if left > 0 {
        failover.requeue_in(left);
    }
    left <= 0 && !broken!(MoveForEver)
}

fn declared(seats: &Seats<'_>, field: impl Fn(&Failover) -> Option<i32>) -> Option<i64> {
    seats.known.object.spec.failover.as_ref().and_then(field).map(i64::from)
}

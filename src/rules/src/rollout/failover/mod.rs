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
    /// As in [`ClusterSelection::outdated_request`].
    pub(super) outdated_request: Option<String>,
    /// Since when Karmada has not reached each home, and none of its voters has followed.
    pub(super) lost_since: BTreeMap<String, Timestamp>,
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
    let Some(selection) = known.selection.as_ref().filter(|_| !known.incarnation.is_next) else { return failover };
    let seats = Seats { known, selection, moved: failover.moved.clone() };
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
                failover.moved.remove(&home);
                if to != home {
                    failover.moved.insert(home, to);
                }
            }
        }
    }
    failover
}

/// Why the server list does not name a spare yet: nobody asked for the move, and the last look at the voters is to come.
///
/// Takes the failover of this pass, and whether its schedule is settled.
pub(super) fn second_look(known: &Known<'_>, failover: &mut FailoverDecision, is_settled: bool) -> Option<Cause> {
    let selection = known.selection.as_ref().filter(|_| is_settled && !broken!(MoveBlind))?;
    let seats = Seats { known, selection, moved: failover.moved.clone() };
    let unasked = |home: &&String| !failover.requested.contains(*home) && seats.seat(home) != seats.place(home);
    let home = failover.moved.keys().find(unasked)?.clone();
    let spare = seats.place(&home);
    let settled = find(&known.status.conditions, ConditionType::Scheduled, ConditionStatus::True);
    let since = settled.map(|settled| known.now.as_second() - settled.last_transition_time.0.as_second());
    let left = SECOND_LOOK - since.unwrap_or(0).max(0);
    if left <= 0 && Loss::of(&seats, &home).is_some() {
        return None;
    }
    failover.requeue_in(left.max(1));
    let message = format!(
        "The voters of {home} move to {spare} in {} s, unless one of them follows until then. None has followed for failover.moveAfterSeconds",
        left.max(0)
    );
    Some(Cause::new(Reason::SecondLook, message))
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
        let listed = self.known.newest_list().servers.iter();
        listed.filter(|s| s.cluster == cluster && s.role == Role::Voter).map(|server| server.id).collect()
    }

    /// The cluster that has the listed voters of a home: its place once the server list names it, before that the home, or a spare
    /// that is nobody's place any more.
    fn seat<'h>(&'h self, home: &'h str) -> &'h str {
        let place = self.place(home);
        let homes = self.selection.homes();
        let is_left =
            |cluster: &&str| !homes.iter().any(|home| home == cluster) && !self.moved.values().any(|p| p == cluster);
        let left = self.known.newest_list().servers.iter().map(|server| server.cluster.as_str()).filter(is_left);
        let mut all = [place, home].into_iter().chain(left);
        all.find(|cluster| !self.voters(cluster).is_empty()).unwrap_or(home)
    }

    /// True if the server list is to name the place of a home, and does not yet.
    fn moves(&self, home: &str) -> bool {
        let has_voters = |cluster: &str| !self.voters(cluster).is_empty();
        let place = self.place(home);
        let servers = self.known.newest_list().servers.iter();
        let mut listed = servers.filter(|server| server.role == Role::Voter);
        let holds_none = self.selection.voters().map_or_else(
            || listed.all(|server| self.selection.clusters().contains(&server.cluster)),
            |voters| !voters.contains_key(place),
        );
        !has_voters(place) && !holds_none
    }

    /// What stands against a move of a home's voters to a place.
    fn obstacle(&self, home: &str, to: &str, may_change: bool) -> Option<String> {
        let known = self.known;
        let list = known.newest_list();
        let is_paused = known.rollout.paused == Some(true) && !broken!(IgnorePause);
        let says = |text: &str| Some(text.to_owned());
        if known.takes_over_list() || list.servers.is_empty() {
            return says("the operator takes the server list over first");
        }
        if !known.incarnation.formed || list.phase != EnsemblePhase::Running {
            return says("the ensemble has not formed yet");
        }
        if !known.quorum.holds() {
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
        // A move that has not begun is called off.
        (to != self.seat(home)).then(|| spare::unusable(self, to)).flatten()
    }
}

/// What the annotation asks for, for a message.
fn annotation() -> String {
    format!("the annotation {FAILOVER}")
}

//! The places of the voters, as selected and as listed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use crate::rollout::{cluster_selection::ClusterSelection, known::Known};
use mczk_api::{multiclusterzookeeper::ClusterStatus, zookeeper::Role};

/// Seconds between a settled schedule and the server list of a move that no user asked for. A control plane that was frozen has
/// woken by then, and shows whether the voters follow.
pub(super) const SECOND_LOOK: i64 = 60;

/// A moment, for a message: a number of seconds would be another one in each pass.
pub(super) fn due_at(known: &Known<'_>, seconds: i64) -> Timestamp {
    Timestamp::from_second(known.now.as_second() + seconds.max(0)).unwrap_or(known.now)
}

/// The places of the voters, as selected and as listed.
pub(super) struct Seats<'a> {
    pub(super) known: &'a Known<'a>,
    pub(super) selection: &'a ClusterSelection,
    pub(super) moved: BTreeMap<String, String>,
}

impl Seats<'_> {
    pub(super) fn homes(&self) -> Vec<String> {
        self.selection.homes()
    }

    /// The cluster in which the voters of a home shall be.
    pub(super) fn place<'h>(&'h self, home: &'h str) -> &'h str {
        self.moved.get(home).map_or(home, String::as_str)
    }

    /// Ids of the listed voters of a cluster.
    pub(super) fn voters(&self, cluster: &str) -> BTreeSet<i32> {
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
    pub(super) fn seat<'h>(&'h self, home: &'h str) -> &'h str {
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

    /// What the last status says of a cluster.
    pub(super) fn recorded(&self, cluster: &str) -> Option<&ClusterStatus> {
        self.known.status.clusters.iter().find(|recorded| recorded.name == cluster)
    }

    /// When a home got its place, by the status: absent if it is at home.
    fn recorded_since(&self, home: &str) -> Option<Timestamp> {
        self.recorded(home)?.moved_since.as_ref().map(|since| since.0)
    }

    /// When each home got its place, as far as that is not at home already.
    pub(super) fn moved_since(&self) -> BTreeMap<String, Timestamp> {
        let away = |home: &String| self.moves(home) || self.place(home) != home;
        let since = |home: String| {
            let since = self.recorded_since(&home).unwrap_or(self.known.now).min(self.known.now);
            (home, since)
        };
        self.homes().into_iter().filter(away).map(since).collect()
    }

    /// True if the server list is to name the place of a home, and does not yet.
    pub(super) fn moves(&self, home: &str) -> bool {
        let seat = self.seat(home);
        seat != self.place(home) && !self.voters(seat).is_empty()
    }
}

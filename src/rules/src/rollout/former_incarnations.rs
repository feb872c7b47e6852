//! S14: incarnations that lived under the ensemble's name before its object.
//!
//! If a user creates the objects of a lost control plane again, they have other uids, and so another incarnation. If its servers
//! started, applications would find an empty tree under the same name. So the first server waits until each selected cluster
//! has reported that no other incarnation lives there, or the user has said what becomes of it: the ensemble continues it
//! ([`ADOPT`]), or it is over ([`DECLARE_OVER`]). An agent reports only where it has the object, so clusters without voters get
//! it too at first: the survey.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{
    known::Known,
    reported_list::{lists_ending, reported_lists},
    steps::StepReport,
};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::{ABANDON_CLUSTERS, ADOPT, DECLARE_OVER},
    },
    mutation::broken,
    zookeeper::{Ensemble, Server, ZooKeeperStatus},
};

/// Most clusters and servers that a message names.
const MAX_NAMED: usize = 5;

impl Known<'_> {
    /// Why an annotation about former incarnations cannot be followed. An ensemble that has a server list goes on.
    pub(in crate::rollout) fn unclear_declaration(&self) -> Option<Cause> {
        let own = &self.incarnation.id;
        let adopted = self.former_incarnations.adopted.filter(|adopted| adopted != own);
        let message = if let Some(malformed) = &self.former_incarnations.malformed {
            malformed.clone()
        } else if let Some(adopted) = adopted {
            format!(
                "{ADOPT} names incarnation {adopted}, but this ensemble has a server list of incarnation {own}, or {adopted} is \
                 over: remove the annotation"
            )
        } else if self.former_incarnations.over.contains(own.as_str()) {
            format!(
                "{DECLARE_OVER} names {own}, the incarnation of this ensemble: remove it there. To end the ensemble, delete \
                 the MultiClusterZooKeeper"
            )
        } else {
            return None;
        };
        Some(Cause { reason: Reason::FormerIncarnationUnclear, message })
    }

    /// Whether every selected cluster has reported which incarnations live there, before this one gets its first servers.
    pub(in crate::rollout) fn survey(&self, selected: &[String]) -> StepReport {
        if !self.is_without_list() || self.is_adopting() {
            return StepReport::Done;
        }
        self.other_incarnations(selected.iter().map(String::as_str))
    }

    /// True if nothing knows a server list of the incarnation: no server of it has started.
    pub(in crate::rollout) fn is_without_list(&self) -> bool {
        let has_list = !self.newest_list().servers.is_empty() || self.reported_list.is_some();
        !has_list && !self.incarnation.formed
    }

    /// Whether another incarnation of the ensemble's name may live in these clusters (S14).
    pub(in crate::rollout) fn other_incarnations<'c>(&self, clusters: impl IntoIterator<Item = &'c str>) -> StepReport {
        match self.unclear_declaration().or_else(|| self.other_lives()) {
            Some(cause) => StepReport::Needs(cause),
            None => StepReport::waits(self.unknown_lives(clusters)),
        }
    }

    /// Why no first server starts, and why the ensemble continues no former incarnation: another one lives. A stale report
    /// counts too.
    fn other_lives(&self) -> Option<Cause> {
        let mut lives: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (cluster, report) in &self.reports {
            for (id, servers, volumes) in report.status.iter().flat_map(others) {
                let is_over = self.tombstones.contains(id) || id == self.incarnation.id;
                if !is_over {
                    lives.entry(id).or_default().push(format!("{cluster} ({servers} servers, {volumes} volumes)"));
                }
            }
        }
        let (id, clusters) = lives.into_iter().next().filter(|_| !broken!(BeginBesideOther))?;
        let (name, named) = (&self.name, named(&clusters));
        Some(Cause {
            reason: Reason::IncarnationLives,
            message: format!(
                "Incarnation {id} of this name lives in cluster {named}. Servers of another one would show an empty tree to its \
                 clients, so none starts. To continue it with its data, run `mczk adopt {name} {id}`. If its data has no use \
                 any more, run `mczk declare-over {name} {id}`: its servers stop, and no volume is deleted"
            ),
        })
    }

    /// Why no first server starts: these clusters have not reported which incarnations live there.
    fn unknown_lives<'c>(&self, clusters: impl IntoIterator<Item = &'c str>) -> Option<Cause> {
        let knows = |name: &str| {
            let fresh = self.reports.get(name).filter(|report| report.fresh());
            fresh.and_then(|report| report.status.as_ref()).is_some_and(|status| status.other_incarnations.is_some())
        };
        let asked = clusters.into_iter().filter(|name| !self.abandoned.contains(name));
        let unknown: Vec<String> = asked.filter(|name| !knows(name)).map(str::to_owned).collect();
        (!unknown.is_empty() && !broken!(BeginBesideOther)).then(|| Cause {
            reason: Reason::ClusterNotReported,
            message: format!(
                "Waiting until the agents of these clusters report whether another incarnation of this name lives there: {}. No \
                 server starts before. If it lasts, run `mczk register` and upgrade their agents (mczk agent)",
                named(&unknown)
            ),
        })
    }

    /// True if the operator takes over the newest server list that agents report: it continues a former incarnation, or the
    /// control plane was restored from an older copy.
    pub(in crate::rollout) fn takes_over_list(&self) -> bool {
        self.is_adopting() || self.is_restored()
    }

    /// The clusters that must report before the operator takes a reported server list over: those that any reported one of
    /// the incarnation names. A leaving voter counts while ZooKeeper's configuration has it.
    pub(in crate::rollout) fn clusters_of_continued(&self) -> BTreeSet<String> {
        let voting: BTreeSet<i32> = self.reported_voters().collect();
        let lists = || reported_lists(&self.incarnation.id, &self.reports).filter(|_| self.takes_over_list());
        let votes = |server: &&Server| voting.is_empty() || voting.contains(&server.id);
        let servers =
            lists().flat_map(|list| &list.servers).chain(lists().flat_map(|list| &list.leaving).filter(votes));
        // What only a cluster knew that is lost for good, no agent follows.
        let clusters =
            servers.map(|server| server.cluster.clone()).filter(|name| !self.abandoned.contains(name.as_str()));
        clusters.filter(|_| !broken!(AdoptWithoutReport)).collect()
    }

    /// Why the operator cannot take a reported server list over: a cluster of it is not selected, or, once all clusters have
    /// reported, no list names all its servers. No former incarnation is continued beside another one that lives.
    pub(in crate::rollout) fn cannot_continue(&self, selected: &[String], all_reported: bool) -> Option<Cause> {
        if let Some(cause) = self.superseded() {
            return Some(cause);
        }
        if !self.takes_over_list() {
            return None;
        }
        let id = &self.incarnation.id;
        let unselected: Vec<String> =
            self.clusters_of_continued().into_iter().filter(|cluster| !selected.contains(cluster)).collect();
        let unlisted = self.unlisted_voters();
        let is_listed = reported_lists(id, &self.reports).next().is_some();
        let message = if !unselected.is_empty() {
            format!(
                "Incarnation {id} has servers in clusters that spec.placement does not select: {}. Join them to Karmada, and \
                 select them, so that their agents report",
                named(&unselected)
            )
        } else if all_reported && !unlisted.is_empty() {
            format!(
                "The configuration of incarnation {id} has voters that no reported server list names: {}. Select the clusters \
                 that have these servers by spec.placement, so that their agents report",
                named(&unlisted)
            )
        } else if all_reported && !is_listed {
            format!(
                "No agent reports a server list of incarnation {id}, which {ADOPT} names. Correct the annotation, or select the \
                 clusters that have its servers by spec.placement"
            )
        } else {
            return self.other_lives().filter(|_| self.is_adopting());
        };
        Some(if self.is_adopting() {
            Cause { reason: Reason::FormerIncarnationUnclear, message }
        } else {
            self.restored(&message)
        })
    }

    /// Why the operator changes nothing: an agent follows another incarnation, and by its list this one is over. The control
    /// plane was restored from an older copy.
    fn superseded(&self) -> Option<Cause> {
        let own = &self.incarnation.id;
        let (cluster, living) = lists_ending(own, &self.reports).next().filter(|_| !broken!(AcceptOlderSpec))?;
        let name = &self.name;
        Some(Cause {
            reason: Reason::NewerServerList,
            message: format!(
                "Cluster {cluster} follows incarnation {living}, and by its list {own}, which this control plane knows, is over: it \
                 was restored from an older backup. The operator changes nothing. Restore a newer one, or run `mczk adopt {name} \
                 {living}` to continue that incarnation"
            ),
        })
    }

    /// Why an ensemble whose control plane was restored from an older copy waits for these clusters.
    pub(in crate::rollout) fn restored_and_waits(&self, clusters: &[String]) -> Option<Cause> {
        let message = || {
            format!(
                "Waiting until the agents of these clusters report, since one may know a newer list: {}. If one is lost for \
                 good, name it in the annotation {ABANDON_CLUSTERS}",
                named(clusters)
            )
        };
        self.is_restored().then(|| self.restored(&message()))
    }

    fn restored(&self, message: &str) -> Cause {
        let epoch = |list: Option<&Ensemble>| list.and_then(|list| list.epoch).unwrap_or(0);
        let known = self.status_ensemble().map_or(0, |status| status.epoch).max(epoch(Some(&self.overrides.ensemble)));
        let reported = epoch(self.reported_list.as_ref());
        Cause {
            reason: Reason::NewerServerList,
            message: format!(
                "Agents follow server list {reported}, and the control plane knows {known}: it was restored from an older \
                 backup. Servers run on, and the operator changes nothing before it has taken the newest list over. {message}"
            ),
        }
    }

    /// Ids of the voters in the configurations of the incarnation.
    fn reported_voters(&self) -> impl Iterator<Item = i32> {
        let statuses = self.reports.values().filter_map(|report| report.status.as_ref());
        let current = statuses.filter(|status| status.may_be_of(&self.incarnation.id));
        current.flat_map(|status| status.voting_members.iter().copied())
    }

    /// Ids of voters in the configuration of the incarnation that no reported list names.
    fn unlisted_voters(&self) -> Vec<String> {
        let id = &self.incarnation.id;
        let listed: BTreeSet<i32> =
            reported_lists(id, &self.reports).flat_map(Ensemble::all_servers).map(|server| server.id).collect();
        let unlisted: BTreeSet<i32> = self.reported_voters().filter(|voter| !listed.contains(voter)).collect();
        unlisted.iter().map(ToString::to_string).collect()
    }
}

/// The incarnations that live in a cluster, with their servers and volumes.
fn others(status: &ZooKeeperStatus) -> impl Iterator<Item = (&str, usize, usize)> {
    let is_over = find(&status.conditions, ConditionType::Decommissioned, ConditionStatus::True).is_some();
    let followed = status.ensemble.as_ref().and_then(|list| list.incarnation.as_deref()).filter(|_| !is_over);
    let with_volume = status.servers.iter().filter(|server| server.volume.is_some() && !server.lost).count();
    let followed = followed.map(|id| (id, status.servers.len(), with_volume));
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    let beside = status.other_incarnations.iter().flatten();
    followed
        .into_iter()
        .chain(beside.map(move |other| (other.incarnation.as_str(), count(other.servers), count(other.volumes))))
}

fn named(names: &[String]) -> String {
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", "))
}

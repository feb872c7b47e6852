//! S14: incarnations that lived under the ensemble's name before its object.
//!
//! If a user creates the objects of a lost control plane again, they have other uids, and so another incarnation. If its servers
//! started, applications would find an empty tree under the same name. So the first server waits until each selected cluster
//! has reported that no other incarnation lives there, or the user has said what becomes of it: the ensemble continues it
//! ([`ADOPT`]), or it is over ([`DECLARE_OVER`]). An agent reports only where it has the object, so clusters without voters get
//! it too at first: the survey.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{
    cluster_selection::{ClusterSelection, Survey},
    incarnation,
    known::Known,
    report::ClusterReport,
    reported_list::{clusters_of, lists_ending, newest_reported, reported_lists, reported_voters},
    steps::StepReport,
};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::{ABANDON_CLUSTERS, ADOPT, DECLARE_OVER},
        tombstone::Tombstone,
    },
    mutation::broken,
    zookeeper::{Ensemble, ZooKeeperStatus},
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

    /// Whether every selected cluster has reported which incarnations live there, before this one gets its first servers. A
    /// survey that runs ends only with a server list that the operator has taken over: it may be in a cluster that gets no voter.
    pub(in crate::rollout) fn survey(&self, selection: &ClusterSelection) -> StepReport {
        let has_list = !self.overrides.ensemble.servers.is_empty() || self.incarnation.formed;
        let waits_for_list = self.is_adopting() || self.reported_list.is_some() && selection.survey == Survey::Open;
        if has_list || selection.survey == Survey::Done || !waits_for_list && !self.is_without_list() {
            return StepReport::Done;
        }
        let selected = selection.clusters();
        let all_reported = self.unknown_lives(selected.iter().map(String::as_str)).is_none();
        if let Some(cause) = self.cannot_continue(selected, all_reported).filter(|_| self.is_adopting()) {
            return StepReport::Needs(cause);
        }
        let asked = self.other_incarnations(selected.iter().map(String::as_str), selected);
        if asked.is_open() {
            return asked;
        }
        if let Some(tombstone) = self.tombstone_of_declared_over(selection) {
            let id = tombstone.incarnation;
            let message = format!("The operator tells the clusters of incarnation {id} that it is over");
            return StepReport::Waits(Cause::new(Reason::IncarnationLives, message));
        }
        let message = || format!("The operator takes over the server list of incarnation {}", self.incarnation.id);
        StepReport::waits(waits_for_list.then(|| Cause::new(Reason::ClusterNotReported, message())))
    }

    /// The tombstone of an incarnation that the user has declared over. Its servers may be in clusters that get no voter: no
    /// server list, which would name it as former, reaches these.
    pub(in crate::rollout) fn tombstone_of_declared_over(&self, selection: &ClusterSelection) -> Option<Tombstone> {
        let is_asked = selection.survey != Survey::Done && self.is_without_list();
        let holds =
            |report: &ClusterReport, id: &str| report.status.iter().flat_map(others).any(|(other, ..)| other == id);
        // Without a survey every selected cluster gets voters.
        let gets_list = |name: &String| selection.survey == Survey::Pending && selection.clusters().contains(name);
        let lives = |id: &str| -> Vec<&String> {
            let beside = self.reports.iter().filter(|(name, report)| holds(report, id) && !gets_list(name));
            beside.map(|(name, _)| name).collect()
        };
        let over = self.former_incarnations.over.iter().filter(|id| is_asked && !self.tombstones.contains(**id));
        let mut all = over.map(|id| Tombstone {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            incarnation: (*id).to_owned(),
            // A cluster that the user has abandoned may have servers too.
            clusters: lives(id)
                .into_iter()
                .cloned()
                .chain(self.abandoned.iter().map(|name| (*name).to_owned()))
                .collect(),
        });
        let selected = selection.clusters();
        let is_complete = !self.other_incarnations(selected.iter().map(String::as_str), selected).is_open();
        all.find(|tombstone| is_complete && !tombstone.clusters.is_empty())
    }

    /// True if nothing knows a server list of the incarnation: no server of it has started.
    pub(in crate::rollout) fn is_without_list(&self) -> bool {
        let has_list = !self.newest_list().servers.is_empty() || self.reported_list.is_some();
        !has_list && !self.incarnation.formed
    }

    /// Whether another incarnation of the ensemble's name may live in these clusters, or one that is declared over lives in
    /// clusters that are not selected (S14).
    pub(in crate::rollout) fn other_incarnations<'c>(
        &self,
        clusters: impl IntoIterator<Item = &'c str>,
        selected: &[String],
    ) -> StepReport {
        let lives = || self.other_lives().or_else(|| self.lives_elsewhere(selected));
        match self.unclear_declaration().or_else(lives) {
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
                let is_over = self.ended.contains(id) || id == self.incarnation.id;
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

    /// Why no first server starts: an incarnation that the user has declared over has servers in clusters that get no object, and so
    /// never learn it. They would serve on, under the same names.
    fn lives_elsewhere(&self, selected: &[String]) -> Option<Cause> {
        let is_asked = |id: &&&str| self.is_without_list() && !self.tombstones.contains(**id);
        let beside = |id: &str| -> Vec<String> {
            self.clusters_with_servers(id).into_iter().filter(|name| !selected.contains(name)).collect()
        };
        let over = self.former_incarnations.over.iter().filter(is_asked).map(|id| (*id, beside(id)));
        let (id, clusters) = over.into_iter().find(|(_, clusters)| !clusters.is_empty())?;
        Some(Cause {
            reason: Reason::FormerIncarnationUnclear,
            message: format!(
                "Incarnation {id}, which {DECLARE_OVER} names, has servers in clusters that spec.placement does not select: {}. They \
                 would serve on beside this ensemble. Join them to Karmada, and select them, so that their agents stop these \
                 servers. If one is lost for good, name it in the annotation {ABANDON_CLUSTERS}",
                named(&clusters)
            ),
        })
    }

    /// Why no first server starts: these clusters have not reported which incarnations live there.
    fn unknown_lives<'c>(&self, clusters: impl IntoIterator<Item = &'c str>) -> Option<Cause> {
        let knows = |name: &str| {
            let status = self.reports.get(name).and_then(ClusterReport::fresh_status);
            status.is_some_and(|status| status.other_incarnations.is_some())
        };
        let asked = clusters.into_iter().filter(|name| !self.abandoned.contains(name));
        let unknown: Vec<String> =
            asked.filter(|name| !knows(name)).map(|name| format!("{name} ({})", self.why_unknown(name))).collect();
        (!unknown.is_empty() && !broken!(BeginBesideOther)).then(|| Cause {
            reason: Reason::ClusterNotReported,
            message: format!(
                "Waiting until the agents of these clusters report whether another incarnation of this name lives there: {}. No \
                 server starts before. Mend what stands in brackets. Exclude a cluster by spec.placement only if no servers of this \
                 name run there. If it is lost for good, name it in the annotation {ABANDON_CLUSTERS}",
                named(&unknown)
            ),
        })
    }

    /// Why a selected cluster has not reported which incarnations live there.
    fn why_unknown(&self, cluster: &str) -> String {
        let report = self.reports.get(cluster);
        if !self.clusters.iter().any(|known| known.name() == cluster) {
            return "it is no cluster of Karmada any more".to_owned();
        }
        if let Some(report) = report.filter(|report| report.reachable) {
            if !self.has_work(cluster) {
                let remedy = "see the taints of the Cluster (karmadactl uncordon), or tolerate them in spec.placement.clusterTolerations";
                return format!("Karmada has not brought the object there: if it lasts, {remedy}");
            }
            let blocked = |status: &ZooKeeperStatus| {
                Some(find(&status.conditions, ConditionType::Blocked, ConditionStatus::True)?.message.clone())
            };
            return match (&report.apply_error, &report.status) {
                (Some(why), _) if !report.applied => format!("Karmada could not apply the object: {why}"),
                (_, None) if report.unreadable => "its agent is newer than the operator: upgrade mczk".to_owned(),
                (_, None) => "no report yet: if it lasts, see its agent, or run `mczk doctor`".to_owned(),
                (_, Some(status)) => blocked(status).unwrap_or_else(|| {
                    "its agent is older than the operator: run `mczk install` of this version again, or upgrade the agent \
                     after `mczk register --only crds,propagation`"
                        .to_owned()
                }),
            };
        }
        ClusterReport::absence(report).message
    }

    /// True if the operator takes over the newest server list that agents report: it continues a former incarnation, or the
    /// control plane was restored from an older copy.
    pub(in crate::rollout) fn takes_over_list(&self) -> bool {
        self.is_adopting() || self.is_restored()
    }

    /// The clusters that must report before the operator takes a reported server list over: those that any reported one of
    /// the incarnation names. A leaving voter counts while ZooKeeper's configuration has it.
    pub(in crate::rollout) fn clusters_of_continued(&self) -> BTreeSet<String> {
        if !self.takes_over_list() || broken!(AdoptWithoutReport) {
            return BTreeSet::new();
        }
        self.clusters_with_servers(&self.incarnation.id)
    }

    /// The clusters that any reported list of an incarnation names. What only a cluster knew that is lost for good, no agent
    /// follows.
    fn clusters_with_servers(&self, id: &str) -> BTreeSet<String> {
        let mut clusters = clusters_of(reported_lists(id, &self.reports), id, &self.reports);
        clusters.retain(|name| !self.abandoned.contains(name.as_str()));
        clusters
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
        let message = if let Some(encrypted) = self.other_encryption() {
            let name = &self.name;
            format!(
                "The servers of incarnation {id} run with spec.tls.quorum {encrypted}, which no change of this object can give them. \
                 Delete MultiClusterZooKeeper {name}: the servers run on. Create it again with tls.quorum {encrypted}, and run `mczk \
                 adopt {name} {id}`"
            )
        } else if !unselected.is_empty() {
            format!(
                "Incarnation {id} has servers in clusters that spec.placement does not select: {}. Join them to Karmada, and \
                 select them, so that their agents report. If one is lost for good, name it in the annotation {ABANDON_CLUSTERS}",
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

    /// Whether the servers of an adopted incarnation use TLS among themselves, if that is not what the object declares. Servers
    /// with and without it do not reach each other, and agents dial as the object says.
    fn other_encryption(&self) -> Option<bool> {
        let list = newest_reported(&self.incarnation.id, &self.reports).filter(|_| self.is_adopting())?;
        let encrypted = list.tls.is_some();
        (encrypted != self.object.spec.tls.quorum).then_some(encrypted)
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

    /// Why the operator changes nothing, not even at the end of the object: another control plane continues this incarnation.
    /// Otherwise each would take over the lists of the other one, for ever, and a deletion here would stop the living servers.
    pub(in crate::rollout) fn adopted_elsewhere(&self) -> Option<Cause> {
        let waited = self.foreign_incarnation()?;
        let (name, own) = (&self.name, &self.incarnation.id);
        let remedy = if self.ending.is_some() {
            "This deletion ends no server, and waits. To let the object go alone, stop Karmada's controllers in this control plane, \
             and remove the object's finalizers"
                .to_owned()
        } else {
            format!(
                "The operator changes nothing here. Stop Karmada's controllers in one of both control planes. To continue the \
                 ensemble in this one, or if this object had declared {waited} over before a restore, run `mczk adopt {name} {own}` \
                 and `mczk declare-over {name} {waited}`: {waited} has no servers"
            )
        };
        Some(Cause {
            reason: Reason::NewerServerList,
            message: format!(
                "Another control plane continues incarnation {own}: the server list that agents follow names {waited}, which this \
                 one does not know. {remedy}. Let no cluster leave: Karmada would delete its volumes (docs/how-to/backup.md)"
            ),
        })
    }

    /// An incarnation that the reported list names as former, and that this object has neither begun nor declared over: the object
    /// of another control plane waited in it before its adoption. The list is another one than the last that this operator wrote.
    ///
    /// What a user declares over once the object is being deleted does not count: the deletion would end living servers.
    fn foreign_incarnation(&self) -> Option<&String> {
        let list = self.reported_list.as_ref().filter(|_| !self.is_adopting() || self.incarnation.recorded)?;
        let in_status = self.status_ensemble().and_then(|status| status.hash.as_ref());
        if list.hash.is_some() && [in_status, self.overrides.ensemble.hash.as_ref()].contains(&list.hash.as_ref()) {
            return None;
        }
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let ended = if self.ending.is_some() { self.tombstones } else { &self.ended };
        let known = &self.overrides.ensemble.former_incarnations;
        let is_known = |id: &String| known.contains(id) || ended.contains(id) || incarnation::is_of(uid, id);
        list.former_incarnations.iter().find(|id| !is_known(id))
    }

    /// What marks the lists of this control plane, once its user continues an ensemble here that another one had adopted: an
    /// incarnation of this object that has never begun. That one stops when it sees it.
    pub(in crate::rollout) fn mark_of_return(&self, list: &Ensemble) -> Option<String> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let known = &self.overrides.ensemble.former_incarnations;
        let is_foreign = |id: &&String| {
            self.former_incarnations.over.contains(id.as_str()) && !known.contains(id) && !incarnation::is_of(uid, id)
        };
        list.former_incarnations.iter().find(is_foreign)?;
        incarnation::unused(uid, |id| *id == self.incarnation.id || list.former_incarnations.contains(id))
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

    /// Ids of voters in the configuration of the incarnation that no reported list names.
    fn unlisted_voters(&self) -> Vec<String> {
        let id = &self.incarnation.id;
        let listed: BTreeSet<i32> =
            reported_lists(id, &self.reports).flat_map(Ensemble::all_servers).map(|server| server.id).collect();
        let unlisted: BTreeSet<i32> =
            reported_voters(id, &self.reports).filter(|voter| !listed.contains(voter)).collect();
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

/// The first names, and how many more there are.
pub(in crate::rollout) fn named(names: &[String]) -> String {
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", "))
}

//! Which cluster begins next, and whether it may.

use super::{Pass, half_changed};
use crate::{
    api::{
        multiclusterzookeeper::{OnFailure, Record},
        zookeeper::Role,
    },
    contract::{conditions::Reason, server_list::majority},
    mutation::broken,
    rollout::{
        binding::Scheduled, blocker::Blocker, cluster_spec, override_rules::Overrides, record, report::ClusterReport,
    },
};

impl Pass<'_> {
    /// Begins the next cluster, or says why it does not.
    pub(super) fn begin_next(&mut self, last: &mut Record, current: &mut Overrides) -> serde_json::Result<bool> {
        if self.rollout.paused == Some(true) {
            self.findings.paused = true;
            return Ok(false);
        }
        if self.quorum.formed
            && let Some(cluster) = half_changed(last, self.reports, current).filter(|_| !broken!(BeginElsewhere))
        {
            self.findings.waiting = Some(Blocker {
                reason: Reason::ClusterUnreachable,
                message: format!(
                    "waits for cluster {cluster}, which was being changed and is not Ready in Karmada: its agent may be at work; take it out of spec.placement if it is lost"
                ),
            });
            return Ok(false);
        }
        if let Some(cluster) = self.leaves_at_work(current).filter(|_| !broken!(ForgetTheLeaving)) {
            self.findings.waiting = Some(Blocker {
                reason: Reason::ClusterGone,
                message: format!(
                    "waits for Karmada to let go of the object in cluster {cluster}, which was being changed and is no longer scheduled: its agent may be at work"
                ),
            });
            return Ok(false);
        }
        let reachable = |c: &&String| self.reports.get(*c).is_some_and(|m| m.reachable);
        let begun = |c: &&String| self.at_work(c, current);
        let at_work = || last.current_state.pending.iter().filter(reachable).filter(begun);
        let next = at_work()
            .find(|c| self.has_its_pin(c, current))
            .or_else(|| at_work().next())
            .or_else(|| last.current_state.pending.iter().find(reachable))
            .cloned();
        let Some(next) = next else {
            let Some(absent) = last.current_state.pending.first().cloned() else { return Ok(false) };
            if self.rollout.on_failure == Some(OnFailure::Continue) && !last.current_state.completed.is_empty() {
                record::leave_out(last, &absent, self.now);
                return Ok(true);
            }
            self.findings.waiting = Some(Blocker {
                reason: Reason::ClusterUnreachable,
                message: format!(
                    "waits for cluster {absent}, which is not Ready in Karmada; set rollout.onFailure to Continue to go on without it"
                ),
            });
            return Ok(false);
        };
        let next = match self.may_begin(&next, current) {
            Ok(()) => next,
            Err(message) => {
                // One that lacks servers may bring those back that this one waits for.
                let mut others = last.current_state.pending.iter().filter(reachable);
                let apart = |c: &String| self.without_servers(c) || !self.another_at_work(c, current);
                let other = others.find(|c| self.may_begin(c, current).is_ok() && apart(c));
                let Some(other) = other.cloned() else {
                    self.findings.waiting = Some(Blocker { reason: Reason::NoQuorum, message });
                    self.at_the_deadline(last);
                    return self.grow(last, current).map(|()| false);
                };
                other
            }
        };
        record::begin(last, &next, self.now);
        Ok(true)
    }

    /// Whether a cluster is to have more servers than it was told to run.
    pub(super) fn is_to_grow(&self, cluster: &str, current: &Overrides) -> bool {
        let (told, wanted) = (current.cluster_specs.get(cluster), self.desired.get(cluster));
        told.zip(wanted).is_some_and(|(told, wanted)| told.replicas < wanted.replicas)
    }

    /// Where no cluster may restart servers, one may still get more of what it runs: those that join may be what others wait
    /// for that are to leave, and of whom nothing is seen any more.
    pub(super) fn grow(&self, last: &Record, current: &mut Overrides) -> serde_json::Result<()> {
        let lacks_servers = |c: &&String| {
            self.is_to_grow(c, current)
                && self.reports.get(*c).is_some_and(ClusterReport::fresh)
                && !self.at_work(c, current)
        };
        let Some(cluster) = last.current_state.pending.iter().find(lacks_servers) else { return Ok(()) };
        if let Some((old, new)) = current.cluster_specs.get(cluster).zip(self.desired.get(cluster)) {
            let grown = cluster_spec::grown(old, new.replicas)?;
            current.cluster_specs.insert(cluster.clone(), grown);
        }
        Ok(())
    }

    /// Whether a cluster keeps its replicas because voters have to leave, while those that stay in it serve: what leaves may
    /// wait for servers of clusters that come later.
    pub(super) fn waits_for_joiners(&self, cluster: &str, current: &Overrides) -> bool {
        let wanted = self.desired.get(cluster).map_or(0, |pin| pin.replicas);
        let Some(pin) = current.cluster_specs.get(cluster).filter(|pin| pin.replicas > wanted) else { return false };
        let seen = self.reports.get(cluster).filter(|m| m.fresh()).and_then(|m| m.status.as_ref());
        let stay = own_voters(current, cluster).all(|id| self.quorum.serving.contains(&id));
        let seen = seen.is_some_and(|s| s.observed_spec_hash == pin.spec_hash);
        seen && stay && self.quorum.formed && !broken!(NoJoinersFirst) && self.rollout.paused != Some(true)
    }

    /// Whether the agent of a cluster, whose voters serve, takes none of them out before more have joined: the ensemble has two
    /// voters, or one, and the list names more.
    pub(super) fn too_few(&self, cluster: &str, current: &Overrides) -> bool {
        let voters = self.quorum.voters.len();
        let listed = current.ensemble.servers.iter().filter(|s| s.role == Role::Voter).count();
        let mut own = own_voters(current, cluster).peekable();
        own.peek().is_some()
            && own.all(|id| self.quorum.serving.contains(&id))
            && self.quorum.formed
            && voters > 0
            && voters <= majority(voters)
            && listed > voters
            && self.rollout.paused != Some(true)
    }

    /// The next cluster that brings servers and changes none.
    pub(super) fn joins(&self, last: &Record, current: &Overrides) -> Option<String> {
        let mut pending = last.current_state.pending.iter();
        pending.find(|c| self.without_servers(c) && self.may_begin(c, current).is_ok()).cloned()
    }

    /// S1: whether a cluster that serves may be changing: it was given a pin, or, where that was lost, has seen one, that it
    /// has not reported as done.
    pub(super) fn at_work(&self, cluster: &str, current: &Overrides) -> bool {
        let status = self.reports.get(cluster).and_then(|m| m.status.as_ref());
        if status.is_none() && !self.desired.contains_key(cluster) {
            // Karmada let go of its object.
            return false;
        }
        self.quorum.formed
            && match current.cluster_specs.get(cluster) {
                Some(pin) => status.is_none_or(|s| s.completed_spec_hash != pin.spec_hash),
                None => status
                    .is_some_and(|s| s.observed_spec_hash.is_some() && s.completed_spec_hash != s.observed_spec_hash),
            }
    }

    /// S1: a cluster that the schedule left while it was changing, and whose object Karmada still writes.
    pub(super) fn leaves_at_work(&self, current: &Overrides) -> Option<&String> {
        let mut left = self.reports.iter().filter(|(name, m)| m.fresh() && !self.desired.contains_key(*name));
        left.find(|(name, _)| self.at_work(name, current)).map(|(name, _)| name)
    }

    /// Whether a cluster was given the pin that it is to have.
    pub(super) fn has_its_pin(&self, cluster: &str, current: &Overrides) -> bool {
        let given = current.cluster_specs.get(cluster).map(|p| &p.spec_hash);
        given.is_some() && given == self.desired.get(cluster).map(|p| &p.spec_hash)
    }

    /// Whether a cluster reports that it has no server: one that begins there changes none.
    pub(super) fn without_servers(&self, cluster: &str) -> bool {
        let member = self.reports.get(cluster).filter(|m| m.fresh());
        member.and_then(|m| m.status.as_ref()).is_some_and(|s| s.servers.is_empty())
    }

    /// S1: whether another cluster is at work.
    pub(super) fn another_at_work(&self, cluster: &str, current: &Overrides) -> bool {
        current
            .cluster_specs
            .keys()
            .chain(self.reports.keys())
            .any(|name| name != cluster && self.at_work(name, current))
    }

    /// S3, S9: whether restarts in this cluster, one server at a time, leave a quorum.
    pub(super) fn may_begin(&self, cluster: &str, current: &Overrides) -> Result<(), String> {
        let Some(new) = self.desired.get(cluster) else { return Ok(()) };
        let same = current.cluster_specs.get(cluster).is_some_and(|old| old.revision == new.revision);
        if !self.quorum.formed || same || broken!(BeginWithoutQuorum) {
            return Ok(());
        }
        let serves = |id: &i32| self.quorum.serving.contains(id);
        let votes: Vec<i32> = own_voters(current, cluster).filter(|id| self.quorum.voters.contains(id)).collect();
        let reported = self.reports.get(cluster).and_then(|m| m.status.as_ref());
        let broken = reported.into_iter().flat_map(|s| &s.servers).any(|s| !s.serving);
        let needed = majority(self.quorum.voters.len());
        let serving = self.quorum.serving.len();
        if broken || !votes.iter().all(serves) || votes.is_empty() {
            // Servers that do not serve can be replaced without making anything worse, and it is the only way out of a
            // broken image. The agent stops no serving one that the quorum needs. One that has still to join is not there
            // to be broken: it waits.
            return Ok(());
        }
        if !self.quorum.voters.is_empty() && serving.saturating_sub(1) >= needed {
            return Ok(());
        }
        if needed == self.quorum.voters.len() && serving == needed {
            // One voter, or two: no restart leaves a majority, and without one nothing could ever be changed.
            return Ok(());
        }
        Err(format!(
            "cluster {cluster} is next, but of {} voters {serving} are seen serving, and {needed} must go on serving while one restarts: bring servers back first",
            self.quorum.voters.len()
        ))
    }

    /// S3: whether a cluster that was begun, but not given its pin, may not begin any more: what was known then is not true
    /// now.
    pub(super) fn yields(
        &self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        current: &Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            return Ok(false);
        };
        let given = current.cluster_specs.get(cluster).map(|p| &p.spec_hash)
            == Some(&self.pin(cluster, replicas, current)?.spec_hash);
        if given || !self.quorum.formed {
            return Ok(false);
        }
        // Another operator, or a write that came late, may have given another cluster its pin meanwhile (S1).
        let pending = &last.current_state.pending;
        let overtaken = !self.without_servers(cluster)
            && pending.iter().any(|other| self.has_its_pin(other, current) && self.at_work(other, current));
        Ok(overtaken || self.may_begin(cluster, current).is_err())
    }
}

/// Ids of the voters that the list names in a cluster.
fn own_voters<'a>(current: &'a Overrides, cluster: &'a str) -> impl Iterator<Item = i32> + 'a {
    let listed = current.ensemble.servers.iter().filter(move |s| s.cluster == cluster && s.role == Role::Voter);
    listed.map(|s| s.id)
}

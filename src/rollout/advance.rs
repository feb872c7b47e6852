//! One pass over the rules of a rollout: which record, which list of servers, which cluster next, and what it waits for.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    api::{
        multiclusterzookeeper::{
            MultiClusterZooKeeperStatus, ObservedGenerations, OnFailure, Record, RecordStatus, Rollout, RolloutOrder,
        },
        zookeeper::{Ensemble, EnsembleTls, Role, Server, ZooKeeperSpec, ZooKeeperStatus},
    },
    rollout::{
        binding::Scheduled,
        certificates,
        ensemble::{self, Naming, Quorum, majority},
        member::{self, Member},
        mutation::Mutation,
        objects::GIVE_UP,
        outcome::{Findings, Wait},
        override_rules::Overrides,
        pin, record,
        recovery::turn,
    },
};

/// Seconds after which a cluster counts as stuck if nothing is said.
const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;

/// Where a record cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The cluster.
    pub cluster: String,
    /// Why.
    pub why: Wait,
}

pub(super) fn stuck(
    last: &Record,
    members: &BTreeMap<String, Member>,
    known: &Overrides,
    rollout: &Rollout,
    old: &MultiClusterZooKeeperStatus,
    now: Timestamp,
) -> Option<Stuck> {
    if last.status == RecordStatus::Ready {
        return None;
    }
    let at = |cluster: &String, reason, message| Stuck { cluster: cluster.clone(), why: Wait { reason, message } };
    let deadline = deadline(rollout);
    let elapsed = now.as_second() - last.last_transition_time.0.as_second();
    let overdue = elapsed >= deadline;
    let Some(cluster) = last.current_state.deploying.first() else {
        let first = last.current_state.pending.first()?;
        if let Some(cluster) = half_changed(last, members, known) {
            return Some(at(
                cluster,
                "ClusterUnreachable",
                format!("cluster {cluster} was being changed and is not Ready in Karmada"),
            ));
        }
        if last.current_state.pending.iter().all(|c| members.get(c).is_none_or(|m| !m.reachable)) {
            let message = format!("cluster {first} is next and not Ready in Karmada");
            return Some(at(first, "ClusterUnreachable", message));
        }
        // Nobody could begin for so long: what a person changes to end that must be taken up.
        return overdue.then(|| at(first, "ProgressDeadlineExceeded", format!("no cluster began for {deadline} s")));
    };
    let member = members.get(cluster);
    if member.is_none_or(|m| !m.reachable) {
        return Some(at(
            cluster,
            "ClusterUnreachable",
            format!("cluster {cluster} is being changed and not Ready in Karmada"),
        ));
    }
    let status = member.and_then(|m| m.status.as_ref());
    let pin = known.pins.get(cluster).and_then(|p| p.pin.as_ref());
    if let Some(condition) = status
        .filter(|s| pin.is_some() && s.observed_pin.as_ref() == pin && s.completed_pin.as_ref() != pin)
        .and_then(|s| s.conditions.iter().find(|c| c.type_ == "Progressing" && c.status == "False"))
    {
        return Some(at(
            cluster,
            "ClusterFailed",
            format!("cluster {cluster} reports {}: {}", condition.reason, condition.message),
        ));
    }
    // While it is complete it is held for `holdSeconds`.
    let complete = old.clusters.iter().any(|c| c.name == *cluster && c.ready);
    let hold = if complete { i64::from(rollout.hold_seconds.unwrap_or(0)) } else { 0 };
    (elapsed >= deadline.saturating_add(hold)).then(|| {
        at(cluster, "ProgressDeadlineExceeded", format!("cluster {cluster} is not complete after {deadline} s"))
    })
}

/// Seconds after which a record that does not move counts as stuck.
fn deadline(rollout: &Rollout) -> i64 {
    i64::from(rollout.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS))
}

/// A cluster that this record has still to change, that was told another pin before, and that went out of reach before it
/// reported that one as done: its agent may be at work, so no other cluster may begin (S1).
fn half_changed<'a>(last: &'a Record, members: &BTreeMap<String, Member>, known: &Overrides) -> Option<&'a String> {
    last.current_state.pending.iter().find(|cluster| {
        known.pins.get(*cluster).is_some_and(|pin| {
            members
                .get(*cluster)
                .is_none_or(|m| !m.reachable && m.status.as_ref().is_none_or(|s| s.completed_pin != pin.pin))
        })
    })
}

/// One pass over the rules of the rollout.
pub(super) struct Pass<'a> {
    pub(super) rollout: &'a Rollout,
    pub(super) template: &'a ZooKeeperSpec,
    pub(super) naming: Naming<'a>,
    pub(super) members: &'a BTreeMap<String, Member>,
    pub(super) quorum: &'a Quorum,
    pub(super) now: Timestamp,
    pub(super) mutation: Mutation,
    pub(super) old: &'a MultiClusterZooKeeperStatus,
    pub(super) findings: Findings,
    pub(super) look_again: Option<Duration>,
    pub(super) generations: ObservedGenerations,
    pub(super) stuck: Option<Stuck>,
    pub(super) desired: BTreeMap<String, ZooKeeperSpec>,
    /// Lives that are over although a cluster may still hold servers of them.
    pub(super) former: Vec<String>,
    /// The certificates that servers shall use, if they are there.
    pub(super) tls: Option<EnsembleTls>,
}

impl Pass<'_> {
    pub(super) fn roll(
        &mut self,
        schedule: &[Scheduled],
        records: &mut Vec<Record>,
        current: &mut Overrides,
    ) -> serde_json::Result<()> {
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        if let Some(lonely) = observers.iter().find(|o| !schedule.iter().any(|s| s.cluster == o.cluster)) {
            self.findings.refused = Some(Wait {
                reason: "ObserversWithoutVoter",
                message: format!(
                    "spec.observers names cluster {}, which has no voter: give it one, or remove the entry",
                    lonely.cluster
                ),
            });
        }
        let servers = match ensemble::servers(
            self.naming,
            &current.ensemble.servers,
            current.ensemble.highest_id.unwrap_or(0),
            schedule,
            observers,
            self.members,
            self.mutation,
        ) {
            Ok(servers) => servers,
            Err(refused) => {
                self.findings.refused = Some(Wait { reason: "NoServerId", message: refused.to_string() });
                return Ok(());
            }
        };
        // S5: servers that already started know the old list, and a server that started with another one could make a
        // second majority. What is scheduled of the old list goes on, so that a quorum can form and end this.
        let frozen = current.ensemble.bootstrap == Some(true)
            && !self.quorum.formed
            && servers != current.ensemble.servers
            && !self.mutation.is(Mutation::ListDuringBootstrap);
        let narrowed = if frozen { frozen_schedule(&current.ensemble, schedule) } else { schedule.to_vec() };
        let schedule = narrowed.as_slice();
        let servers = if frozen { current.ensemble.servers.clone() } else { servers };
        for scheduled in schedule {
            let pin = self.pin(&scheduled.cluster, scheduled.replicas, current)?;
            self.desired.insert(scheduled.cluster.clone(), pin);
        }
        let scheduled: Vec<String> = schedule.iter().map(|s| s.cluster.clone()).collect();
        let goes_on_without = self.rollout.on_failure == Some(OnFailure::Continue);
        let pins_change = self.desired.iter().any(|(cluster, pin)| {
            // A cluster that is left out while it cannot be reached gets its record when it is back.
            let left_out = goes_on_without && !self.members.get(cluster).is_some_and(|m| m.reachable);
            !left_out && current.pins.get(cluster).map(|p| &p.pin) != Some(&pin.pin)
        });
        // Certificates come with the list; not while it is frozen.
        let tls = self.tls.clone().filter(|_| !frozen).or_else(|| current.ensemble.tls.clone());
        if tls.is_none() && self.template.tls.quorum && current.ensemble.servers.is_empty() {
            self.findings.waiting = Some(certificates::being_made());
            return Ok(());
        }
        // An older policy may have been restored: members obey a newer list, or another one of that epoch.
        let outdated = !current.ensemble.servers.is_empty()
            && ensemble::is_outdated(&current.ensemble, self.naming.id, self.members);
        let list_changes = servers != current.ensemble.servers || tls != current.ensemble.tls || outdated;
        // A list that cannot change begins nothing: the record would be done at once, and begin again for ever.
        let list_can = self.list_may_change(&current.ensemble, &servers);
        let again = records.last().is_some_and(|last| {
            last.current_state.completed.iter().any(|cluster| {
                let pin = |pins: &BTreeMap<String, ZooKeeperSpec>| pins.get(cluster).map(|p| p.pin.clone());
                self.desired.contains_key(cluster) && pin(&self.desired) != pin(&current.pins)
            })
        });
        // Records that are there before the first list are those of a former life.
        let first = current.ensemble.servers.is_empty();
        self.begin_record(records, &scheduled, pins_change || (list_changes && list_can), again, first);
        if list_changes && !list_can && self.findings.waiting.is_none() {
            self.findings.waiting = Some(no_quorum_for_list());
        }
        if list_changes {
            self.change_list(current, servers, tls, records)?;
        }
        self.advance(records, schedule, current)?;
        if frozen && self.findings.waiting.is_none() {
            self.findings.waiting = Some(Wait {
                reason: "BootstrapListFrozen",
                message: format!(
                    "the schedule changed before the first quorum formed, and the list of servers is frozen until then: bring the missing cluster up, or take the change of replicas or placement back. Where a majority of these servers will never be there, give their clusters up by the annotation {GIVE_UP} or take them out of placement: the ensemble then begins anew"
                ),
            });
        }
        if current.ensemble.bootstrap == Some(true)
            && (self.quorum.formed || self.mutation.is(Mutation::ThawUnformed))
            && records.last().is_some_and(|r| r.status == RecordStatus::Ready)
        {
            let epoch = Some(self.next_epoch(current));
            let next = Ensemble { bootstrap: None, formed: None, epoch, ..current.ensemble.clone() };
            current.ensemble = ensemble::seal(next)?;
        }
        self.tell_formed(current)?;
        // A pin of a cluster that the schedule left stays while its servers may still vote.
        let may_vote = !self.quorum.holds() || self.leaving(current).is_some();
        let in_use = |cluster: &String| {
            may_vote || scheduled.contains(cluster) || current.ensemble.servers.iter().any(|s| s.cluster == *cluster)
        };
        let keep: Vec<String> = current.pins.keys().filter(|c| in_use(c)).cloned().collect();
        current.pins.retain(|cluster, _| keep.contains(cluster));
        Ok(())
    }

    /// S5: tells servers that a quorum formed, while the list is still that of a bootstrap. A server that begins with nothing
    /// may be one whose volume was lost since, and may reach nobody who knows.
    fn tell_formed(&self, current: &mut Overrides) -> serde_json::Result<()> {
        let list = &current.ensemble;
        if list.bootstrap != Some(true) || list.formed == Some(true) || !self.quorum.formed {
            return Ok(());
        }
        let next = Ensemble { formed: Some(true), epoch: Some(self.next_epoch(current)), ..list.clone() };
        current.ensemble = ensemble::seal(next)?;
        Ok(())
    }

    /// Whether a new record begins, and which.
    fn begin_record(
        &mut self,
        records: &mut Vec<Record>,
        scheduled: &[String],
        changes: bool,
        outdated: bool,
        first: bool,
    ) {
        let situation = record::Situation {
            generations: self.generations,
            scheduled,
            changes,
            stuck: self.stuck.is_some() || outdated,
        };
        let last = records.last().filter(|_| !first);
        let start = record::start(last, &situation, self.mutation);
        match start {
            record::Start::Continue => return,
            record::Start::Unchanged => {
                if let Some(last) = records.last_mut() {
                    last.observed_generations = self.generations;
                    last.last_transition_time = Time(self.now);
                }
                return;
            }
            _ => {}
        }
        // Where the last record stands, this one begins: a cluster that is half changed comes before any other (S1).
        let unfinished = records.last().filter(|last| last.status == RecordStatus::Deploying && !first);
        let stuck_at = unfinished
            .and_then(|last| last.current_state.deploying.first().cloned())
            .or_else(|| self.stuck.as_ref().map(|s| s.cluster.clone()))
            .filter(|_| !self.mutation.is(Mutation::BeginElsewhere));
        let listed = (self.rollout.order == Some(RolloutOrder::Listed)).then_some(self.rollout.clusters.as_slice());
        let leader = self.quorum.leader;
        let order = record::order(scheduled, listed, !self.quorum.formed, |cluster| {
            let member = self.members.get(cluster);
            let status = member.and_then(|m| m.status.as_ref());
            let servers = status.map(|s| s.servers.as_slice()).unwrap_or_default();
            record::Rank {
                reachable: member.is_some_and(|m| m.reachable),
                // One that lacks servers comes early too: what joins makes room for what leaves.
                healthy: !servers.is_empty()
                    && servers.iter().all(|s| s.serving)
                    && self
                        .desired
                        .get(cluster)
                        .is_none_or(|d| status.and_then(|s| s.ready_replicas).unwrap_or(0) >= d.replicas),
                leader: leader.is_some_and(|id| servers.iter().any(|s| s.id == id)),
                stuck: stuck_at.as_deref() == Some(cluster),
            }
        });
        self.stuck = None;
        records.push(record::new(self.generations, order, self.now));
    }

    /// S3, S9: whether these servers may take the place of those of a list.
    fn list_may_change(&self, list: &Ensemble, servers: &[Server]) -> bool {
        list.servers.is_empty()
            // It moves no voter, and may be what brings the quorum back: certificates.
            || servers == list.servers
            || self.quorum.holds()
            || self.quorum.committed
            || self.mutation.is(Mutation::ListWithoutQuorum)
            || self.mutation.is(Mutation::ListDuringBootstrap)
    }

    fn next_epoch(&self, current: &Overrides) -> i64 {
        ensemble::next_epoch(&current.ensemble, self.naming.id, self.members)
    }

    /// Writes the list of servers, for all clusters at once.
    fn change_list(
        &mut self,
        current: &mut Overrides,
        servers: Vec<Server>,
        tls: Option<EnsembleTls>,
        records: &[Record],
    ) -> serde_json::Result<()> {
        let covered = records.last().is_some_and(|r| r.status == RecordStatus::Deploying);
        if !covered {
            return Ok(());
        }
        if !self.list_may_change(&current.ensemble, &servers) {
            self.findings.waiting = Some(no_quorum_for_list());
            return Ok(());
        }
        current.ensemble = ensemble::seal(Ensemble {
            id: Some(self.naming.id.to_owned()),
            epoch: Some(self.next_epoch(current)),
            highest_id: servers.iter().map(|s| s.id).max().max(current.ensemble.highest_id),
            bootstrap: (!self.quorum.formed).then_some(true),
            formed: None,
            former: self.former.clone(),
            leaving: if self.quorum.formed {
                ensemble::leaving(&current.ensemble, &servers, self.members)
            } else {
                Vec::new()
            },
            servers,
            tls,
            ..current.ensemble.clone()
        })?;
        Ok(())
    }

    /// Moves clusters through the current record, as far as they can go now.
    fn advance(
        &mut self,
        records: &mut [Record],
        schedule: &[Scheduled],
        current: &mut Overrides,
    ) -> serde_json::Result<()> {
        let Some(last) = records.last_mut() else { return Ok(()) };
        if self.mutation.is(Mutation::PinEveryone) {
            for (cluster, pin) in &self.desired {
                if current.pins.contains_key(cluster) {
                    current.pins.insert(cluster.clone(), pin.clone());
                }
            }
        }
        let mut stood_back = BTreeSet::new();
        while last.status == RecordStatus::Deploying {
            if last.current_state.completed.len() == last.order.len() {
                last.status = RecordStatus::Ready;
                last.last_transition_time = Time(self.now);
                break;
            }
            match last.current_state.deploying.first().cloned() {
                None => {
                    if !self.begin_next(last, current)? {
                        break;
                    }
                }
                Some(cluster) => {
                    if self.stands_back(&cluster, last, schedule, current)? {
                        record::stand_back(last, &cluster);
                        // Once is enough: what was known does not change within a pass.
                        if !stood_back.insert(cluster) || !self.begin_next(last, current)? {
                            break;
                        }
                        continue;
                    }
                    let done = self.check(&cluster, last, schedule, current)?;
                    if !done
                        && (self.waits_for_joiners(&cluster, current) || self.too_few(&cluster, current))
                        && let Some(joins) = self.joins(last, current)
                        && stood_back.insert(cluster.clone())
                    {
                        record::stand_back(last, &cluster);
                        record::begin(last, &joins, self.now);
                        continue;
                    }
                    if !done {
                        if self.too_few(&cluster, current) {
                            self.grow(last, current)?;
                        }
                        if self.mutation.is(Mutation::NextBeforeComplete) && !last.current_state.pending.is_empty() {
                            record::finish(last, &cluster, self.now);
                            continue;
                        }
                        break;
                    }
                    record::finish(last, &cluster, self.now);
                }
            }
        }
        Ok(())
    }

    /// Begins the next cluster, or says why it does not.
    fn begin_next(&mut self, last: &mut Record, current: &mut Overrides) -> serde_json::Result<bool> {
        if self.rollout.paused == Some(true) {
            self.findings.paused = true;
            return Ok(false);
        }
        if self.quorum.formed
            && let Some(cluster) =
                half_changed(last, self.members, current).filter(|_| !self.mutation.is(Mutation::BeginElsewhere))
        {
            self.findings.waiting = Some(Wait {
                reason: "ClusterUnreachable",
                message: format!(
                    "waits for cluster {cluster}, which was being changed and is not Ready in Karmada: its agent may be at work; take it out of spec.placement if it is lost"
                ),
            });
            return Ok(false);
        }
        if let Some(cluster) = self.leaves_at_work(current).filter(|_| !self.mutation.is(Mutation::ForgetTheLeaving)) {
            self.findings.waiting = Some(Wait {
                reason: "ClusterGone",
                message: format!(
                    "waits for Karmada to let go of the object in cluster {cluster}, which was being changed and is no longer scheduled: its agent may be at work"
                ),
            });
            return Ok(false);
        }
        let reachable = |c: &&String| self.members.get(*c).is_some_and(|m| m.reachable);
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
            self.findings.waiting = Some(Wait {
                reason: "ClusterUnreachable",
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
                    self.findings.waiting = Some(Wait { reason: "NoQuorum", message });
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
    fn is_to_grow(&self, cluster: &str, current: &Overrides) -> bool {
        let (told, wanted) = (current.pins.get(cluster), self.desired.get(cluster));
        told.zip(wanted).is_some_and(|(told, wanted)| told.replicas < wanted.replicas)
    }

    /// Where no cluster may restart servers, one may still get more of what it runs: those that join may be what others wait
    /// for that are to leave, and of whom nothing is seen any more.
    fn grow(&self, last: &Record, current: &mut Overrides) -> serde_json::Result<()> {
        let lacks_servers = |c: &&String| {
            self.is_to_grow(c, current) && self.members.get(*c).is_some_and(Member::fresh) && !self.at_work(c, current)
        };
        let Some(cluster) = last.current_state.pending.iter().find(lacks_servers) else { return Ok(()) };
        if let Some((old, new)) = current.pins.get(cluster).zip(self.desired.get(cluster)) {
            let grown = pin::grown(old, new.replicas)?;
            current.pins.insert(cluster.clone(), grown);
        }
        Ok(())
    }

    /// Whether a cluster keeps its replicas because voters have to leave, while those that stay in it serve: what leaves may
    /// wait for servers of clusters that come later.
    fn waits_for_joiners(&self, cluster: &str, current: &Overrides) -> bool {
        let wanted = self.desired.get(cluster).map_or(0, |pin| pin.replicas);
        let Some(pin) = current.pins.get(cluster).filter(|pin| pin.replicas > wanted) else { return false };
        let seen = self.members.get(cluster).filter(|m| m.fresh()).and_then(|m| m.status.as_ref());
        let stay = own_voters(current, cluster).all(|id| self.quorum.serving.contains(&id));
        let seen = seen.is_some_and(|s| s.observed_pin == pin.pin);
        seen && stay
            && self.quorum.formed
            && !self.mutation.is(Mutation::NoJoinersFirst)
            && self.rollout.paused != Some(true)
    }

    /// Whether the agent of a cluster, whose voters serve, takes none of them out before more have joined: the ensemble has two
    /// voters, or one, and the list names more.
    fn too_few(&self, cluster: &str, current: &Overrides) -> bool {
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
    fn joins(&self, last: &Record, current: &Overrides) -> Option<String> {
        let mut pending = last.current_state.pending.iter();
        pending.find(|c| self.without_servers(c) && self.may_begin(c, current).is_ok()).cloned()
    }

    /// S1: whether a cluster that serves may be changing: it was given a pin, or, where that was lost, has seen one, that it
    /// has not reported as done.
    fn at_work(&self, cluster: &str, current: &Overrides) -> bool {
        let status = self.members.get(cluster).and_then(|m| m.status.as_ref());
        if status.is_none() && !self.desired.contains_key(cluster) {
            // Karmada let go of its object.
            return false;
        }
        self.quorum.formed
            && match current.pins.get(cluster) {
                Some(pin) => status.is_none_or(|s| s.completed_pin != pin.pin),
                None => status.is_some_and(|s| s.observed_pin.is_some() && s.completed_pin != s.observed_pin),
            }
    }

    /// S1: a cluster that the schedule left while it was changing, and whose object Karmada still writes.
    fn leaves_at_work(&self, current: &Overrides) -> Option<&String> {
        let mut left = self.members.iter().filter(|(name, m)| m.fresh() && !self.desired.contains_key(*name));
        left.find(|(name, _)| self.at_work(name, current)).map(|(name, _)| name)
    }

    /// Whether a cluster was given the pin that it is to have.
    fn has_its_pin(&self, cluster: &str, current: &Overrides) -> bool {
        let given = current.pins.get(cluster).map(|p| &p.pin);
        given.is_some() && given == self.desired.get(cluster).map(|p| &p.pin)
    }

    /// Whether a cluster reports that it has no server: one that begins there changes none.
    fn without_servers(&self, cluster: &str) -> bool {
        let member = self.members.get(cluster).filter(|m| m.fresh());
        member.and_then(|m| m.status.as_ref()).is_some_and(|s| s.servers.is_empty())
    }

    /// S1: whether another cluster is at work.
    fn another_at_work(&self, cluster: &str, current: &Overrides) -> bool {
        current.pins.keys().chain(self.members.keys()).any(|name| name != cluster && self.at_work(name, current))
    }

    /// S3, S9: whether restarts in this cluster, one server at a time, leave a quorum.
    fn may_begin(&self, cluster: &str, current: &Overrides) -> Result<(), String> {
        let Some(new) = self.desired.get(cluster) else { return Ok(()) };
        let same = current.pins.get(cluster).is_some_and(|old| old.revision == new.revision);
        if !self.quorum.formed || same || self.mutation.is(Mutation::BeginWithoutQuorum) {
            return Ok(());
        }
        let serves = |id: &i32| self.quorum.serving.contains(id);
        let votes: Vec<i32> = own_voters(current, cluster).filter(|id| self.quorum.voters.contains(id)).collect();
        let reported = self.members.get(cluster).and_then(|m| m.status.as_ref());
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
    fn stands_back(
        &self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        current: &Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            return Ok(false);
        };
        let given = current.pins.get(cluster).map(|p| &p.pin) == Some(&self.pin(cluster, replicas, current)?.pin);
        if given || !self.quorum.formed {
            return Ok(false);
        }
        // Another operator, or a write that came late, may have given another cluster its pin meanwhile (S1).
        let pending = &last.current_state.pending;
        let overtaken = !self.without_servers(cluster)
            && pending.iter().any(|other| self.has_its_pin(other, current) && self.at_work(other, current));
        Ok(overtaken || self.may_begin(cluster, current).is_err())
    }

    /// Gives the cluster that is deploying its pin, and tells whether it is complete.
    fn check(
        &mut self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        current: &mut Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            self.findings.waiting =
                Some(Wait { reason: "ClusterGone", message: format!("cluster {cluster} is no longer scheduled") });
            return Ok(false);
        };
        let fresh = self.members.get(cluster).is_some_and(Member::fresh);
        if self.quorum.formed && !fresh && !current.pins.contains_key(cluster) {
            // S2: which servers it has is not known.
            let refused = self.members.get(cluster).filter(|m| !m.applied).and_then(|m| m.refusal.as_deref());
            self.findings.waiting = Some(match refused {
                Some(why) => Wait {
                    reason: "NotApplied",
                    message: format!("Karmada could not apply the object in cluster {cluster}: {why}"),
                },
                None => Wait {
                    reason: "ClusterNotReported",
                    message: format!("cluster {cluster}: waits for a report of the servers that it has"),
                },
            });
            return Ok(false);
        }
        let before = self.standing(cluster, current);
        let keep = before > replicas
            && !self.removed(cluster, replicas, current)
            && !self.mutation.is(Mutation::LowerBeforeRemoved);
        let pin = self.pin(cluster, if keep { before } else { replicas }, current)?;
        current.pins.insert(cluster.to_owned(), pin.clone());
        // Where a cluster that is done already is to get more servers, who leaves may wait for those: for the next record.
        let grows_later = last.current_state.completed.iter().any(|c| self.is_to_grow(c, current));
        let leaving = self.leaving(current).filter(|_| last.current_state.pending.is_empty() && !grows_later);
        let outcome = if keep {
            Err(if self.quorum.epoch.is_none() && self.quorum.holds() {
                "waits until an agent reports that the ensemble took the newest list (publishedEpoch): update the agents"
                    .to_owned()
            } else {
                "waits until the ensemble's own configuration no longer has the servers that leave".to_owned()
            })
        } else if let Some(id) = leaving {
            Err(format!("server {id} is to leave the ensemble before the rollout is done"))
        } else {
            member::complete(
                self.members.get(cluster),
                &pin,
                &current.ensemble,
                self.quorum,
                self.members,
                self.mutation,
            )
        };
        if let Err(message) = outcome {
            let (reason, message) = match &self.stuck {
                Some(stuck) if stuck.cluster == cluster => {
                    (stuck.why.reason, format!("{}; {message}", stuck.why.message))
                }
                _ => ("Deploying", format!("cluster {cluster}: {message}")),
            };
            self.findings.waiting = Some(Wait { reason, message });
            self.at_the_deadline(last);
            return Ok(false);
        }
        let hold = i64::from(self.rollout.hold_seconds.unwrap_or(0));
        let since = self
            .old
            .clusters
            .iter()
            .find(|c| c.name == cluster)
            .and_then(|c| c.complete_since.as_ref())
            .map_or(self.now, |t| t.0);
        let left = hold - (self.now.as_second() - since.as_second());
        if left > 0 {
            self.findings.waiting = Some(Wait {
                reason: "Holding",
                message: format!("cluster {cluster} is complete and held for {hold} s before the next one begins"),
            });
            self.sooner(left);
            return Ok(false);
        }
        Ok(true)
    }

    /// The pin that gives a cluster the template as it is: its name is new unless the cluster has this very pin.
    fn pin(&self, cluster: &str, replicas: i32, current: &Overrides) -> serde_json::Result<ZooKeeperSpec> {
        let before = current.pins.get(cluster).and_then(|p| p.pin.as_deref());
        if self.mutation.is(Mutation::SameTurn) {
            return pin::pin(self.template, cluster, replicas, None, 0);
        }
        let turn = if before.is_none() { turn(cluster, self.old, self.members) } else { 0 };
        pin::pin(self.template, cluster, replicas, before, turn)
    }

    /// Voters that a cluster was told to run, or reports, whichever are more.
    fn standing(&self, cluster: &str, current: &Overrides) -> i32 {
        let pinned = current.pins.get(cluster).map_or(0, |p| p.replicas);
        let reported = self.members.get(cluster).and_then(|m| m.status.as_ref()).map_or(&[][..], |s| &s.servers);
        reported
            .iter()
            .filter_map(|server| ensemble::role_and_ordinal(self.naming, server.pod.as_deref()?))
            .filter(|(role, _)| *role == Role::Voter)
            .map(|(_, ordinal)| ordinal.saturating_add(1))
            .fold(pinned, i32::max)
    }

    /// S2: whether neither the list nor `ZooKeeper`'s configuration, read through a quorum, has a voter of this cluster
    /// beyond these.
    fn removed(&self, cluster: &str, replicas: i32, current: &Overrides) -> bool {
        let beyond = |s: &Server| s.cluster == cluster && s.role == Role::Voter && s.ordinal >= replicas;
        let own = self.members.get(cluster).and_then(|m| m.status.as_ref()).and_then(ZooKeeperStatus::epoch);
        // A configuration that was read before the list was known says nothing of who still joins.
        !self.quorum.voters.is_empty()
            && self.quorum.epoch.min(own) >= current.ensemble.epoch
            && self.leaving(current).is_none()
            && !current.ensemble.servers.iter().any(beyond)
    }

    /// The first voter of `ZooKeeper`'s configuration that is not in the list.
    fn leaving(&self, current: &Overrides) -> Option<i32> {
        let listed = |id: &i32| current.ensemble.servers.iter().any(|s| s.id == *id && s.role == Role::Voter);
        self.quorum.voters.iter().copied().find(|id| !listed(id))
    }

    /// Looks again when the record counts as stuck.
    fn at_the_deadline(&mut self, last: &Record) {
        let left = deadline(self.rollout) - (self.now.as_second() - last.last_transition_time.0.as_second());
        if left > 0 {
            self.sooner(left);
        }
    }

    fn sooner(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1));
        self.look_again = Some(self.look_again.map_or(wait, |w| w.min(wait)));
    }
}

/// Ids of the voters that the list names in a cluster.
fn own_voters<'a>(current: &'a Overrides, cluster: &'a str) -> impl Iterator<Item = i32> + 'a {
    let listed = current.ensemble.servers.iter().filter(move |s| s.cluster == cluster && s.role == Role::Voter);
    listed.map(|s| s.id)
}

fn no_quorum_for_list() -> Wait {
    Wait {
        reason: "NoQuorum",
        message: "membership changes only while a quorum is seen: bring servers back until a majority serves"
            .to_owned(),
    }
}

/// What of a frozen list is scheduled: as many voters as the list has, where the schedule still has the cluster.
fn frozen_schedule(list: &Ensemble, schedule: &[Scheduled]) -> Vec<Scheduled> {
    schedule
        .iter()
        .map(|s| {
            let own = list.servers.iter().filter(|l| l.cluster == s.cluster && l.role == Role::Voter).count();
            Scheduled { cluster: s.cluster.clone(), replicas: i32::try_from(own).unwrap_or(0) }
        })
        .filter(|s| s.replicas > 0)
        .collect()
}

//! One pass over the rules of a rollout: which record, what each cluster waits for, and when it is done. [`list`] has the rules of
//! the list of servers, [`next`] those of which cluster begins.

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
        tls::EnsembleTls,
        zookeeper::{Ensemble, EnsemblePhase, Role, ZooKeeperSpec},
    },
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::ABANDON_CLUSTERS,
        naming::{self, Naming},
        server_list,
    },
    mutation::broken,
    rollout::{
        binding::Scheduled,
        blocker::Blocker,
        certificates, cluster_spec,
        ensemble::{self, Quorum},
        outcome::Findings,
        override_rules::Overrides,
        record,
        recovery::turn,
        report::{self, ClusterReport},
    },
};

mod list;
mod next;

use list::{frozen_schedule, no_quorum_for_list};

/// Seconds after which a cluster counts as stuck if nothing is said.
const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;

/// Where a record cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The cluster.
    pub cluster: String,
    /// Why.
    pub why: Blocker,
}

pub(super) fn stuck(
    last: &Record,
    reports: &BTreeMap<String, ClusterReport>,
    known: &Overrides,
    rollout: &Rollout,
    old: &MultiClusterZooKeeperStatus,
    now: Timestamp,
) -> Option<Stuck> {
    if last.status == RecordStatus::Ready {
        return None;
    }
    let at = |cluster: &String, reason, message| Stuck { cluster: cluster.clone(), why: Blocker { reason, message } };
    let deadline = deadline(rollout);
    let elapsed = now.as_second() - last.last_transition_time.0.as_second();
    let overdue = elapsed >= deadline;
    let Some(cluster) = last.current_state.deploying.first() else {
        let first = last.current_state.pending.first()?;
        if let Some(cluster) = half_changed(last, reports, known) {
            return Some(at(
                cluster,
                Reason::ClusterUnreachable,
                format!("cluster {cluster} was being changed and is not Ready in Karmada"),
            ));
        }
        if last.current_state.pending.iter().all(|c| reports.get(c).is_none_or(|m| !m.reachable)) {
            let message = format!("cluster {first} is next and not Ready in Karmada");
            return Some(at(first, Reason::ClusterUnreachable, message));
        }
        // Nobody could begin for so long: what a person changes to end that must be taken up.
        return overdue
            .then(|| at(first, Reason::ProgressDeadlineExceeded, format!("no cluster began for {deadline} s")));
    };
    let member = reports.get(cluster);
    if member.is_none_or(|m| !m.reachable) {
        return Some(at(
            cluster,
            Reason::ClusterUnreachable,
            format!("cluster {cluster} is being changed and not Ready in Karmada"),
        ));
    }
    let status = member.and_then(|m| m.status.as_ref());
    let pin = known.cluster_specs.get(cluster).and_then(|p| p.spec_hash.as_ref());
    if let Some(condition) = status
        .filter(|s| pin.is_some() && s.observed_spec_hash.as_ref() == pin && s.completed_spec_hash.as_ref() != pin)
        .and_then(|s| find(&s.conditions, ConditionType::AgentProgressing, ConditionStatus::False))
    {
        return Some(at(
            cluster,
            Reason::ClusterFailed,
            format!("cluster {cluster} reports {}: {}", condition.reason, condition.message),
        ));
    }
    // While it is complete it is held for `holdSeconds`.
    let complete = old.clusters.iter().any(|c| c.name == *cluster && c.ready);
    let hold = if complete { i64::from(rollout.hold_seconds.unwrap_or(0)) } else { 0 };
    (elapsed >= deadline.saturating_add(hold)).then(|| {
        at(cluster, Reason::ProgressDeadlineExceeded, format!("cluster {cluster} is not complete after {deadline} s"))
    })
}

/// Seconds after which a record that does not move counts as stuck.
fn deadline(rollout: &Rollout) -> i64 {
    i64::from(rollout.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS))
}

/// A cluster that this record has still to change, that was told another pin before, and that went out of reach before it
/// reported that one as done: its agent may be at work, so no other cluster may begin (S1).
fn half_changed<'a>(
    last: &'a Record,
    reports: &BTreeMap<String, ClusterReport>,
    known: &Overrides,
) -> Option<&'a String> {
    last.current_state.pending.iter().find(|cluster| {
        known.cluster_specs.get(*cluster).is_some_and(|pin| {
            reports.get(*cluster).is_none_or(|m| {
                !m.reachable && m.status.as_ref().is_none_or(|s| s.completed_spec_hash != pin.spec_hash)
            })
        })
    })
}

/// One pass over the rules of the rollout.
pub(super) struct Pass<'a> {
    pub(super) rollout: &'a Rollout,
    pub(super) template: &'a ZooKeeperSpec,
    pub(super) naming: Naming<'a>,
    pub(super) reports: &'a BTreeMap<String, ClusterReport>,
    pub(super) quorum: &'a Quorum,
    pub(super) now: Timestamp,
    pub(super) old: &'a MultiClusterZooKeeperStatus,
    pub(super) findings: Findings,
    pub(super) requeue_after: Option<Duration>,
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
            self.findings.action_required = Some(Blocker {
                reason: Reason::ObserversWithoutVoter,
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
            self.reports,
        ) {
            Ok(servers) => servers,
            Err(refused) => {
                self.findings.action_required =
                    Some(Blocker { reason: Reason::NoServerId, message: refused.to_string() });
                return Ok(());
            }
        };
        // S5: servers that already started know the old list, and a server that started with another one could make a
        // second majority. What is scheduled of the old list goes on, so that a quorum can form and end this.
        let frozen = current.ensemble.phase.is_bootstrap()
            && !self.quorum.formed
            && servers != current.ensemble.servers
            && !broken!(ListDuringBootstrap);
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
            let left_out = goes_on_without && !self.reports.get(cluster).is_some_and(|m| m.reachable);
            !left_out && current.cluster_specs.get(cluster).map(|p| &p.spec_hash) != Some(&pin.spec_hash)
        });
        // Certificates come with the list; not while it is frozen.
        let tls = self.tls.clone().filter(|_| !frozen).or_else(|| current.ensemble.tls.clone());
        if tls.is_none() && self.template.tls.quorum && current.ensemble.servers.is_empty() {
            self.findings.waiting = Some(certificates::being_made());
            return Ok(());
        }
        // An older policy may have been restored: reports obey a newer list, or another one of that epoch.
        let outdated = !current.ensemble.servers.is_empty()
            && ensemble::is_outdated(&current.ensemble, self.naming.incarnation, self.reports);
        let list_changes = servers != current.ensemble.servers || tls != current.ensemble.tls || outdated;
        // A list that cannot change begins nothing: the record would be done at once, and begin again for ever.
        let list_can = self.list_may_change(&current.ensemble, &servers);
        let again = records.last().is_some_and(|last| {
            last.current_state.completed.iter().any(|cluster| {
                let pin = |cluster_specs: &BTreeMap<String, ZooKeeperSpec>| {
                    cluster_specs.get(cluster).map(|p| p.spec_hash.clone())
                };
                self.desired.contains_key(cluster) && pin(&self.desired) != pin(&current.cluster_specs)
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
            self.findings.waiting = Some(Blocker {
                reason: Reason::BootstrapListFrozen,
                message: format!(
                    "the schedule changed before the first quorum formed, and the list of servers is frozen until then: bring the missing cluster up, or take the change of replicas or placement back. Where a majority of these servers will never be there, give their clusters up by the annotation {ABANDON_CLUSTERS} or take them out of placement: the ensemble then begins anew"
                ),
            });
        }
        if current.ensemble.phase.is_bootstrap()
            && (self.quorum.formed || broken!(ThawUnformed))
            && records.last().is_some_and(|r| r.status == RecordStatus::Ready)
        {
            let epoch = Some(self.next_epoch(current));
            let next = Ensemble { phase: EnsemblePhase::Running, epoch, ..current.ensemble.clone() };
            current.ensemble = server_list::with_hash(next)?;
        }
        self.tell_formed(current)?;
        // A pin of a cluster that the schedule left stays while its servers may still vote.
        let may_vote = !self.quorum.holds() || self.leaving(current).is_some();
        let in_use = |cluster: &String| {
            may_vote || scheduled.contains(cluster) || current.ensemble.servers.iter().any(|s| s.cluster == *cluster)
        };
        let keep: Vec<String> = current.cluster_specs.keys().filter(|c| in_use(c)).cloned().collect();
        current.cluster_specs.retain(|cluster, _| keep.contains(cluster));
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
        let start = record::start(last, &situation);
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
            .filter(|_| !broken!(BeginElsewhere));
        let listed = (self.rollout.order == Some(RolloutOrder::Listed)).then_some(self.rollout.clusters.as_slice());
        let leader = self.quorum.leader;
        let order = record::order(scheduled, listed, !self.quorum.formed, |cluster| {
            let member = self.reports.get(cluster);
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

    /// Moves clusters through the current record, as far as they can go now.
    fn advance(
        &mut self,
        records: &mut [Record],
        schedule: &[Scheduled],
        current: &mut Overrides,
    ) -> serde_json::Result<()> {
        let Some(last) = records.last_mut() else { return Ok(()) };
        if broken!(PinEveryone) {
            for (cluster, pin) in &self.desired {
                if current.cluster_specs.contains_key(cluster) {
                    current.cluster_specs.insert(cluster.clone(), pin.clone());
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
                    if self.yields(&cluster, last, schedule, current)? {
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
                        if broken!(NextBeforeComplete) && !last.current_state.pending.is_empty() {
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

    /// Gives the cluster that is deploying its pin, and tells whether it is complete.
    fn check(
        &mut self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        current: &mut Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            self.findings.waiting = Some(Blocker {
                reason: Reason::ClusterGone,
                message: format!("cluster {cluster} is no longer scheduled"),
            });
            return Ok(false);
        };
        let fresh = self.reports.get(cluster).is_some_and(ClusterReport::fresh);
        if self.quorum.formed && !fresh && !current.cluster_specs.contains_key(cluster) {
            // S2: which servers it has is not known.
            let refused = self.reports.get(cluster).filter(|m| !m.applied).and_then(|m| m.refusal.as_deref());
            self.findings.waiting = Some(match refused {
                Some(why) => Blocker {
                    reason: Reason::NotApplied,
                    message: format!("Karmada could not apply the object in cluster {cluster}: {why}"),
                },
                None => Blocker {
                    reason: Reason::ClusterNotReported,
                    message: format!("cluster {cluster}: waits for a report of the servers that it has"),
                },
            });
            return Ok(false);
        }
        let before = self.standing(cluster, current);
        let keep = before > replicas && !self.removed(cluster, replicas, current) && !broken!(LowerBeforeRemoved);
        let pin = self.pin(cluster, if keep { before } else { replicas }, current)?;
        current.cluster_specs.insert(cluster.to_owned(), pin.clone());
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
            report::complete(self.reports.get(cluster), &pin, &current.ensemble, self.quorum, self.reports)
        };
        if let Err(message) = outcome {
            let (reason, message) = match &self.stuck {
                Some(stuck) if stuck.cluster == cluster => {
                    (stuck.why.reason, format!("{}; {message}", stuck.why.message))
                }
                _ => (Reason::Deploying, format!("cluster {cluster}: {message}")),
            };
            self.findings.waiting = Some(Blocker { reason, message });
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
            self.findings.waiting = Some(Blocker {
                reason: Reason::Holding,
                message: format!("cluster {cluster} is complete and held for {hold} s before the next one begins"),
            });
            self.sooner(left);
            return Ok(false);
        }
        Ok(true)
    }

    /// The pin that gives a cluster the template as it is: its name is new unless the cluster has this very pin.
    fn pin(&self, cluster: &str, replicas: i32, current: &Overrides) -> serde_json::Result<ZooKeeperSpec> {
        let before = current.cluster_specs.get(cluster).and_then(|p| p.spec_hash.as_deref());
        if broken!(SameTurn) {
            return cluster_spec::pin(self.template, cluster, replicas, None, 0);
        }
        let turn = if before.is_none() { turn(cluster, self.old, self.reports) } else { 0 };
        cluster_spec::pin(self.template, cluster, replicas, before, turn)
    }

    /// Voters that a cluster was told to run, or reports, whichever are more.
    fn standing(&self, cluster: &str, current: &Overrides) -> i32 {
        let pinned = current.cluster_specs.get(cluster).map_or(0, |p| p.replicas);
        let reported = self.reports.get(cluster).and_then(|m| m.status.as_ref()).map_or(&[][..], |s| &s.servers);
        reported
            .iter()
            .filter_map(|server| naming::role_and_ordinal(self.naming, server.pod.as_deref()?))
            .filter(|(role, _)| *role == Role::Voter)
            .map(|(_, ordinal)| ordinal.saturating_add(1))
            .fold(pinned, i32::max)
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
        self.requeue_after = Some(self.requeue_after.map_or(wait, |w| w.min(wait)));
    }
}

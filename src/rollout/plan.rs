//! `plan(observed, now)`: everything that should be, decided from what was seen.
//!
//! The function is total and deterministic and knows no client. It answers with the owned objects as they should be and
//! with the status; the shell writes what differs, the status first, so that a record is remembered before it acts.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            CONFLICT_ABORT, CONFLICT_RESOLUTION, ResourceSelector,
            cluster::Cluster,
            policy::{OverridePolicy, PropagationPolicy, PropagationPolicySpec},
            resource_binding::ResourceBinding,
            work::Work,
        },
        multiclusterzookeeper::{
            MultiClusterZooKeeperStatus, ObservedGenerations, OnFailure, Record, RecordStatus, Rollout, RolloutOrder,
        },
        zookeeper::{Ensemble, Role, ZooKeeperSpec},
    },
    rollout::{
        binding::{self, Scheduled, Unsettled},
        canonical::hash,
        ensemble::{self, Found, Naming, Quorum, majority},
        events::Event,
        member::{self, Member},
        mutation::Mutation,
        objects::{self, FINALIZER, binding_name, policy_name},
        override_rules::{self, Overrides},
        placement, record, render, status, teardown,
    },
};

/// Annotation of the PropagationPolicy: hash of the placement that its clusters were chosen for. They are chosen again
/// only when it changes.
pub const PLACEMENT_HASH: &str = "mczk.io/placement-hash";
/// Annotation of the template: hash of the spec that we wrote, by which a change by hand is told from a change of ours.
pub const SPEC_HASH: &str = "mczk.io/spec-hash";
/// Annotation of the OverridePolicy: the last records, from which a lost status is found again.
pub const RECORDS: &str = "mczk.io/records";
/// Annotation of the OverridePolicy: the highest server id that was ever given.
pub const HIGHEST_ID: &str = "mczk.io/highest-id";
/// Records that [`RECORDS`] holds at most.
const MIRRORED_RECORDS: usize = 10;
/// Records that the status holds if nothing is said.
const DEFAULT_RECORD_HISTORY_LIMIT: i32 = 10;
/// Seconds after which a cluster counts as stuck if nothing is said.
const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;
/// Group and version of Karmada's ServiceExport and ServiceImport.
pub const MCS_API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";

/// Everything that a decision rests on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The MultiClusterZooKeeper.
    pub object: MultiClusterZooKeeper,
    /// The ZooKeeper template of its name.
    pub template: Option<ZooKeeper>,
    /// The PropagationPolicy of template and exports.
    pub policy: Option<PropagationPolicy>,
    /// The OverridePolicy.
    pub overrides: Option<OverridePolicy>,
    /// ServiceExports, ServiceImports and the import's policy that carry our names, by `Kind/name`.
    pub services: BTreeMap<String, Value>,
    /// Karmada's binding of the template.
    pub binding: Option<ResourceBinding>,
    /// Karmada's Works of that binding; read only during deletion.
    pub works: Vec<Work>,
    /// The federation's clusters.
    pub clusters: Vec<Cluster>,
    /// Image of mczk itself, for members.
    pub server_image: String,
    /// Why the last attempt to write failed, if it did.
    pub failure: Option<String>,
}

/// What should become of an owned object.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired<T> {
    /// Nothing.
    Leave,
    /// It should be this.
    Apply(T),
    /// It should not be. Deletion protection is lifted first.
    Delete,
}

/// What should become of the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// Nothing.
    Keep,
    /// It should be there; nothing else happens before it is.
    Add,
    /// Everything is gone; it should go.
    Remove,
}

/// Everything that should be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the MultiClusterZooKeeper.
    pub finalizer: Finalizer,
    /// Of the MultiClusterZooKeeper; written before everything below, if it differs.
    pub status: MultiClusterZooKeeperStatus,
    /// The OverridePolicy.
    pub overrides: Desired<OverridePolicy>,
    /// The PropagationPolicy.
    pub policy: Desired<PropagationPolicy>,
    /// ServiceExports, ServiceImports and the import's policy, by `Kind/name`.
    pub services: BTreeMap<String, Desired<Value>>,
    /// The template.
    pub template: Desired<ZooKeeper>,
    /// Whether the binding should carry Karmada's deletion protection; `None`: as it is.
    pub protect_binding: Option<bool>,
    /// What people should hear of.
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before.
    pub look_again: Option<Duration>,
}

impl Plan {
    /// A plan that changes nothing but the status.
    #[must_use]
    pub fn nothing(status: MultiClusterZooKeeperStatus) -> Self {
        Self {
            finalizer: Finalizer::Keep,
            status,
            overrides: Desired::Leave,
            policy: Desired::Leave,
            services: BTreeMap::new(),
            template: Desired::Leave,
            protect_binding: None,
            events: Vec::new(),
            look_again: None,
        }
    }
}

/// Why nothing moves, by the condition that says so: reason and message.
pub type Wait = Unsettled;

/// What a pass over the rules found out; conditions are made of it.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Why the schedule cannot be used.
    pub unscheduled: Option<Wait>,
    /// Why the rollout does not move.
    pub waiting: Option<Wait>,
    /// Why a person must act.
    pub refused: Option<Wait>,
    /// Whether `rollout.paused` keeps the next cluster from beginning.
    pub paused: bool,
}

/// Everything that should be, decided from what was seen.
#[must_use]
pub fn plan(observed: &Observed, now: Timestamp, mutation: Mutation) -> Plan {
    match decide(observed, now, mutation) {
        Ok(plan) => plan,
        Err(error) => {
            let findings = Findings {
                refused: Some(Wait { reason: "Internal", message: format!("cannot decide: {error}") }),
                ..Findings::default()
            };
            Plan::nothing(status::failed(observed, &findings, now))
        }
    }
}

#[allow(clippy::too_many_lines)]
fn decide(observed: &Observed, now: Timestamp, mutation: Mutation) -> serde_json::Result<Plan> {
    let object = &observed.object;
    let old = object.status.clone().unwrap_or_default();
    if object.metadata.deletion_timestamp.is_some() {
        return teardown::plan(observed, now, mutation);
    }
    if !object.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Plan { finalizer: Finalizer::Add, ..Plan::nothing(old) });
    }
    if let Some(foreign) = foreign(observed).filter(|_| !mutation.is(Mutation::AdoptForeign)) {
        let findings = Findings { refused: Some(foreign), ..Findings::default() };
        return Ok(Plan::nothing(status::failed(observed, &findings, now)));
    }

    let mut findings = Findings::default();
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let rollout = object.spec.rollout.clone().unwrap_or_default();
    let known = observed.overrides.as_ref().map(|o| override_rules::read(&o.spec)).unwrap_or_default();
    let mut records =
        if mutation.is(Mutation::ForgetRecords) { old.records.clone() } else { remembered(observed, &old) };
    let template_live = observed.template.as_ref();

    // The clusters: chosen once for each placement, and kept.
    let sticky: Option<Vec<String>> = observed
        .policy
        .as_ref()
        .and_then(|p| p.spec.placement.cluster_affinity.as_ref().map(|a| a.cluster_names.clone()));
    let members = {
        let mut named = sticky.clone().unwrap_or_default();
        named.extend(known.pins.keys().cloned());
        member::members(observed.binding.as_ref(), &observed.clusters, &named, mutation)
    };
    let stuck = records.last().and_then(|last| stuck(last, &members, &known, &rollout, now));
    let in_flight = records.last().is_some_and(|r| r.status == RecordStatus::Deploying);
    let gate = !in_flight || stuck.is_some() || mutation.is(Mutation::TemplateDuringRecord);

    // The PropagationPolicy.
    let placement_hash: String = hash(&object.spec.placement)?.chars().take(16).collect();
    let placement_known = observed
        .policy
        .as_ref()
        .and_then(|p| p.metadata.annotations.as_ref())
        .and_then(|a| a.get(PLACEMENT_HASH))
        .cloned();
    let mut chosen = (sticky.clone(), placement_known.clone());
    if placement_known.as_deref() != Some(placement_hash.as_str()) && (gate || sticky.is_none()) {
        let matched = placement::matching(object.spec.placement.as_ref(), &observed.clusters);
        let lacking = lacking_kinds(&matched, sticky.as_deref().unwrap_or_default(), &observed.clusters);
        if matched.is_empty() {
            findings.unscheduled = Some(Wait {
                reason: "NoClusterMatches",
                message: "no cluster matches spec.placement; what runs is left as it is. Change placement, or label or join a cluster".to_owned(),
            });
        } else if !lacking.is_empty() && !mutation.is(Mutation::IgnoreEnablements) {
            findings.unscheduled = Some(Wait {
                reason: "KindsNotServed",
                message: format!(
                    "waits until these clusters serve ZooKeeper and ServiceExport: {}. Karmada's scheduler would leave them out for good; mczk register brings the kinds there; exclude a cluster by spec.placement.clusterAffinity.exclude to go on without it",
                    lacking.join(", ")
                ),
            });
        } else {
            chosen = (Some(matched), Some(placement_hash.clone()));
        }
    } else if placement_known.as_deref() != Some(placement_hash.as_str()) {
        findings.waiting = Some(after_record(&records));
    }

    let naming_id =
        known.ensemble.id.clone().or_else(|| old.ensemble.as_ref().map(|e| e.id.clone()).filter(|id| !id.is_empty()));
    let id = naming_id.unwrap_or_else(|| ensemble::incarnation(&object.uid().unwrap_or_default(), 0));

    let (Some(clusters), Some(placement_hash)) = chosen else {
        // Nothing exists yet, and nothing can: no template before there are clusters for it.
        let status = status::status(
            &status::Known {
                observed,
                old: &old,
                records: &records,
                findings: &findings,
                ensemble: &known.ensemble,
                pins: &known.pins,
                schedule: &[],
                members: &members,
                quorum: &Quorum::default(),
                bound: &[],
                desired: &BTreeMap::new(),
            },
            now,
        );
        return Ok(Plan { events: crate::rollout::events::events(&old, &status), ..Plan::nothing(status) });
    };
    let policy = propagation_policy(observed, &clusters, &placement_hash, &name, &id, mutation)?;

    // The template: a snapshot that a record rolls out. It changes between records, when a record cannot finish, or when
    // somebody else changed it.
    let wanted_spec = render::template(object, &observed.server_image)?;
    let template_spec = match template_live {
        Some(live) if live.spec != wanted_spec && !gate && !tampered(live)? => {
            findings.waiting = Some(after_record(&records));
            live.spec.clone()
        }
        _ => wanted_spec,
    };
    let reported = reported(&clusters, &old, &members);
    let template = template(observed, &template_spec, reported)?;
    let wanted_placement = serde_json::to_value(&policy.spec.placement)?;
    let written = template_live.is_some_and(|live| live.spec == template_spec)
        && observed.policy.as_ref().is_some_and(|live| {
            serde_json::to_value(&live.spec.placement).is_ok_and(|live| objects::covers(&live, &wanted_placement))
        });

    // The schedule, once everything that it rests on is written.
    let schedule = match (written, template_live, &findings.unscheduled) {
        (_, _, Some(wait)) => Err(wait.clone()),
        (true, Some(live), None) if mutation.is(Mutation::BelieveUnsettled) => {
            let _ = live;
            Ok(observed
                .binding
                .as_ref()
                .map(|b| {
                    b.spec
                        .clusters
                        .iter()
                        .map(|c| Scheduled { cluster: c.name.clone(), replicas: c.replicas })
                        .collect()
                })
                .unwrap_or_default())
        }
        (true, Some(live), None) => binding::schedule(observed.binding.as_ref(), live, &policy),
        _ => Err(Wait { reason: "Rescheduling", message: "the template and its policy are being written".to_owned() }),
    };

    let formed_before = old.ensemble.as_ref().is_some_and(|e| e.formed)
        || (known.ensemble.id.is_some() && known.ensemble.bootstrap.is_none());
    let quorum = Quorum::of(&members, formed_before);
    let naming = Naming {
        name: &name,
        namespace: &namespace,
        id: &id,
        names: template_spec.source.as_ref().and_then(|s| s.names.as_ref()),
    };
    let (mut current, mut found) = (known.clone(), None);
    if current.ensemble.servers.is_empty() {
        found = Some(recover(naming, &old, &clusters, &members, mutation));
        if let Some(Found::Ensemble(recovered)) = &found {
            current.ensemble = ensemble::seal((**recovered).clone())?;
        }
    }
    let generations = ObservedGenerations {
        multiclusterzookeeper: object.metadata.generation.unwrap_or(0),
        zookeeper: template_live.and_then(|t| t.metadata.generation).unwrap_or(0),
    };
    if current.pins.is_empty() {
        recover_pins(&mut current, &records, generations, &template_spec, &old)?;
    }

    let mut pass = Pass {
        object,
        rollout: &rollout,
        template: &template_spec,
        naming,
        members: &members,
        quorum: &quorum,
        now,
        mutation,
        old: &old,
        findings,
        look_again: None,
        generations,
        stuck,
        highest_id: highest_id(observed, &current.ensemble),
        desired: BTreeMap::new(),
    };
    let mut bound = Vec::new();
    let mut scheduled_now = Vec::new();
    match (schedule, found) {
        (Err(wait), _) => pass.findings.unscheduled = Some(wait),
        (Ok(_), Some(Found::Wait(cluster))) => {
            pass.findings.waiting = Some(Wait {
                reason: "ClusterNotReported",
                message: format!(
                    "waits for the first report of cluster {cluster}: no server is named before every cluster that may hold one was heard"
                ),
            });
        }
        (Ok(schedule), _) => {
            bound.extend(schedule.iter().map(|s| s.cluster.clone()));
            pass.roll(&schedule, &mut records, &mut current)?;
            scheduled_now = schedule;
        }
    }
    let limit = object.spec.record_history_limit.unwrap_or(DEFAULT_RECORD_HISTORY_LIMIT);
    let surplus = records.len().saturating_sub(usize::try_from(limit).unwrap_or(1).max(1));
    records.drain(..surplus);

    let Pass { mut findings, look_again, highest_id, desired, .. } = pass;
    let overrides = match override_policy(observed, &current, &records, highest_id, mutation)? {
        Ok(policy) => Desired::Apply(policy),
        Err(refused) => {
            findings.refused = Some(Wait { reason: "TooLarge", message: refused });
            // What cannot be written must not be remembered as begun.
            records = remembered(observed, &old);
            Desired::Leave
        }
    };
    let status = status::status(
        &status::Known {
            observed,
            old: &old,
            records: &records,
            findings: &findings,
            ensemble: &current.ensemble,
            pins: &current.pins,
            schedule: &scheduled_now,
            members: &members,
            quorum: &quorum,
            bound: &bound,
            desired: &desired,
        },
        now,
    );
    Ok(Plan {
        finalizer: Finalizer::Keep,
        events: crate::rollout::events::events(&old, &status),
        services: services(observed, &naming),
        status,
        overrides,
        policy: Desired::Apply(policy),
        template: Desired::Apply(template),
        protect_binding: Some(true),
        look_again,
    })
}

/// The first object of our names that is not ours: nothing of it is ever written (S7).
fn foreign(observed: &Observed) -> Option<Wait> {
    let object = &observed.object;
    let mut found = Vec::new();
    if let Some(t) = observed.template.as_ref().filter(|t| !objects::is_ours(&t.metadata, object)) {
        found.push(format!("ZooKeeper {}", t.name_any()));
    }
    if let Some(p) = observed.policy.as_ref().filter(|p| !objects::is_ours(&p.metadata, object)) {
        found.push(format!("PropagationPolicy {}", p.name_any()));
    }
    if let Some(p) = observed.overrides.as_ref().filter(|p| !objects::is_ours(&p.metadata, object)) {
        found.push(format!("OverridePolicy {}", p.name_any()));
    }
    for (key, value) in &observed.services {
        let meta = value.get("metadata").cloned().and_then(|m| serde_json::from_value(m).ok()).unwrap_or_default();
        if !objects::is_ours(&meta, object) {
            found.push(key.replace('/', " "));
        }
    }
    (!found.is_empty()).then(|| Wait {
        reason: "ForeignObject",
        message: format!(
            "{} in namespace {} exists and does not belong to this MultiClusterZooKeeper; it is left as it is. Delete or rename it, or declare the ensemble under another name",
            found.join(", "),
            object.namespace().unwrap_or_default()
        ),
    })
}

fn after_record(records: &[Record]) -> Wait {
    Wait {
        reason: "AfterCurrentRecord",
        message: format!(
            "the newest change waits until the record in progress is done: {}",
            records.last().map(record::summary).unwrap_or_default()
        ),
    }
}

/// The records: those of the status, or, when it was lost, those that the OverridePolicy mirrors.
pub(crate) fn remembered(observed: &Observed, old: &MultiClusterZooKeeperStatus) -> Vec<Record> {
    if !old.records.is_empty() {
        return old.records.clone();
    }
    observed
        .overrides
        .as_ref()
        .and_then(|o| o.metadata.annotations.as_ref())
        .and_then(|a| a.get(RECORDS))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn highest_id(observed: &Observed, ensemble: &Ensemble) -> i32 {
    observed
        .overrides
        .as_ref()
        .and_then(|o| o.metadata.annotations.as_ref())
        .and_then(|a| a.get(HIGHEST_ID))
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
        .max(ensemble.servers.iter().map(|s| s.id).max().unwrap_or(0))
}

/// Which clusters do not serve our kinds, of those that were not chosen before.
fn lacking_kinds(matched: &[String], chosen: &[String], clusters: &[Cluster]) -> Vec<String> {
    matched
        .iter()
        .filter(|name| !chosen.contains(name))
        .filter(|name| {
            !clusters.iter().any(|c| {
                c.name() == name.as_str()
                    && c.serves(crate::api::API_VERSION, "ZooKeeper")
                    && c.serves(MCS_API_VERSION, "ServiceExport")
            })
        })
        .cloned()
        .collect()
}

/// Whether somebody else changed the template since we wrote it.
fn tampered(live: &ZooKeeper) -> serde_json::Result<bool> {
    let hash: String = hash(&live.spec)?.chars().take(16).collect();
    Ok(live.annotations().get(SPEC_HASH) != Some(&hash))
}

/// Whether every chosen cluster has reported our own object once: until then nothing there may be overwritten.
fn reported(clusters: &[String], old: &MultiClusterZooKeeperStatus, members: &BTreeMap<String, Member>) -> bool {
    clusters.iter().all(|name| {
        old.clusters.iter().any(|c| c.name == *name && c.reported)
            || members.get(name).is_some_and(|m| m.applied && m.status.is_some())
    })
}

fn recover(
    naming: Naming<'_>,
    old: &MultiClusterZooKeeperStatus,
    clusters: &[String],
    members: &BTreeMap<String, Member>,
    mutation: Mutation,
) -> Found {
    match ensemble::from_status(naming, old) {
        Some(found) => Found::Ensemble(Box::new(found)),
        None => ensemble::from_members(naming, clusters, members, mutation),
    }
}

/// The pins of clusters that a lost policy held: known again where the record says that they were given the template as
/// it is. Others stay without: their agents change nothing until their turn comes.
fn recover_pins(
    current: &mut Overrides,
    records: &[Record],
    generations: ObservedGenerations,
    template: &ZooKeeperSpec,
    old: &MultiClusterZooKeeperStatus,
) -> serde_json::Result<()> {
    let Some(last) = records.last().filter(|r| r.observed_generations.zookeeper == generations.zookeeper) else {
        return Ok(());
    };
    for cluster in last.current_state.completed.iter().chain(&last.current_state.deploying) {
        let Some(told) = old.clusters.iter().find(|c| c.name == *cluster).filter(|c| c.desired > 0) else { continue };
        current.pins.insert(cluster.clone(), render::pin(template, cluster, told.desired)?);
    }
    Ok(())
}

/// Where a record cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The cluster.
    pub cluster: String,
    /// Why.
    pub why: Wait,
}

fn stuck(
    last: &Record,
    members: &BTreeMap<String, Member>,
    known: &Overrides,
    rollout: &Rollout,
    now: Timestamp,
) -> Option<Stuck> {
    if last.status == RecordStatus::Ready {
        return None;
    }
    let at = |cluster: &String, reason, message| Stuck { cluster: cluster.clone(), why: Wait { reason, message } };
    let Some(cluster) = last.current_state.deploying.first() else {
        let first = last.current_state.pending.first()?;
        return last
            .current_state
            .pending
            .iter()
            .all(|c| members.get(c).is_none_or(|m| !m.reachable))
            .then(|| at(first, "ClusterUnreachable", format!("cluster {first} is next and not Ready in Karmada")));
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
    let deadline = rollout.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS);
    let elapsed = now.as_second() - last.last_transition_time.0.as_second();
    (elapsed >= i64::from(deadline)).then(|| {
        at(cluster, "ProgressDeadlineExceeded", format!("cluster {cluster} is not complete after {deadline} s"))
    })
}

/// One pass over the rules of the rollout.
struct Pass<'a> {
    object: &'a MultiClusterZooKeeper,
    rollout: &'a Rollout,
    template: &'a ZooKeeperSpec,
    naming: Naming<'a>,
    members: &'a BTreeMap<String, Member>,
    quorum: &'a Quorum,
    now: Timestamp,
    mutation: Mutation,
    old: &'a MultiClusterZooKeeperStatus,
    findings: Findings,
    look_again: Option<Duration>,
    generations: ObservedGenerations,
    stuck: Option<Stuck>,
    highest_id: i32,
    desired: BTreeMap<String, ZooKeeperSpec>,
}

impl Pass<'_> {
    fn roll(
        &mut self,
        schedule: &[Scheduled],
        records: &mut Vec<Record>,
        current: &mut Overrides,
    ) -> serde_json::Result<()> {
        for scheduled in schedule {
            let pin = render::pin(self.template, &scheduled.cluster, scheduled.replicas)?;
            self.desired.insert(scheduled.cluster.clone(), pin);
        }
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        if let Some(lonely) = observers.iter().find(|o| !schedule.iter().any(|s| s.cluster == o.cluster)) {
            self.findings.refused = Some(Wait {
                reason: "ObserversWithoutVoter",
                message: format!(
                    "spec.observers names cluster {}, which has no voter: give it one, or remove the entry",
                    lonely.cluster
                ),
            });
            return Ok(());
        }
        let servers = match ensemble::servers(
            self.naming,
            &current.ensemble.servers,
            self.highest_id,
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
        let scheduled: Vec<String> = schedule.iter().map(|s| s.cluster.clone()).collect();
        let pins_change =
            self.desired.iter().any(|(cluster, pin)| current.pins.get(cluster).map(|p| &p.pin) != Some(&pin.pin));
        let frozen = current.ensemble.bootstrap == Some(true) && !self.quorum.formed;
        let list_changes = servers != current.ensemble.servers;
        if frozen && list_changes && !self.mutation.is(Mutation::ListDuringBootstrap) {
            // S5: servers that already started know the old list, and a server that started with another one could make
            // a second majority.
            self.findings.refused = Some(Wait {
                reason: "BootstrapListFrozen",
                message: "the schedule changed before the first quorum formed, and the list of servers is frozen until then: bring the missing cluster up, or take the change of replicas or placement back".to_owned(),
            });
            return Ok(());
        }
        self.begin_record(records, &scheduled, pins_change || list_changes);
        self.change_list(current, servers, records, schedule)?;
        self.advance(records, schedule, current)?;
        if current.ensemble.bootstrap == Some(true) && records.last().is_some_and(|r| r.status == RecordStatus::Ready) {
            let next =
                Ensemble { bootstrap: None, epoch: current.ensemble.epoch.map(|e| e + 1), ..current.ensemble.clone() };
            current.ensemble = ensemble::seal(next)?;
        }
        // A pin of a cluster that the schedule left stays while its servers may still vote.
        let in_use = |cluster: &String| {
            scheduled.contains(cluster)
                || current.ensemble.servers.iter().any(|s| s.cluster == *cluster)
                || self.status_ids(cluster).iter().any(|id| self.quorum.voters.contains(id))
                || !self.quorum.holds()
        };
        let keep: Vec<String> = current.pins.keys().filter(|c| in_use(c)).cloned().collect();
        current.pins.retain(|cluster, _| keep.contains(cluster));
        Ok(())
    }

    fn status_ids(&self, cluster: &str) -> Vec<i32> {
        self.members
            .get(cluster)
            .and_then(|m| m.status.as_ref())
            .map(|s| s.servers.iter().map(|server| server.id).collect())
            .unwrap_or_default()
    }

    /// Whether a new record begins, and which.
    fn begin_record(&mut self, records: &mut Vec<Record>, scheduled: &[String], changes: bool) {
        let situation =
            record::Situation { generations: self.generations, scheduled, changes, stuck: self.stuck.is_some() };
        let start = record::start(records.last(), &situation, self.mutation);
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
        let stuck_at = self.stuck.as_ref().map(|s| s.cluster.clone()).filter(|_| start == record::Start::Superseded);
        let listed = (self.rollout.order == Some(RolloutOrder::Listed)).then_some(self.rollout.clusters.as_slice());
        let leader = self.quorum.leader;
        let order = record::order(scheduled, listed, !self.quorum.formed, |cluster| {
            let member = self.members.get(cluster);
            let status = member.and_then(|m| m.status.as_ref());
            let servers = status.map(|s| s.servers.as_slice()).unwrap_or_default();
            record::Rank {
                reachable: member.is_some_and(|m| m.reachable),
                healthy: !servers.is_empty() && servers.iter().all(|s| s.serving),
                leader: leader.is_some_and(|id| servers.iter().any(|s| s.id == id)),
                stuck: stuck_at.as_deref() == Some(cluster),
            }
        });
        self.stuck = None;
        records.push(record::new(self.generations, order, self.now));
    }

    /// Writes the list of servers, for all clusters at once.
    fn change_list(
        &mut self,
        current: &mut Overrides,
        servers: Vec<crate::api::zookeeper::Server>,
        records: &[Record],
        schedule: &[Scheduled],
    ) -> serde_json::Result<()> {
        let covered = records.last().is_some_and(|r| r.status == RecordStatus::Deploying);
        if servers == current.ensemble.servers || !covered {
            return Ok(());
        }
        let first = current.ensemble.servers.is_empty();
        if !first
            && !self.quorum.holds()
            && !self.mutation.is(Mutation::ListWithoutQuorum)
            && !self.mutation.is(Mutation::ListDuringBootstrap)
        {
            self.findings.waiting = Some(Wait {
                reason: "NoQuorum",
                message: "membership changes only while a quorum is seen: bring servers back until a majority serves"
                    .to_owned(),
            });
            return Ok(());
        }
        let _ = schedule;
        self.highest_id = self.highest_id.max(servers.iter().map(|s| s.id).max().unwrap_or(0));
        current.ensemble = ensemble::seal(Ensemble {
            id: Some(self.naming.id.to_owned()),
            epoch: Some(current.ensemble.epoch.unwrap_or(0) + 1),
            bootstrap: (!self.quorum.formed).then_some(true),
            servers,
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
        while last.status == RecordStatus::Deploying {
            if last.current_state.completed.len() == last.order.len() {
                last.status = RecordStatus::Ready;
                last.last_transition_time = Time(self.now);
                break;
            }
            match last.current_state.deploying.first().cloned() {
                None => {
                    if !self.begin_next(last, current) {
                        break;
                    }
                }
                Some(cluster) => {
                    let done = self.check(&cluster, last, schedule, current)?;
                    if !done {
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
    fn begin_next(&mut self, last: &mut Record, current: &Overrides) -> bool {
        if self.rollout.paused == Some(true) {
            self.findings.paused = true;
            return false;
        }
        let reachable = |c: &&String| self.members.get(*c).is_some_and(|m| m.reachable);
        let Some(next) = last.current_state.pending.iter().find(reachable).cloned() else {
            let Some(lost) = last.current_state.pending.first().cloned() else { return false };
            if self.rollout.on_failure == Some(OnFailure::Continue) && last.order.len() > 1 {
                record::leave_out(last, &lost, self.now);
                return true;
            }
            self.findings.waiting = Some(Wait {
                reason: "ClusterUnreachable",
                message: format!(
                    "waits for cluster {lost}, which is not Ready in Karmada; set rollout.onFailure to Continue to go on without it"
                ),
            });
            return false;
        };
        if let Err(message) = self.may_begin(&next, current) {
            self.findings.waiting = Some(Wait { reason: "NoQuorum", message });
            return false;
        }
        record::begin(last, &next, self.now);
        true
    }

    /// S3, S9: whether restarts in this cluster, one server at a time, leave a quorum.
    fn may_begin(&self, cluster: &str, current: &Overrides) -> Result<(), String> {
        let (Some(old), Some(new)) = (current.pins.get(cluster), self.desired.get(cluster)) else { return Ok(()) };
        if !self.quorum.formed || old.revision == new.revision || self.mutation.is(Mutation::BeginWithoutQuorum) {
            return Ok(());
        }
        let own: Vec<i32> = current
            .ensemble
            .servers
            .iter()
            .filter(|s| s.cluster == cluster && s.role == Role::Voter)
            .map(|s| s.id)
            .collect();
        let serving_here = own.iter().filter(|id| self.quorum.serving.contains(id)).count();
        let needed = majority(self.quorum.voters.len());
        let serving = self.quorum.serving.len();
        if serving_here < own.len() && (serving_here == 0 || !self.quorum.holds()) {
            // Servers that do not serve can be replaced without making anything worse, and it is the only way out when a
            // majority was broken. The agent stops no serving one.
            return Ok(());
        }
        if !self.quorum.voters.is_empty() && serving.saturating_sub(1) >= needed {
            return Ok(());
        }
        Err(format!(
            "cluster {cluster} is next, but of {} voters {serving} are seen serving, and {needed} must go on serving while one restarts: bring servers back first",
            self.quorum.voters.len()
        ))
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
        let before = current.pins.get(cluster).map_or(0, |p| p.replicas);
        let keep = before > replicas && !self.removed(current) && !self.mutation.is(Mutation::LowerBeforeRemoved);
        let pin = render::pin(self.template, cluster, if keep { before } else { replicas })?;
        let unchanged = current.pins.get(cluster).is_some_and(|p| p.pin == pin.pin);
        current.pins.insert(cluster.to_owned(), pin.clone());
        let outcome = if keep {
            Err("waits until the ensemble's own configuration no longer has the servers that leave".to_owned())
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
        let _ = unchanged;
        match outcome {
            Err(message) => {
                let (reason, message) = match &self.stuck {
                    Some(stuck) if stuck.cluster == cluster => {
                        (stuck.why.reason, format!("{}; {message}", stuck.why.message))
                    }
                    _ => ("Deploying", format!("cluster {cluster}: {message}")),
                };
                self.findings.waiting = Some(Wait { reason, message });
                let deadline = self.rollout.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS);
                let left = i64::from(deadline) - (self.now.as_second() - last.last_transition_time.0.as_second());
                if left > 0 {
                    self.sooner(left);
                }
                Ok(false)
            }
            Ok(()) => {
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
                        message: format!(
                            "cluster {cluster} is complete and held for {hold} s before the next one begins"
                        ),
                    });
                    self.sooner(left);
                    return Ok(false);
                }
                Ok(true)
            }
        }
    }

    /// S2: whether `ZooKeeper`'s configuration, read through a quorum, has no voter that the list does not name.
    fn removed(&self, current: &Overrides) -> bool {
        !self.quorum.voters.is_empty()
            && self
                .quorum
                .voters
                .iter()
                .all(|id| current.ensemble.servers.iter().any(|s| s.id == *id && s.role == Role::Voter))
    }

    fn sooner(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1));
        self.look_again = Some(self.look_again.map_or(wait, |w| w.min(wait)));
        let _ = self.object;
    }
}

fn template(observed: &Observed, spec: &ZooKeeperSpec, reported: bool) -> serde_json::Result<ZooKeeper> {
    let live = observed.template.as_ref().map(|t| &t.metadata);
    let mut meta = objects::metadata(&observed.object, observed.object.name_any(), live);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(SPEC_HASH.to_owned(), hash(spec)?.chars().take(16).collect());
    if !reported {
        annotations.insert(CONFLICT_RESOLUTION.to_owned(), CONFLICT_ABORT.to_owned());
    }
    Ok(ZooKeeper { metadata: objects::seal(meta, spec)?, spec: spec.clone(), status: None })
}

fn propagation_policy(
    observed: &Observed,
    clusters: &[String],
    placement_hash: &str,
    name: &str,
    id: &str,
    mutation: Mutation,
) -> serde_json::Result<PropagationPolicy> {
    let select = |api_version: &str, kind: &str, name: String| ResourceSelector {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: Some(name),
        namespace: observed.object.namespace(),
    };
    let spec = PropagationPolicySpec {
        resource_selectors: vec![
            select(crate::api::API_VERSION, "ZooKeeper", name.to_owned()),
            select(MCS_API_VERSION, "ServiceExport", name.to_owned()),
            select(MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        ],
        placement: placement::for_karmada(observed.object.spec.placement.as_ref(), clusters),
        propagate_deps: true,
        conflict_resolution: Some("Overwrite".to_owned()),
        preserve_resources_on_deletion: Some(!mutation.is(Mutation::NoPreserve)),
        failover: Some(json!({ "cluster": { "purgeMode": "Gracefully" } })),
    };
    let live = observed.policy.as_ref().map(|p| &p.metadata);
    let mut meta = objects::metadata(&observed.object, policy_name(name), live);
    meta.annotations.get_or_insert_default().insert(PLACEMENT_HASH.to_owned(), placement_hash.to_owned());
    Ok(PropagationPolicy { metadata: objects::seal(meta, &spec)?, spec })
}

/// The OverridePolicy as it should be, or why it cannot be.
pub(crate) fn override_policy(
    observed: &Observed,
    overrides: &Overrides,
    records: &[Record],
    highest_id: i32,
    mutation: Mutation,
) -> serde_json::Result<Result<OverridePolicy, String>> {
    let name = observed.object.name_any();
    let spec = match override_rules::write(&observed.object.namespace().unwrap_or_default(), &name, overrides, mutation)
    {
        Ok(spec) => spec,
        Err(refused) => return Ok(Err(refused.to_string())),
    };
    let live = observed.overrides.as_ref().map(|p| &p.metadata);
    let mut meta = objects::metadata(&observed.object, policy_name(&name), live);
    let annotations = meta.annotations.get_or_insert_default();
    let mirrored = records.get(records.len().saturating_sub(MIRRORED_RECORDS)..).unwrap_or_default();
    if !mirrored.is_empty() {
        annotations.insert(RECORDS.to_owned(), serde_json::to_string(mirrored)?);
    }
    if highest_id > 0 {
        annotations.insert(HIGHEST_ID.to_owned(), highest_id.to_string());
    }
    Ok(Ok(OverridePolicy { metadata: objects::seal(meta, &spec)?, spec }))
}

/// ServiceExports of the client and the headless Service, and the import into clusters without servers.
fn services(observed: &Observed, naming: &Naming<'_>) -> BTreeMap<String, Desired<Value>> {
    let object = &observed.object;
    let mut wanted = BTreeMap::new();
    let mut add = |api_version: &str, kind: &str, name: String, abort: bool, spec: Option<Value>| {
        let key = format!("{kind}/{name}");
        let live_meta = observed
            .services
            .get(&key)
            .and_then(|v| v.get("metadata").cloned())
            .and_then(|m| serde_json::from_value(m).ok());
        let mut meta = objects::metadata(object, name, live_meta.as_ref());
        if abort {
            meta.annotations.get_or_insert_default().insert(CONFLICT_RESOLUTION.to_owned(), CONFLICT_ABORT.to_owned());
        }
        let Ok(meta) = objects::seal(meta, &spec) else { return };
        let mut value = json!({ "apiVersion": api_version, "kind": kind, "metadata": meta });
        if let (Some(spec), Some(members)) = (spec, value.as_object_mut()) {
            members.insert("spec".to_owned(), spec);
        }
        wanted.insert(key, Desired::Apply(value));
    };
    add(MCS_API_VERSION, "ServiceExport", naming.name.to_owned(), true, None);
    add(MCS_API_VERSION, "ServiceExport", naming.service(), true, None);
    let imports = object.spec.network.as_ref().map(|n| n.import_clusters.clone()).unwrap_or_default();
    let import_policy = format!("{}-import", policy_name(naming.name));
    if imports.is_empty() {
        for key in [format!("ServiceImport/{}", naming.name), format!("PropagationPolicy/{import_policy}")] {
            if observed.services.contains_key(&key) {
                wanted.insert(key, Desired::Delete);
            }
        }
    } else {
        add(
            MCS_API_VERSION,
            "ServiceImport",
            naming.name.to_owned(),
            true,
            Some(json!({
                "type": "ClusterSetIP", "ports": [{ "name": "client", "port": 2181, "protocol": "TCP" }]
            })),
        );
        add(
            "policy.karmada.io/v1alpha1",
            "PropagationPolicy",
            import_policy,
            false,
            Some(json!({
                "resourceSelectors": [{ "apiVersion": MCS_API_VERSION, "kind": "ServiceImport", "name": naming.name }],
                "placement": { "clusterAffinity": { "clusterNames": imports } }
            })),
        );
    }
    wanted
}

/// Keys of [`Observed::services`] that the shell reads for one object: kind and name.
#[must_use]
pub fn service_names(object: &MultiClusterZooKeeper) -> Vec<(&'static str, &'static str, String)> {
    let name = object.name_any();
    let id = object
        .status
        .as_ref()
        .and_then(|s| s.ensemble.as_ref())
        .map(|e| e.id.clone())
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| ensemble::incarnation(&object.uid().unwrap_or_default(), 0));
    vec![
        (MCS_API_VERSION, "ServiceExport", name.clone()),
        (MCS_API_VERSION, "ServiceExport", format!("{name}-{id}")),
        (MCS_API_VERSION, "ServiceImport", name.clone()),
        ("policy.karmada.io/v1alpha1", "PropagationPolicy", format!("{}-import", policy_name(&name))),
    ]
}

/// Name of the binding that belongs to an object.
#[must_use]
pub fn binding_of(object: &MultiClusterZooKeeper) -> String {
    binding_name(&object.name_any())
}

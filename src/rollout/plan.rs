//! `plan(observed, now)`: everything that should be, decided from what was seen.
//!
//! The function is total and deterministic and knows no client. It answers with the owned objects as they should be and
//! with the status; the shell writes what differs, the status first, so that a record is remembered before it acts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

pub use crate::rollout::{
    blocker::Blocker,
    observed::Observed,
    outcome::{Desired, Finalizer, Findings, Plan},
};
use crate::{
    api::{
        karmada::cluster::Cluster,
        multiclusterzookeeper::{
            EnsembleStatus, MultiClusterZooKeeperStatus, ObservedGenerations, Record, RecordStatus,
        },
        placement::Placement,
        zookeeper::{Ensemble, EnsemblePhase, Role},
    },
    contract::{
        canonical_json::short_hash,
        conditions::Reason,
        labels::{self, OPERATOR_FINALIZER},
        naming::Naming,
        owned_fields::is_superset_of,
        server_list,
        tombstone::Tombstone,
    },
    mutation::broken,
    rollout::{
        advance::{Pass, stuck},
        binding::{self, Scheduled},
        certificates, cluster_spec,
        desired::{self, ClusterSelection, MCS_API_VERSION},
        ensemble::{self, Found, Quorum},
        objects,
        override_rules::{self, Overrides},
        placement,
        rebootstrap::{self, Step},
        record,
        recovery::{recover, recover_pins, remembered, turn},
        render,
        report::{self, ClusterReport},
        status, teardown,
    },
};

/// Records that the status holds if nothing is said.
const DEFAULT_RECORD_HISTORY_LIMIT: i32 = 10;
/// What was made is seen when everything is looked at again: Secrets are not watched.
const AFTER_SECRET: Duration = Duration::from_millis(100);
/// Former lives that a list names at most: more are told of by their notes alone.
const MOST_FORMER: usize = 64;
/// How often a foreign object of one of our names is looked at.
const FOREIGN_PACE: Duration = Duration::from_secs(10);

/// Everything that should be, decided from what was seen.
#[must_use]
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match decide(observed, now) {
        Ok(plan) => plan,
        Err(error) => {
            let findings = Findings {
                action_required: Some(Blocker { reason: Reason::Internal, message: format!("cannot decide: {error}") }),
                ..Findings::default()
            };
            Plan::nothing(status::failed(observed, &findings, now))
        }
    }
}

#[allow(clippy::too_many_lines)]
fn decide(observed: &Observed, now: Timestamp) -> serde_json::Result<Plan> {
    let object = &observed.object;
    let old = object.status.clone().unwrap_or_default();
    if object.metadata.deletion_timestamp.is_some() {
        return teardown::plan(observed, now);
    }
    if !object.finalizers().iter().any(|f| f == OPERATOR_FINALIZER) {
        return Ok(Plan { finalizer: Finalizer::Add, ..Plan::nothing(old) });
    }
    if let Some(foreign) = foreign(observed).filter(|_| !broken!(AdoptForeign)) {
        let findings = Findings { action_required: Some(foreign), ..Findings::default() };
        // Objects that are not ours are not watched: only a look tells that the name is free again.
        let status = status::failed(observed, &findings, now);
        return Ok(Plan {
            events: crate::rollout::events::events(&old, &status),
            requeue_after: Some(FOREIGN_PACE),
            ..Plan::nothing(status)
        });
    }

    let mut findings = Findings::default();
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let rollout = object.spec.rollout.clone().unwrap_or_default();
    let mut known = observed.overrides.as_ref().map(|o| override_rules::read(&o.spec)).unwrap_or_default();
    let mut records = if broken!(ForgetRecords) { old.records.clone() } else { remembered(observed, &old) };
    let template_live = observed.template.as_ref();

    // The clusters: chosen once for each placement, and kept.
    let sticky = ClusterSelection::known(observed);
    let reports = {
        let mut named = sticky.as_ref().map(|c| c.clusters().to_vec()).unwrap_or_default();
        named.extend(known.cluster_specs.keys().cloned());
        report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &named)
    };
    // The life of the ensemble. What is known of one that was noted as over says nothing of the next one.
    let known_id = known
        .ensemble
        .incarnation
        .clone()
        .or_else(|| old.ensemble.as_ref().map(|e| e.incarnation.clone()).filter(|id| !id.is_empty()));
    let formed = |told: &EnsembleStatus| told.formed && Some(&told.incarnation) == known_id.as_ref();
    let formed_before = old.ensemble.as_ref().is_some_and(formed)
        || (known.ensemble.incarnation.is_some() && !known.ensemble.phase.is_bootstrap())
        || known.ensemble.phase == EnsemblePhase::Formed;
    let uid = object.uid().unwrap_or_default();
    let id = rebootstrap::life(&uid, known_id.as_deref(), formed_before, &observed.tombstones, reports.values());

    let next_life = known_id.is_some_and(|known| known != id);
    if next_life {
        known = Overrides::default();
    }
    let of_this_life = |told: &&EnsembleStatus| told.incarnation == id;
    let told_list = old.ensemble.as_ref().filter(of_this_life);

    let stuck = records.last().and_then(|last| stuck(last, &reports, &known, &rollout, &old, now));
    // A record of a former life holds nothing up.
    let reported_list = ensemble::newest_reported(&id, &reports);
    let has_list = known.ensemble.incarnation.is_some() || told_list.is_some() || reported_list.is_some();
    let in_flight = has_list && records.last().is_some_and(|r| r.status == RecordStatus::Deploying);
    let gate = !in_flight || stuck.is_some() || next_life || broken!(TemplateDuringRecord);

    let mut quorum = Quorum::of(&id, &reports, &known.ensemble.servers, formed_before);
    let abandoned = objects::abandoned(object);
    let matching = placement::matching(object.spec.placement.as_ref(), &observed.clusters);
    let asked = placement_hash(object.spec.placement.as_ref())?;
    let situation = rebootstrap::Situation {
        list: &known.ensemble,
        formed: quorum.formed,
        cluster_specs: &known.cluster_specs,
        told: &old.clusters,
        reports: &reports,
        // As everywhere: a label that changes moves nobody.
        wanted: sticky
            .as_ref()
            .filter(|sticky| sticky.hash == asked)
            .map_or(matching.as_slice(), ClusterSelection::clusters),
        abandoned: &abandoned,
        paused: rollout.paused == Some(true),
    };
    let second = rebootstrap::step(&situation);
    let unpinned: Vec<String> = rebootstrap::unpinned(&situation).into_iter().map(ToOwned::to_owned).collect();
    // Whoever is to report that nothing was accepted must not lose the object before; nor where the list is only found again.
    let unfound = known.ensemble.servers.is_empty()
        && !quorum.formed
        && (told_list.is_some() || reported_list.is_some_and(|list| list.phase.is_bootstrap()));
    let parks = matches!(second, Step::Park(_) | Step::Wait(_) | Step::End(_) | Step::Begin(..));
    let held = (parks || unfound) && !broken!(BeginUnparked);

    let choice = Choice {
        sticky: sticky.as_ref(),
        gate: gate && !held,
        without: next_life.then_some(&abandoned),
        records: &records,
    };
    let chosen = choose_clusters(observed, &choice, &mut findings)?;

    let nothing_yet = |findings: &Findings, records: &[Record]| {
        let status = status::status(
            &status::StatusInputs {
                observed,
                old: &old,
                records,
                findings,
                ensemble: &known.ensemble,
                cluster_specs: &known.cluster_specs,
                schedule: &[],
                reports: &reports,
                quorum: &Quorum::default(),
                bound: &[],
                desired: &BTreeMap::new(),
            },
            now,
        );
        Plan { events: crate::rollout::events::events(&old, &status), ..Plan::nothing(status) }
    };
    let Some(chosen) = chosen else {
        // Nothing exists yet, and nothing can: no template before there are clusters for it.
        return Ok(nothing_yet(&findings, &records));
    };
    let clusters = chosen.clusters().to_vec();
    let policy = desired::propagation_policy(observed, &chosen, &name, &id)?;

    let used = certificates::newest(&known.ensemble, reported_list, told_list);
    let lists: Vec<&Ensemble> = reported_list.into_iter().chain([&known.ensemble]).collect();
    let loaded = certificates::loaded(&lists, &known.cluster_specs, &reports);
    let certificates = if object.spec.tls.quorum {
        let situation = certificates::Situation {
            ensemble: &name,
            incarnation: &id,
            used,
            seen: &observed.certificates,
            asked: object.annotations().get(labels::REPLACE_AUTHORITY).map(String::as_str),
            formed: formed_before,
            loaded: &loaded,
        };
        certificates::decide(&situation, now)
    } else {
        certificates::Decision::default()
    };
    findings.replacing.clone_from(&certificates.replacing);
    if object.spec.tls.quorum && used.or(certificates.tls.as_ref()).is_none() && template_live.is_none() {
        // Servers without certificates would only wait for them.
        findings.waiting = Some(certificates::being_made());
        let requeue_after = certificates.make.is_some().then_some(AFTER_SECRET);
        return Ok(Plan { certificate: certificates.make, requeue_after, ..nothing_yet(&findings, &records) });
    }

    // The template: a snapshot that a record rolls out. It changes between records, when a record cannot finish, or when
    // somebody else changed it.
    let travel = certificates::dependencies(used, certificates.tls.as_ref());
    let wanted_spec = render::template(object, &observed.server_image, travel, &known.cluster_specs)?;
    let template_spec = match template_live {
        // What need not travel any more is taken out in the end: that is no change that a record would be superseded for.
        Some(live) if in_flight && render::only_more_travels(&live.spec, &wanted_spec) => live.spec.clone(),
        Some(live) if live.spec != wanted_spec && (!gate || held) && !desired::tampered(live)? => {
            findings.waiting = Some(after_record(&records));
            live.spec.clone()
        }
        _ => wanted_spec,
    };
    let reported = reported(&clusters, &old, &reports);
    let template = desired::template(observed, &template_spec, reported)?;
    let wanted_placement = serde_json::to_value(&policy.spec.placement)?;
    let written = template_live.is_some_and(|live| live.spec == template_spec)
        && observed.policy.as_ref().is_some_and(|live| {
            serde_json::to_value(&live.spec.placement).is_ok_and(|live| is_superset_of(&live, &wanted_placement))
        });

    // The schedule, once everything that it rests on is written.
    let schedule = match (written, template_live, &findings.unscheduled) {
        (_, _, Some(wait)) => Err(wait.clone()),
        (true, Some(_), None) if broken!(BelieveUnsettled) => Ok(observed
            .binding
            .as_ref()
            .map(|b| {
                b.spec.clusters.iter().map(|c| Scheduled { cluster: c.name.clone(), replicas: c.replicas }).collect()
            })
            .unwrap_or_default()),
        (true, Some(live), None) => binding::schedule(observed.binding.as_ref(), live, &policy),
        _ => Err(Blocker {
            reason: Reason::Rescheduling,
            message: "the template and its policy are being written".to_owned(),
        }),
    };

    let naming = Naming {
        name: &name,
        namespace: &namespace,
        incarnation: &id,
        names: template_spec.source.as_ref().and_then(|s| s.names.as_ref()),
    };
    // A list that is found again, or is older than what reports obey, goes on with what is used.
    let travelling = certificates
        .tls
        .clone()
        .filter(|tls| certificates::travels(tls, &template_spec.dependencies) && written)
        .or_else(|| used.cloned());
    let (mut current, mut found) = (known.clone(), None);
    if current.ensemble.servers.is_empty() {
        // A cluster that the schedule gives nothing has no Work and never reports.
        let heard_of: Vec<String> = match (&schedule, observed.binding.as_ref()) {
            (Ok(schedule), Some(binding)) => clusters
                .iter()
                .filter(|name| {
                    schedule.iter().any(|s| s.cluster == **name)
                        || binding.status.aggregated_status.iter().any(|item| item.cluster_name == **name)
                })
                .cloned()
                .collect(),
            _ => clusters.clone(),
        };
        found = Some(recover(naming, &old, &heard_of, &reports, travelling.as_ref()));
        if let Some(Found::Ensemble(recovered)) = &found {
            current.ensemble = server_list::with_hash((**recovered).clone())?;
            // A list that is not a bootstrap's is of an ensemble that formed.
            quorum.formed |= !recovered.phase.is_bootstrap();
        }
    }
    let generations = ObservedGenerations {
        multiclusterzookeeper: object.metadata.generation.unwrap_or(0),
        zookeeper: template_live.and_then(|t| t.metadata.generation).unwrap_or(0),
    };
    // S6: what the clusters were given is the template as it is, and not as it will be.
    let lost = |current: &Overrides| current.cluster_specs.is_empty() || !current.damaged.is_empty();
    if let Some(live) = template_live.filter(|_| lost(&current) && (told_list.is_some() || old.ensemble.is_none())) {
        let given = if broken!(RecoverTheWanted) { &template_spec } else { &live.spec };
        recover_pins(&mut current, given, &old)?;
    }

    let mut pass = Pass {
        rollout: &rollout,
        template: &template_spec,
        naming,
        reports: &reports,
        quorum: &quorum,
        now,
        old: &old,
        findings,
        requeue_after: None,
        generations,
        stuck,
        desired: BTreeMap::new(),
        former: former(observed, &current.ensemble, &id),
        tls: travelling,
    };
    let mut bound = Vec::new();
    let mut scheduled_now = Vec::new();
    let mut ended = None;
    if let Some(live) = template_live.filter(|_| matches!(second, Step::Park(_) | Step::Wait(_))) {
        // Without a pin they would not obey the list that parks.
        for cluster in unpinned {
            let own = current.ensemble.servers.iter().filter(|s| s.cluster == cluster && s.role == Role::Voter).count();
            let turn = turn(&cluster, &old, &reports);
            let pin = cluster_spec::pin(&live.spec, &cluster, i32::try_from(own).unwrap_or(0), None, turn)?;
            current.cluster_specs.insert(cluster, pin);
        }
    }
    let outdated = ensemble::is_outdated(&current.ensemble, &id, &reports);
    let second = match second {
        Step::Park(why) => {
            current.ensemble = in_phase(&current.ensemble, EnsemblePhase::Suspended, &id, &reports)?;
            Some(why)
        }
        // An older policy may have been restored.
        Step::Wait(why) if outdated => {
            current.ensemble = in_phase(&current.ensemble, EnsemblePhase::Suspended, &id, &reports)?;
            Some(why)
        }
        Step::Wait(why) => Some(why),
        Step::End(why) => {
            current.ensemble = in_phase(&current.ensemble, EnsemblePhase::Abandoned, &id, &reports)?;
            Some(why)
        }
        Step::Begin(clusters, why) => {
            ended =
                Some(Tombstone { namespace: namespace.clone(), name: name.clone(), incarnation: id.clone(), clusters });
            Some(why)
        }
        Step::Unpark => {
            current.ensemble = in_phase(&current.ensemble, EnsemblePhase::Bootstrapping, &id, &reports)?;
            None
        }
        Step::GoOn => None,
    };
    match (schedule, found) {
        // Nothing rolls, and nothing more is opened: this life may be over.
        (schedule, _) if second.is_some() => {
            pass.findings.waiting = second;
            if let Ok(schedule) = schedule {
                current.lost = lost_works(observed, &old, &schedule);
            }
        }
        (Err(wait), _) => pass.findings.unscheduled = Some(wait),
        (Ok(_), Some(Found::Unknown)) => {
            pass.findings.action_required = Some(Blocker {
                reason: Reason::ServerListUnknown,
                message: "status and OverridePolicy were lost, and reports tell of servers but none of the list that they obey: nothing is changed, and what runs goes on. Update the agents in the reports".to_owned(),
            });
        }
        (Ok(_), Some(Found::Wait(silent))) => pass.findings.waiting = Some(unheard(&silent, &reports)),
        (Ok(schedule), _) => {
            bound.extend(schedule.iter().map(|s| s.cluster.clone()));
            current.lost = lost_works(observed, &old, &schedule);
            pass.roll(&schedule, &mut records, &mut current)?;
            scheduled_now = schedule;
        }
    }
    let limit = object.spec.record_history_limit.unwrap_or(DEFAULT_RECORD_HISTORY_LIMIT);
    let surplus = records.len().saturating_sub(usize::try_from(limit).unwrap_or(1).max(1));
    records.drain(..surplus);

    let Pass { mut findings, requeue_after, desired, .. } = pass;
    let overrides = match desired::override_policy(observed, &current, &records, Some(&chosen))? {
        Ok(policy) => Desired::Apply(policy),
        Err(refused) => {
            findings.action_required = Some(Blocker { reason: Reason::TooLarge, message: refused });
            // What cannot be written must not be remembered as begun.
            records = remembered(observed, &old);
            current.ensemble = known.ensemble.clone();
            Desired::Leave
        }
    };
    let status = status::status(
        &status::StatusInputs {
            observed,
            old: &old,
            records: &records,
            findings: &findings,
            ensemble: &current.ensemble,
            cluster_specs: &current.cluster_specs,
            schedule: &scheduled_now,
            reports: &reports,
            quorum: &quorum,
            bound: &bound,
            desired: &desired,
        },
        now,
    );
    let requeue_after = if ended.is_some() || certificates.make.is_some() { Some(AFTER_SECRET) } else { requeue_after };
    Ok(Plan {
        finalizer: Finalizer::Keep,
        events: crate::rollout::events::events(&old, &status),
        services: desired::services(observed, &naming),
        status,
        overrides,
        policy: Desired::Apply(policy),
        template: Desired::Apply(template),
        protect_binding: Some(true),
        requeue_after,
        certificate: certificates.make,
        tombstone: ended,
    })
}

/// Hash of a person's placement.
fn placement_hash(placement: Option<&Placement>) -> serde_json::Result<String> {
    short_hash(&placement)
}

/// What a choice of clusters rests on.
struct Choice<'a> {
    /// What was chosen before.
    sticky: Option<&'a ClusterSelection>,
    /// Whether another choice may be made now.
    gate: bool,
    /// Whether another life begins: then it is made anew, without the clusters that were given up.
    without: Option<&'a BTreeSet<&'a str>>,
    records: &'a [Record],
}

/// The placement that Karmada is given: chosen once for each placement of the person's, and kept. Nothing is chosen that
/// does not serve our kinds (R).
fn choose_clusters(
    observed: &Observed,
    choice: &Choice<'_>,
    findings: &mut Findings,
) -> serde_json::Result<Option<ClusterSelection>> {
    let sticky = choice.sticky.filter(|_| choice.without.is_none());
    let asked = observed.object.spec.placement.as_ref();
    let asked_hash = placement_hash(asked)?;
    if sticky.is_some_and(|s| s.hash == asked_hash) {
        return Ok(sticky.cloned());
    }
    if sticky.is_some() && !choice.gate {
        findings.waiting = Some(after_record(choice.records));
        return Ok(sticky.cloned());
    }
    let mut matched = placement::matching(asked, &observed.clusters);
    matched.retain(|name| choice.without.is_none_or(|without| !without.contains(name.as_str())));
    let before = choice.sticky.map(ClusterSelection::clusters).unwrap_or_default();
    let lacking = lacking_kinds(&matched, before, &observed.clusters);
    if matched.is_empty() {
        findings.unscheduled = Some(Blocker {
            reason: Reason::NoClusterMatches,
            message: "no cluster matches spec.placement; what runs is left as it is. Change placement, or label or join a cluster".to_owned(),
        });
        return Ok(sticky.cloned());
    }
    if !lacking.is_empty() && !broken!(IgnoreEnablements) {
        findings.unscheduled = Some(Blocker {
            reason: Reason::KindsNotServed,
            message: format!(
                "waits until these clusters serve ZooKeeper and ServiceExport: {}. Karmada's scheduler would leave them out for good; mczk register brings the kinds there; exclude a cluster by spec.placement.clusterAffinity.exclude to go on without it",
                lacking.join(", ")
            ),
        });
        return Ok(sticky.cloned());
    }
    Ok(Some(ClusterSelection { hash: asked_hash, placement: placement::for_karmada(asked, &matched) }))
}

/// The first object of our names that is not ours: nothing of it is ever written (S7).
fn foreign(observed: &Observed) -> Option<Blocker> {
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
    let imports = object.spec.network.as_ref().is_some_and(|n| !n.import_clusters.is_empty());
    for (key, value) in &observed.services {
        if !imports && !key.starts_with("ServiceExport/") {
            // Nothing of that name is wanted.
            continue;
        }
        let meta = value.get("metadata").cloned().and_then(|m| serde_json::from_value(m).ok()).unwrap_or_default();
        if !objects::is_ours(&meta, object) {
            found.push(key.replace('/', " "));
        }
    }
    (!found.is_empty()).then(|| Blocker {
        reason: Reason::NameConflict,
        message: format!(
            "{} in namespace {} exists and does not belong to this MultiClusterZooKeeper; it is left as it is. Delete or rename it, or declare the ensemble under another name",
            found.join(", "),
            object.namespace().unwrap_or_default()
        ),
    })
}

/// The server list in another phase, under a new epoch.
fn in_phase(
    list: &Ensemble,
    phase: EnsemblePhase,
    id: &str,
    reports: &BTreeMap<String, ClusterReport>,
) -> serde_json::Result<Ensemble> {
    let epoch = Some(ensemble::next_epoch(list, id, reports));
    server_list::with_hash(Ensemble { phase, epoch, ..list.clone() })
}

/// Lives that the list names as over: what is noted of ensembles of this name, and what it named before. What is left of them
/// in a cluster that comes back is removed there.
fn former(observed: &Observed, list: &Ensemble, id: &str) -> Vec<String> {
    let all: BTreeSet<&String> =
        observed.tombstones.iter().chain(&list.former_incarnations).filter(|life| *life != id).collect();
    all.into_iter().take(MOST_FORMER).cloned().collect()
}

/// Why nothing is heard of clusters that must be heard first.
fn unheard(silent: &[String], reports: &BTreeMap<String, ClusterReport>) -> Blocker {
    let refused = silent.iter().find_map(|name| {
        let why = reports.get(name).filter(|m| !m.applied)?.refusal.as_deref()?;
        Some(format!("Karmada could not apply the object in cluster {name}: {why}"))
    });
    match refused {
        Some(message) => Blocker { reason: Reason::NotApplied, message },
        None => Blocker {
            reason: Reason::ClusterNotReported,
            message: format!(
                "waits for the first report of the agents in these clusters: {}. No server is named before every cluster that may hold one was heard",
                silent.join(", ")
            ),
        },
    }
}

fn after_record(records: &[Record]) -> Blocker {
    Blocker {
        reason: Reason::AfterCurrentRecord,
        message: format!(
            "the newest change waits until the record in progress is done: {}",
            records.last().map(record::summary).unwrap_or_default()
        ),
    }
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

/// Scheduled clusters that had our object and have no Work any more: somebody deleted it, and Karmada does not notice.
fn lost_works(observed: &Observed, old: &MultiClusterZooKeeperStatus, schedule: &[Scheduled]) -> BTreeSet<String> {
    let live = observed.binding.as_ref().map(|b| b.status.aggregated_status.as_slice()).unwrap_or_default();
    schedule
        .iter()
        .map(|s| &s.cluster)
        .filter(|name| old.clusters.iter().any(|c| c.name == **name && c.reported))
        .filter(|name| !live.iter().any(|item| item.cluster_name == **name))
        .cloned()
        .collect()
}

/// Whether every chosen cluster has reported our own object once: until then nothing there may be overwritten.
fn reported(clusters: &[String], old: &MultiClusterZooKeeperStatus, reports: &BTreeMap<String, ClusterReport>) -> bool {
    clusters.iter().all(|name| {
        old.clusters.iter().any(|c| c.name == *name && c.reported)
            || reports.get(name).is_some_and(|m| m.applied && m.status.is_some())
    })
}

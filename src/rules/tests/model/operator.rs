//! The operator: it reads every object, calls the real `plan`, and writes one object after another.
//!
//! Usually it makes all writes of a plan at once. A slow operator is a fault: other parts act between its writes, and it may
//! stop after any of them. This covers a crash, a lost update, and a conflict of resource versions.

use mczk_api::{
    contract::{labels, naming},
    mutation::Mutation,
};
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::{SignedDuration, Timestamp},
};
use kube_core::ResourceExt;
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::{labels::OPERATOR_FINALIZER, naming::policy_name},
    karmada::{
        DELETION_PROTECTION,
        cluster::{ApiEnablement, ApiResource, Cluster, ClusterCondition, ClusterStatus},
        policy::OverridePolicy,
        resource_binding::{
            AggregatedStatusItem, BindingCondition, ObjectReference, POLICY_NAME_ANNOTATION, ResourceBinding,
            ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
        },
        work::{Work, WorkSpec},
    },
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
};
use mczk_rules::rollout::{
    certificates::{self, Certificate},
    live::Live,
    observed::Observed,
    outcome::{Finalizer, ObjectWrite},
    override_rules::{self, Overrides},
    plan::plan,
    services::MCS_API_VERSION,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    Says, World,
    faults::Fault,
    properties::{self, Rule},
    replace,
    state::{InFlight, NOW, Object, Seen, Shared, State, Template, incarnation_of, name},
    writes::{Write, Writes, write, writes},
};

pub const NAME: &str = "zk";
pub const UID: &str = "object";
/// Uid of the object that is created after the control plane was lost.
pub const SECOND_UID: &str = "second";
/// Longer than every deadline.
const LATE: SignedDuration = SignedDuration::from_secs(1000);

/// The result of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The writes, in the controller's order.
    pub writes: Vec<Write>,
    /// True if an object is replaced whatever its version is.
    pub without_version: bool,
    /// True if the last record changed, so that its deadline starts again.
    pub moved: bool,
    /// True if a plan one second later would write something although nothing happened.
    pub restless: bool,
    /// True if a plan after the deadline would write something, and nothing wakes the operator then.
    pub oversleeps: bool,
    /// The content of the OverridePolicy before and after.
    #[serde(skip)]
    pub policy: (Overrides, Overrides),
    /// The records before and after.
    #[serde(skip)]
    pub records: (Vec<Record>, Vec<Record>),
}

/// The answers of the API servers.
pub fn observe(world: &World, state: &State, term: i32) -> Option<Observed> {
    let own = state.object.as_ref()?;
    let mut object = MultiClusterZooKeeper::new(NAME, world.setup.specs[own.spec].clone());
    object.metadata.namespace = Some("prod".to_owned());
    object.metadata.uid = Some(own.uid().to_owned());
    object.metadata.generation = Some(own.generation);
    object.metadata.finalizers = own.finalizer.then(|| vec![OPERATOR_FINALIZER.to_owned()]);
    object.metadata.deletion_timestamp = own.deleting.then_some(Time(NOW));
    if own.spec > 0 && !world.setup.abandoned.is_empty() {
        let names: Vec<String> = world.setup.abandoned.iter().map(|cluster| name(*cluster)).collect();
        object.metadata.annotations = Some(BTreeMap::from([(labels::ABANDON_CLUSTERS.to_owned(), names.join(","))]));
    }
    object.metadata.annotations.get_or_insert_default().extend(replace::annotations(world, own).into_iter().flatten());
    object.metadata.annotations.get_or_insert_default().extend(said(world, own));
    object.status = own.status.as_ref().map(|s| s.get().clone());
    let template = state.template.as_ref().map(|t| {
        let mut live = versioned(t.object.get().clone());
        live.metadata.uid = Some(template_uid(t.number));
        live.metadata.generation = Some(t.generation);
        live
    });
    Some(Observed {
        certificates: certificates(&object),
        tombstones: state.tombstones.clone(),
        object,
        template: template.map(Live::from),
        policy: state.policy.as_ref().map(|p| versioned(p.get().clone()).into()),
        overrides: state.overrides.as_ref().map(|p| versioned(p.get().clone()).into()),
        services: state.services.iter().map(|(k, v)| (k.clone(), v.get().clone())).collect(),
        binding: state.binding.as_ref().map(|_| binding(state)),
        spares: None,
        works: state
            .members
            .iter()
            .enumerate()
            .filter_map(|(cluster, m)| Some(work(cluster, m.work?, m.terminating)))
            .collect(),
        clusters: clusters(state),
        server_image: "mczk:1".to_owned(),
        asked: None,
        term: Some(term),
        failure: None,
    })
}

/// The Work of a cluster.
fn work(cluster: usize, preserves: bool, terminating: bool) -> Work {
    Work {
        metadata: ObjectMeta {
            namespace: Some(format!("karmada-es-{}", name(cluster))),
            deletion_timestamp: terminating.then_some(Time(NOW)),
            ..ObjectMeta::default()
        },
        spec: WorkSpec { preserve_resources_on_deletion: Some(preserves) },
    }
}

/// What the user says of the servers of a lost control plane.
fn said(world: &World, own: &Object) -> Option<(String, String)> {
    let annotation = match world.setup.says.filter(|_| own.has_said)? {
        Says::Adopt => labels::ADOPT,
        Says::Over => labels::DECLARE_OVER,
    };
    Some((annotation.to_owned(), incarnation_of(0)))
}

/// An object as the API server returns it.
fn versioned<K: kube_core::Resource>(mut object: K) -> K {
    object.meta_mut().resource_version = Some("1".to_owned());
    object
}

fn template_uid(number: u8) -> String {
    format!("template-{number}")
}

/// Every certificate exists, and none expires.
fn certificates(object: &MultiClusterZooKeeper) -> Vec<Certificate> {
    let incarnations = (0..2).map(|number| naming::incarnation(&object.uid().unwrap_or_default(), number));
    incarnations.flat_map(|id| certificates_of(object, &id)).collect()
}

fn certificates_of(object: &MultiClusterZooKeeper, id: &str) -> Vec<Certificate> {
    let (name, loaded, mut observed) = (object.name_any(), BTreeMap::new(), Vec::new());
    loop {
        let inputs = certificates::CertificateInputs {
            adopted: false,
            ensemble: &name,
            incarnation: id,
            used: None,
            observed: &observed,
            requested: None,
            formed: false,
            loaded: &loaded,
        };
        let Some(make) = certificates::decide(&inputs, NOW).make else { return observed };
        observed.push(make.made(Timestamp::MAX));
    }
}

fn binding(state: &State) -> ResourceBinding {
    let Some(own) = &state.binding else { return ResourceBinding::default() };
    let condition = |status: &str, reason: &str| BindingCondition {
        type_: "Scheduled".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
    };
    let mut labels = BTreeMap::new();
    if own.protected {
        labels.insert(DELETION_PROTECTION.to_owned(), "Always".to_owned());
    }
    ResourceBinding {
        metadata: ObjectMeta {
            generation: Some(2),
            labels: Some(labels),
            annotations: own.claimed.then(|| BTreeMap::from([(POLICY_NAME_ANNOTATION.to_owned(), policy_name(NAME))])),
            ..ObjectMeta::default()
        },
        spec: ResourceBindingSpec {
            suspension: None,
            resource: ObjectReference {
                kind: "ZooKeeper".to_owned(),
                namespace: Some("prod".to_owned()),
                name: NAME.to_owned(),
                uid: Some(template_uid(own.template)),
            },
            replicas: (own.replicas > 0).then_some(own.replicas),
            replica_requirements: own.requirements.then(|| json!({})),
            clusters: own
                .clusters
                .iter()
                .map(|(cluster, replicas)| TargetCluster { name: name(*cluster), replicas: *replicas })
                .collect(),
            placement: serde_json::to_value(own.placement.get()).ok(),
            reschedule_triggered_at: None,
            graceful_eviction_tasks: Vec::new(),
        },
        status: ResourceBindingStatus {
            scheduler_observed_generation: Some(if own.scheduled { 2 } else { 1 }),
            last_scheduled_time: Some(NOW),
            conditions: vec![if own.fits { condition("True", "Success") } else { condition("False", "NoClusterFit") }],
            aggregated_status: state
                .members
                .iter()
                .enumerate()
                .filter(|(_, m)| m.work.is_some() && !m.terminating)
                .map(|(cluster, m)| AggregatedStatusItem {
                    cluster_name: name(cluster),
                    status: m.reported.as_ref().and_then(|s| serde_json::to_value(s.get()).ok()),
                    applied: m.spec.is_some(),
                    ..AggregatedStatusItem::default()
                })
                .collect(),
        },
    }
}

fn clusters(state: &State) -> Vec<Cluster> {
    let kind = |group_version: &str, kind: &str| ApiEnablement {
        group_version: group_version.to_owned(),
        resources: vec![ApiResource { name: String::new(), kind: kind.to_owned() }],
    };
    state
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| m.joined)
        .map(|(cluster, m)| Cluster {
            metadata: ObjectMeta { name: Some(name(cluster)), ..ObjectMeta::default() },
            status: ClusterStatus {
                conditions: vec![ClusterCondition {
                    type_: "Ready".to_owned(),
                    status: if m.ready { "True" } else { "Unknown" }.to_owned(),
                    last_transition_time: None,
                }],
                api_enablements: if m.serves {
                    vec![kind(mczk_api::API_VERSION, "ZooKeeper"), kind(MCS_API_VERSION, "ServiceExport")]
                } else {
                    Vec::new()
                },
                ..ClusterStatus::default()
            },
            ..Cluster::default()
        })
        .collect()
}

/// The plan of a state, as the writes that the controller makes for it.
pub fn outcome(world: &World, state: &State, term: i32) -> Option<Shared<Outcome>> {
    let key = Known::of(state, term)?;
    if let Some(known) = world.plans.lock().expect("no panic while held").get(&key) {
        return Some(known.clone());
    }
    let observed = observe(world, state, term)?;
    let now = if state.late { NOW + LATE } else { NOW };
    let first = Mutation::with(world.mutation, || plan(&observed, now));
    let Writes { all: writes, without_version } = Mutation::with(world.mutation, || writes(&observed, &first));
    let last = |s: Option<&MultiClusterZooKeeperStatus>| s.and_then(|s| s.records.last().cloned());
    let moved = last(observed.object.status.as_ref()) != last(Some(&first.status))
        && first.status.records.last().is_some_and(|r| r.last_transition_time.0 == now);
    let restless = writes.is_empty() && !state.late && !at_rest(&observed, now + SignedDuration::from_secs(1), world);
    let checks_wakes = writes.is_empty() && !state.late && world.setup.kinds.contains(&Fault::Asleep);
    let oversleeps = checks_wakes && first.requeue_after.is_none() && !at_rest(&observed, now + LATE, world);
    let read = |p: &OverridePolicy| override_rules::read(&p.spec);
    let before = observed.overrides.as_deref().map(read).unwrap_or_default();
    let after = match &first.overrides {
        ObjectWrite::Apply(wanted) => read(wanted),
        _ => before.clone(),
    };
    let records = (observed.object.status.map(|s| s.records).unwrap_or_default(), first.status.records);
    let outcome =
        Shared::new(Outcome { writes, without_version, moved, restless, oversleeps, policy: (before, after), records });
    world.plans.lock().expect("no panic while held").insert(key, outcome.clone());
    Some(outcome)
}

/// What a plan reads of a member cluster.
type KnownMember = (bool, bool, bool, Option<bool>, bool, bool, Option<Shared<mczk_api::zookeeper::ZooKeeperStatus>>);

/// Everything that a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    seen: Seen,
    term: i32,
    tombstones: BTreeSet<String>,
    late: bool,
    members: Vec<KnownMember>,
}

impl Known {
    fn of(state: &State, term: i32) -> Option<Self> {
        state.object.as_ref()?;
        Some(Self {
            seen: state.seen(),
            term,
            tombstones: state.tombstones.clone(),
            late: state.late,
            members: state
                .members
                .iter()
                .map(|m| (m.joined, m.serves, m.ready, m.work, m.terminating, m.spec.is_some(), m.reported.clone()))
                .collect(),
        })
    }
}

fn at_rest(observed: &Observed, now: Timestamp, world: &World) -> bool {
    let again = Mutation::with(world.mutation, || plan(observed, now));
    observed.object.status.as_ref() == Some(&again.status) || again.finalizer != Finalizer::Keep
}

/// The operator plans and makes every write.
pub fn run(world: &World, state: &mut State) {
    let Some(outcome) = outcome(world, state, state.term) else { return };
    check(state, outcome.get());
    let mut seen = state.seen();
    for next in &outcome.get().writes {
        state.acted = state.term;
        if !write(world, state, &mut seen, outcome.get(), next) {
            break;
        }
    }
}

fn check(state: &mut State, outcome: &Outcome) {
    if outcome.restless {
        state.breaks(Rule::AtRest);
    }
    if outcome.oversleeps {
        state.breaks(Rule::Wakes);
    }
    properties::check_plan(state, outcome);
}

/// A slow operator plans.
pub fn begin(world: &World, state: &mut State, term: i32) -> bool {
    let Some(outcome) = outcome(world, state, term).filter(|o| !o.get().writes.is_empty()) else { return false };
    check(state, outcome.get());
    let seen = state.seen();
    state.operators.push(InFlight { outcome, term, next: 0, seen });
    true
}

/// The next write of a slow operator. It stops after the last one, or at a conflict.
pub fn go_on(world: &World, state: &mut State, index: usize) -> bool {
    let mut flight = state.operators.remove(index);
    let outcome = flight.outcome.clone();
    let Some(next) = outcome.get().writes.get(flight.next) else { return true };
    flight.next += 1;
    if state.overrides == flight.seen.overrides || outcome.get().without_version {
        properties::before_late_write(state, next);
    }
    let written = write(world, state, &mut flight.seen, outcome.get(), next);
    if written && flight.term < state.acted && matches!(next, Write::Overrides(_)) && flight.seen.overrides.is_some() {
        state.breaks(Rule::InTerm);
    }
    if written && flight.next < outcome.get().writes.len() {
        state.operators.insert(index, flight);
    }
    true
}

/// A template of the same name with another owner.
pub fn foreign_template(world: &World) -> Template {
    let spec = mczk_rules::rollout::render::template(
        &MultiClusterZooKeeper::new(NAME, world.setup.specs[0].clone()),
        "other:1",
        Vec::new(),
        &BTreeMap::new(),
    )
    .expect("a template has JSON");
    let mut object = ZooKeeper::new(NAME, spec);
    object.metadata.owner_references = Some(vec![OwnerReference { uid: "other".to_owned(), ..Default::default() }]);
    Template { object: Shared::new(object), generation: 1, foreign: true, number: 0 }
}

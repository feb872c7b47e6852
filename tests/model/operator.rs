//! The operator: it reads every object, calls the real `plan`, and writes one object after another.
//!
//! Usually it makes all writes of a plan at once. A slow operator is a fault: other parts act between its writes, and it may
//! stop after any of them. This covers a crash, a lost update, and a conflict of resource versions.

use mczk::contract::labels;
use mczk::contract::naming;
use mczk::mutation::Mutation;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;
use mczk::{
    api::{
        MultiClusterZooKeeper, ZooKeeper,
        karmada::{
            DELETION_PROTECTION,
            cluster::{ApiEnablement, ApiResource, Cluster, ClusterCondition, ClusterStatus},
            policy::{OverridePolicy, PropagationPolicy},
            resource_binding::{
                AggregatedStatusItem, BindingCondition, ObjectReference, POLICY_NAME_ANNOTATION, ResourceBinding,
                ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
            },
            work::{Work, WorkSpec},
        },
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
    },
    contract::{
        labels::{OPERATOR_FINALIZER, RECORDS},
        naming::policy_name,
    },
    rollout::{
        as_written::replacement,
        certificates::{self, Certificate},
        desired::MCS_API_VERSION,
        live::Live,
        objects,
        observed::Observed,
        outcome::{Finalizer, ObjectWrite, Plan},
        override_rules::{self, Overrides},
        plan::plan,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    World,
    properties::{self, Rule},
    state::{InFlight, NOW, Seen, Shared, State, Template, name, timeless},
};

pub const NAME: &str = "zk";
pub const UID: &str = "object";
pub const TEMPLATE_UID: &str = "template";
/// Longer than every deadline.
const LATE: i64 = 1000;

/// One write of a plan. Deletions are `None`.
#[derive(Clone, Debug, Serialize)]
pub enum Write {
    Finalizer(bool),
    /// The tombstone of an incarnation.
    Tombstone(String),
    Status(Shared<MultiClusterZooKeeperStatus>),
    Overrides(Option<Shared<OverridePolicy>>),
    Policy(Option<Shared<PropagationPolicy>>),
    Service(String, Option<Shared<Value>>),
    Template(Option<Shared<ZooKeeper>>),
    Protect(bool),
    /// Karmada has to schedule again.
    Reschedule,
}

/// The result of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The writes, in the controller's order.
    pub writes: Vec<Write>,
    /// True if the last record changed, so that its deadline starts again.
    pub moved: bool,
    /// True if a plan one second later would write something although nothing happened.
    pub restless: bool,
    /// The content of the OverridePolicy before and after.
    #[serde(skip)]
    pub policy: (Overrides, Overrides),
    /// The records before and after.
    #[serde(skip)]
    pub records: (Vec<Record>, Vec<Record>),
}

/// The answers of the API servers.
pub fn observe(world: &World, state: &State) -> Option<Observed> {
    let own = state.object.as_ref()?;
    let mut object = MultiClusterZooKeeper::new(NAME, world.setup.specs[own.spec].clone());
    object.metadata.namespace = Some("prod".to_owned());
    object.metadata.uid = Some(UID.to_owned());
    object.metadata.generation = Some(own.generation);
    object.metadata.finalizers = own.finalizer.then(|| vec![OPERATOR_FINALIZER.to_owned()]);
    object.metadata.deletion_timestamp = own.deleting.then_some(Time(NOW));
    if own.spec > 0 && !world.setup.abandoned.is_empty() {
        let names: Vec<String> = world.setup.abandoned.iter().map(|cluster| name(*cluster)).collect();
        object.metadata.annotations = Some(BTreeMap::from([(labels::ABANDON_CLUSTERS.to_owned(), names.join(","))]));
    }
    object.status = own.status.as_ref().map(|s| s.get().clone());
    let template = state.template.as_ref().map(|t| {
        let mut live = t.object.get().clone();
        live.metadata.uid = Some(TEMPLATE_UID.to_owned());
        live.metadata.generation = Some(t.generation);
        live
    });
    Some(Observed {
        certificates: certificates(&object),
        tombstones: state.tombstones.clone(),
        object,
        template: template.map(Live::from),
        policy: state.policy.as_ref().map(|p| p.get().clone().into()),
        overrides: state.overrides.as_ref().map(|p| p.get().clone().into()),
        services: state.services.iter().map(|(k, v)| (k.clone(), v.get().clone())).collect(),
        binding: state.binding.as_ref().map(|_| binding(state)),
        works: state
            .members
            .iter()
            .filter_map(|m| m.work)
            .map(|preserve| Work {
                spec: WorkSpec { preserve_resources_on_deletion: Some(preserve) },
                ..Work::default()
            })
            .collect(),
        clusters: clusters(state),
        server_image: "mczk:1".to_owned(),
        failure: None,
    })
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
            resource: ObjectReference {
                kind: "ZooKeeper".to_owned(),
                namespace: Some("prod".to_owned()),
                name: NAME.to_owned(),
                uid: Some(TEMPLATE_UID.to_owned()),
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
                .filter(|(_, m)| m.work.is_some())
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
        .map(|(cluster, m)| Cluster {
            metadata: ObjectMeta { name: Some(name(cluster)), ..ObjectMeta::default() },
            status: ClusterStatus {
                kubernetes_version: String::new(),
                conditions: vec![ClusterCondition {
                    type_: "Ready".to_owned(),
                    status: if m.ready { "True" } else { "Unknown" }.to_owned(),
                }],
                api_enablements: if m.serves {
                    vec![kind(mczk::api::API_VERSION, "ZooKeeper"), kind(MCS_API_VERSION, "ServiceExport")]
                } else {
                    Vec::new()
                },
            },
            ..Cluster::default()
        })
        .collect()
}

/// The plan of a state, as the writes that the controller makes for it. There is one operator, so no other plan is being
/// written.
pub fn outcome(world: &World, state: &State) -> Option<Shared<Outcome>> {
    let key = Known::of(state)?;
    if let Some(known) = world.plans.lock().expect("no panic while held").get(&key) {
        return Some(known.clone());
    }
    let observed = observe(world, state)?;
    let late = SignedDuration::from_secs(if state.late { LATE } else { 0 });
    let now = NOW + late;
    let first = Mutation::with(world.mutation, || plan(&observed, now));
    let writes = writes(&observed, &first);
    let last = |s: Option<&MultiClusterZooKeeperStatus>| s.and_then(|s| s.records.last().cloned());
    let moved = last(observed.object.status.as_ref()) != last(Some(&first.status))
        && first.status.records.last().is_some_and(|r| r.last_transition_time.0 == now);
    let restless = writes.is_empty() && !state.late && !at_rest(&observed, now + SignedDuration::from_secs(1), world);
    let read = |p: &OverridePolicy| override_rules::read(&p.spec);
    let before = observed.overrides.as_deref().map(read).unwrap_or_default();
    let after = match &first.overrides {
        ObjectWrite::Apply(wanted) => read(wanted),
        _ => before.clone(),
    };
    let records = (observed.object.status.map(|s| s.records).unwrap_or_default(), first.status.records);
    let outcome = Shared::new(Outcome { writes, moved, restless, policy: (before, after), records });
    world.plans.lock().expect("no panic while held").insert(key, outcome.clone());
    Some(outcome)
}

/// Everything that a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    seen: Seen,
    tombstones: BTreeSet<String>,
    late: bool,
    members: Vec<(bool, bool, Option<bool>, bool, Option<Shared<mczk::api::zookeeper::ZooKeeperStatus>>)>,
}

impl Known {
    fn of(state: &State) -> Option<Self> {
        state.object.as_ref()?;
        Some(Self {
            seen: state.seen(),
            tombstones: state.tombstones.clone(),
            late: state.late,
            members: state
                .members
                .iter()
                .map(|m| (m.serves, m.ready, m.work, m.spec.is_some(), m.reported.clone()))
                .collect(),
        })
    }
}

fn at_rest(observed: &Observed, now: Timestamp, world: &World) -> bool {
    let again = Mutation::with(world.mutation, || plan(observed, now));
    observed.object.status.as_ref() == Some(&again.status) || again.finalizer != Finalizer::Keep
}

/// The writes that the controller makes for a plan: every difference, the status first.
fn writes(observed: &Observed, plan: &Plan) -> Vec<Write> {
    if plan.finalizer != Finalizer::Keep {
        return vec![Write::Finalizer(plan.finalizer == Finalizer::Add)];
    }
    let mut writes = Vec::new();
    let status = timeless(plan.status.clone());
    if observed.object.status.as_ref() != Some(&status) {
        writes.push(Write::Status(Shared::new(status)));
    }
    if let Some(ended) = plan.tombstone.as_ref().filter(|e| !observed.tombstones.contains(&e.incarnation)) {
        writes.push(Write::Tombstone(ended.incarnation.clone()));
    }
    match &plan.overrides {
        ObjectWrite::Apply(wanted) if differs(observed.overrides.as_ref(), wanted) => {
            writes.push(Write::Overrides(Some(Shared::new(annotations_timeless(wanted.clone())))));
        }
        ObjectWrite::Delete if observed.overrides.is_some() => writes.push(Write::Overrides(None)),
        _ => {}
    }
    match &plan.policy {
        ObjectWrite::Apply(wanted) if differs(observed.policy.as_ref(), wanted) => {
            writes.push(Write::Policy(Some(Shared::new(wanted.clone()))));
        }
        ObjectWrite::Delete if observed.policy.is_some() => writes.push(Write::Policy(None)),
        _ => {}
    }
    for (key, desired) in &plan.services {
        let live = observed.services.get(key);
        match desired {
            ObjectWrite::Apply(wanted) if live != Some(wanted) => {
                writes.push(Write::Service(key.clone(), Some(Shared::new(wanted.clone()))));
            }
            ObjectWrite::Delete if live.is_some() => writes.push(Write::Service(key.clone(), None)),
            _ => {}
        }
    }
    match &plan.template {
        ObjectWrite::Apply(wanted) if differs(observed.template.as_ref(), wanted) => {
            writes.push(Write::Template(Some(Shared::new(wanted.clone()))));
        }
        ObjectWrite::Delete if observed.template.is_some() => writes.push(Write::Template(None)),
        _ => {}
    }
    if let (Some(protect), Some(binding)) = (plan.protect_binding, &observed.binding) {
        let has = binding.metadata.labels.as_ref().is_some_and(|l| l.contains_key(DELETION_PROTECTION));
        if has != protect {
            writes.push(Write::Protect(protect));
        }
    }
    if plan.reschedule && observed.binding.is_some() {
        writes.push(Write::Reschedule);
    }
    writes
}

/// Makes one write. `false` if the object has changed since the plan.
pub fn write(world: &World, state: &mut State, seen: &mut Seen, outcome: &Outcome, write: &Write) -> bool {
    properties::before_write(world, state, write);
    match write {
        Write::Tombstone(incarnation) => {
            state.tombstones.insert(incarnation.clone());
        }
        Write::Finalizer(on) => {
            if state.object != seen.object {
                return false;
            }
            if *on {
                if let Some(object) = &mut state.object {
                    object.finalizer = true;
                }
            } else {
                state.object = None;
            }
            seen.object.clone_from(&state.object);
        }
        Write::Status(status) => {
            if state.object != seen.object {
                return false;
            }
            if let Some(object) = &mut state.object {
                object.status = Some(status.clone());
            }
            state.late &= !outcome.moved;
            seen.object.clone_from(&state.object);
        }
        Write::Overrides(wanted) => {
            if state.overrides != seen.overrides {
                return false;
            }
            state.overrides.clone_from(wanted);
        }
        Write::Policy(wanted) => {
            if state.policy != seen.policy {
                return false;
            }
            state.policy.clone_from(wanted);
        }
        Write::Service(key, wanted) => {
            match wanted {
                Some(value) => state.services.insert(key.clone(), value.clone()),
                None => state.services.remove(key),
            };
        }
        Write::Template(wanted) => {
            if state.template != seen.template {
                return false;
            }
            match wanted {
                None => state.template = None,
                Some(wanted) => {
                    let before = state.template.as_ref();
                    let generation = match before {
                        Some(live) if live.object.get().spec == wanted.get().spec => live.generation,
                        Some(live) => live.generation + 1,
                        None => 1,
                    };
                    state.template = Some(Template { object: wanted.clone(), generation, foreign: false });
                }
            }
        }
        Write::Protect(on) => {
            if let Some(binding) = &mut state.binding {
                binding.protected = *on;
            }
        }
        Write::Reschedule => {
            if let Some(binding) = &mut state.binding {
                binding.scheduled = false;
            }
        }
    }
    true
}

/// True if the operator writes an owned object.
fn differs<T: Serialize>(live: Option<&Live<T>>, wanted: &T) -> bool {
    replacement(live.map(Live::whole), &json!(wanted)).is_some()
}

/// An OverridePolicy without times: its annotation has the records.
fn annotations_timeless(mut policy: OverridePolicy) -> OverridePolicy {
    if let Some(text) = policy.metadata.annotations.as_mut().and_then(|a| a.get_mut(RECORDS)) {
        let mut records: Vec<Record> = serde_json::from_str(text).expect("the mirror is readable");
        for record in &mut records {
            record.last_transition_time = Time(NOW);
        }
        *text = serde_json::to_string(&records).expect("records have JSON");
    }
    // The hash in the annotation covers the times.
    let (mut meta, spec) = (policy.metadata.clone(), policy.spec.clone());
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(labels::APPLIED_HASH);
    }
    policy.metadata = objects::with_applied_hash(meta, &spec).expect("policies have JSON");
    policy
}

/// The operator plans and makes every write.
pub fn run(world: &World, state: &mut State) {
    let Some(outcome) = outcome(world, state) else { return };
    check(state, outcome.get());
    let mut seen = state.seen();
    for next in &outcome.get().writes {
        if !write(world, state, &mut seen, outcome.get(), next) {
            break;
        }
    }
}

fn check(state: &mut State, outcome: &Outcome) {
    if outcome.restless {
        state.breaks(Rule::AtRest);
    }
    properties::check_plan(state, outcome);
}

/// A slow operator plans.
pub fn begin(world: &World, state: &mut State) -> bool {
    let Some(outcome) = outcome(world, state).filter(|o| !o.get().writes.is_empty()) else { return false };
    check(state, outcome.get());
    state.operator = Some(InFlight { outcome, next: 0, seen: state.seen() });
    true
}

/// The next write of a slow operator. It stops after the last one, or at a conflict.
pub fn go_on(world: &World, state: &mut State) -> bool {
    let Some(mut flight) = state.operator.take() else { return false };
    let outcome = flight.outcome.clone();
    let Some(next) = outcome.get().writes.get(flight.next) else { return true };
    flight.next += 1;
    let written = write(world, state, &mut flight.seen, outcome.get(), next);
    if written && flight.next < outcome.get().writes.len() {
        state.operator = Some(flight);
    }
    true
}

/// A template of the same name with another owner.
pub fn foreign_template(world: &World) -> Template {
    let spec = mczk::rollout::render::template(
        &MultiClusterZooKeeper::new(NAME, world.setup.specs[0].clone()),
        "other:1",
        Vec::new(),
        &BTreeMap::new(),
    )
    .expect("a template has JSON");
    let mut object = ZooKeeper::new(NAME, spec);
    object.metadata.owner_references = Some(vec![OwnerReference { uid: "other".to_owned(), ..Default::default() }]);
    Template { object: Shared::new(object), generation: 1, foreign: true }
}

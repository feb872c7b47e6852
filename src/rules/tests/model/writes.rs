//! The writes of a plan, one object after another, as the controller makes them.
//!
//! A write to an object that has changed since the plan is a conflict, because it carries the version that the plan rests on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ResourceExt;
use mczk_api::{
    ZooKeeper,
    contract::labels::{self, RECORDS},
    karmada::{
        DELETION_PROTECTION,
        policy::{OverridePolicy, PropagationPolicy},
    },
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
};
use mczk_rules::rollout::{
    as_written::replacement,
    live::Live,
    objects,
    observed::Observed,
    outcome::{Finalizer, ObjectWrite, Plan},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    World,
    operator::Outcome,
    properties,
    state::{NOW, Seen, Shared, State, Template, timeless},
};

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

/// The writes of a plan.
#[derive(Default)]
pub struct Writes {
    /// In the controller's order.
    pub all: Vec<Write>,
    /// True if an object is replaced whatever its version is.
    pub without_version: bool,
}

impl Writes {
    /// Adds a write of an owned object if the live one differs.
    fn apply<T: Serialize>(&mut self, live: Option<&Live<T>>, wanted: &T, write: impl FnOnce() -> Write) {
        if let Some(next) = replacement(live.map(Live::whole), &json!(wanted)) {
            self.without_version |= live.is_some() && next.pointer("/metadata/resourceVersion").is_none();
            self.all.push(write());
        }
    }
}

/// The writes that the controller makes for a plan: every difference, the status first.
pub fn writes(observed: &Observed, plan: &Plan) -> Writes {
    let mut writes = Writes::default();
    if let Some(claim) = &plan.claim {
        // A claim keeps the hash of the live policy, so an edited one stays an edited one.
        writes.all.push(Write::Overrides(Some(Shared::new(unversioned(claim.clone())))));
        return writes;
    }
    if plan.later_term.is_some() {
        return writes;
    }
    if plan.finalizer != Finalizer::Keep {
        writes.all.push(Write::Finalizer(plan.finalizer == Finalizer::Add));
        return writes;
    }
    write_status(observed, plan, &mut writes.all);
    write_policies(observed, plan, &mut writes);
    write_services(observed, plan, &mut writes.all);
    let protected = observed.binding.as_ref().map(|b| {
        let labels = b.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(DELETION_PROTECTION))
    });
    // Before the template is deleted or created: the garbage collector waits for it.
    if plan.protect_binding == Some(false) && protected == Some(true) {
        writes.all.push(Write::Protect(false));
    }
    match &plan.template {
        ObjectWrite::Apply(wanted) => writes.apply(observed.template.as_ref(), wanted, || {
            Write::Template(Some(Shared::new(unversioned(wanted.clone()))))
        }),
        ObjectWrite::Delete if observed.template.is_some() => writes.all.push(Write::Template(None)),
        _ => {}
    }
    if plan.protect_binding == Some(true) && protected == Some(false) {
        writes.all.push(Write::Protect(true));
    }
    if plan.reschedule.is_some() && observed.binding.is_some() {
        writes.all.push(Write::Reschedule);
    }
    writes
}

fn write_status(observed: &Observed, plan: &Plan, writes: &mut Vec<Write>) {
    let status = timeless(plan.status.clone());
    if observed.object.status.as_ref() != Some(&status) {
        writes.push(Write::Status(Shared::new(status)));
    }
    if let Some(ended) = plan.tombstone.as_ref().filter(|e| !observed.tombstones.contains(&e.incarnation)) {
        writes.push(Write::Tombstone(ended.incarnation.clone()));
    }
}

fn write_policies(observed: &Observed, plan: &Plan, writes: &mut Writes) {
    match &plan.overrides {
        ObjectWrite::Apply(wanted) => writes.apply(observed.overrides.as_ref(), wanted, || {
            Write::Overrides(Some(Shared::new(annotations_timeless(unversioned(wanted.clone())))))
        }),
        ObjectWrite::Delete if observed.overrides.is_some() => writes.all.push(Write::Overrides(None)),
        _ => {}
    }
    match &plan.policy {
        ObjectWrite::Apply(wanted) => writes
            .apply(observed.policy.as_ref(), wanted, || Write::Policy(Some(Shared::new(unversioned(wanted.clone()))))),
        ObjectWrite::Delete if observed.policy.is_some() => writes.all.push(Write::Policy(None)),
        _ => {}
    }
}

fn write_services(observed: &Observed, plan: &Plan, writes: &mut Vec<Write>) {
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
}

/// An object without the version that the plan rests on.
fn unversioned<K: kube_core::Resource>(mut object: K) -> K {
    object.meta_mut().resource_version = None;
    object
}

/// Makes one write. `false` if the object has changed since the plan.
pub fn write(world: &World, state: &mut State, seen: &mut Seen, outcome: &Outcome, write: &Write) -> bool {
    properties::before_write(world, state, write);
    let conflicts = match write {
        Write::Tombstone(_) => false,
        Write::Finalizer(_) | Write::Status(_) => state.object != seen.object,
        Write::Overrides(_) => state.overrides != seen.overrides && !outcome.without_version,
        Write::Policy(_) => state.policy != seen.policy && !outcome.without_version,
        Write::Service(key, _) => state.services.get(key) != seen.services.get(key),
        Write::Template(_) => state.template != seen.template && !outcome.without_version,
        Write::Protect(_) | Write::Reschedule => state.binding != seen.binding,
    };
    if conflicts {
        return false;
    }
    match write {
        Write::Tombstone(incarnation) => {
            state.tombstones.insert(incarnation.clone());
        }
        Write::Finalizer(true) => {
            if let Some(object) = &mut state.object {
                object.finalizer = true;
            }
        }
        Write::Finalizer(false) => state.object = None,
        Write::Status(status) => {
            if let Some(object) = &mut state.object {
                object.status = Some(status.clone());
            }
            state.late &= !outcome.moved;
            seen.object.clone_from(&state.object);
        }
        Write::Overrides(wanted) => state.overrides.clone_from(wanted),
        Write::Policy(wanted) => state.policy.clone_from(wanted),
        Write::Service(key, wanted) => {
            match wanted {
                Some(value) => state.services.insert(key.clone(), value.clone()),
                None => state.services.remove(key),
            };
        }
        Write::Template(wanted) => write_template(state, wanted.as_ref()),
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

/// A template that is created has a new uid. Its generation counts the changes of its spec.
fn write_template(state: &mut State, wanted: Option<&Shared<ZooKeeper>>) {
    let before = state.template.take();
    let Some(wanted) = wanted else { return };
    let (number, generation) = match &before {
        Some(live) if live.object.get().spec == wanted.get().spec => (live.number, live.generation),
        Some(live) => (live.number, live.generation + 1),
        None => {
            state.templates += 1;
            (state.templates, 1)
        }
    };
    state.template = Some(Template { object: wanted.clone(), generation, foreign: false, number });
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
    // The hash in the annotation covers the times, but not the term.
    let (mut meta, spec) = (policy.metadata.clone(), policy.spec.clone());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.remove(labels::APPLIED_HASH);
    let term = annotations.remove(labels::TERM);
    policy.metadata = objects::with_applied_hash(meta, &spec).expect("policies have JSON");
    policy.annotations_mut().extend(term.map(|term| (labels::TERM.to_owned(), term)));
    policy
}

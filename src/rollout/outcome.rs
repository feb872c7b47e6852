//! A plan: the objects and the status that the operator writes, and the findings behind it.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::{
        ZooKeeper,
        karmada::policy::{OverridePolicy, PropagationPolicy},
        multiclusterzookeeper::MultiClusterZooKeeperStatus,
    },
    contract::tombstone::Tombstone,
    rollout::{blocker::Blocker, certificates::Make, events::Event, measures::Measures},
};

/// What the operator writes of an owned object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectWrite<T> {
    /// The operator leaves it as it is.
    Leave,
    /// The operator applies this.
    Apply(T),
    /// The operator deletes it, and removes Karmada's deletion protection first.
    Delete,
}

/// The next state of the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// The operator leaves it as it is.
    Keep,
    /// The operator adds it before anything else.
    Add,
    /// The operator removes it: everything else is gone.
    Remove,
}

/// Everything that the operator writes next.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A later term in which another operator has written. This one writes nothing.
    pub later_term: Option<i32>,
    /// The live OverridePolicy with the term of this operator, which writes nothing else before.
    pub claim: Option<OverridePolicy>,
    /// The finalizer of the MultiClusterZooKeeper.
    pub finalizer: Finalizer,
    /// The status of the MultiClusterZooKeeper. The operator writes it before everything below.
    pub status: MultiClusterZooKeeperStatus,
    /// The OverridePolicy.
    pub overrides: ObjectWrite<OverridePolicy>,
    /// The PropagationPolicy.
    pub policy: ObjectWrite<PropagationPolicy>,
    /// ServiceExports, ServiceImports and their policies, by `Kind/name`.
    pub services: BTreeMap<String, ObjectWrite<Value>>,
    /// The template.
    pub template: ObjectWrite<ZooKeeper>,
    /// True if the binding gets Karmada's deletion protection; `None` leaves it as it is.
    pub protect_binding: Option<bool>,
    /// The time of a request that asks Karmada to schedule the binding again.
    pub reschedule: Option<Timestamp>,
    /// The next Secret of the quorum's certificates. The operator writes it before everything but the status.
    pub certificate: Option<Make>,
    /// The end of an incarnation, for clusters that do not know of it yet. The operator writes it before everything but the
    /// status.
    pub tombstone: Option<Tombstone>,
    /// The events that users get.
    pub events: Vec<Event>,
    /// When the operator reconciles again, if no watch triggers it before.
    pub requeue_after: Option<Duration>,
    /// The numbers that the operator's metrics show.
    pub measures: Measures,
}

impl Plan {
    /// A plan that writes the status alone.
    #[must_use]
    pub(crate) fn nothing(status: MultiClusterZooKeeperStatus) -> Self {
        Self {
            later_term: None,
            claim: None,
            finalizer: Finalizer::Keep,
            status,
            overrides: ObjectWrite::Leave,
            policy: ObjectWrite::Leave,
            services: BTreeMap::new(),
            template: ObjectWrite::Leave,
            protect_binding: None,
            reschedule: None,
            certificate: None,
            tombstone: None,
            events: Vec::new(),
            requeue_after: None,
            measures: Measures::default(),
        }
    }
}

/// The findings of the rules, from which the conditions follow.
///
/// `Progressing` shows the first of: a failed reconcile, `action_required`, `paused`, `waiting`, `unscheduled`, the current
/// record, `replacing`. The message ends with `newer_change`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Why the operator cannot use the schedule.
    pub(crate) unscheduled: Option<Blocker>,
    /// Why the rollout does not move.
    pub(crate) waiting: Option<Blocker>,
    /// True if a newer change of `spec` waits until the current record is done.
    pub(crate) newer_change: bool,
    /// Why the user must act.
    pub(crate) action_required: Option<Blocker>,
    /// The progress of the replacement of the quorum's authority.
    pub(crate) replacing: Option<Blocker>,
    /// True if only `rollout.paused` keeps the next cluster from starting.
    pub(crate) paused: bool,
}

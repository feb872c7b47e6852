//! What a decision answers with: the objects as they should be, the status, and why nothing moves.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use crate::{
    api::{
        ZooKeeper,
        karmada::policy::{OverridePolicy, PropagationPolicy},
        multiclusterzookeeper::MultiClusterZooKeeperStatus,
    },
    contract::tombstone::Tombstone,
    rollout::{blocker::Blocker, certificates::Make, events::Event},
};

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
    /// A Secret of the quorum's certificates that is to be made; written before everything but the status.
    pub certificate: Option<Make>,
    /// A life that is over, for clusters that have still to hear of it; written before everything but the status.
    pub tombstone: Option<Tombstone>,
    /// What people should hear of.
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before.
    pub requeue_after: Option<Duration>,
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
            certificate: None,
            tombstone: None,
            events: Vec::new(),
            requeue_after: None,
        }
    }
}

/// What a pass over the rules found out; conditions are made of it.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Why the schedule cannot be used.
    pub unscheduled: Option<Blocker>,
    /// Why the rollout does not move.
    pub waiting: Option<Blocker>,
    /// Why a person must act.
    pub action_required: Option<Blocker>,
    /// How far the replacement of the quorum's authority is.
    pub replacing: Option<Blocker>,
    /// Whether `rollout.paused` keeps the next cluster from beginning.
    pub paused: bool,
}

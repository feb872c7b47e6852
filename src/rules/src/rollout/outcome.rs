//! A plan: the objects and the status that the operator writes, and the findings behind it.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::rollout::{
    binding::Request, certificates::Make, cluster_selection::ClusterSelection, events::Event,
    failover::decision::FailoverDecision, measures::Measures, quorum::ReportedQuorum, scheduled::Scheduled,
    steps::Steps,
};
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, tombstone::Tombstone},
    karmada::policy::{OverridePolicy, OverridePolicySpec, PropagationPolicy},
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
    zookeeper::{Ensemble, ZooKeeperSpec},
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

impl<T> ObjectWrite<T> {
    /// The write of what is made of the content.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn made<U, E>(self, make: impl FnOnce(T) -> Result<U, E>) -> Result<ObjectWrite<U>, E> {
        Ok(match self {
            Self::Leave => ObjectWrite::Leave,
            Self::Apply(content) => ObjectWrite::Apply(make(content)?),
            Self::Delete => ObjectWrite::Delete,
        })
    }
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
    /// The next Secret of the quorum's certificates. The operator writes it before the template if there is none yet, and else last:
    /// a Secret that cannot be created must not stop a rollout.
    pub certificate: Option<Make>,
    /// The end of an incarnation, for clusters that do not know of it yet. The operator writes it before everything but the
    /// status.
    pub tombstone: Option<Tombstone>,
    /// The events that users get.
    pub events: Vec<Event>,
    /// When the operator reconciles again, if no watch triggers it before.
    pub requeue_after: Option<Duration>,
    /// What each step of the plan reports.
    pub steps: Steps,
    /// The numbers that the operator's metrics show.
    pub measures: Measures,
}

impl Plan {
    /// A plan that writes the status alone.
    #[must_use]
    pub fn nothing(status: MultiClusterZooKeeperStatus) -> Self {
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
            steps: Steps::default(),
            measures: Measures::default(),
        }
    }
}

/// What a plan decides. Status, objects and events follow from it: [`super::plan`] makes them in one place.
pub(super) struct Decision {
    pub(super) steps: Steps,
    pub(super) finalizer: Finalizer,
    pub(super) status: NextStatus,
    /// What the operator wants of its objects.
    pub(super) objects: Objects,
    /// What the operator asks Karmada.
    pub(super) request: Option<Request>,
    pub(super) certificate: Option<Make>,
    pub(super) tombstone: Option<Tombstone>,
    pub(super) requeue_after: Option<Duration>,
}

impl Decision {
    /// A decision that writes the status alone.
    pub(super) fn without_objects(steps: Steps, status: NextStatus) -> Self {
        Self {
            steps,
            finalizer: Finalizer::Keep,
            status,
            objects: Objects::default(),
            request: None,
            certificate: None,
            tombstone: None,
            requeue_after: None,
        }
    }

    /// A decision that changes the finalizer alone.
    pub(super) fn finalizer(steps: Steps, finalizer: Finalizer) -> Self {
        Self { finalizer, ..Self::without_objects(steps, NextStatus::Same) }
    }
}

pub(super) enum NextStatus {
    /// As it is.
    Same,
    /// As it is, with the conditions that explain why the operator decides nothing else.
    Undecided,
    /// The same while the object is being deleted, with what its step waits for.
    Deleting(Cause),
    /// All of it, from this state.
    Whole(Box<NextState>),
}

/// The state of an ensemble after a plan.
#[derive(Default)]
pub(super) struct NextState {
    /// The records that travel, in order.
    pub(super) records: Vec<Record>,
    /// The server list.
    pub(super) ensemble: Ensemble,
    /// The spec of each cluster.
    pub(super) cluster_specs: BTreeMap<String, ZooKeeperSpec>,
    /// The schedule; empty if the operator cannot use it.
    pub(super) schedule: Vec<Scheduled>,
    /// The quorum that the reports show.
    pub(super) quorum: ReportedQuorum,
    /// The cluster specs that the schedule requires.
    pub(super) desired: BTreeMap<String, ZooKeeperSpec>,
    /// Where the voters of each cluster shall be.
    pub(super) failover: FailoverDecision,
}

/// What the operator wants of its objects.
pub(super) struct Objects {
    pub(super) overrides: ObjectWrite<Content>,
    pub(super) policy: ObjectWrite<Propagation>,
    pub(super) services: BTreeMap<String, ObjectWrite<Value>>,
    pub(super) template: ObjectWrite<ZooKeeperSpec>,
    pub(super) protect_binding: Option<bool>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            overrides: ObjectWrite::Leave,
            policy: ObjectWrite::Leave,
            services: BTreeMap::new(),
            template: ObjectWrite::Leave,
            protect_binding: None,
        }
    }
}

/// The content of an OverridePolicy.
pub(super) struct Content {
    pub(super) spec: OverridePolicySpec,
    /// The records that it mirrors.
    pub(super) records: Vec<Record>,
    /// The selection that it stores.
    pub(super) selection: Option<ClusterSelection>,
}

/// The content of a PropagationPolicy.
pub(super) struct Propagation {
    pub(super) selection: ClusterSelection,
    /// True if Karmada may delete the objects in the member clusters.
    pub(super) releases: bool,
}

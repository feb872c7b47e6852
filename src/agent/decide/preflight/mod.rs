//! Step: the network check before the first server starts.
//!
//! The agent runs one probe while the operator requests the check, and none in any other case. It never runs one where a
//! server of the incarnation has been.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::Value;

use crate::{
    agent::{
        decide::{observation::Observation, probe::Probe},
        render::{object::Object, preflight as render},
    },
    api::{
        preflight::{NetworkProblem, Preflight, PreflightReport},
        zookeeper::Ensemble,
    },
    contract::{labels::KARMADA_MANAGED_LABEL, preflight::is_intact},
};

/// What becomes of probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProbePlan {
    /// Names and uids of pods to delete, before anything else is written.
    pub(crate) remove: Vec<(String, String)>,
    /// Objects that the probe needs to be reached.
    pub(crate) objects: Vec<Object>,
    /// The pod to create, if it does not exist.
    pub(crate) create: Option<Value>,
    /// The result to report, while the check is requested.
    pub(crate) report: Option<PreflightReport>,
    /// The incarnation that is checked.
    pub(crate) incarnation: Option<String>,
}

/// Decides what becomes of probes.
pub(super) fn plan(observation: &Observation) -> ProbePlan {
    let all = || observation.probes.iter();
    let Some((request, (objects, pod))) =
        wanted(observation).and_then(|request| Some((request, rendered(observation, request)?)))
    else {
        return ProbePlan { remove: all().map(names).collect(), ..ProbePlan::default() };
    };
    let hash = pod.pointer("/metadata/annotations/mczk.io~1applied-hash").and_then(Value::as_str);
    let is_current = |probe: &&Probe| !probe.ends && probe.hash.as_deref() == hash;
    let current = all().find(is_current);
    let report = |failure: Option<String>, problems: Vec<NetworkProblem>| PreflightReport {
        round: request.round.clone(),
        failure,
        problems,
    };
    let conflict = observation.obstacles.first().map(|obstacle| report(Some(obstacle.message.clone()), Vec::new()));
    let result = current.and_then(|probe| match (&probe.problems, &probe.failure) {
        (Some(problems), _) => Some(report(None, problems.clone())),
        (None, Some(failure)) => Some(report(Some(format!("Pod {}: {failure}", probe.name)), Vec::new())),
        (None, None) => None,
    });
    let refused =
        observation.refused_probe.clone().filter(|_| current.is_none()).map(|why| report(Some(why), Vec::new()));
    ProbePlan {
        remove: all().filter(|probe| !is_current(probe)).map(names).collect(),
        // A former pod has the same name. It is gone before the next reconcile.
        create: all().next().is_none().then_some(pod),
        objects,
        report: conflict.or(refused).or(result),
        incarnation: Some(request.incarnation.clone()),
    }
}

fn names(probe: &Probe) -> (String, String) {
    (probe.name.clone(), probe.uid.clone())
}

/// The objects and the pod of the probe.
fn rendered(observation: &Observation, request: &Preflight) -> Option<(Vec<Object>, Value)> {
    let list = Ensemble { incarnation: Some(request.incarnation.clone()), ..Ensemble::default() };
    let source = observation.source(&list, (0, 0));
    let pod = render::pod(&source, request).ok()?;
    Some((render::surroundings(&source), pod))
}

/// The request, if the agent follows it: Karmada manages the object, no server list has arrived, and no server of the
/// incarnation has ever been here.
fn wanted(observation: &Observation) -> Option<&Preflight> {
    let object = &observation.object;
    let request = object.spec.preflight.as_ref().filter(|request| is_intact(request))?;
    let incarnation = &request.incarnation;
    let accepted = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let is_known = accepted.is_some_and(|list| list.incarnation.as_ref() == Some(incarnation));
    let is_unassigned = object.spec.cluster.is_none() && object.spec.ensemble == Ensemble::default();
    let is_ours = request.names.iter().any(|name| Some(&name.cluster) == observation.cluster.as_ref());
    (is_ours
        && is_unassigned
        && !is_known
        && !observation.has_had_servers(incarnation)
        && !observation.tombstones.contains(incarnation)
        && object.labels().contains_key(KARMADA_MANAGED_LABEL)
        && object.metadata.deletion_timestamp.is_none())
    .then_some(request)
}

/// Incarnations that have no server here, but objects of a former probe. `current` is the incarnation of the server list.
pub(super) fn leftovers(observation: &Observation, current: Option<&str>, plan: &ProbePlan) -> BTreeSet<String> {
    let remaining = observation.remaining.iter();
    remaining
        .filter(|id| Some(id.as_str()) != current && Some(*id) != plan.incarnation.as_ref())
        .filter(|id| !observation.has_had_servers(id))
        .cloned()
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

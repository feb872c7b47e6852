//! Step: the network check before the first server starts, and before clusters join.
//!
//! The agent runs one probe while the operator requests the check, and none in any other case. Before the first server it never
//! runs one where a server of the incarnation has been. Beside servers the probe has a name that none of them has. [`report`]
//! keeps what it reports within the bounds of the schema.

mod report;

use std::collections::BTreeSet;

use kube_core::ResourceExt;
use serde_json::Value;

use crate::agent::{
    decide::{accept::remedy_for_name, observation::Observation, probe::Probe, refused},
    render::{object::Object, preflight as render},
};
use mczk_api::{
    ZooKeeper,
    contract::{labels::KARMADA_MANAGED_LABEL, mesh::remedy, preflight::is_intact},
    preflight::{Preflight, PreflightReport},
    zookeeper::Ensemble,
};

/// Most clusters that a message names.
const MAX_NAMED: usize = 3;
/// Why no probe runs for a request whose content does not match its round.
const DAMAGED: &str = "The request of the network check is damaged: its round does not match. The operator writes it again. \
                       If it lasts, the kinds in this cluster are older than the operator: run `mczk install` of this \
                       version again, or `mczk register --only crds,propagation`";
/// Why no probe runs under an unknown name.
const UNNAMED: &str = "Karmada's name of this cluster is unknown to its agent, so no probe listens on the ports 2888, 3888 \
                       and 8443. Start the agent with --cluster";

/// What becomes of probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbePlan {
    /// Names and uids of pods to delete, before anything else is written.
    pub remove: Vec<(String, String)>,
    /// Objects that the probe needs to be reached.
    pub objects: Vec<Object>,
    /// The pod to create, if it does not exist.
    pub create: Option<Value>,
    /// The result to report, while the check is requested.
    pub report: Option<PreflightReport>,
    /// The incarnation that is checked.
    pub incarnation: Option<String>,
}

/// Decides what becomes of probes.
pub(super) fn plan(observation: &Observation) -> ProbePlan {
    let remove = || observation.probes.iter().map(names).collect();
    match wanted(observation) {
        Wanted::Nothing => ProbePlan { remove: remove(), ..ProbePlan::default() },
        Wanted::Refused(request, why) => {
            ProbePlan { remove: remove(), report: Some(report::failed(request, &why)), ..ProbePlan::default() }
        }
        Wanted::Probe(request) => match rendered(observation, request) {
            Ok(rendered) => run(observation, request, rendered),
            Err(error) => {
                let report = report::failed(request, &format!("The agent cannot make the pod of a probe: {error}"));
                ProbePlan { remove: remove(), report: Some(report), ..ProbePlan::default() }
            }
        },
    }
}

/// The plan for the probe of a request. What the probe found counts for more than what is in its way, and nothing counts that
/// is only in the way of servers: a lost cluster could not be replaced.
fn run(observation: &Observation, request: &Preflight, (objects, pod): (Vec<Object>, Value)) -> ProbePlan {
    let all = || observation.probes.iter();
    let hash = pod.pointer("/metadata/annotations/mczk.io~1applied-hash").and_then(Value::as_str);
    let is_current = |probe: &&Probe| !probe.ends && probe.hash.as_deref() == hash;
    let current = all().find(is_current);
    let found = current.and_then(|probe| Some(report::found(request, probe.problems.as_ref()?, probe)));
    let pod_name = pod.pointer("/metadata/name").and_then(Value::as_str);
    let is_needed = |kind: &str, name: &str| {
        pod_name == Some(name) || objects.iter().any(|object| object.kind.name() == kind && object.name == name)
    };
    let cause = refused::foreign(observation, is_needed).next().or_else(|| refused::refused(observation, is_needed));
    let failure = current.and_then(|probe| {
        let mesh = probe.mesh.map(|mesh| format!(". {}", remedy(mesh))).unwrap_or_default();
        Some(format!("Pod {}: {}{mesh}", probe.name, probe.failure.as_ref()?))
    });
    let failed = cause.map(|cause| cause.message).or(failure).map(|why| report::failed(request, &why));
    ProbePlan {
        remove: all().filter(|probe| !is_current(probe)).map(names).collect(),
        // A former pod has the same name. It is gone before the next reconcile.
        create: all().next().is_none().then_some(pod),
        report: found.or(failed),
        // Those of servers serve the probe too.
        objects: if observation.has_servers(&request.incarnation) { Vec::new() } else { objects },
        incarnation: Some(request.incarnation.clone()),
    }
}

fn names(probe: &Probe) -> (String, String) {
    (probe.name.clone(), probe.uid.clone())
}

/// The objects and the pod of the probe.
fn rendered(observation: &Observation, request: &Preflight) -> serde_json::Result<(Vec<Object>, Value)> {
    let list = Ensemble { incarnation: Some(request.incarnation.clone()), ..Ensemble::default() };
    let source = observation.source(&list, (0, 0));
    let owner = render::owner(&observation.object);
    let pod = render::pod(&source, request, owner.as_ref())?;
    Ok((render::surroundings(&source, owner.as_ref()), pod))
}

/// What the agent does with a request.
enum Wanted<'a> {
    /// There is none, or servers are about to come, or nothing may start any more.
    Nothing,
    /// The agent runs no probe, and reports why.
    Refused(&'a Preflight, String),
    /// The agent runs a probe.
    Probe(&'a Preflight),
}

/// What the agent does with the request. It runs a probe only if Karmada manages the object. Without a server list, no server of
/// the incarnation may ever have been here; with one, the ensemble runs, and no server has the name.
fn wanted(observation: &Observation) -> Wanted<'_> {
    let object = &observation.object;
    let Some(request) = object.spec.preflight.as_ref().filter(|request| !request.round.is_empty()) else {
        return Wanted::Nothing;
    };
    let accepted = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let is_known = accepted.is_some_and(|list| list.incarnation.as_ref() == Some(&request.incarnation));
    let list = &object.spec.ensemble;
    let is_first = *list == Ensemble::default() && object.spec.cluster.is_none() && !is_known;
    let joins = list.phase.admits_clusters() && list.incarnation.as_ref() == Some(&request.incarnation);
    if !(is_first || joins && !observation.has_server_named_in(request)) || !is_governed(object) {
        return Wanted::Nothing;
    }
    match refusal(observation, request) {
        Some(why) => Wanted::Refused(request, why),
        None => Wanted::Probe(request),
    }
}

/// True if Karmada manages the object, and it is not being deleted.
fn is_governed(object: &ZooKeeper) -> bool {
    object.labels().contains_key(KARMADA_MANAGED_LABEL) && object.metadata.deletion_timestamp.is_none()
}

/// Why the agent runs no probe for a request. Without a report the operator would wait, and no user would know why.
fn refusal(observation: &Observation, request: &Preflight) -> Option<String> {
    let incarnation = &request.incarnation;
    if !is_intact(request) {
        return Some(DAMAGED.to_owned());
    }
    let Some(cluster) = &observation.cluster else { return Some(UNNAMED.to_owned()) };
    if request.names.iter().all(|name| name.cluster != *cluster) {
        let names: Vec<&str> = request.names.iter().take(MAX_NAMED).map(|name| name.cluster.as_str()).collect();
        return Some(format!(
            "The agent calls this cluster {cluster}, and the network check is of other clusters: {}. {}",
            names.join(", "),
            remedy_for_name(&observation.object, cluster)
        ));
    }
    if observation.object.spec.ensemble == Ensemble::default() && observation.has_had_servers(incarnation) {
        return Some(format!(
            "Servers of incarnation {incarnation} have run here: volumes, pods or StatefulSets of them are left, but \
             no server list. Do not skip the network check"
        ));
    }
    observation
        .tombstones
        .contains(incarnation)
        .then(|| format!("A tombstone says that incarnation {incarnation} is over"))
}

/// The incarnation of the declared server list, if its servers may come here. It may take a while until this cluster
/// gets its spec. Servers of other clusters look for the names meanwhile, so the Service stays.
pub(super) fn awaited(observation: &Observation) -> Option<&str> {
    let object = &observation.object;
    let list = &object.spec.ensemble;
    let incarnation = list.incarnation.as_deref().filter(|id| !observation.tombstones.contains(*id))?;
    let is_named = |cluster: &String| list.servers.iter().any(|server| server.cluster == *cluster);
    let is_ours = observation.cluster.as_ref().is_none_or(is_named);
    (is_ours && !list.phase.is_ending() && is_governed(object)).then_some(incarnation)
}

/// Incarnations that have no server here, but objects of a former probe. `current` is the incarnation of the server
/// list. Those of the incarnation whose servers are about to come stay.
pub(super) fn leftovers(observation: &Observation, current: Option<&str>, plan: &ProbePlan) -> BTreeSet<String> {
    let remaining = observation.remaining.iter();
    let awaited = awaited(observation);
    remaining
        .filter(|id| Some(id.as_str()) != current && Some(*id) != plan.incarnation.as_ref())
        .filter(|id| Some(id.as_str()) != awaited)
        .filter(|id| !observation.has_had_servers(id))
        .cloned()
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

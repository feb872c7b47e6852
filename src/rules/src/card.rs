//! What the page shows of one ensemble.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::DynamicObject;
use serde::{Deserialize, Serialize};

use crate::view::{
    findings::{ENSEMBLE, Finding, verdict},
    status::{self, EnsembleView},
    why,
};
use mczk_api::{
    contract::server_list::majority,
    karmada::{cluster::Cluster, resource_binding::ResourceBinding},
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
};

/// One ensemble: what `mczk status` and `mczk why` print, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    #[serde(flatten)]
    ensemble: EnsembleView,
    /// The state in a few sentences. The page reads a change of it aloud.
    summary: String,
    /// True if the ensemble is as declared and serves.
    ready: bool,
    /// True if something waits or needs the user.
    waits: bool,
    findings: Vec<Finding>,
    states: Vec<ConditionState>,
    /// Clusters in the order of the current record.
    steps: Vec<StepCard>,
    /// Without a server list there is no quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    quorum: Option<QuorumCard>,
}

/// One condition of the object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionState {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    /// True if all is well, false if not, absent if the condition does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    good: Option<bool>,
    reason: String,
    message: String,
}

/// One cluster of the current record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepCard {
    cluster: String,
    state: StepCardState,
}

/// Progress of a cluster in the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum StepCardState {
    /// The cluster is complete.
    Done,
    /// The operator changes the cluster.
    Now,
    /// The first cluster that has not started.
    Next,
    /// A later one.
    Waits,
}

/// The voters, and how many of them may fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuorumCard {
    /// Servers with a vote.
    voters: usize,
    /// Voters that a quorum needs.
    majority: usize,
    /// Voters that serve.
    serving: usize,
    /// The same in words, with the losses that the ensemble tolerates.
    text: String,
}

/// The card of an ensemble. Without `known` the user may not read Clusters.
pub fn card(object: &DynamicObject, binding: Option<&ResourceBinding>, known: Option<&[Cluster]>) -> Card {
    let mut ensemble = status::ensemble(object);
    ensemble.clusters = status::clusters(object, binding, known);
    let why = why::view(object, binding);
    let parsed = object.data.get("status").and_then(|status| MultiClusterZooKeeperStatus::deserialize(status).ok());
    let parsed = parsed.unwrap_or_default();
    Card {
        summary: summary(&ensemble),
        ready: ensemble.is_ready(),
        waits: why.waits,
        findings: why.findings,
        states: parsed.conditions.iter().map(state).collect(),
        steps: parsed.records.last().map(steps).unwrap_or_default(),
        quorum: quorum(&ensemble),
        ensemble,
    }
}

impl Card {
    /// Namespace and name of the ensemble.
    #[must_use]
    pub fn key(&self) -> (String, String) {
        (self.ensemble.namespace.clone(), self.ensemble.name.clone())
    }

    /// The card, which says first that something could not be read. `what` is the beginning of a sentence.
    #[must_use]
    pub fn without(mut self, what: &str, why: &str, action: &str) -> Self {
        self.findings.insert(0, Finding::new(ENSEMBLE, format!("{what} cannot be read: {why}"), Some(action)));
        self.waits = true;
        self.summary = format!("{} {what} cannot be read.", self.summary);
        self
    }
}

fn state(condition: &Condition) -> ConditionState {
    ConditionState {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        good: verdict(condition),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

fn steps(record: &Record) -> Vec<StepCard> {
    let now = &record.current_state;
    let state = |cluster: &String| {
        if now.completed.contains(cluster) {
            StepCardState::Done
        } else if now.deploying.contains(cluster) {
            StepCardState::Now
        } else if now.pending.first() == Some(cluster) {
            StepCardState::Next
        } else {
            StepCardState::Waits
        }
    };
    record.order.iter().map(|cluster| StepCard { cluster: cluster.clone(), state: state(cluster) }).collect()
}

fn quorum(ensemble: &EnsembleView) -> Option<QuorumCard> {
    let voters = ensemble.votes;
    let serving = usize::try_from(ensemble.serving).unwrap_or(0).min(voters);
    if voters == 0 {
        return None;
    }
    let majority = majority(voters);
    let text = match serving.checked_sub(majority) {
        None => format!(
            "{majority} of {voters} voters are needed, and {serving} serve. Without a quorum nothing is written."
        ),
        Some(0) => format!("{majority} of {voters} voters are needed, and {serving} serve. No voter can be lost now."),
        Some(1) => format!("{majority} of {voters} voters are needed, and {serving} serve. One voter can be lost now."),
        Some(spare) => {
            format!("{majority} of {voters} voters are needed, and {serving} serve. {spare} voters can be lost now.")
        }
    };
    let text = text + &losable(ensemble, serving, majority);
    Some(QuorumCard { voters, majority, serving, text })
}

/// The clusters whose loss leaves a quorum.
fn losable(ensemble: &EnsembleView, serving: usize, majority: usize) -> String {
    let with_voters = || ensemble.clusters.iter().filter(|cluster| cluster.serving > 0);
    let survives = |of: i32| usize::try_from(of).is_ok_and(|of| serving.saturating_sub(of) >= majority);
    let names: Vec<&str> = with_voters().filter(|c| survives(c.serving)).map(|c| c.name.as_str()).collect();
    match names.len() {
        0 if serving < majority => String::new(),
        0 => " No whole cluster can be lost now.".to_owned(),
        all if all == with_voters().count() => " Any one cluster can be lost now.".to_owned(),
        1 => format!(" Of whole clusters only {} can be lost now.", names.concat()),
        _ => format!(" One of the clusters {} can be lost now.", names.join(", ")),
    }
}

fn summary(ensemble: &EnsembleView) -> String {
    let mut parts = vec![match (ensemble.is_ready(), ensemble.current) {
        (true, _) => "Ready".to_owned(),
        (false, true) => "Not ready".to_owned(),
        (false, false) => "Not ready: the operator has not seen the newest spec".to_owned(),
    }];
    parts.extend(
        ensemble.rollout.iter().filter(|rollout| *rollout != "Ready").map(|rollout| format!("Rollout: {rollout}")),
    );
    if ensemble.voters > 0 {
        parts.push(format!("{} of {} voters serve", ensemble.serving, ensemble.voters));
    }
    parts.push(leader(ensemble));
    parts.join(". ") + "."
}

fn leader(ensemble: &EnsembleView) -> String {
    let leads = |cluster: &status::ClusterView| cluster.servers.iter().find(|s| s.state == "leader").map(|s| s.id);
    let found = ensemble.clusters.iter().find_map(|cluster| Some((leads(cluster)?, &cluster.name)));
    match (found, &ensemble.leader) {
        (Some((id, cluster)), _) => format!("The leader is server {id} in {cluster}"),
        (None, Some(cluster)) => format!("The leader is in {cluster}"),
        (None, None) => "No leader is known".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

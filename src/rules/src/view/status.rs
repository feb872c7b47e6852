//! What `mczk status` shows: ensembles, their clusters and servers, from the objects of the control plane.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube_core::DynamicObject;
use serde::{Deserialize, Serialize};

use mczk_api::{
    MultiClusterZooKeeper,
    contract::conditions::ConditionType,
    karmada::{cluster::Cluster, resource_binding::ResourceBinding},
    multiclusterzookeeper::{ClusterStatus, MultiClusterZooKeeperStatus, Record},
    zookeeper::{Role, ServerStatus, ZooKeeperStatus},
};

/// One ensemble.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleView {
    /// Namespace of the ensemble.
    pub namespace: String,
    /// Name of the ensemble.
    pub name: String,
    /// Desired voters: in total with a Divided placement, in each cluster with a Duplicated one.
    pub replicas: i32,
    /// Voters of the server list.
    pub voters: usize,
    /// Servers with a vote, by ZooKeeper's own configuration; the voters of the list if no report shows it.
    pub votes: usize,
    /// Voters that serve.
    pub serving: i32,
    /// Summary of the current record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// Status of each condition, by type.
    pub conditions: BTreeMap<String, String>,
    /// Message of `Progressing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Image of the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Cluster of the leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Identifier of the incarnation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Time at which the object was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// True if the operator has reconciled the newest generation.
    pub current: bool,
    /// The clusters that have servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterView>,
}

/// One cluster of an ensemble.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Name of the cluster.
    pub name: String,
    /// True if the cluster is Ready in Karmada; `None` if the user may not read Clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// True if the cluster is complete and has its newest spec.
    pub ready: bool,
    /// Place in the current record: `pending`, `deploying` or `completed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<&'static str>,
    /// Voters in the spec that the operator sent to the cluster.
    pub desired: i32,
    /// Voters that serve.
    pub serving: i32,
    /// Revision that the agent reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The spare that holds the voters of this cluster, or gets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// What the cluster waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The servers of the cluster.
    pub servers: Vec<ServerView>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// Its id.
    pub id: i32,
    /// `voter`, `observer`, or `leaving` for a server that the server list no longer names.
    pub role: &'static str,
    /// `leader`, `follower`, `observer`, `looking` for a leader, `off`, or `unknown` without a report or an answer.
    pub state: &'static str,
    /// What the agent reports; `None` if it reports no such server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ServerStatus>,
}

impl EnsembleView {
    /// True if the ensemble is as declared and serves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.current && self.status_of(ConditionType::Ready) == Some("True")
    }

    /// Status of a condition.
    pub fn status_of(&self, type_: ConditionType) -> Option<&str> {
        self.conditions.get(type_.as_str()).map(String::as_str)
    }
}

/// An ensemble without its clusters. An object that this version cannot parse shows what it can.
pub fn ensemble(object: &DynamicObject) -> EnsembleView {
    let metadata = &object.metadata;
    let mut view = EnsembleView {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        ..EnsembleView::default()
    };
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value::<MultiClusterZooKeeper>);
    let object = match parsed {
        Ok(object) => object,
        Err(error) => {
            view.message = Some(format!("This version of mczk cannot parse the object: {error}"));
            return view;
        }
    };
    view.replicas = object.spec.replicas;
    view.image = Some(object.spec.template.image.clone());
    let status = object.status.unwrap_or_default();
    view.current = status.observed_generation == metadata.generation;
    describe(&mut view, &status);
    view
}

fn describe(view: &mut EnsembleView, status: &MultiClusterZooKeeperStatus) {
    let of_type = |type_: ConditionType| status.conditions.iter().find(move |c| c.type_ == type_.as_str());
    view.conditions = status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone())).collect();
    view.message = of_type(ConditionType::Progressing).map(message);
    view.serving = status.ready_replicas.unwrap_or(0);
    view.voters = status.clusters.iter().map(|cluster| cluster.voters.len()).sum();
    let configured = status.ensemble.as_ref().map_or(0, |ensemble| ensemble.voters.len());
    view.votes = if configured == 0 { view.voters } else { configured };
    view.rollout.clone_from(&status.rollout);
    view.incarnation = status.ensemble.as_ref().map(|ensemble| ensemble.incarnation.clone());
    let leader = status.ensemble.as_ref().and_then(|ensemble| ensemble.leader.as_ref());
    view.leader = leader.map(|leader| leader.cluster.clone());
}

fn message(condition: &Condition) -> String {
    if condition.message.is_empty() { condition.reason.clone() } else { condition.message.clone() }
}

/// The clusters of an ensemble, by name, with their servers. Without `known` the user may not read Clusters.
#[must_use]
pub fn clusters(
    object: &DynamicObject,
    binding: Option<&ResourceBinding>,
    known: Option<&[Cluster]>,
) -> Vec<ClusterView> {
    let status = object.data.get("status").and_then(|status| MultiClusterZooKeeperStatus::deserialize(status).ok());
    let status = status.unwrap_or_default();
    let record = status.records.last();
    status
        .clusters
        .iter()
        .map(|cluster| ClusterView {
            name: cluster.name.clone(),
            reachable: known.map(|all| all.iter().any(|c| c.name() == cluster.name && c.ready())),
            ready: cluster.ready,
            position: record.and_then(|record| position(record, &cluster.name)),
            desired: cluster.desired,
            serving: cluster.serving,
            revision: cluster.revision.clone(),
            moved_to: cluster.moved_to.clone(),
            message: cluster.message.clone(),
            servers: servers(cluster, reported(binding, &cluster.name)),
        })
        .collect()
}

fn position(record: &Record, cluster: &str) -> Option<&'static str> {
    let state = &record.current_state;
    let lists = [("pending", &state.pending), ("deploying", &state.deploying), ("completed", &state.completed)];
    lists.into_iter().find(|(_, list)| list.iter().any(|name| name == cluster)).map(|(position, _)| position)
}

/// What the agent of a cluster reports.
fn reported(binding: Option<&ResourceBinding>, cluster: &str) -> Vec<ServerStatus> {
    let items = binding.map(|binding| binding.status.aggregated_status.as_slice()).unwrap_or_default();
    let item = items.iter().find(|item| item.cluster_name == cluster);
    let status = item.and_then(|item| ZooKeeperStatus::deserialize(item.status.as_ref()?).ok());
    status.unwrap_or_default().servers
}

/// The servers of the server list, and those that the agent still reports besides.
fn servers(cluster: &ClusterStatus, mut reported: Vec<ServerStatus>) -> Vec<ServerView> {
    let mut servers = Vec::new();
    for (role, ids) in [(Role::Voter, &cluster.voters), (Role::Observer, &cluster.observers)] {
        let role = if role == Role::Voter { "voter" } else { "observer" };
        for id in ids {
            let at = reported.iter().position(|server| server.id == *id);
            let report = at.map(|at| reported.remove(at));
            servers.push(ServerView { id: *id, role, state: state(report.as_ref()), report });
        }
    }
    let rest = reported.into_iter();
    servers.extend(rest.map(|server| ServerView {
        id: server.id,
        role: "leaving",
        state: state(Some(&server)),
        report: Some(server),
    }));
    servers
}

/// What a server does, in one word. A server that serves no session counts as off, unless it looks for a leader.
fn state(report: Option<&ServerStatus>) -> &'static str {
    let Some(report) = report else { return "unknown" };
    match (report.mode.as_deref(), report.serving) {
        (Some("leader"), true) => "leader",
        (Some("observer"), true) => "observer",
        (_, true) => "follower",
        (Some("looking"), false) => "looking",
        (Some("unknown"), false) => "unknown",
        (_, false) => "off",
    }
}

//! Whether the volume of a server may be replaced by an empty one, and which objects that deletes.

use std::collections::BTreeSet;

use crate::terminal::{
    server_list::{ListedServer, listed},
    server_name::ServerName,
};
use mczk_api::{
    contract::server_list::majority,
    multiclusterzookeeper::RecordStatus,
    zookeeper::{Role, ServerStatus},
};

use super::{
    others,
    refusal::{Refusal, refuse},
    seen::{ClusterObjects, Object, Seen},
};

/// The deletions that replace a volume, in this order. The StatefulSet makes both objects again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// The server.
    pub(super) server: ListedServer,
    /// Claim to delete, with its uid; `None` if it is gone, or is being deleted already.
    pub(super) claim: Option<(String, String)>,
    /// Pod to delete, with its uid; `None` if it is gone.
    pub(super) pod: Option<(String, String)>,
    /// Voters that serve without the server.
    pub(super) serving: usize,
    /// Voters that must serve.
    pub(super) needed: usize,
}

/// The deletions.
///
/// # Errors
/// If the ensemble would lose its majority, or this cannot be known.
pub(super) fn decide(seen: &Seen, name: &ServerName) -> Result<Replacement, Refusal> {
    check_ensemble(seen)?;
    let servers = listed(&seen.namespace, &seen.name, &seen.status);
    let server = find(&servers, name)?;
    let objects = match seen.clusters.get(&server.cluster) {
        Some(Ok(objects)) => objects,
        Some(Err(why)) => {
            return refuse(format!("cluster {} cannot be read: {why}", server.cluster), UNREACHABLE);
        }
        None => return refuse(format!("cluster {} was not read", server.cluster), UNREACHABLE),
    };
    let (serving, needed) = check_majority(seen, &servers, server)?;
    others::check(seen, &servers, server, may_serve(objects, server))?;
    if may_serve(objects, server) {
        check_serving(seen, &servers, server)?;
    }
    let incarnation = seen.status.ensemble.as_ref().map(|ensemble| ensemble.incarnation.as_str());
    let claim_name = format!("data-{}", server.pod);
    let claim = of_incarnation(objects.claims.get(&claim_name), &claim_name, incarnation)?;
    let pod = of_incarnation(objects.pods.get(&server.pod), &server.pod, incarnation)?;
    let reported = objects.report(server.id).and_then(|report| report.pod.as_ref());
    if let Some(other) = reported.filter(|pod| **pod != server.pod) {
        return refuse(
            format!("the agent reports server {} in the pod {other}, the operator in {}", server.id, server.pod),
            "Wait until the membership has changed, then run the command again",
        );
    }
    if claim.is_none() && pod.is_none() {
        return refuse(
            format!("cluster {} has neither the pod {} nor its claim", server.cluster, server.pod),
            "Nothing is left to delete. See mczk why for what the cluster waits for",
        );
    }
    Ok(Replacement {
        server: server.clone(),
        claim: claim.filter(|claim| !claim.terminating).map(|claim| (claim_name, claim.uid.clone())),
        pod: pod.map(|pod| (server.pod.clone(), pod.uid.clone())),
        serving,
        needed,
    })
}

const UNREACHABLE: &str = "Restore the connection to the cluster, or ask for the right to clusters/proxy";
const NO_MAJORITY: &str = "Do not delete any volume. Bring other voters back first: see the guide Volumes";

/// The ensemble as a whole: without a current status the majority is unknown.
fn check_ensemble(seen: &Seen) -> Result<(), Refusal> {
    if seen.terminating {
        return refuse("the object is being deleted", "Wait: its servers stop for good");
    }
    if !seen.current {
        let action = "Wait a moment. If it lasts, check that the operator runs";
        return refuse(
            "the operator has not reconciled the newest generation yet, so the server list may be old",
            action,
        );
    }
    let ensemble = seen.status.ensemble.as_ref();
    if !ensemble.is_some_and(|ensemble| ensemble.formed && !ensemble.voters.is_empty()) {
        return refuse("no quorum has formed yet, so no server could copy the data of others", NO_MAJORITY);
    }
    Ok(())
}

fn find<'a>(servers: &'a [ListedServer], name: &ServerName) -> Result<&'a ListedServer, Refusal> {
    let mut found = servers.iter().filter(|server| name.is(&server.cluster, &server.pod, Some(server.id)));
    match (found.next(), found.next()) {
        (Some(server), None) => Ok(server),
        (None, _) => {
            let all: Vec<String> =
                servers.iter().map(|server| format!("{} ({}/{})", server.id, server.cluster, server.pod)).collect();
            refuse(format!("the server list has no such server: it has {}", all.join(", ")), "Name one of them")
        }
        (Some(_), Some(_)) => {
            refuse("pods of several clusters have this name", "Name the server by its id, or as CLUSTER/POD")
        }
    }
}

/// A majority must serve without the server: of the voters of ZooKeeper's configuration, and of the server list, to which the
/// configuration may be about to change.
fn check_majority(seen: &Seen, servers: &[ListedServer], server: &ListedServer) -> Result<(usize, usize), Refusal> {
    let serving: BTreeSet<i32> =
        servers.iter().filter(|other| other.id != server.id && serves(seen, other)).map(|other| other.id).collect();
    let configured: BTreeSet<i32> =
        seen.status.ensemble.iter().flat_map(|ensemble| &ensemble.voters).copied().collect();
    let declared: BTreeSet<i32> =
        servers.iter().filter(|other| other.role == Role::Voter).map(|other| other.id).collect();
    let count = |voters: &BTreeSet<i32>| (voters.intersection(&serving).count(), majority(voters.len()));
    for (voters, what) in [(&configured, "ZooKeeper's configuration"), (&declared, "the server list")] {
        let (remaining, needed) = count(voters);
        if remaining < needed {
            let total = voters.len();
            let id = server.id;
            let why = format!(
                "without server {id} only {remaining} of {total} voters of {what} would serve, and {needed} must"
            );
            let unread = seen.clusters.iter().filter_map(|(name, objects)| {
                Some(format!("the voters of cluster {name} count as lost: {}", objects.as_ref().err()?))
            });
            let why = [why].into_iter().chain(unread).collect::<Vec<_>>().join("; ");
            return refuse(why, if total <= 2 { "Declare at least three voters first" } else { NO_MAJORITY });
        }
    }
    Ok(count(&configured))
}

/// A server that serves stops only as the agents would stop it: while every other voter serves, and nothing else restarts.
fn check_serving(seen: &Seen, servers: &[ListedServer], server: &ListedServer) -> Result<(), Refusal> {
    if seen.status.records.last().is_some_and(|record| record.status == RecordStatus::Deploying) {
        return refuse(
            format!("server {} serves, and a rollout may restart another server at the same time", server.id),
            "Wait until the rollout is complete",
        );
    }
    let voters = servers.iter().filter(|other| other.role == Role::Voter && other.id != server.id);
    match voters.into_iter().find(|other| !serves(seen, other)) {
        Some(other) => refuse(
            format!("server {} serves, and voter {} in cluster {} does not", server.id, other.id, other.cluster),
            "Bring that voter back first",
        ),
        None => Ok(()),
    }
}

/// True if a server is known to serve: by its agent's report, and by the kubelet, since a report stays when its agent is gone.
fn serves(seen: &Seen, server: &ListedServer) -> bool {
    let Some(Ok(objects)) = seen.clusters.get(&server.cluster) else { return false };
    let follows = |report: &ServerStatus| matches!(report.mode.as_deref(), Some("leader" | "follower" | "observer"));
    let reported = objects
        .report(server.id)
        .is_some_and(|report| report.serving && report.synced && !report.lost && follows(report));
    reported && objects.pods.get(&server.pod).is_some_and(|pod| pod.ready && !pod.terminating)
}

/// True if a server may serve: by its agent's report, or by the kubelet.
fn may_serve(objects: &ClusterObjects, server: &ListedServer) -> bool {
    objects.report(server.id).is_some_and(|report| report.serving)
        || objects.pods.get(&server.pod).is_some_and(|pod| pod.ready)
}

/// An object of the running incarnation. Another one is not this server's.
fn of_incarnation<'a>(
    object: Option<&'a Object>,
    name: &str,
    incarnation: Option<&str>,
) -> Result<Option<&'a Object>, Refusal> {
    match object {
        Some(object) if object.incarnation.as_deref() != incarnation => {
            refuse(format!("{name} does not belong to the running incarnation"), "Check its labels by hand")
        }
        other => Ok(other),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

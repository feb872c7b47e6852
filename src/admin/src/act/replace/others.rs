//! What the other servers must show before a volume is replaced: each has its volume, and none is on its way.
//!
//! The restart lock is in the ensemble, where this command cannot read it. Agents report whom they restart.

use crate::terminal::server_list::ListedServer;
use mczk_api::contract::conditions::{ConditionStatus, ConditionType, Reason, find};

use super::{
    refusal::{Refusal, refuse},
    seen::{ClusterObjects, Seen},
};

const ONE_VOLUME: &str = "Replace one volume at a time: wait until that server serves under a new id. If no other command \
                          replaces it, delete its pod: that completes its replacement";
const UNCONFIRMED: &str = "Restore the connection to the cluster, or remove the cluster from spec.placement first";
const ABSENT: &str =
    "Wait until that server has a volume and serves. If it has left the ensemble for good, remove it first";
const RESTARTING: &str = "Wait until that server serves again, then run the command again";

/// Of several servers without a volume at once, each takes one voter away. So each other server must have its volume,
/// and no other one may be on its way.
///
/// # Errors
/// The first other server of which that is not known.
pub(super) fn check(
    seen: &Seen,
    servers: &[ListedServer],
    server: &ListedServer,
    may_serve: bool,
) -> Result<(), Refusal> {
    for other in servers.iter().filter(|other| other.id != server.id) {
        let name = format!("server {} in cluster {}", other.id, other.cluster);
        let objects = match seen.clusters.get(&other.cluster) {
            Some(Ok(objects)) => objects,
            Some(Err(why)) => return refuse(format!("the volume of {name} is unconfirmed: {why}"), UNCONFIRMED),
            None => {
                return refuse(format!("the volume of {name} is unconfirmed: the cluster was not read"), UNCONFIRMED);
            }
        };
        check_volume(seen, objects, other, &name)?;
        if objects.pods.get(&other.pod).is_none_or(|pod| pod.terminating) {
            return refuse(format!("the pod of {name} is being restarted, or is absent"), RESTARTING);
        }
    }
    let mut clusters = seen.clusters.iter().filter_map(|(name, objects)| Some((name, objects.as_ref().ok()?)));
    let restarting = clusters.find_map(|(name, objects)| {
        let own = (*name == server.cluster).then_some(server.pod.as_str());
        Some((name, restart(objects, own, may_serve)?))
    });
    match restarting {
        Some((cluster, message)) => {
            refuse(format!("the agent of cluster {cluster} restarts a server: {message}"), RESTARTING)
        }
        None => Ok(()),
    }
}

fn check_volume(seen: &Seen, objects: &ClusterObjects, other: &ListedServer, name: &str) -> Result<(), Refusal> {
    let incarnation = seen.status.ensemble.as_ref().map(|ensemble| ensemble.incarnation.as_str());
    let claim_name = format!("data-{}", other.pod);
    let is_lost = objects.report(other.id).is_some_and(|report| report.lost);
    match objects.claims.get(&claim_name) {
        Some(claim) if is_lost || claim.terminating => {
            refuse(format!("{name} is losing or has lost its volume too"), ONE_VOLUME)
        }
        Some(claim) if claim.incarnation.as_deref() != incarnation => {
            refuse(format!("the volume of {name} is unconfirmed: {claim_name} is of another incarnation"), ABSENT)
        }
        Some(_) => Ok(()),
        None => refuse(format!("{name} has no volume: the claim {claim_name} is absent"), ABSENT),
    }
}

/// What the agent of a cluster reports of a restart. `own` is the pod of the server to replace, if it is in the
/// cluster. A drain counts only if that server may serve: it otherwise waits for this very server.
fn restart<'a>(objects: &'a ClusterObjects, own: Option<&str>, may_serve: bool) -> Option<&'a str> {
    let of = |type_: ConditionType, reason: Reason| {
        find(&objects.conditions, type_, ConditionStatus::True).filter(|found| found.reason == reason.as_str())
    };
    let is_other = |message: &&str| own.is_none_or(|pod| message.split(' ').next() != Some(pod));
    let restarting = of(ConditionType::AgentProgressing, Reason::Restarting);
    let drained = of(ConditionType::Draining, Reason::NodeDrained).filter(|_| may_serve);
    restarting.into_iter().chain(drained).map(|condition| condition.message.as_str()).find(is_other)
}

//! What a member cluster reported, and when it is complete.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{
        karmada::{cluster::Cluster, resource_binding::ResourceBinding},
        zookeeper::{Ensemble, Role, ZooKeeperSpec, ZooKeeperStatus},
    },
    contract::{
        conditions::{ConditionStatus, ConditionType, find},
        server_list::majority,
    },
    mutation::broken,
    rollout::ensemble::Quorum,
};

/// One member cluster, as the control plane sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// Karmada's name.
    pub cluster: String,
    /// Whether Karmada reaches it. What it reported before may be old if not.
    pub reachable: bool,
    /// Whether the Work was applied.
    pub applied: bool,
    /// Why it was not.
    pub refusal: Option<String>,
    /// What its agent reported.
    pub status: Option<ZooKeeperStatus>,
    /// Whether it reported what this version cannot read.
    pub unreadable: bool,
}

impl ClusterReport {
    /// Whether its report may be decided on (S8).
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.reachable && self.applied && self.status.is_some()
    }
}

/// Every cluster of the federation that has a Work of the template, or is named.
#[must_use]
pub fn cluster_reports(
    binding: Option<&ResourceBinding>,
    clusters: &[Cluster],
    named: &[String],
) -> BTreeMap<String, ClusterReport> {
    let mut all: BTreeMap<String, ClusterReport> = named
        .iter()
        .map(|name| (name.clone(), ClusterReport { cluster: name.clone(), ..ClusterReport::default() }))
        .collect();
    for item in binding.map(|b| b.status.aggregated_status.as_slice()).unwrap_or_default() {
        let member = all.entry(item.cluster_name.clone()).or_default();
        member.cluster.clone_from(&item.cluster_name);
        member.applied = item.applied;
        member.refusal.clone_from(&item.applied_message);
        // A status of a newer version that this one cannot read counts as none: it is waited for, and said.
        member.status = item.status.clone().and_then(|status| serde_json::from_value(status).ok());
        member.unreadable = item.status.is_some() && member.status.is_none();
    }
    for member in all.values_mut() {
        member.reachable =
            broken!(BelieveUnreachable) || clusters.iter().any(|c| c.name() == member.cluster && c.ready());
    }
    all
}

/// Whether a cluster is complete; if not, what it waits for.
///
/// Before a majority of the ensemble is started no server of it serves, so a cluster counts as complete when its servers
/// are started; from then on when they serve, as voters of the configuration.
///
/// # Errors
/// A sentence for people.
pub fn complete(
    member: Option<&ClusterReport>,
    pin: &ZooKeeperSpec,
    ensemble: &Ensemble,
    quorum: &Quorum,
    reports: &BTreeMap<String, ClusterReport>,
) -> Result<(), String> {
    let Some(member) = member else {
        return Err("waits for Karmada to send the object".to_owned());
    };
    if !member.reachable {
        return Err("the cluster is not Ready in Karmada; its reports may be old".to_owned());
    }
    if !member.applied {
        return Err(format!(
            "Karmada could not apply the object: {}",
            member.refusal.as_deref().unwrap_or("no reason given")
        ));
    }
    let Some(status) = &member.status else {
        return Err("waits for the agent's first report".to_owned());
    };
    if !broken!(BelieveOtherPin) {
        if let Some(condition) = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True) {
            return Err(format!("blocked: {}", condition.message));
        }
        if status.observed_spec_hash != pin.spec_hash {
            return Err("waits for the agent to see the new spec".to_owned());
        }
        if status.completed_spec_hash != pin.spec_hash {
            let why = status
                .conditions
                .iter()
                .find(|c| c.type_ == ConditionType::AgentProgressing.as_str())
                .map(|c| c.message.as_str());
            return Err(match why {
                Some(message) if !message.is_empty() => format!("in progress: {message}"),
                _ => "in progress".to_owned(),
            });
        }
    }
    let started = status.started_replicas.unwrap_or(0);
    if started < pin.replicas {
        return Err(format!("{started} of {} servers started", pin.replicas));
    }
    let voters = ensemble.servers.iter().filter(|s| s.role == Role::Voter).count();
    let started_everywhere: i64 = reports
        .values()
        .filter(|m| m.fresh())
        .filter_map(|m| m.status.as_ref())
        .filter(|s| ensemble.incarnation.as_deref().is_none_or(|life| s.may_be_of(life)))
        .map(|s| i64::from(s.started_replicas.unwrap_or(0)))
        .sum();
    let below_majority = usize::try_from(started_everywhere).unwrap_or(0) < majority(voters);
    if !quorum.formed && below_majority && !broken!(ServeBeforeMajority) {
        return Ok(());
    }
    let serving = status.ready_replicas.unwrap_or(0);
    if serving < pin.replicas {
        return Err(format!("{serving} of {} servers serve", pin.replicas));
    }
    if status.epoch() < ensemble.epoch {
        return Err("waits for the agent to see the newest list of servers".to_owned());
    }
    if quorum.formed {
        let listed: BTreeSet<i32> = ensemble.servers.iter().map(|s| s.id).collect();
        let own = ensemble.servers.iter().filter(|s| s.cluster == member.cluster && s.role == Role::Voter);
        if let Some(server) = own.clone().find(|s| !quorum.voters.contains(&s.id)) {
            return Err(format!("server {} is not a voter of the ensemble yet", server.id));
        }
        // Only its own: a server of another cluster may have to stay until one of a cluster that comes later has joined.
        let reported = status.servers.iter().map(|server| server.id);
        if let Some(id) = reported.into_iter().find(|id| quorum.voters.contains(id) && !listed.contains(id)) {
            return Err(format!("server {id} is to leave the ensemble first"));
        }
    }
    Ok(())
}

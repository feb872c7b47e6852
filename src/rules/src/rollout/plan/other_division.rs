//! Karmada's division of the voters, if the operator does not accept it.
//!
//! Karmada leaves out a cluster that is not Ready or that it evicts, gives its replicas to the others, and moves nothing back
//! later.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

use crate::rollout::{
    cluster_selection::ClusterSelection,
    known::Known,
    placement::{duplicated, repelling_taint},
    scheduled::Scheduled,
    served_kinds::{BRING_KINDS, serves_kinds},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, server_list::majority},
    karmada::cluster::Cluster,
};

/// A cluster that is not asked may have servers of this name, beside which an empty ensemble would start.
const WITHOUT_SPARE: &str = "To continue without it, request another place for its voters with mczk failover. If it is no spare, remove it from spec.placement";
/// The same for a cluster that is not a spare.
const WITHOUT_IT: &str = "To continue without it, remove it from spec.placement. Before the first server starts, check that \
                          no servers of this name run there";

/// Why the operator does not accept a settled schedule: it has decided other numbers, or each selected cluster has to get the
/// same one. If the user says how Karmada divides, the schedule stands, unless a cluster that is not Ready is the reason why
/// another one gets a majority.
pub(super) fn other_division(known: &Known<'_>, selection: &ClusterSelection, schedule: &[Scheduled]) -> Option<Cause> {
    let placed: BTreeMap<&str, i32> = schedule.iter().map(|s| (s.cluster.as_str(), s.replicas)).collect();
    let absent = absent(known, selection);
    let without_it = if selection.moved.is_empty() { WITHOUT_IT } else { WITHOUT_SPARE };
    let Some(decided) = decided(selection, &placed) else {
        let (holder, absent) = (new_majority(known, &placed)?, absent?);
        let message = format!(
            "Karmada placed {}, so that cluster {holder} alone would hold a majority, because {}. The operator waits for it. {without_it}",
            listed(&placed),
            absent,
        );
        return Some(Cause { reason: Reason::OtherDivision, message });
    };
    if placed == decided {
        return None;
    }
    let remedy = match (absent, evicted(known, selection)) {
        (Some(absent), _) => format!("It does so because {absent}. The operator waits for it. {without_it}"),
        (None, Some(name)) => format!(
            "It does so because it is evicting cluster {name}: see gracefulEvictionTasks of the ResourceBinding. The operator asks Karmada to schedule again until the cluster is back"
        ),
        (None, None) => {
            format!("{}The operator has asked Karmada to schedule again", left_out(known, selection, &placed))
        }
    };
    let message = format!("Karmada placed {} instead of {}. {remedy}", listed(&placed), listed(&decided));
    Some(Cause { reason: Reason::OtherDivision, message })
}

/// The voters that each cluster has to get, unless Karmada decides that.
fn decided<'a>(selection: &'a ClusterSelection, placed: &BTreeMap<&str, i32>) -> Option<BTreeMap<&'a str, i32>> {
    if duplicated(Some(&selection.placement)) {
        let each = placed.values().next().copied().unwrap_or_default();
        return Some(selection.clusters().iter().map(|name| (name.as_str(), each)).collect());
    }
    // A crash between two writes may leave a template with another number of voters than the division is for.
    let is_for = |voters: &BTreeMap<&str, i32>| voters.values().sum::<i32>() == placed.values().sum::<i32>();
    selection.voters().filter(is_for)
}

/// The first selected cluster without a voter that has a taint, or lacks the kinds, as a sentence: Karmada says that it has
/// scheduled.
fn left_out(known: &Known<'_>, selection: &ClusterSelection, placed: &BTreeMap<&str, i32>) -> String {
    let repels = |cluster| repelling_taint(cluster, &selection.placement.cluster_tolerations);
    let without = || {
        known.clusters.iter().filter(|cluster| {
            selection.clusters().iter().any(|name| name == cluster.name()) && !placed.contains_key(cluster.name())
        })
    };
    if let Some((name, Taint { key, effect, .. })) =
        without().find_map(|cluster| Some((cluster.name(), repels(cluster)?)))
    {
        return format!(
            "Cluster {name} has the taint {key}:{effect}: remove it, or tolerate it in spec.placement.clusterTolerations. "
        );
    }
    let lacking = without().find(|cluster| !serves_kinds(cluster)).map(Cluster::name);
    lacking.map_or_else(String::new, |name| {
        format!("Cluster {name} does not serve ZooKeeper and ServiceExport any more: run {BRING_KINDS}. ")
    })
}

/// The first selected cluster that Karmada is evicting.
fn evicted<'a>(known: &Known<'_>, selection: &'a ClusterSelection) -> Option<&'a String> {
    let tasks = &known.binding?.spec.graceful_eviction_tasks;
    selection.clusters().iter().find(|name| tasks.iter().any(|task| task.from_cluster == **name))
}

/// The first selected cluster that is not Ready, as a clause.
fn absent(known: &Known<'_>, selection: &ClusterSelection) -> Option<String> {
    let first = selection.clusters().iter().find(|name| !known.is_ready(name))?;
    Some(format!("cluster {first} is not Ready in Karmada"))
}

/// A cluster without which no majority is left, and that has not been one before.
fn new_majority<'a>(known: &Known<'_>, placed: &BTreeMap<&'a str, i32>) -> Option<&'a str> {
    let total: i32 = placed.values().sum();
    let needed = i32::try_from(majority(usize::try_from(total).unwrap_or(0))).unwrap_or(i32::MAX);
    let desired = |name: &str| known.status.clusters.iter().find(|c| c.name == name).map_or(0, |c| c.desired);
    placed.iter().find(|(name, count)| total - **count < needed && desired(name) < **count).map(|(name, _)| *name)
}

fn listed(voters: &BTreeMap<&str, i32>) -> String {
    voters.iter().map(|(cluster, count)| format!("{cluster} {count}")).collect::<Vec<_>>().join(", ")
}

//! Recovery of the cluster specs that a lost or damaged OverridePolicy held, and of their generations.

use std::collections::BTreeMap;

use crate::rollout::{cluster_spec, override_rules::Overrides, report::ClusterReport};
use mczk_api::{
    contract::spec_hash,
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    mutation::broken,
    zookeeper::{Role, ZooKeeperSpec},
};

/// Recovers each cluster spec that the status names by its hash, if the live template still makes a spec of that hash.
///
/// Every other cluster stays without a spec: its agent changes nothing until the rollout reaches the cluster.
pub(in crate::rollout) fn recover_cluster_specs(
    overrides: &mut Overrides,
    template: &ZooKeeperSpec,
    status: &MultiClusterZooKeeperStatus,
    reports: &BTreeMap<String, ClusterReport>,
) -> serde_json::Result<()> {
    let all = overrides.cluster_specs.is_empty();
    for cluster in status.clusters.iter().filter(|c| all || overrides.damaged.contains(&c.name)) {
        let in_force = cluster.spec_hash.as_deref().filter(|hash| is_in_force(&cluster.name, Some(hash), reports));
        let Some(hash) = in_force else { continue };
        let recovered = cluster_spec::for_cluster(template, &cluster.name, cluster.desired, Some(hash), 0)?;
        if recovered.spec_hash.as_deref() == Some(hash) || broken!(RecoverNextTemplate) {
            overrides.cluster_specs.insert(cluster.name.clone(), recovered);
        }
    }
    Ok(())
}

/// Gives each of these clusters without a spec that of its listed voters: without a spec its agent accepts no server list.
pub(in crate::rollout) fn add_missing_specs<'c>(
    overrides: &mut Overrides,
    template: &ZooKeeperSpec,
    clusters: impl IntoIterator<Item = &'c String>,
    status: &MultiClusterZooKeeperStatus,
    reports: &BTreeMap<String, ClusterReport>,
) -> serde_json::Result<()> {
    for cluster in clusters {
        if overrides.cluster_specs.contains_key(cluster) {
            continue;
        }
        let listed = overrides.ensemble.servers.iter();
        let voters = listed.filter(|s| s.cluster == *cluster && s.role == Role::Voter).count();
        let voters = i32::try_from(voters).unwrap_or(0);
        let generation = last_generation(cluster, Some(status), reports);
        let spec = cluster_spec::for_cluster(template, cluster, voters, None, generation)?;
        overrides.cluster_specs.insert(cluster.clone(), spec);
    }
    Ok(())
}

/// False if the agent of a cluster has accepted a later spec: an older copy of the control plane was restored. Its agent follows
/// no older one.
pub(in crate::rollout) fn is_in_force(
    cluster: &str,
    spec_hash: Option<&str>,
    reports: &BTreeMap<String, ClusterReport>,
) -> bool {
    let generation = spec_hash.map_or(0, spec_hash::generation_of);
    generation >= last_generation(cluster, None, reports) || broken!(AcceptOlderSpec)
}

/// The last spec generation of a cluster that status and reports know. The next spec of the cluster needs a later one: a spec
/// hash is never used twice.
pub(in crate::rollout) fn last_generation(
    cluster: &str,
    status: Option<&MultiClusterZooKeeperStatus>,
    reports: &BTreeMap<String, ClusterReport>,
) -> i64 {
    let in_status = status.and_then(|status| status.clusters.iter().find(|c| c.name == cluster));
    let known = in_status.and_then(|cluster| cluster.spec_hash.as_deref());
    let report = reports.get(cluster).and_then(|report| report.status.as_ref());
    let reported =
        report.into_iter().flat_map(|s| [s.observed_spec_hash.as_deref(), s.completed_spec_hash.as_deref()]).flatten();
    reported.chain(known).map(spec_hash::generation_of).max().unwrap_or(0)
}

//! Where a change of `spec` leads once its rollout is done, as far as the rules tell without Karmada and agents.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{
    cluster_selection::ClusterSelection,
    cluster_spec, failover,
    known::Known,
    placement,
    plan::{choose_clusters, plan_certificates},
    render,
};
use mczk_api::{contract::cause::Cause, zookeeper::ZooKeeperSpec};

/// Where a change leads.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Every cluster that has a cluster spec or gets one, by name.
    pub clusters: BTreeMap<String, ClusterForecast>,
    /// Why the operator cannot select clusters.
    pub unscheduled: Option<Cause>,
    /// True if Karmada divides the voters: only its scheduler knows how.
    pub karmada_divides: bool,
}

/// Where a change leads in one cluster: the cluster spec before and after it. Without one the cluster has no servers.
#[derive(Clone, Debug)]
pub struct ClusterForecast {
    /// The cluster spec that the operator has assigned.
    pub before: Option<ZooKeeperSpec>,
    /// The cluster spec after the rollout.
    pub after: Option<ZooKeeperSpec>,
}

impl ClusterForecast {
    /// True if every server that stays in the cluster restarts.
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.before.as_ref().zip(self.after.as_ref()).is_some_and(|(before, after)| before.revision != after.revision)
    }
}

/// Where the known spec leads. Without a schedule of its own, a cluster that Karmada divides voters for keeps those that it
/// has.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::hash`].
pub fn forecast(known: &Known<'_>) -> serde_json::Result<Forecast> {
    let choice = choose_clusters::choose_clusters(known, &failover::decide(known, true), true)?;
    let certificates = plan_certificates::plan_certificates(known);
    let specs = &known.overrides.cluster_specs;
    let template = render::template(known.object, known.server_image, certificates.dependencies(), specs)?;
    let voters = voters(known, choice.selection.as_ref(), specs);
    let names: BTreeSet<&String> = specs.keys().chain(voters.keys()).collect();
    let mut clusters = BTreeMap::new();
    for name in names {
        let before = specs.get(name).cloned();
        let hash = before.as_ref().and_then(|spec| spec.spec_hash.as_deref());
        let count = voters.get(name).copied().filter(|count| *count > 0);
        let after = count.map(|count| cluster_spec::for_cluster(&template, name, count, hash, 0)).transpose()?;
        clusters.insert(name.clone(), ClusterForecast { before, after });
    }
    let divides = placement::operator_divides(known.object.spec.placement.as_ref());
    let duplicated = placement::duplicated(known.object.spec.placement.as_ref());
    Ok(Forecast { clusters, unscheduled: choice.report.cause().cloned(), karmada_divides: !divides && !duplicated })
}

/// The voters of each selected cluster.
fn voters(
    known: &Known<'_>,
    selection: Option<&ClusterSelection>,
    specs: &BTreeMap<String, ZooKeeperSpec>,
) -> BTreeMap<String, i32> {
    let Some(selection) = selection else {
        return specs.iter().map(|(name, spec)| (name.clone(), spec.replicas)).collect();
    };
    if let Some(voters) = selection.voters() {
        return voters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    }
    let spec = &known.object.spec;
    let is_duplicated = placement::duplicated(spec.placement.as_ref());
    let count = |name: &String| {
        if is_duplicated { spec.replicas } else { specs.get(name).map_or(0, |current| current.replicas) }
    };
    selection.clusters().iter().map(|name| (name.clone(), count(name))).collect()
}

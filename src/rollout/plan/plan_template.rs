//! The template and its PropagationPolicy.

use std::collections::BTreeSet;

use crate::{
    api::{
        ZooKeeper,
        karmada::{CONFLICT_ABORT, policy::PropagationPolicy},
        zookeeper::ZooKeeperSpec,
    },
    rollout::{
        as_written::has_placement,
        desired::{self, ClusterSelection},
        plan::{plan_certificates::PlannedCertificates, recover_state::State},
        render,
    },
};

/// The template and its PropagationPolicy, as the operator writes them.
pub(super) struct PlannedTemplate {
    pub(super) template: ZooKeeper,
    pub(super) policy: PropagationPolicy,
    /// True if the live objects have this spec and this placement.
    pub(super) is_written: bool,
    /// True if a newer template waits until the current record is done.
    pub(super) newer_waits: bool,
}

impl PlannedTemplate {
    pub(super) fn spec(&self) -> &ZooKeeperSpec {
        &self.template.spec
    }

    /// The spec, if the live objects have it.
    pub(super) fn written(&self) -> Option<&ZooKeeperSpec> {
        Some(&self.template.spec).filter(|_| self.is_written)
    }
}

/// Plans template and PropagationPolicy.
pub(super) fn plan_template(
    state: &State<'_>,
    selection: &ClusterSelection,
    certificates: &PlannedCertificates,
    may_change: bool,
) -> serde_json::Result<PlannedTemplate> {
    let policy = desired::propagation_policy(state.observed, selection, &state.name, &state.incarnation.id)?;
    let (spec, newer_waits) = template_spec(state, certificates, may_change)?;
    let placement = state.observed.policy.as_ref().and_then(|live| live.whole().pointer("/spec/placement"));
    let is_written = state.template().is_some_and(|live| live.spec == spec)
        && placement.is_some_and(|live| has_placement(live, &policy.spec.placement));
    // The OverridePolicy allows more in a cluster that has reported the operator's own object.
    let template = desired::template(state.observed, &spec, CONFLICT_ABORT)?;
    Ok(PlannedTemplate { template, policy, is_written, newer_waits })
}

/// The template's spec: a snapshot that a record rolls out. It changes between records, when a record cannot finish, or when
/// another writer has changed the live template. Returns true too if a newer spec waits for that.
fn template_spec(
    state: &State<'_>,
    certificates: &PlannedCertificates,
    may_change: bool,
) -> serde_json::Result<(ZooKeeperSpec, bool)> {
    let cluster_specs = &state.overrides.cluster_specs;
    let image = &state.observed.server_image;
    let newest = render::template(&state.observed.object, image, certificates.dependencies(), cluster_specs)?;
    let Some(live) = state.template() else { return Ok((newest, false)) };
    // A Secret that no pod needs any more goes in the end: that supersedes no record.
    if state.is_deploying() && render::only_more_travels(&live.spec, &newest) {
        return Ok((live.spec.clone(), false));
    }
    if live.spec != newest && !may_change && !desired::tampered(live)? {
        return Ok((live.spec.clone(), true));
    }
    Ok((newest, false))
}

/// The clusters in which Karmada may overwrite the object, by name.
///
/// Karmada needs that permission to complete the deletion of a Work too: it removes its labels from the preserved object, and
/// if it has to try again, it treats the object without labels as a foreign one (`cleanupPolicyClaimMetadata` in Karmada's
/// `pkg/controllers/execution`). So no cluster loses the permission because another one joins.
pub(super) fn reported_clusters(state: &State<'_>) -> BTreeSet<String> {
    let listed = state.overrides.ensemble.servers.iter().map(|server| &server.cluster);
    let recorded = state.status.clusters.iter().map(|cluster| &cluster.name);
    let known = state.reports.keys().chain(recorded).chain(listed);
    known.filter(|name| has_reported(state, name)).cloned().collect()
}

/// Karmada may have released the object of a cluster that left the placement while it had no power. If the cluster comes back,
/// Karmada cannot apply the object, and so never reports it. Its servers follow the list in the ensemble meanwhile: a vote
/// of one shows that the object is the operator's own.
fn has_reported(state: &State<'_>, name: &str) -> bool {
    let mut own = state.overrides.ensemble.servers.iter().filter(|server| server.cluster == name);
    own.any(|server| state.quorum.voters.contains(&server.id))
        || state.status.clusters.iter().any(|cluster| cluster.name == name && cluster.reported)
        || state.reports.get(name).is_some_and(|report| report.applied && report.status.is_some())
}

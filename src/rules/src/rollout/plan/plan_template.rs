//! The spec of the template.

use crate::rollout::{
    as_written::has_placement,
    cluster_selection::{ClusterSelection, Survey},
    desired,
    known::Known,
    plan::{plan_certificates::PlannedCertificates, settle_schedule::settle_schedule},
    render,
    steps::StepReport,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    zookeeper::{Source, ZooKeeperSpec},
};

/// The spec of the template, as the operator writes it.
pub(super) struct PlannedTemplate {
    pub(super) spec: ZooKeeperSpec,
    /// True if the live objects have this spec and this placement.
    pub(super) is_written: bool,
    /// True if a newer template waits until the current record is done.
    newer_waits: bool,
}

impl PlannedTemplate {
    /// Whether the template follows the newest spec. `selection_waits` is true if a newer placement waits too.
    pub(super) fn report(&self, selection_waits: bool) -> StepReport {
        let message = "A newer change of spec waits until the current record is done";
        let waits = self.newer_waits || selection_waits;
        StepReport::waits(waits.then(|| Cause::new(Reason::Deploying, message)))
    }

    /// The spec, if the live objects have it.
    pub(super) fn written(&self) -> Option<&ZooKeeperSpec> {
        Some(&self.spec).filter(|_| self.is_written)
    }
}

/// Plans the spec of the template.
///
/// Secrets travel with the template, and Karmada leaves them in a cluster that it takes the object from. So the template names
/// none before the survey is over and the schedule of the first servers is settled.
pub(super) fn plan_template(
    known: &Known<'_>,
    selection: &ClusterSelection,
    certificates: &PlannedCertificates,
    may_change: bool,
) -> serde_json::Result<PlannedTemplate> {
    let (spec, newer_waits) = template_spec(known, certificates, may_change)?;
    let placement = known.policy.and_then(|live| live.whole().pointer("/spec/placement"));
    let is_placed = placement.is_some_and(|live| has_placement(live, &selection.placement));
    let planned = |spec: ZooKeeperSpec| {
        let is_written = is_placed && known.template.is_some_and(|live| live.spec == spec);
        PlannedTemplate { spec, is_written, newer_waits }
    };
    if selection.survey == Survey::Open {
        let source = Some(Source { surveys: true, ..spec.source.clone().unwrap_or_default() });
        return Ok(planned(ZooKeeperSpec { replicas: 0, source, dependencies: Vec::new(), ..spec }));
    }
    let has_secrets = known.template.is_some_and(|live| !live.spec.dependencies.is_empty());
    let is_surveyed = !known.survey(selection).is_open();
    if !has_secrets && (known.is_without_list() || !is_surveyed) {
        let bare = planned(ZooKeeperSpec { dependencies: Vec::new(), ..spec.clone() });
        if !is_surveyed || settle_schedule(known, selection, bare.is_written).is_err() {
            return Ok(bare);
        }
    }
    Ok(planned(spec))
}

/// The template's spec: a snapshot that a record rolls out. It changes between records, when a record cannot finish, or when
/// another writer has changed the live template. Returns true too if a newer spec waits for that.
fn template_spec(
    known: &Known<'_>,
    certificates: &PlannedCertificates,
    may_change: bool,
) -> serde_json::Result<(ZooKeeperSpec, bool)> {
    let cluster_specs = &known.overrides.cluster_specs;
    let dependencies = certificates.dependencies();
    let newest = render::template(known.object, known.server_image, dependencies, cluster_specs)?;
    let Some(live) = known.template else { return Ok((newest, false)) };
    // A Secret that no pod needs any more goes in the end: that supersedes no record.
    if known.is_deploying() && render::has_only_extra_dependencies(&live.spec, &newest) {
        return Ok((live.spec.clone(), false));
    }
    if live.spec != newest && !may_change && !desired::tampered(live)? {
        return Ok((live.spec.clone(), true));
    }
    Ok((newest, false))
}

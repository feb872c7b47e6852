//! The restart of a bootstrap that can never form a quorum.

use std::collections::BTreeSet;

use crate::rollout::{
    cluster_selection::ClusterSelection,
    known::Known,
    override_rules::Overrides,
    placement,
    rebootstrap::{self, Step},
    recovery::add_missing_specs,
    reported_list::in_phase,
    steps::StepReport,
};
use mczk_api::{contract::tombstone::Tombstone, mutation::broken, zookeeper::EnsemblePhase};

/// What becomes of the bootstrap.
pub(super) struct RebootstrapPlan {
    step: Step,
    /// Clusters whose agents accept the server list although their spec is lost.
    without_spec: Vec<String>,
    /// True if selection and template may change.
    pub(super) template_may_change: bool,
}

/// What a step of the restart leaves to the later phases.
pub(super) struct RebootstrapOutcome {
    /// Whether clusters move: not while the bootstrap is being restarted.
    pub(super) report: StepReport,
    pub(super) tombstone: Option<Tombstone>,
}

/// Decides whether the bootstrap is suspended, ended or resumed.
pub(super) fn decide(known: &Known<'_>) -> serde_json::Result<RebootstrapPlan> {
    let object = known.object;
    let declared = placement::placement_hash(object.spec.placement.as_ref())?;
    let inputs = rebootstrap::RebootstrapInputs {
        list: known.newest_list(),
        formed: known.quorum.formed,
        cluster_specs: &known.overrides.cluster_specs,
        recorded: &known.status.clusters,
        reports: &known.reports,
        // The selection counts as long as the placement is the same: a changed label moves no server.
        wanted: known
            .selection
            .as_ref()
            .filter(|selection| selection.hash == declared)
            .map_or(known.matching.as_slice(), ClusterSelection::clusters),
        abandoned: &known.abandoned,
        paused: known.rollout.paused == Some(true),
    };
    let step = rebootstrap::step(&inputs);
    let without_spec = rebootstrap::without_spec(&inputs).into_iter().map(ToOwned::to_owned).collect();
    // A cluster must not lose the object before it has reported that its servers accepted nothing.
    let restarts = !matches!(step, Step::Continue | Step::Resume);
    let holds = (restarts || is_lost(known)) && !broken!(RebootstrapUnsuspended);
    Ok(RebootstrapPlan { step, without_spec, template_may_change: known.record_allows_change() && !holds })
}

/// True if the server list of a bootstrap is lost and has still to be recovered.
fn is_lost(known: &Known<'_>) -> bool {
    let reported = || known.reported_list.as_ref().is_some_and(|list| list.phase.is_bootstrap());
    (known.overrides.ensemble.servers.is_empty() || known.is_outdated)
        && !known.quorum.formed
        && (known.status_ensemble().is_some() || reported())
}

impl RebootstrapPlan {
    /// Writes the step into the OverridePolicy.
    pub(super) fn apply(self, known: &Known<'_>, overrides: &mut Overrides) -> serde_json::Result<RebootstrapOutcome> {
        if let Some(template) = known.template.filter(|_| matches!(self.step, Step::Suspend(_) | Step::Wait(_))) {
            add_missing_specs(overrides, &template.spec, &self.without_spec, &known.status, &known.reports)?;
        }
        let (phase, cause) = match self.step {
            Step::Continue => (None, None),
            Step::Suspend(cause) => (Some(EnsemblePhase::Suspended), Some(cause)),
            Step::Wait(cause) => (None, Some(cause)),
            Step::Resume => (Some(EnsemblePhase::Bootstrapping), None),
            Step::Abandon(cause) => (Some(EnsemblePhase::Abandoned), Some(cause)),
            Step::WriteTombstone(clusters, cause) => {
                let tombstone = Some(tombstone(known, clusters));
                return Ok(RebootstrapOutcome { report: StepReport::Waits(cause), tombstone });
            }
        };
        if let Some(phase) = phase {
            overrides.ensemble = in_phase(&overrides.ensemble, phase, &known.incarnation.id, &known.reports)?;
        }
        Ok(RebootstrapOutcome { report: StepReport::waits(cause), tombstone: None })
    }
}

fn tombstone(known: &Known<'_>, clusters: BTreeSet<String>) -> Tombstone {
    Tombstone {
        namespace: known.namespace.clone(),
        name: known.name.clone(),
        incarnation: known.incarnation.id.clone(),
        clusters,
    }
}

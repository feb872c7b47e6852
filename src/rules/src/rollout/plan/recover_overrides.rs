//! Server list and cluster specs that the OverridePolicy has lost.

use crate::rollout::{
    cluster_selection::ClusterSelection,
    known::Known,
    override_rules::Overrides,
    plan::plan_template::PlannedTemplate,
    quorum::ReportedQuorum,
    recovery::{Recovered, recover_cluster_specs, recover_ensemble},
    reported_list::reported_lists,
    scheduled::Scheduled,
    steps::StepReport,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, server_list},
    mutation::broken,
    tls::EnsembleTls,
    zookeeper::Ensemble,
};

/// The OverridePolicy's content, with everything that could be recovered.
pub(super) struct RecoveredOverrides {
    pub(super) overrides: Overrides,
    /// The quorum of the recovered server list.
    pub(super) quorum: ReportedQuorum,
    /// Whether the server list is known.
    pub(super) report: StepReport,
}

/// Recovers the server list and the cluster specs that the OverridePolicy has lost.
pub(super) fn recover_overrides(
    known: &Known<'_>,
    selection: &ClusterSelection,
    planned: &PlannedTemplate,
    schedule: Option<&[Scheduled]>,
    tls: Option<&EnsembleTls>,
) -> serde_json::Result<RecoveredOverrides> {
    let (mut overrides, mut quorum) = (known.overrides.clone(), known.quorum.clone());
    let mut recovered = Recovered::Nothing;
    if overrides.ensemble.servers.is_empty() || known.is_outdated {
        let mut clusters = clusters_that_report(known, selection, schedule);
        clusters.retain(|name| !known.takes_over_list() || !known.abandoned.contains(name.as_str()));
        let continued = known.clusters_of_continued().into_iter();
        clusters.extend(continued.filter(|name| !clusters.contains(name)).collect::<Vec<_>>());
        let naming = known.naming(&planned.spec);
        recovered = recover_ensemble(naming, &known.status, &clusters, &known.reports, tls);
    }
    let all_reported = !matches!(recovered, Recovered::Unreported(_));
    let report = match (known.cannot_continue(selection.clusters(), all_reported), recovered) {
        (Some(cause), _) => StepReport::Needs(cause),
        (None, Recovered::Nothing) => StepReport::Done,
        (None, Recovered::Ensemble(ensemble)) => {
            // A list that is not of a bootstrap is of an ensemble that formed.
            quorum.formed |= !ensemble.phase.is_bootstrap();
            overrides.ensemble = server_list::with_hash(known.with_all_known(*ensemble))?;
            StepReport::Done
        }
        (None, Recovered::Unreported(clusters)) => {
            StepReport::Waits(known.restored_and_waits(&clusters).unwrap_or_else(|| unreported(known, &clusters)))
        }
        (None, Recovered::ServerListUnknown) => StepReport::Needs(server_list_unknown()),
    };
    let specs_lost = overrides.cluster_specs.is_empty() || !overrides.damaged.is_empty();
    let same_incarnation = known.status_ensemble().is_some() || known.status.ensemble.is_none();
    if let Some(live) = known.template.filter(|_| specs_lost && same_incarnation) {
        // S6: clusters got the live template, not the one that the operator writes next.
        let template = if broken!(RecoverNextTemplate) { &planned.spec } else { &live.spec };
        recover_cluster_specs(&mut overrides, template, &known.status, &known.reports)?;
    }
    Ok(RecoveredOverrides { overrides, quorum, report })
}

/// The selected clusters that can report. One that the schedule gives no voters has no Work and never reports.
fn clusters_that_report(
    known: &Known<'_>,
    selection: &ClusterSelection,
    schedule: Option<&[Scheduled]>,
) -> Vec<String> {
    let clusters = selection.clusters().to_vec();
    let Some(schedule) = schedule.filter(|_| known.binding.is_some()) else { return clusters };
    let has_work = |name: &String| schedule.iter().any(|s| s.cluster == *name) || known.has_work(name);
    clusters.into_iter().filter(has_work).collect()
}

impl Known<'_> {
    /// A recovered list with what older lists and the status know beside it: the ids that were given out (S4), and the incarnation
    /// in which the object waited before an adoption.
    fn with_all_known(&self, list: Ensemble) -> Ensemble {
        let reported = reported_lists(&self.incarnation.id, &self.reports).filter_map(|list| list.highest_id);
        let in_status = self.status_ensemble().and_then(|status| status.highest_id);
        let known = reported.chain(in_status).chain(self.overrides.ensemble.highest_id);
        let mark = self.mark_of_return(&list);
        let mut former_incarnations = list.former_incarnations;
        // A list of a control plane from which this one has adopted the ensemble lacks them.
        former_incarnations.extend(self.overrides.ensemble.former_incarnations.iter().cloned());
        former_incarnations.extend(self.before_adoption().into_iter().chain(mark));
        former_incarnations.sort();
        former_incarnations.dedup();
        Ensemble { highest_id: known.max().max(list.highest_id), former_incarnations, ..list }
    }
}

fn server_list_unknown() -> Cause {
    let message = "Cannot recover the server list: status and OverridePolicy are gone, and no agent reports it. Running servers are unaffected. Upgrade the agents";
    Cause::new(Reason::ServerListUnknown, message)
}

/// Why clusters that have to report first do not.
fn unreported(known: &Known<'_>, clusters: &[String]) -> Cause {
    if let Some(refusal) = clusters.iter().find_map(|name| known.reports.get(name)?.refusal()) {
        return refusal;
    }
    let message = format!(
        "Waiting for the first report of the agents in these clusters: {}. The operator names no server before every cluster that may hold one has reported",
        clusters.join(", ")
    );
    Cause { reason: Reason::ClusterNotReported, message }
}

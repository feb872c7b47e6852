//! The steps of one pass over a rollout. Only the functions here change the draft: each rule returns what changes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::rollout::{
    advance::{
        clusters::{Move, RecordChange},
        draft::Draft,
        inputs::Inputs,
        server_list::{Target, waiting_for_first_quorum, waiting_for_quorum},
        start_record::NextRecord,
    },
    certificates::waiting_for_certificates,
    cluster_selection::ClusterSelection,
    override_rules::Overrides,
    record,
    reported_list::in_phase,
    scheduled::Scheduled,
    steps::{PlanStep, StepReport},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    multiclusterzookeeper::RecordStatus,
    mutation::broken,
    zookeeper::ZooKeeperSpec,
};

/// Moves records, server list and cluster specs towards the schedule, as far as the rules allow now. Returns the spec too that
/// each scheduled cluster gets in the end.
pub(in crate::rollout) fn roll(
    inputs: Inputs<'_>,
    schedule: &[Scheduled],
    mut draft: Draft,
) -> serde_json::Result<(Draft, BTreeMap<String, ZooKeeperSpec>)> {
    draft.steps.add(PlanStep::Observers, StepReport::needs(inputs.lonely_observers(schedule)));
    let target = match inputs.target(schedule, &draft.overrides) {
        Ok(target) => target,
        Err(cause) => {
            draft.steps.add(PlanStep::ServerIds, StepReport::Needs(cause));
            return Ok((draft, inputs.desired));
        }
    };
    draft.steps.add(PlanStep::ServerIds, StepReport::Done);
    let (target, checked) = inputs.check_joining(target, &draft.overrides)?;
    let joining = checked.request.is_some();
    draft.overrides.preflight = checked.request;
    if joining {
        draft.steps.add(PlanStep::Network, StepReport::waits(checked.cause));
    }
    let desired = inputs.desired_specs(&target, &draft.overrides)?;
    let inputs = Inputs { desired, ..inputs };
    let (draft, may_start) = check_start(&inputs, &target, draft)?;
    let draft = if may_start { change(&inputs, target, draft)? } else { draft };
    Ok((draft, inputs.desired))
}

/// True if the rollout may go on: servers have certificates, and nothing forbids the first start.
fn check_start(inputs: &Inputs<'_>, target: &Target, mut draft: Draft) -> serde_json::Result<(Draft, bool)> {
    if inputs.lacks_certificates(target, &draft.overrides) {
        draft.steps.add(PlanStep::Certificates, StepReport::Waits(waiting_for_certificates()));
        return Ok((draft, false));
    }
    if !inputs.is_first_start(&draft.overrides) {
        return Ok((draft, true));
    }
    if draft.steps.add(PlanStep::LostList, StepReport::needs(inputs.lost_list())) {
        return Ok((draft, false));
    }
    let scheduled = target.schedule.iter().map(|scheduled| scheduled.cluster.as_str());
    let selected = inputs.known.selection.as_ref().map(ClusterSelection::clusters).unwrap_or_default();
    if draft.steps.add(PlanStep::FormerIncarnations, inputs.known.other_incarnations(scheduled, selected)) {
        return Ok((draft, false));
    }
    let checked = inputs.check_network(&target.schedule)?;
    let waits = draft.steps.add(PlanStep::Network, StepReport::waits(checked.cause));
    // A check that has passed ends with the first server list, which this pass writes.
    draft.overrides.preflight = checked.request.filter(|_| waits);
    Ok((draft, !waits))
}

/// Starts a record, changes the server list, and moves the clusters.
fn change(inputs: &Inputs<'_>, target: Target, mut draft: Draft) -> serde_json::Result<Draft> {
    let list_changes = inputs.list_changes(&target, &draft.overrides);
    // A list that cannot change starts no record: the record would be done at once, and start again for ever.
    let list_may_change = inputs.list_may_change(&draft.overrides.ensemble, &target.servers);
    let changes = inputs.specs_change(&draft.overrides) || (list_changes && list_may_change);
    let (frozen, schedule) = (target.frozen, target.schedule.clone());
    let scheduled: Vec<String> = schedule.iter().map(|s| s.cluster.clone()).collect();
    let next = inputs.next_record(&draft, &scheduled, changes);
    start_record(inputs, next, &mut draft);
    if list_changes && list_may_change && draft.is_deploying() {
        draft.overrides.ensemble = inputs.next_list(target, &draft.overrides.ensemble)?;
        draft.overrides.preflight = None;
    }
    let waits = (list_changes && !list_may_change).then(waiting_for_quorum);
    draft.steps.add(PlanStep::ServerList, StepReport::waits(waits));
    let mut draft = move_clusters(inputs, &schedule, draft)?;
    if frozen {
        draft.steps.add(PlanStep::FirstQuorum, StepReport::Waits(waiting_for_first_quorum()));
    }
    if let Some(phase) = inputs.next_phase(&draft) {
        let list = &draft.overrides.ensemble;
        draft.overrides.ensemble = in_phase(list, phase, inputs.naming.incarnation, &inputs.known.reports)?;
    }
    if let Some(list) = inputs.list_with_demotion(&draft.overrides.ensemble)? {
        draft.overrides.ensemble = list;
    }
    let unused = inputs.unused_specs(&scheduled, &draft.overrides);
    draft.overrides.cluster_specs.retain(|cluster, _| !unused.contains(cluster));
    Ok(draft)
}

fn start_record(inputs: &Inputs<'_>, next: NextRecord, draft: &mut Draft) {
    match next {
        NextRecord::Same => {}
        NextRecord::NewGenerations => {
            if let Some(last) = draft.records.last_mut() {
                last.observed_generations = inputs.known.generations();
                last.last_transition_time = Time(inputs.known.now);
            }
        }
        NextRecord::New(record) => {
            draft.stuck = None;
            record::supersede(&mut draft.records, inputs.known.now);
            draft.records.push(record);
        }
    }
}

/// Moves clusters through the current record, as far as they can go now.
fn move_clusters(inputs: &Inputs<'_>, schedule: &[Scheduled], mut draft: Draft) -> serde_json::Result<Draft> {
    if broken!(AssignEveryCluster) {
        let Overrides { cluster_specs, .. } = &draft.overrides;
        let all = inputs.desired.iter().filter(|(cluster, _)| cluster_specs.contains_key(*cluster));
        let all: Vec<_> = all.map(|(cluster, spec)| (cluster.clone(), spec.clone())).collect();
        draft.assign(all);
    }
    let mut report = StepReport::Done;
    // A cluster yields once: its inputs do not change within a pass.
    let mut yielded = BTreeSet::new();
    while let Some(change) = inputs.next_change(&draft, schedule, &yielded)? {
        let RecordChange { specs, moves, waits, requeue } = change;
        if let Some(cause) = waits {
            report = StepReport::Waits(cause);
        }
        if let Some(seconds) = requeue {
            draft.requeue_in(seconds);
        }
        draft.assign(specs);
        let stops = matches!(moves, Move::Stop | Move::PutBack { stops: true, .. });
        if let Move::PutBack { cluster, .. } | Move::Replace { cluster, .. } = &moves {
            yielded.insert(cluster.clone());
        }
        move_record(inputs, moves, &mut draft);
        if stops {
            break;
        }
    }
    draft.steps.add(PlanStep::Clusters, report);
    Ok(draft)
}

fn move_record(inputs: &Inputs<'_>, moves: Move, draft: &mut Draft) {
    let Some(last) = draft.records.last_mut() else { return };
    let now = inputs.known.now;
    match moves {
        Move::Stop => {}
        Move::End => {
            last.status = RecordStatus::Ready;
            last.last_transition_time = Time(now);
        }
        Move::Start(cluster) => {
            record::start_cluster(last, &cluster, now);
            // The record moves, so it is no longer stuck.
            draft.stuck = None;
        }
        Move::PutBack { cluster, .. } => record::put_back(last, &cluster),
        Move::Replace { cluster, by } => {
            record::put_back(last, &cluster);
            record::start_cluster(last, &by, now);
            draft.stuck = None;
        }
        Move::Finish(cluster) => record::finish(last, &cluster, now),
        Move::LeaveOut(cluster) => record::leave_out(last, &cluster, now),
    }
}

impl Inputs<'_> {
    /// Observers need a voter in their cluster, since the schedule places voters only.
    fn lonely_observers(&self, schedule: &[Scheduled]) -> Option<Cause> {
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        // A home whose voters are at a spare, and a spare that holds none, may have voters again.
        let selection = self.known.selection.as_ref();
        let is_away = |cluster: &String| {
            self.known.spares().contains(cluster)
                || selection.is_some_and(|selection| selection.moved.contains_key(cluster))
        };
        let is_lonely = |cluster: &String| !is_away(cluster) && !schedule.iter().any(|s| s.cluster == *cluster);
        let lonely = observers.iter().find(|o| is_lonely(&o.cluster))?;
        let message = format!(
            "spec.observers names cluster {}, which has no voter: add a voter there, or remove the entry",
            lonely.cluster
        );
        Some(Cause { reason: Reason::ObserversWithoutVoter, message })
    }

    fn desired_specs(
        &self,
        target: &Target,
        overrides: &Overrides,
    ) -> serde_json::Result<BTreeMap<String, ZooKeeperSpec>> {
        let specs = target.schedule.iter().map(|s| {
            let spec = self.cluster_spec(&s.cluster, s.replicas, overrides)?;
            Ok((s.cluster.clone(), spec))
        });
        specs.collect()
    }

    /// True if the first server list has to wait for its certificates.
    fn lacks_certificates(&self, target: &Target, overrides: &Overrides) -> bool {
        target.tls.is_none() && self.template.tls.quorum && overrides.ensemble.servers.is_empty()
    }

    /// True if a scheduled cluster is due for another spec. With `rollout.onFailure: Continue` an unreachable cluster gets a
    /// record of its own when it is back.
    fn specs_change(&self, overrides: &Overrides) -> bool {
        self.desired.keys().any(|cluster| {
            let left_out = self.leaves_out_unreachable() && !self.is_reachable(cluster);
            !left_out && !self.has_desired_spec(cluster, overrides)
        })
    }

    /// Clusters that the schedule left, and whose specs have no use. They stay while servers of such a cluster may vote.
    fn unused_specs(&self, scheduled: &[String], overrides: &Overrides) -> Vec<String> {
        let Overrides { cluster_specs, ensemble, .. } = overrides;
        if !self.quorum.holds() || self.leaving_voter(overrides).is_some() {
            return Vec::new();
        }
        let is_used =
            |cluster: &String| scheduled.contains(cluster) || ensemble.servers.iter().any(|s| s.cluster == *cluster);
        cluster_specs.keys().filter(|cluster| !is_used(cluster)).cloned().collect()
    }
}

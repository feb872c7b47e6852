//! The record: moved as far as schedule, recovery and bootstrap allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    api::{
        multiclusterzookeeper::Record,
        tls::EnsembleTls,
        zookeeper::{Ensemble, ZooKeeperSpec},
    },
    contract::{conditions::Reason, tombstone::Tombstone},
    rollout::{
        advance::Pass,
        binding::Scheduled,
        blocker::Blocker,
        known::Known,
        outcome::Findings,
        override_rules::Overrides,
        plan::{
            plan_template::PlannedTemplate, rebootstrap_step::RebootstrapOutcome, recover_overrides::RecoveredOverrides,
        },
        quorum::ReportedQuorum,
        recovery::Recovered,
        stuck::until_stuck,
    },
};

/// Default of `spec.recordHistoryLimit`.
const DEFAULT_RECORD_HISTORY_LIMIT: i32 = 10;
/// Most former incarnations that a server list names. Clusters learn of others from their tombstones alone.
const MAX_FORMER: usize = 64;

/// Records and OverridePolicy after this pass, and what the rules found.
pub(super) struct Advance {
    pub(super) records: Vec<Record>,
    pub(super) overrides: Overrides,
    /// The content of the OverridePolicy before this pass, as it is or as recovered.
    pub(super) before: Overrides,
    pub(super) quorum: ReportedQuorum,
    pub(super) findings: Findings,
    /// The schedule; empty if it is not settled.
    pub(super) schedule: Vec<Scheduled>,
    /// The spec that each scheduled cluster gets in the end.
    pub(super) desired: BTreeMap<String, ZooKeeperSpec>,
    pub(super) requeue_after: Option<Duration>,
    pub(super) tombstone: Option<Tombstone>,
}

/// Moves the record, if nothing stops it.
pub(super) fn advance_record(
    known: &Known<'_>,
    planned: &PlannedTemplate,
    schedule: Result<Vec<Scheduled>, Blocker>,
    recovery: RecoveredOverrides,
    restart: RebootstrapOutcome,
    findings: Findings,
    tls: Option<EnsembleTls>,
) -> serde_json::Result<Advance> {
    let (schedule, unscheduled) = match schedule {
        Ok(schedule) => (schedule, None),
        Err(blocker) => (Vec::new(), Some(blocker)),
    };
    let mut advance = Advance {
        records: known.records.clone(),
        before: recovery.overrides.clone(),
        overrides: recovery.overrides,
        quorum: recovery.quorum,
        findings,
        schedule,
        desired: BTreeMap::new(),
        requeue_after: None,
        tombstone: restart.tombstone,
    };
    match (restart.blocker, unscheduled, recovery.recovered) {
        // No cluster moves: this incarnation may be over.
        (Some(blocker), ..) => {
            advance.findings.waiting = Some(blocker);
            advance.overrides.lost = lost_works(known, &advance.schedule);
        }
        (None, Some(blocker), _) => advance.findings.unscheduled = Some(blocker),
        (None, None, Recovered::ServerListUnknown) => {
            advance.findings.action_required = Some(server_list_unknown());
        }
        (None, None, Recovered::Unreported(clusters)) => {
            advance.findings.waiting = Some(unreported(known, &clusters));
        }
        (None, None, Recovered::Nothing | Recovered::Ensemble(_)) => {
            advance.overrides.lost = lost_works(known, &advance.schedule);
            advance.roll(known, planned.spec(), tls)?;
        }
    }
    // Nothing may happen until then, and a stuck record may be superseded.
    let left = advance.records.last().and_then(|last| until_stuck(last, &known.rollout, known.now));
    let left = left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_secs);
    advance.requeue_after = advance.requeue_after.into_iter().chain(left).min();
    let limit = known.object.spec.record_history_limit.unwrap_or(DEFAULT_RECORD_HISTORY_LIMIT);
    let surplus = advance.records.len().saturating_sub(usize::try_from(limit).unwrap_or(1).max(1));
    advance.records.drain(..surplus);
    Ok(advance)
}

impl Advance {
    fn roll(
        &mut self,
        known: &Known<'_>,
        template: &ZooKeeperSpec,
        tls: Option<EnsembleTls>,
    ) -> serde_json::Result<()> {
        let mut pass = Pass {
            rollout: &known.rollout,
            template,
            naming: known.naming(template),
            reports: &known.reports,
            quorum: &self.quorum,
            now: known.now,
            checks_network: known.checks_network(),
            status: &known.status,
            generations: known.generations(),
            former_incarnations: former_incarnations(known, &self.overrides.ensemble),
            tls,
            stuck: known.stuck.clone(),
            findings: std::mem::take(&mut self.findings),
            requeue_after: None,
            desired: BTreeMap::new(),
        };
        pass.roll(&self.schedule, &mut self.records, &mut self.overrides)?;
        let Pass { findings, requeue_after, desired, .. } = pass;
        (self.findings, self.requeue_after, self.desired) = (findings, requeue_after, desired);
        Ok(())
    }
}

/// Incarnations that are over: those of tombstones, and those that the list names already. Agents remove what is left of
/// them in a cluster that comes back.
fn former_incarnations(known: &Known<'_>, list: &Ensemble) -> Vec<String> {
    let all = known.tombstones.iter().chain(&list.former_incarnations);
    let former: BTreeSet<&String> = all.filter(|id| **id != known.incarnation.id).collect();
    former.into_iter().take(MAX_FORMER).cloned().collect()
}

/// Scheduled clusters whose Work another client deleted. Karmada does not notice.
fn lost_works(known: &Known<'_>, schedule: &[Scheduled]) -> BTreeSet<String> {
    let had_object = |name: &String| known.status.clusters.iter().any(|c| c.name == *name && c.reported);
    let clusters = schedule.iter().map(|scheduled| &scheduled.cluster);
    clusters.filter(|name| had_object(name) && !known.has_work(name)).cloned().collect()
}

fn server_list_unknown() -> Blocker {
    let message = "Cannot recover the server list: status and OverridePolicy are gone, and no agent reports it. Running servers are unaffected. Upgrade the agents";
    Blocker { reason: Reason::ServerListUnknown, message: message.to_owned() }
}

/// Why clusters that have to report first do not.
fn unreported(known: &Known<'_>, clusters: &[String]) -> Blocker {
    let refused = clusters.iter().find_map(|name| {
        let why = known.reports.get(name).filter(|report| !report.applied)?.apply_error.as_deref()?;
        Some(format!("Karmada could not apply the object in cluster {name}: {why}"))
    });
    if let Some(message) = refused {
        return Blocker { reason: Reason::NotApplied, message };
    }
    let message = format!(
        "Waiting for the first report of the agents in these clusters: {}. The operator names no server before every cluster that may hold one has reported",
        clusters.join(", ")
    );
    Blocker { reason: Reason::ClusterNotReported, message }
}

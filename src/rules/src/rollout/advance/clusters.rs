//! How clusters move through the current record.

use std::collections::BTreeSet;

use crate::rollout::{
    advance::{draft::Draft, inputs::Inputs},
    scheduled::Scheduled,
};
use mczk_api::{
    contract::cause::Cause,
    multiclusterzookeeper::{Record, RecordStatus},
    mutation::broken,
    zookeeper::ZooKeeperSpec,
};

/// The next change of a record.
pub(super) struct RecordChange {
    /// Clusters that get another cluster spec.
    pub(super) specs: Vec<(String, ZooKeeperSpec)>,
    pub(super) moves: Move,
    /// What the record waits for, unless a later change says more.
    pub(super) waits: Option<Cause>,
    /// Seconds after which the operator decides again.
    pub(super) requeue: Option<i64>,
}

/// How a record moves.
pub(super) enum Move {
    /// It waits.
    Stop,
    /// Every cluster is complete.
    End,
    /// A pending cluster starts.
    Start(String),
    /// The deploying cluster is pending again. The record waits if it has been put back before.
    PutBack { cluster: String, stops: bool },
    /// The deploying cluster is pending again, and another one starts.
    Replace { cluster: String, by: String },
    /// The deploying cluster is complete.
    Finish(String),
    /// The record continues without a pending cluster.
    LeaveOut(String),
}

impl From<Move> for RecordChange {
    fn from(moves: Move) -> Self {
        Self { specs: Vec::new(), moves, waits: None, requeue: None }
    }
}

impl RecordChange {
    /// A record that waits.
    pub(super) fn waits(cause: Cause) -> Self {
        Self { waits: Some(cause), ..Self::from(Move::Stop) }
    }
}

impl Inputs<'_> {
    /// The next change of the last record; `None` if it is not deploying. `yielded` are the clusters that have been put back in
    /// this pass.
    pub(super) fn next_change(
        &self,
        draft: &Draft,
        schedule: &[Scheduled],
        yielded: &BTreeSet<String>,
    ) -> serde_json::Result<Option<RecordChange>> {
        let Some(last) = draft.records.last().filter(|last| last.status == RecordStatus::Deploying) else {
            return Ok(None);
        };
        if last.current_state.completed.len() == last.order.len() {
            return Ok(Some(Move::End.into()));
        }
        let change = match last.current_state.deploying.first() {
            None => self.start_next(last, &draft.overrides)?,
            Some(cluster) => self.move_cluster(cluster, last, draft, schedule, yielded)?,
        };
        Ok(Some(change))
    }

    /// Finishes the deploying cluster, or lets another one start before it.
    fn move_cluster(
        &self,
        cluster: &str,
        last: &Record,
        draft: &Draft,
        schedule: &[Scheduled],
        yielded: &BTreeSet<String>,
    ) -> serde_json::Result<RecordChange> {
        let overrides = &draft.overrides;
        let may_yield = !yielded.contains(cluster);
        if self.yields(cluster, last, schedule, overrides)? {
            return Ok(Move::PutBack { cluster: cluster.to_owned(), stops: !may_yield }.into());
        }
        let deployment = self.deploy(cluster, last, schedule, draft)?;
        let spec = deployment.spec.as_ref().or_else(|| overrides.cluster_specs.get(cluster));
        let waits = deployment.waits.is_some()
            && (self.restarts_wait_for_joiners(cluster, overrides)
                || self.waits_for_joiners(cluster, spec, overrides)
                || self.awaits_lost_servers(cluster, last, overrides));
        let joiner = if waits && may_yield { self.next_joiner(last, overrides) } else { None };
        let grown = if waits && joiner.is_none() { self.grown_pending(last, overrides)? } else { None };
        let cluster = cluster.to_owned();
        let moves = match joiner {
            Some(by) => Move::Replace { cluster: cluster.clone(), by },
            None if deployment.waits.is_none() => Move::Finish(cluster.clone()),
            None if broken!(NextBeforeComplete) && !last.current_state.pending.is_empty() => {
                Move::Finish(cluster.clone())
            }
            None => Move::Stop,
        };
        let own = deployment.spec.map(|spec| (cluster, spec));
        let specs = own.into_iter().chain(grown).collect();
        Ok(RecordChange { specs, moves, waits: deployment.waits, requeue: deployment.requeue })
    }
}

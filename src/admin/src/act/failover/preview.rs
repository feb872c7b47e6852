//! What the operator would do with another value of the annotation, from its own rules.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};

use mczk_api::{
    contract::{
        conditions::{ConditionType, Reason},
        labels::FAILOVER,
    },
    multiclusterzookeeper::{Failover, MultiClusterZooKeeperStatus},
};
use mczk_rules::rollout::plan::{Observed, plan};

/// How the operator's message begins that says why spares can take no voters.
const ABOUT_SPARES: &str = "Spares that can take no voters: ";

/// What the operator would report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FailoverPreview {
    /// The spare of each home whose voters would not be there.
    pub(super) moved: BTreeMap<String, String>,
    /// Why it would not follow the annotation.
    pub(super) refused: Option<String>,
    /// The conditions of failovers, or what keeps the operator from evaluating them.
    pub(super) conditions: Vec<Condition>,
}

impl FailoverPreview {
    /// The condition that says what a request waits for.
    pub(super) fn against(&self) -> Option<&Condition> {
        let waits = self.conditions.iter().find(|condition| condition.reason == Reason::MoveWaits.as_str());
        waits.or_else(|| self.conditions.first())
    }
}

/// What the operator would report with this annotation, or with none.
pub(super) fn preview(observed: &Observed, value: Option<&str>, now: Timestamp) -> FailoverPreview {
    let status = plan(&with_annotation(observed, value), now).status;
    let spare = |cluster: mczk_api::multiclusterzookeeper::ClusterStatus| Some((cluster.name, cluster.moved_to?));
    let ready = condition(&status, ConditionType::FailoverReady);
    let refused = ready.filter(|ready| ready.reason == Reason::RequestUnclear.as_str());
    FailoverPreview {
        refused: refused.map(|ready| ready.message.clone()),
        conditions: reported(&status),
        moved: status.clusters.into_iter().filter_map(spare).collect(),
    }
}

fn reported(status: &MultiClusterZooKeeperStatus) -> Vec<Condition> {
    let failover = [ConditionType::FailedOver, ConditionType::FailoverReady].map(|type_| condition(status, type_));
    let is_evaluated = |condition: &&Condition| condition.reason != Reason::NotEvaluated.as_str();
    let evaluated: Vec<Condition> = failover.into_iter().flatten().filter(is_evaluated).cloned().collect();
    if !evaluated.is_empty() {
        return evaluated;
    }
    condition(status, ConditionType::Progressing).into_iter().cloned().collect()
}

/// Why a declared spare could take no voters now. `None` if it could.
///
/// The operator is asked about this spare alone, without a request: so nothing else that stands against a move counts.
pub(super) fn problem(observed: &Observed, spare: &str, now: Timestamp) -> Option<String> {
    let mut alone = with_annotation(observed, None);
    alone.object.spec.failover = Some(Failover { spares: vec![spare.to_owned()], ..Failover::default() });
    let status = plan(&alone, now).status;
    let ready = condition(&status, ConditionType::FailoverReady)?;
    let message = ready.message.strip_prefix(ABOUT_SPARES).unwrap_or(&ready.message);
    // One whose agent has not answered may be used.
    let may_be_used =
        [Reason::SparesUsable, Reason::SpareUnanswered].map(Reason::as_str).contains(&ready.reason.as_str());
    (!may_be_used).then(|| message.to_owned())
}

/// The condition of a type.
pub(super) fn condition(status: &MultiClusterZooKeeperStatus, type_: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

fn with_annotation(observed: &Observed, value: Option<&str>) -> Observed {
    let mut observed = observed.clone();
    let annotations = observed.object.metadata.annotations.get_or_insert_default();
    match value {
        Some(value) => annotations.insert(FAILOVER.to_owned(), value.to_owned()),
        None => annotations.remove(FAILOVER),
    };
    observed
}

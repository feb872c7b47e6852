//! The numbers that the operator's metrics show of one ensemble.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::rollout::{
    certificates::in_use,
    known::Known,
    quorum::ReportedQuorum,
    report::{ClusterReport, last_reports},
    tolerance::Tolerance,
};
use mczk_api::{
    contract::{
        certificate_names::Holds,
        conditions::{ConditionOwner, ConditionStatus, ConditionType, Reason, find},
    },
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
    zookeeper::{Role, Server},
};

/// The numbers that the operator's metrics show of one ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// The conditions of the `MultiClusterZooKeeper`.
    pub conditions: BTreeMap<ConditionType, (ConditionStatus, Reason)>,
    /// For each condition of a `ZooKeeper`, the number of clusters whose agent reports it as `True`.
    pub cluster_conditions: BTreeMap<ConditionType, usize>,
    /// The voters; `None` while no server list exists, and while the ensemble is being deleted.
    pub voters: Option<VoterMeasures>,
    /// The current record; `None` while the ensemble is being deleted.
    pub record: Option<RecordMeasures>,
    /// End of the validity of the identity of the quorum that ends first: of the server list, and of those that servers have
    /// loaded by the last report of their cluster.
    pub identity_not_after: Option<Timestamp>,
    /// End of the validity of the trusted authority of the quorum that ends first, of the same ones.
    pub authority_not_after: Option<Timestamp>,
}

/// The numbers of the voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterMeasures {
    /// Voters of the server list.
    pub desired: usize,
    /// Servers with a vote in ZooKeeper's own configuration; the voters of the list while no fresh report shows it.
    pub votes: usize,
    /// Those of them that serve, as fresh reports show, or that left the schedule and are not missed.
    pub serving: usize,
    /// How many more voters may stop serving before no majority is left.
    pub tolerated_voters: usize,
    /// How many clusters may be lost, whichever they are, before no majority is left.
    pub tolerated_clusters: usize,
    /// Clusters whose voters are at a spare, or move there.
    pub moved_clusters: usize,
}

/// The numbers of the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMeasures {
    /// Time of the last change of the record.
    pub transition: Timestamp,
    /// Clusters that have not started.
    pub pending: usize,
    /// Clusters that are being changed.
    pub deploying: usize,
    /// Clusters that are complete.
    pub completed: usize,
}

impl Measures {
    /// The numbers of an ensemble with this next status.
    #[must_use]
    pub fn of(known: &Known<'_>, status: &MultiClusterZooKeeperStatus) -> Self {
        let conditions = conditions(status);
        if known.ending.is_some() {
            // The operator no longer evaluates the other conditions, and the voters stop on purpose.
            let evaluated = [ConditionType::Ready, ConditionType::Progressing];
            let conditions = conditions.into_iter().filter(|(type_, _)| evaluated.contains(type_)).collect();
            return Self { conditions, ..Self::default() };
        }
        let reports = &known.reports;
        let has_servers = |name: &str| {
            status.clusters.iter().any(|c| c.name == name && !(c.voters.is_empty() && c.observers.is_empty()))
        };
        let listed = status.ensemble.as_ref().and_then(|ensemble| ensemble.tls.as_ref());
        let used = in_use(listed, last_reports(reports, has_servers));
        let not_after = |holds: Holds| {
            let used = known.certificates.iter().filter(|secret| used.contains_key(secret.name.as_str()));
            used.filter(|secret| secret.holds == holds).map(|secret| secret.not_after).min()
        };
        Self {
            conditions,
            cluster_conditions: cluster_conditions(reports),
            voters: VoterMeasures::of(known, status),
            record: status.records.last().map(RecordMeasures::of),
            identity_not_after: not_after(Holds::Identity),
            authority_not_after: not_after(Holds::Trust),
        }
    }

    /// Sets every condition that a failure with this reason determines. The others stay as they are.
    pub fn fail(&mut self, reason: Reason) {
        let own = reason.conditions().iter().filter(|(type_, _)| is_own(*type_));
        self.conditions.extend(own.map(|(type_, status)| (*type_, (*status, reason))));
    }
}

impl VoterMeasures {
    fn of(known: &Known<'_>, status: &MultiClusterZooKeeperStatus) -> Option<Self> {
        let ensemble = status.ensemble.as_ref()?;
        let voters = listed_voters(status);
        let quorum = ReportedQuorum::of(&ensemble.incarnation, &known.reports, &voters, ensemble.formed);
        let tolerance = Tolerance::of(&voters, &quorum, known)?;
        Some(Self {
            desired: voters.len(),
            votes: tolerance.voters(),
            serving: tolerance.following().len(),
            tolerated_voters: tolerance.voter_losses(),
            tolerated_clusters: tolerance.cluster_losses(),
            moved_clusters: status.clusters.iter().filter(|cluster| cluster.moved_to.is_some()).count(),
        })
    }
}

impl RecordMeasures {
    fn of(record: &Record) -> Self {
        let state = &record.current_state;
        Self {
            transition: record.last_transition_time.0,
            pending: state.pending.len(),
            deploying: state.deploying.len(),
            completed: state.completed.len(),
        }
    }
}

fn is_own(type_: ConditionType) -> bool {
    type_.owner() == ConditionOwner::MultiClusterZooKeeper
}

/// The conditions of this version. A status that another version wrote may have others.
fn conditions(status: &MultiClusterZooKeeperStatus) -> BTreeMap<ConditionType, (ConditionStatus, Reason)> {
    let all = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
    let known = status.conditions.iter().filter_map(|condition| {
        let type_ = ConditionType::ALL.iter().find(|type_| is_own(**type_) && type_.as_str() == condition.type_)?;
        let status = all.into_iter().find(|status| status.as_str() == condition.status)?;
        Some((*type_, (status, condition.reason.parse().ok()?)))
    });
    known.collect()
}

/// Every condition of a `ZooKeeper`, with the number of clusters in which it holds. Stale reports do not count.
fn cluster_conditions(reports: &BTreeMap<String, ClusterReport>) -> BTreeMap<ConditionType, usize> {
    let types = ConditionType::ALL.iter().filter(|type_| type_.owner() == ConditionOwner::ZooKeeper);
    let holds = |report: &&ClusterReport, type_: ConditionType| {
        let conditions = report.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        report.fresh() && find(conditions, type_, ConditionStatus::True).is_some()
    };
    types.map(|type_| (*type_, reports.values().filter(|report| holds(report, *type_)).count())).collect()
}

/// The voters of the server list. The status has their ids and clusters.
fn listed_voters(status: &MultiClusterZooKeeperStatus) -> Vec<Server> {
    let of_clusters = status.clusters.iter().flat_map(|cluster| {
        let ids = (0..).zip(&cluster.voters);
        ids.map(|(ordinal, id)| (cluster.name.clone(), ordinal, *id))
    });
    let server = |(cluster, ordinal, id)| Server { id, cluster, ordinal, host: String::new(), role: Role::Voter };
    of_clusters.map(server).collect()
}

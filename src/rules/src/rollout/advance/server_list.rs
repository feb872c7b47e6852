//! The server list: when it may change, and what it contains then.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{
    advance::{draft::Draft, inputs::Inputs},
    override_rules::Overrides,
    report::ClusterReport,
    reported_list::next_epoch,
    scheduled::Scheduled,
    server_ids::{self, Asked},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::ABANDON_CLUSTERS, server_list},
    multiclusterzookeeper::RecordStatus,
    mutation::broken,
    tls::EnsembleTls,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server, ZooKeeperStatus},
};

/// Most servers that a list names as leaving.
const MAX_LEAVING: usize = 254;

/// The servers of the next list, and the schedule that goes with them.
pub(super) struct Target {
    /// True if the list of a bootstrap is frozen, so that it does not follow the schedule.
    pub(super) frozen: bool,
    pub(super) schedule: Vec<Scheduled>,
    pub(super) servers: Vec<Server>,
    /// The certificates that the next list names.
    pub(super) tls: Option<EnsembleTls>,
}

impl Target {
    /// The servers of the list, and what of the schedule goes with them.
    pub(super) fn without_changes(self, list: &Ensemble) -> Self {
        Self { schedule: frozen_schedule(list, &self.schedule), servers: list.servers.clone(), ..self }
    }
}

impl Inputs<'_> {
    /// The servers of the next list.
    ///
    /// S5: the list of a bootstrap is frozen until a quorum forms. Started servers know the old list, and a server that
    /// starts with another list could make a second majority. Clusters of the old list that are still scheduled continue, so
    /// that a quorum can form.
    ///
    /// # Errors
    /// Why a server can have no id.
    pub(super) fn target(&self, schedule: &[Scheduled], overrides: &Overrides) -> Result<Target, Cause> {
        let list = &overrides.ensemble;
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        let voting = &self.quorum.voters;
        let left_behind = self.known.status.clusters.iter().find(|cluster| self.known.is_left_behind(cluster));
        let asked =
            Asked { reports: &self.known.reports, left_behind: left_behind.map(|cluster| cluster.name.as_str()) };
        let servers = server_ids::allocate(self.naming, list, voting, schedule, observers, asked)
            .map_err(|error| Cause::new(Reason::NoServerId, error.to_string()))?;
        let frozen = list.phase.is_bootstrap()
            && !self.quorum.formed
            && servers != list.servers
            && !broken!(ListDuringBootstrap);
        // Certificates come with the list; not while it is frozen.
        let tls = self.tls.clone().filter(|_| !frozen).or_else(|| list.tls.clone());
        let target = Target { frozen, schedule: schedule.to_vec(), servers, tls };
        Ok(if frozen { target.without_changes(list) } else { target })
    }

    /// True if the list of the policy is not the one that the ensemble should have.
    pub(super) fn list_changes(&self, target: &Target, overrides: &Overrides) -> bool {
        let list = &overrides.ensemble;
        target.servers != list.servers || target.tls != list.tls || self.is_declared_since(list)
    }

    /// S3, S9: true if these servers may replace those of the list.
    pub(super) fn list_may_change(&self, list: &Ensemble, servers: &[Server]) -> bool {
        list.servers.is_empty()
            // New certificates move no voter, and may bring the quorum back.
            || servers == list.servers
            // A quorum serves, even if not all of its voters are visible.
            || !self.quorum.voters.is_empty()
            || broken!(ListWithoutQuorum)
            || broken!(ListDuringBootstrap)
    }

    /// The next server list, for all clusters at once.
    pub(super) fn next_list(&self, target: Target, list: &Ensemble) -> serde_json::Result<Ensemble> {
        let Target { servers, tls, .. } = target;
        let (reports, formed) = (&self.known.reports, self.quorum.formed);
        server_list::with_hash(Ensemble {
            incarnation: Some(self.naming.incarnation.to_owned()),
            epoch: Some(next_epoch(list, self.naming.incarnation, reports)),
            highest_id: servers.iter().map(|server| server.id).max().max(list.highest_id),
            phase: phase_after_change(list.phase, formed),
            former_incarnations: self.former_incarnations(list),
            leaving: if formed { leaving(list, &servers, reports) } else { Vec::new() },
            servers,
            tls,
            demote_after_seconds: self.demote_after_seconds(),
            ..list.clone()
        })
    }

    fn demote_after_seconds(&self) -> Option<i32> {
        self.known.object.spec.failover.as_ref().and_then(|failover| failover.demote_after_seconds)
    }

    /// The list with the declared time after which voters lose their votes, if it has another one. No record: it moves no voter. A
    /// quorum must be there to accept it, and a list that is frozen or ends takes no vote.
    pub(super) fn list_with_demotion(&self, list: &Ensemble) -> serde_json::Result<Option<Ensemble>> {
        let declared = self.demote_after_seconds();
        let may_change = list.phase == EnsemblePhase::Running && !self.quorum.voters.is_empty();
        if !may_change || list.demote_after_seconds == declared {
            return Ok(None);
        }
        let epoch = next_epoch(list, self.naming.incarnation, &self.known.reports);
        let list = Ensemble { epoch: Some(epoch), demote_after_seconds: declared, ..list.clone() };
        server_list::with_hash(list).map(Some)
    }

    /// The next phase of the server list of a bootstrap: its end, once its record is done and a quorum has formed.
    ///
    /// S5: a bootstrap in which a quorum has formed is marked before. A server that starts on an empty volume may have lost the
    /// old one, and may reach no server that knows of the quorum.
    pub(super) fn next_phase(&self, draft: &Draft) -> Option<EnsemblePhase> {
        let (phase, formed) = (draft.overrides.ensemble.phase, self.quorum.formed);
        let is_done = draft.records.last().is_some_and(|record| record.status == RecordStatus::Ready);
        if !phase.is_bootstrap() {
            None
        } else if is_done && (formed || broken!(RunUnformed)) {
            Some(EnsemblePhase::Running)
        } else {
            (formed && phase != EnsemblePhase::Formed).then_some(EnsemblePhase::Formed)
        }
    }

    /// S2: true if neither the server list nor ZooKeeper's configuration, read through a quorum, has a voter of this cluster
    /// above `replicas`.
    pub(super) fn has_released_voters(&self, cluster: &str, replicas: i32, overrides: &Overrides) -> bool {
        let list = &overrides.ensemble;
        let above = |s: &Server| s.cluster == cluster && s.role == Role::Voter && s.ordinal >= replicas;
        let accepted = self.last_status(cluster).and_then(ZooKeeperStatus::epoch);
        // A configuration that an agent read before the list was published may still gain voters.
        !self.quorum.voters.is_empty()
            && self.quorum.epoch.min(accepted) >= list.epoch
            && self.leaving_voter(overrides).is_none()
            && !list.servers.iter().any(above)
    }

    /// The first voter of ZooKeeper's configuration that the server list does not name.
    pub(super) fn leaving_voter(&self, overrides: &Overrides) -> Option<i32> {
        let listed = |id: &i32| overrides.ensemble.servers.iter().any(|s| s.id == *id && s.role == Role::Voter);
        self.quorum.voters.iter().copied().find(|id| !listed(id))
    }
}

/// Why the server list does not change: no quorum would accept it.
pub(super) fn waiting_for_quorum() -> Cause {
    let message =
        "No cluster reports a quorum, so the server list does not change: bring servers back until a majority serves";
    Cause::new(Reason::NoQuorum, message)
}

/// Why the server list of a bootstrap does not follow the schedule.
pub(super) fn waiting_for_first_quorum() -> Cause {
    Cause::new(
        Reason::BootstrapListFrozen,
        format!(
            "The schedule changed before the first quorum formed, and the server list is frozen until then: bring the missing cluster up, or revert replicas or placement. If a majority of the listed servers is lost for good, with their volumes, abandon their clusters by the annotation {ABANDON_CLUSTERS} or remove them from spec.placement: the operator then bootstraps the ensemble again"
        ),
    )
}

/// The schedule that a frozen list allows: its own voters, in each cluster that is still scheduled.
fn frozen_schedule(list: &Ensemble, schedule: &[Scheduled]) -> Vec<Scheduled> {
    let voters = |cluster: &String| {
        let voters = list.servers.iter().filter(|s| s.cluster == *cluster && s.role == Role::Voter).count();
        i32::try_from(voters).unwrap_or(0)
    };
    let frozen = schedule.iter().map(|s| Scheduled { cluster: s.cluster.clone(), replicas: voters(&s.cluster) });
    frozen.filter(|s| s.replicas > 0).collect()
}

/// Voters of this list and of earlier ones that the next list does not name, and that may still be in the ensemble. A voter
/// of an earlier list counts while a cluster reports it in the configuration, or no cluster reports one.
fn leaving(list: &Ensemble, next: &[Server], reports: &BTreeMap<String, ClusterReport>) -> Vec<Server> {
    let statuses = reports.values().filter_map(|report| report.status.as_ref());
    let voting: BTreeSet<i32> = statuses.flat_map(|status| status.voting_members.iter().copied()).collect();
    let earlier = list.leaving.iter().filter(|server| voting.is_empty() || voting.contains(&server.id));
    let mut leaving: BTreeMap<&str, &Server> = BTreeMap::new();
    for server in list.servers.iter().filter(|server| server.role == Role::Voter).chain(earlier) {
        leaving.entry(&server.host).or_insert(server);
    }
    leaving.retain(|host, _| next.iter().all(|server| server.host != *host));
    leaving.into_values().take(MAX_LEAVING).cloned().collect()
}

/// The phase of a changed list. A list that suspends or ends its servers still does: they must not start because of a new
/// certificate.
fn phase_after_change(phase: EnsemblePhase, formed: bool) -> EnsemblePhase {
    match phase {
        EnsemblePhase::Decommissioning => phase,
        _ if formed => EnsemblePhase::Running,
        EnsemblePhase::Suspended | EnsemblePhase::Abandoned => phase,
        _ => EnsemblePhase::Bootstrapping,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, from_value, json};

    use super::*;

    /// A joiner asks leaving voters for as long as the configuration may name them. Observers do not count.
    #[rstest]
    #[case::all_move(json!([]), &[4, 5], &[1, 2])]
    #[case::one_stays(json!([1, 2, 3]), &[1, 4], &[2])]
    #[case::one_of_an_earlier_list_still_votes(json!([1, 9]), &[4], &[1, 2, 9])]
    fn leaving_voters_are_listed(#[case] voting: Value, #[case] next: &[i32], #[case] expected: &[i32]) {
        let server = |id: i32, role: Role| Server {
            id,
            cluster: format!("m{id}"),
            ordinal: 0,
            host: format!("host-{id}-{role:?}"),
            role,
        };
        let list = Ensemble {
            servers: vec![server(1, Role::Voter), server(2, Role::Voter), server(3, Role::Observer)],
            leaving: [8, 9].map(|id| server(id, Role::Voter)).into(),
            ..Ensemble::default()
        };
        let next: Vec<Server> = next.iter().map(|id| server(*id, Role::Voter)).collect();
        let status = from_value(json!({ "votingMembers": voting })).unwrap();
        let report = ClusterReport { cluster: "m1".to_owned(), status, ..ClusterReport::default() };
        let ids: BTreeSet<i32> =
            leaving(&list, &next, &BTreeMap::from([("m1".to_owned(), report)])).iter().map(|s| s.id).collect();
        let unreported = if voting == json!([]) { &[8, 9][..] } else { &[] };
        assert_eq!(ids, expected.iter().chain(unreported).copied().collect());
    }

    #[rstest]
    #[case::first(EnsemblePhase::Bootstrapping, false, EnsemblePhase::Bootstrapping)]
    #[case::running(EnsemblePhase::Running, true, EnsemblePhase::Running)]
    #[case::formed(EnsemblePhase::Formed, true, EnsemblePhase::Running)]
    #[case::suspended(EnsemblePhase::Suspended, false, EnsemblePhase::Suspended)]
    #[case::abandoned(EnsemblePhase::Abandoned, false, EnsemblePhase::Abandoned)]
    #[case::decommissioning(EnsemblePhase::Decommissioning, true, EnsemblePhase::Decommissioning)]
    fn a_changed_list_starts_no_suspended_server(
        #[case] phase: EnsemblePhase,
        #[case] formed: bool,
        #[case] changed: EnsemblePhase,
    ) {
        assert_eq!(phase_after_change(phase, formed), changed);
    }
}

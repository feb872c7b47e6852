//! The server list: when it may change, and what it contains then.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{
        multiclusterzookeeper::{Record, RecordStatus},
        tls::EnsembleTls,
        zookeeper::{Ensemble, EnsemblePhase, Role, Server, ZooKeeperStatus},
    },
    contract::{conditions::Reason, labels::ABANDON_CLUSTERS, server_list},
    mutation::broken,
    rollout::{
        advance::pass::Pass,
        binding::Scheduled,
        blocker::Blocker,
        override_rules::Overrides,
        report::ClusterReport,
        reported_list::{in_phase, is_outdated, next_epoch},
        server_ids,
    },
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

impl Pass<'_> {
    /// The servers of the next list. `None` if no ids are left for them.
    ///
    /// S5: the list of a bootstrap is frozen until a quorum forms. Started servers know the old list, and a server that
    /// starts with another list could make a second majority. Clusters of the old list that are still scheduled continue, so
    /// that a quorum can form.
    pub(super) fn target(&mut self, schedule: &[Scheduled], overrides: &Overrides) -> Option<Target> {
        let list = &overrides.ensemble;
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        let highest_id = list.highest_id.unwrap_or(0);
        let servers =
            match server_ids::allocate(self.naming, &list.servers, highest_id, schedule, observers, self.reports) {
                Ok(servers) => servers,
                Err(error) => {
                    self.findings.action_required =
                        Some(Blocker { reason: Reason::NoServerId, message: error.to_string() });
                    return None;
                }
            };
        let frozen = list.phase.is_bootstrap()
            && !self.quorum.formed
            && servers != list.servers
            && !broken!(ListDuringBootstrap);
        // Certificates come with the list; not while it is frozen.
        let tls = self.tls.clone().filter(|_| !frozen).or_else(|| list.tls.clone());
        Some(if frozen {
            Target { frozen, schedule: frozen_schedule(list, schedule), servers: list.servers.clone(), tls }
        } else {
            Target { frozen, schedule: schedule.to_vec(), servers, tls }
        })
    }

    /// True if the list of the policy is not the one that the ensemble should have. It may also be older than a reported
    /// one, if a user restored an older policy.
    pub(super) fn list_changes(&self, target: &Target, overrides: &Overrides) -> bool {
        let list = &overrides.ensemble;
        target.servers != list.servers
            || target.tls != list.tls
            || (!list.servers.is_empty() && is_outdated(list, self.naming.incarnation, self.reports))
    }

    /// S3, S9: true if these servers may replace those of the list.
    pub(super) fn list_may_change(&self, list: &Ensemble, servers: &[Server]) -> bool {
        list.servers.is_empty()
            // New certificates move no voter, and may bring the quorum back.
            || servers == list.servers
            || self.quorum.holds()
            || self.quorum.read_through_quorum
            || broken!(ListWithoutQuorum)
            || broken!(ListDuringBootstrap)
    }

    /// Writes the server list, for all clusters at once.
    pub(super) fn change_list(
        &mut self,
        target: Target,
        records: &[Record],
        overrides: &mut Overrides,
    ) -> serde_json::Result<()> {
        if records.last().is_none_or(|record| record.status != RecordStatus::Deploying) {
            return Ok(());
        }
        let Target { servers, tls, .. } = target;
        let list = &overrides.ensemble;
        if !self.list_may_change(list, &servers) {
            self.wait_for_quorum();
            return Ok(());
        }
        let formed = self.quorum.formed;
        let next = Ensemble {
            incarnation: Some(self.naming.incarnation.to_owned()),
            epoch: Some(next_epoch(list, self.naming.incarnation, self.reports)),
            highest_id: servers.iter().map(|server| server.id).max().max(list.highest_id),
            phase: phase_after_change(list.phase, formed),
            former_incarnations: self.former_incarnations.clone(),
            leaving: if formed { leaving(list, &servers, self.reports) } else { Vec::new() },
            servers,
            tls,
            ..list.clone()
        };
        overrides.ensemble = server_list::with_hash(next)?;
        Ok(())
    }

    pub(super) fn wait_for_quorum(&mut self) {
        let message = "No cluster reports a quorum, so the server list does not change: bring servers back until a majority serves";
        self.wait_for(Reason::NoQuorum, message.to_owned());
    }

    pub(super) fn wait_for_first_quorum(&mut self) {
        self.wait_for(
            Reason::BootstrapListFrozen,
            format!(
                "The schedule changed before the first quorum formed, and the server list is frozen until then: bring the missing cluster up, or revert replicas or placement. If a majority of the listed servers is lost, abandon their clusters by the annotation {ABANDON_CLUSTERS} or remove them from spec.placement: the operator then bootstraps the ensemble again"
            ),
        );
    }

    /// Ends the bootstrap when its record is done and a quorum has formed.
    pub(super) fn end_bootstrap(&self, records: &[Record], overrides: &mut Overrides) -> serde_json::Result<()> {
        if overrides.ensemble.phase.is_bootstrap()
            && (self.quorum.formed || broken!(RunUnformed))
            && records.last().is_some_and(|record| record.status == RecordStatus::Ready)
        {
            self.set_phase(EnsemblePhase::Running, overrides)?;
        }
        Ok(())
    }

    /// S5: marks a bootstrap in which a quorum has formed. A server that starts on an empty volume may have lost the old one,
    /// and may reach no server that knows of the quorum.
    pub(super) fn mark_formed(&self, overrides: &mut Overrides) -> serde_json::Result<()> {
        let phase = overrides.ensemble.phase;
        if phase.is_bootstrap() && phase != EnsemblePhase::Formed && self.quorum.formed {
            self.set_phase(EnsemblePhase::Formed, overrides)?;
        }
        Ok(())
    }

    fn set_phase(&self, phase: EnsemblePhase, overrides: &mut Overrides) -> serde_json::Result<()> {
        overrides.ensemble = in_phase(&overrides.ensemble, phase, self.naming.incarnation, self.reports)?;
        Ok(())
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

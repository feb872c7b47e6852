//! When the list of servers may change, and what it says then.

use super::Pass;
use crate::{
    api::{
        multiclusterzookeeper::{Record, RecordStatus},
        tls::EnsembleTls,
        zookeeper::{Ensemble, EnsemblePhase, Role, Server, ZooKeeperStatus},
    },
    contract::{conditions::Reason, server_list},
    mutation::broken,
    rollout::{binding::Scheduled, blocker::Blocker, ensemble, override_rules::Overrides},
};

impl Pass<'_> {
    /// S5: tells servers that a quorum formed, while the list is still that of a bootstrap. A server that begins with nothing
    /// may be one whose volume was lost since, and may reach nobody who knows.
    pub(super) fn tell_formed(&self, current: &mut Overrides) -> serde_json::Result<()> {
        let list = &current.ensemble;
        if !list.phase.is_bootstrap() || list.phase == EnsemblePhase::Formed || !self.quorum.formed {
            return Ok(());
        }
        let next = Ensemble { phase: EnsemblePhase::Formed, epoch: Some(self.next_epoch(current)), ..list.clone() };
        current.ensemble = server_list::with_hash(next)?;
        Ok(())
    }

    /// S3, S9: whether these servers may take the place of those of a list.
    pub(super) fn list_may_change(&self, list: &Ensemble, servers: &[Server]) -> bool {
        list.servers.is_empty()
            // It moves no voter, and may be what brings the quorum back: certificates.
            || servers == list.servers
            || self.quorum.holds()
            || self.quorum.committed
            || broken!(ListWithoutQuorum)
            || broken!(ListDuringBootstrap)
    }

    pub(super) fn next_epoch(&self, current: &Overrides) -> i64 {
        ensemble::next_epoch(&current.ensemble, self.naming.incarnation, self.reports)
    }

    /// Writes the list of servers, for all clusters at once.
    pub(super) fn change_list(
        &mut self,
        current: &mut Overrides,
        servers: Vec<Server>,
        tls: Option<EnsembleTls>,
        records: &[Record],
    ) -> serde_json::Result<()> {
        let covered = records.last().is_some_and(|r| r.status == RecordStatus::Deploying);
        if !covered {
            return Ok(());
        }
        if !self.list_may_change(&current.ensemble, &servers) {
            self.findings.waiting = Some(no_quorum_for_list());
            return Ok(());
        }
        current.ensemble = server_list::with_hash(Ensemble {
            incarnation: Some(self.naming.incarnation.to_owned()),
            epoch: Some(self.next_epoch(current)),
            highest_id: servers.iter().map(|s| s.id).max().max(current.ensemble.highest_id),
            phase: if self.quorum.formed { EnsemblePhase::Running } else { EnsemblePhase::Bootstrapping },
            former_incarnations: self.former.clone(),
            leaving: if self.quorum.formed {
                ensemble::leaving(&current.ensemble, &servers, self.reports)
            } else {
                Vec::new()
            },
            servers,
            tls,
            ..current.ensemble.clone()
        })?;
        Ok(())
    }

    /// S2: whether neither the list nor `ZooKeeper`'s configuration, read through a quorum, has a voter of this cluster
    /// beyond these.
    pub(super) fn removed(&self, cluster: &str, replicas: i32, current: &Overrides) -> bool {
        let beyond = |s: &Server| s.cluster == cluster && s.role == Role::Voter && s.ordinal >= replicas;
        let own = self.reports.get(cluster).and_then(|m| m.status.as_ref()).and_then(ZooKeeperStatus::epoch);
        // A configuration that was read before the list was known says nothing of who still joins.
        !self.quorum.voters.is_empty()
            && self.quorum.epoch.min(own) >= current.ensemble.epoch
            && self.leaving(current).is_none()
            && !current.ensemble.servers.iter().any(beyond)
    }

    /// The first voter of `ZooKeeper`'s configuration that is not in the list.
    pub(super) fn leaving(&self, current: &Overrides) -> Option<i32> {
        let listed = |id: &i32| current.ensemble.servers.iter().any(|s| s.id == *id && s.role == Role::Voter);
        self.quorum.voters.iter().copied().find(|id| !listed(id))
    }
}

pub(super) fn no_quorum_for_list() -> Blocker {
    Blocker {
        reason: Reason::NoQuorum,
        message: "membership changes only while a quorum is seen: bring servers back until a majority serves"
            .to_owned(),
    }
}

/// What of a frozen list is scheduled: as many voters as the list has, where the schedule still has the cluster.
pub(super) fn frozen_schedule(list: &Ensemble, schedule: &[Scheduled]) -> Vec<Scheduled> {
    schedule
        .iter()
        .map(|s| {
            let own = list.servers.iter().filter(|l| l.cluster == s.cluster && l.role == Role::Voter).count();
            Scheduled { cluster: s.cluster.clone(), replicas: i32::try_from(own).unwrap_or(0) }
        })
        .filter(|s| s.replicas > 0)
        .collect()
}

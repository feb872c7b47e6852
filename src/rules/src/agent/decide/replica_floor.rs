//! How few servers a cluster may run: no voter of `ZooKeeper`'s configuration is stopped.

use crate::agent::decide::quorum::Quorum;
use mczk_api::zookeeper::{Ensemble, Role, Server};

/// Servers to run, and why there are more or fewer than declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaFloor {
    /// Servers to run.
    pub replicas: i32,
    /// Why the cluster runs more than declared, if the user or the operator has to act.
    pub(crate) blocked: Option<String>,
    /// What the agent waits for.
    pub waits: Option<String>,
}

/// What the agent knows about the voters of this cluster.
#[derive(Clone, Copy, Debug)]
pub struct Voters<'a> {
    /// Karmada's name of this cluster.
    pub cluster: &'a str,
    /// Name of their pods without hyphen and ordinal.
    pub set: &'a str,
    /// The server list.
    pub list: &'a Ensemble,
    /// The quorum, if the agent sees one.
    pub quorum: Option<&'a Quorum>,
}

impl Voters<'_> {
    fn listed(&self, role: Role, ordinal: i32) -> Option<&Server> {
        self.list.servers.iter().find(|s| s.cluster == self.cluster && s.role == role && s.ordinal == ordinal)
    }

    /// True if `ZooKeeper`'s configuration names the server of an ordinal as a voter, by its id or its name. `None` if the
    /// agent sees no quorum.
    pub(super) fn votes(&self, ordinal: i32, id: Option<i32>) -> Option<bool> {
        let quorum = self.quorum?;
        let split = |host: &str| host.split_once('.').map(|(pod, domain)| (pod.to_owned(), domain.to_owned()));
        let local = self.list.servers.iter().find(|s| s.cluster == self.cluster).and_then(|s| split(&s.host));
        let pod = format!("{}-{ordinal}", self.set);
        // The names that a user chooses may not begin with the pod.
        let is_at_place = |s: &Server| s.cluster == self.cluster && s.role == Role::Voter && s.ordinal == ordinal;
        let elsewhere = |id: i32| self.list.servers.iter().any(|s| s.id == id && s.cluster != self.cluster);
        Some(quorum.configuration.servers.iter().filter(|s| s.role == Role::Voter).any(|voter| {
            let named = split(&voter.host)
                .is_some_and(|(name, domain)| name == pod && local.as_ref().is_none_or(|(_, local)| *local == domain));
            let is_voter = |s: &Server| s.id == voter.id || s.host == voter.host;
            let listed = self.list.all_servers().any(|s| is_at_place(s) && is_voter(s));
            Some(voter.id) == id || (named || listed) && !elsewhere(voter.id)
        }))
    }

    /// Voters to run. A StatefulSet stops its highest ordinals first. So the highest ordinal that `ZooKeeper`'s configuration
    /// names, or may name, determines the number. No voter starts before the server list names it.
    pub fn min_replicas(&self, wanted: i32, live: i32, id_of: impl Fn(i32) -> Option<i32>) -> ReplicaFloor {
        if self.list.phase.is_ending() {
            return ReplicaFloor::default();
        }
        if wanted >= live {
            return self.raise(Role::Voter, wanted, live);
        }
        for ordinal in (wanted..live).rev() {
            let listed = self.listed(Role::Voter, ordinal);
            let id = listed.map(|s| s.id).or_else(|| id_of(ordinal));
            let name = id.map_or_else(|| format!("{}-{ordinal}", self.set), |id| id.to_string());
            let floor = ReplicaFloor { replicas: ordinal + 1, blocked: None, waits: None };
            match self.votes(ordinal, id) {
                Some(false) => {}
                Some(true) if listed.is_some() => {
                    let blocked = format!(
                        "Server {name} is not stopped: the server list and ZooKeeper's configuration name it as a voter. \
                         Wait for the operator's next server list"
                    );
                    return ReplicaFloor { blocked: Some(blocked), ..floor };
                }
                Some(true) => {
                    return ReplicaFloor {
                        waits: Some(format!("Waiting for server {name} to leave the ensemble")),
                        ..floor
                    };
                }
                None => {
                    let blocked = format!(
                        "Server {name} is not stopped: the agent sees no quorum, and the server may be a voter. Restore the quorum"
                    );
                    return ReplicaFloor { blocked: Some(blocked), ..floor };
                }
            }
        }
        ReplicaFloor { replicas: wanted, blocked: None, waits: None }
    }

    /// Servers of a role to run if their number rises. A server that the list does not name has no id.
    #[must_use]
    pub fn raise(&self, role: Role, wanted: i32, live: i32) -> ReplicaFloor {
        if self.list.phase.is_ending() {
            return ReplicaFloor::default();
        }
        let unlisted = (live..wanted).find(|ordinal| self.listed(role, *ordinal).is_none());
        ReplicaFloor {
            replicas: unlisted.unwrap_or(wanted),
            blocked: None,
            waits: unlisted.map(|ordinal| format!("Waiting for the server list to name {}-{ordinal}", self.set)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::decide::fixtures::list;
    use mczk_api::{
        contract::control_api::{Configuration, ConfiguredServer},
        zookeeper::EnsemblePhase,
    };

    fn quorum(ids: &[i32]) -> Quorum {
        let host = |id: i32| format!("zk-abc-{}.{}", (id - 1) % 10, if id < 10 { "m1" } else { "m2" });
        let servers = ids.iter().map(|id| ConfiguredServer { id: *id, host: host(*id), role: Role::Voter }).collect();
        Quorum { configuration: Configuration { version: 1, servers }, ..Quorum::default() }
    }

    #[rstest]
    #[case::nothing_changes(2, 2, &[1, 2, 11], Some(&[1, 2, 11][..]), (2, false, false))]
    #[case::listed_and_votes(1, 2, &[1, 2, 11], Some(&[1, 2, 11][..]), (2, true, false))]
    #[case::votes_and_not_listed(1, 2, &[1, 11], Some(&[1, 2, 11][..]), (2, false, true))]
    #[case::has_left(1, 2, &[1, 11], Some(&[1, 11][..]), (1, false, false))]
    #[case::no_quorum(1, 2, &[1, 11], None, (2, true, false))]
    #[case::the_highest_left_but_not_the_one_below(0, 2, &[1, 11], Some(&[1, 11][..]), (1, true, false))]
    #[case::more(2, 0, &[1, 2, 11], None, (2, false, false))]
    #[case::more_than_listed(3, 1, &[1, 2, 11], None, (2, false, true))]
    #[case::all_have_left(0, 2, &[11, 12], Some(&[11, 12][..]), (0, false, false))]
    fn a_voter_is_not_stopped(
        #[case] wanted: i32,
        #[case] live: i32,
        #[case] listed: &[i32],
        #[case] voting: Option<&[i32]>,
        #[case] expected: (i32, bool, bool),
    ) {
        let (list, quorum) = (list(2, listed), voting.map(quorum));
        let voters = Voters { cluster: "m1", set: "zk-abc", list: &list, quorum: quorum.as_ref() };
        let floor = voters.min_replicas(wanted, live, |_| None);
        assert_eq!((floor.replicas, floor.blocked.is_some(), floor.waits.is_some()), expected, "{floor:?}");
    }

    #[test]
    fn decommissioning_stops_every_server() {
        let list = Ensemble { phase: EnsemblePhase::Decommissioning, ..list(2, &[1, 2]) };
        let quorum = quorum(&[1, 2]);
        let voters = Voters { cluster: "m1", set: "zk-abc", list: &list, quorum: Some(&quorum) };
        assert_eq!(voters.min_replicas(2, 2, |_| None), ReplicaFloor::default());
    }
}

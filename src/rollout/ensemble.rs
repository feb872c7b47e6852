//! The ensemble: its life, its servers' ids and names, and when there is a quorum.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, Observers},
        tls::EnsembleTls,
        zookeeper::{Ensemble, EnsemblePhase, Role, Server},
    },
    contract::{
        naming::Naming,
        server_list::{majority, with_hash},
    },
    mutation::broken,
    rollout::{binding::Scheduled, report::ClusterReport},
};

/// `ZooKeeper`'s highest server id.
pub const MAX_ID: i32 = 254;

/// Longest name of a server, as DNS has it.
const MAX_HOST: usize = 253;
/// Beyond this an epoch is a damaged report: nobody counts so far, and above it not every program can.
const MAX_EPOCH: i64 = 1 << 53;

/// As many as a list may have servers.
const MOST_LEAVING: usize = 254;

/// Why a list of servers cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// All ids are known to some configuration, list or volume.
    #[error("all {MAX_ID} server ids are taken: remove volumes of former servers, or declare fewer servers")]
    NoFreeId,
    /// A server would have a name that no API server takes.
    #[error("the name {0} is longer than 253 characters: shorten network.clusterIds, clusterDomain or fqdnTemplate")]
    HostTooLong(String),
    /// An id would be used again, but a cluster that may know it cannot be reached.
    #[error("no unused server id is left, and cluster {0} cannot be asked which it still knows")]
    CannotAsk(String),
}

/// The servers that a schedule asks for: those that exist keep their ids, new ones get ids that no configuration, list or
/// volume knows, ids that were never used first.
///
/// # Errors
/// See [`Refused`].
pub fn servers(
    naming: Naming<'_>,
    current: &[Server],
    highest_used: i32,
    schedule: &[Scheduled],
    observers: &[Observers],
    reports: &BTreeMap<String, ClusterReport>,
) -> Result<Vec<Server>, Refused> {
    let mut wanted: Vec<(String, Role, i32)> = Vec::new();
    for scheduled in schedule {
        wanted.extend((0..scheduled.replicas).map(|ordinal| (scheduled.cluster.clone(), Role::Voter, ordinal)));
        if let Some(own) = observers.iter().find(|o| o.cluster == scheduled.cluster) {
            wanted.extend((0..own.count).map(|ordinal| (scheduled.cluster.clone(), Role::Observer, ordinal)));
        }
    }
    wanted.sort();
    // Of a server only the agent of its own cluster may say so.
    let lost_here = |server: &Server| {
        let own = reports.get(&server.cluster).filter(|m| m.fresh()).and_then(|m| m.status.as_ref());
        own.is_some_and(|s| s.servers.iter().any(|told| told.id == server.id && told.lost))
    };
    let without_volume: BTreeSet<i32> = current.iter().filter(|s| lost_here(s)).map(|s| s.id).collect();
    let known: BTreeSet<i32> = current
        .iter()
        .map(|s| s.id)
        .chain(
            reports
                .values()
                .filter_map(|m| m.status.as_ref())
                .filter(|status| status.may_be_of(naming.incarnation))
                .flat_map(|s| s.voting_members.iter().copied().chain(s.servers.iter().map(|server| server.id))),
        )
        .collect();
    let mut taken: BTreeSet<i32> = known.clone();
    let mut highest = highest_used.max(known.last().copied().unwrap_or(0));
    if broken!(ReuseIds) {
        taken.clear();
        highest = 0;
    }
    let mut list = Vec::with_capacity(wanted.len());
    for (cluster, role, ordinal) in wanted {
        let kept = current
            .iter()
            .find(|s| s.cluster == cluster && s.role == role && s.ordinal == ordinal && !without_volume.contains(&s.id))
            .filter(|_| !broken!(ReuseIds));
        let id = match kept {
            Some(server) => server.id,
            None if highest < MAX_ID => {
                highest += 1;
                highest
            }
            None => {
                if let Some(silent) = reports.values().find(|m| !m.fresh()) {
                    return Err(Refused::CannotAsk(silent.cluster.clone()));
                }
                (1..=MAX_ID).find(|id| !taken.contains(id)).ok_or(Refused::NoFreeId)?
            }
        };
        taken.insert(id);
        let host = naming.host(&cluster, role, ordinal);
        if host.len() > MAX_HOST {
            return Err(Refused::HostTooLong(host));
        }
        list.push(Server { id, cluster, ordinal, host, role });
    }
    Ok(list)
}

/// Voters of a list and of those before it that the next one does not have, and that may still be of the ensemble: they are to
/// leave only now, or the configuration named them when a cluster told of it last.
#[must_use]
pub fn leaving(list: &Ensemble, next: &[Server], reports: &BTreeMap<String, ClusterReport>) -> Vec<Server> {
    let told = reports.values().filter_map(|member| member.status.as_ref());
    let named: BTreeSet<i32> = told.flat_map(|status| status.voting_members.iter().copied()).collect();
    let former = list.leaving.iter().filter(|server| named.is_empty() || named.contains(&server.id));
    let mut leaving: BTreeMap<&str, &Server> = BTreeMap::new();
    for server in list.servers.iter().filter(|server| server.role == Role::Voter).chain(former) {
        leaving.entry(&server.host).or_insert(server);
    }
    leaving.retain(|host, _| next.iter().all(|server| server.host != *host));
    leaving.into_values().take(MOST_LEAVING).cloned().collect()
}

/// Whether a list can be one of an ensemble: every server has an id of its own, in range, and a place of its own (S4).
fn is_sound(servers: &[Server]) -> bool {
    let ids: BTreeSet<i32> = servers.iter().map(|s| s.id).filter(|id| (1..=MAX_ID).contains(id)).collect();
    let places: BTreeSet<_> = servers.iter().map(|s| (&s.cluster, s.role, s.ordinal)).collect();
    ids.len() == servers.len() && places.len() == servers.len()
}

/// The lists of this ensemble that reports report: whole, and such that they can be one.
fn reported_lists<'a>(id: &'a str, reports: &'a BTreeMap<String, ClusterReport>) -> impl Iterator<Item = &'a Ensemble> {
    let told = reports.values().filter_map(|m| m.status.as_ref()).filter_map(|s| s.ensemble.as_ref());
    told.filter(move |e| e.incarnation.as_deref() == Some(id) && !e.servers.is_empty() && is_sound(&e.servers))
        .filter(|e| (0..MAX_EPOCH).contains(&e.epoch.unwrap_or(0)))
        .filter(|e| with_hash((*e).clone()).is_ok_and(|sealed| sealed.hash == e.hash))
}

/// The newest list of this ensemble that a cluster reports as the one that it accepts.
#[must_use]
pub fn newest_reported<'a>(id: &'a str, reports: &'a BTreeMap<String, ClusterReport>) -> Option<&'a Ensemble> {
    reported_lists(id, reports).max_by_key(|list| list.epoch)
}

/// Whether a cluster reports a newer list than this one, or another one of its epoch.
#[must_use]
pub fn is_outdated(list: &Ensemble, id: &str, reports: &BTreeMap<String, ClusterReport>) -> bool {
    reported_lists(id, reports)
        .any(|told| told.epoch > list.epoch || (told.epoch == list.epoch && told.hash != list.hash))
}

/// An epoch that no list of this ensemble ever had, as far as it is known: one epoch must not name two lists.
#[must_use]
pub fn next_epoch(list: &Ensemble, id: &str, reports: &BTreeMap<String, ClusterReport>) -> i64 {
    list.epoch.unwrap_or(0).max(reported_epoch(id, reports)).saturating_add(1)
}

/// The newest epoch of this ensemble that any cluster ever reported.
fn reported_epoch(id: &str, reports: &BTreeMap<String, ClusterReport>) -> i64 {
    newest_reported(id, reports).and_then(|list| list.epoch).unwrap_or(0)
}

/// The ensemble, found again from the status when the policy that held it is gone. If it is the very list that the status
/// knows by its hash, it has the epoch that it had; else a new one, since one epoch must not name two lists.
#[must_use]
pub fn from_status(
    naming: Naming<'_>,
    status: &MultiClusterZooKeeperStatus,
    reports: &BTreeMap<String, ClusterReport>,
    tls: Option<&EnsembleTls>,
) -> Option<Ensemble> {
    // Of a former life it says nothing of this one.
    let told = status.ensemble.as_ref().filter(|e| e.incarnation == naming.incarnation)?;
    let mut list = Vec::new();
    for cluster in &status.clusters {
        for (ids, role) in [(&cluster.voters, Role::Voter), (&cluster.observers, Role::Observer)] {
            for (ordinal, id) in (0_i32..).zip(ids) {
                let host = naming.host(&cluster.name, role, ordinal);
                list.push(Server { id: *id, cluster: cluster.name.clone(), ordinal, host, role });
            }
        }
    }
    list.sort_by(|a, b| (&a.cluster, a.role, a.ordinal).cmp(&(&b.cluster, b.role, b.ordinal)));
    if list.is_empty() {
        return None;
    }
    let reported = reported_epoch(&told.incarnation, reports);
    let newest = newest_reported(&told.incarnation, reports);
    let highest_id =
        list.iter().map(|s| s.id).chain(reported_lists(&told.incarnation, reports).filter_map(|e| e.highest_id)).max();
    let same = Ensemble {
        incarnation: Some(told.incarnation.clone()),
        epoch: Some(told.epoch),
        // Suspended and abandoned servers must not start, not even for a moment.
        phase: match newest.map(|list| list.phase) {
            _ if told.formed => EnsemblePhase::Running,
            Some(phase) if phase.is_suspended() => phase,
            _ => EnsemblePhase::Bootstrapping,
        },
        highest_id: highest_id.max(told.highest_id),
        servers: list,
        former_incarnations: newest.map(|list| list.former_incarnations.clone()).unwrap_or_default(),
        leaving: newest.map(|list| list.leaving.clone()).unwrap_or_default(),
        tls: tls.or_else(|| newest?.tls.as_ref()).cloned(),
        ..Ensemble::default()
    };
    let known = reported <= told.epoch && with_hash(same.clone()).is_ok_and(|sealed| sealed.hash == told.hash);
    let newer = i64::from(!known && !broken!(SameEpoch));
    Some(Ensemble { epoch: Some(told.epoch.max(reported).saturating_add(newer)), ..same })
}

/// What reports tell of an ensemble that neither policy nor status remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No cluster knows of one: this is a first deployment.
    None,
    /// All clusters reported; this is it.
    Ensemble(Box<Ensemble>),
    /// These clusters have not reported: nothing is decided before they have.
    Wait(Vec<String>),
    /// All clusters reported, and some tell of servers, but none of the list that they obey: no list can be written.
    Unknown,
}

/// The ensemble, found again from the newest list that a member reports as the one that it accepts.
#[must_use]
pub fn from_members(naming: Naming<'_>, clusters: &[String], reports: &BTreeMap<String, ClusterReport>) -> Found {
    if broken!(AllocateBeforeReports) {
        return Found::None;
    }
    let told = || reports.values().filter_map(|m| m.status.as_ref()).filter(|s| s.may_be_of(naming.incarnation));
    let known = told().any(|s| s.ensemble.is_some() || !s.servers.is_empty() || !s.voting_members.is_empty());
    // Where some cluster tells of an ensemble, every other one must be heard before an id is given to anything: it may know
    // a newer list. A first deployment waits for those that can be reached, so that an object appears everywhere first.
    let silent = clusters.iter().filter(|c| !reports.get(*c).is_some_and(ClusterReport::fresh));
    let silent: Vec<String> =
        silent.filter(|c| known || reports.get(*c).is_none_or(|m| m.reachable)).cloned().collect();
    if !silent.is_empty() {
        return Found::Wait(silent);
    }
    let newest = reported_lists(naming.incarnation, reports).max_by_key(|e| e.epoch);
    let formed =
        told().any(|s| s.config_version.is_some()) || newest.is_some_and(|list| list.phase == EnsemblePhase::Formed);
    match newest {
        // A new epoch: the policy may have held a list that no member reported yet, and one epoch must not name two lists.
        Some(list) => Found::Ensemble(Box::new(Ensemble {
            epoch: Some(reported_epoch(naming.incarnation, reports).saturating_add(i64::from(!broken!(SameEpoch)))),
            phase: match list.phase {
                _ if formed => EnsemblePhase::Running,
                EnsemblePhase::Abandoned => EnsemblePhase::Suspended,
                EnsemblePhase::Decommissioning => EnsemblePhase::Running,
                phase => phase,
            },
            ..list.clone()
        })),
        None if known => Found::Unknown,
        None => Found::None,
    }
}

/// What is known of the quorum, from fresh reports only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    /// Whether one ever formed.
    pub formed: bool,
    /// Ids of the voters in `ZooKeeper`'s own configuration; empty if no cluster read it through a quorum.
    pub voters: BTreeSet<i32>,
    /// Ids of voters that serve.
    pub serving: BTreeSet<i32>,
    /// Newest epoch that the ensemble took before this configuration was read.
    pub epoch: Option<i64>,
    /// Id of the leader.
    pub leader: Option<i32>,
    /// Whether a fresh report tells of a committed write: a quorum serves then, also when not all of it can be seen.
    pub committed: bool,
}

impl Quorum {
    /// What fresh reports tell. Of several configurations the newest counts that was read through a quorum; of a server
    /// that is in the list, what the agent of its own cluster says.
    #[must_use]
    pub fn of(id: &str, reports: &BTreeMap<String, ClusterReport>, list: &[Server], formed_before: bool) -> Self {
        let fresh = || {
            let fresh = reports.values().filter(|m| m.fresh());
            fresh.filter_map(|m| Some((m.cluster.as_str(), m.status.as_ref()?))).filter(|(_, s)| s.may_be_of(id))
        };
        let reads = || fresh().map(|(_, s)| s).filter(|s| s.writable == Some(true) && !s.voting_members.is_empty());
        let best = reads().max_by_key(|s| s.config_version.unwrap_or(0));
        let voters: BTreeSet<i32> = best.map(|s| s.voting_members.iter().copied().collect()).unwrap_or_default();
        let own = |cluster: &str, id: i32| list.iter().find(|l| l.id == id).is_none_or(|l| l.cluster == cluster);
        let servers = || fresh().flat_map(|(cluster, s)| s.servers.iter().filter(move |told| own(cluster, told.id)));
        let serving = servers().filter(|told| told.serving && voters.contains(&told.id)).map(|told| told.id).collect();
        // What was accepted once was, also where the report is old.
        let ever = reports.values().filter_map(|m| Some((m.cluster.as_str(), m.status.as_ref()?)));
        let ever = ever.filter(|(_, status)| status.may_be_of(id));
        let mut ever = ever.flat_map(|(cluster, s)| s.servers.iter().filter(move |told| own(cluster, told.id)));
        let accepted = ever.any(|told| told.accepted_epoch.unwrap_or(0) > 0);
        Self {
            formed: formed_before || best.is_some() || accepted,
            leader: best.and_then(|s| s.leader),
            // Each was read after the epoch that it tells was taken, and the newest configuration is no older than any.
            epoch: reads().filter_map(|s| s.published_epoch).filter(|e| *e < MAX_EPOCH).max(),
            committed: best.is_some(),
            voters,
            serving,
        }
    }

    /// Whether a majority of the voters serves, as far as fresh reports tell.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.voters.is_empty() && self.serving.len() >= majority(self.voters.len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NAMING: Naming<'static> = Naming { name: "zk", namespace: "ns", incarnation: "abc123", names: None };

    fn member(cluster: &str, reachable: bool, status: Value) -> (String, ClusterReport) {
        let status = serde_json::from_value(status).unwrap();
        let member =
            ClusterReport { cluster: cluster.to_owned(), reachable, applied: true, status, ..ClusterReport::default() };
        (cluster.to_owned(), member)
    }

    fn list(
        current: &[Server],
        highest: i32,
        schedule: &[(&str, i32)],
        reports: &BTreeMap<String, ClusterReport>,
    ) -> Result<Vec<Server>, Refused> {
        let schedule: Vec<Scheduled> =
            schedule.iter().map(|(c, n)| Scheduled { cluster: (*c).to_owned(), replicas: *n }).collect();
        servers(NAMING, current, highest, &schedule, &[], reports)
    }

    fn ids(list: &[Server]) -> Vec<i32> {
        list.iter().map(|s| s.id).collect()
    }

    #[test]
    fn ids_are_stable_and_never_used_again() {
        let none = BTreeMap::new();
        let first = list(&[], 0, &[("b", 2), ("a", 1)], &none).unwrap();
        assert_eq!(ids(&first), [1, 2, 3]);
        assert_eq!(list(&first, 3, &[("a", 1), ("b", 2)], &none).unwrap(), first);
        let fewer = list(&first, 3, &[("a", 1), ("b", 1)], &none).unwrap();
        assert_eq!(ids(&fewer), [1, 2]);
        let more = list(&fewer, 3, &[("a", 1), ("b", 2)], &none).unwrap();
        assert_eq!(ids(&more), [1, 2, 4], "3 was given once");
    }

    #[rstest]
    #[case::reported_server(json!({ "servers": [{ "id": 9 }] }), 10)]
    #[case::reported_voter(json!({ "votingMembers": [11] }), 12)]
    fn what_a_member_knows_is_not_given(#[case] status: Value, #[case] expected: i32) {
        let reports = BTreeMap::from([member("a", true, status)]);
        assert_eq!(ids(&list(&[], 0, &[("a", 1)], &reports).unwrap()), [expected]);
    }

    #[rstest]
    #[case::reachable(true, &[3, 2])]
    #[case::old_report(false, &[1, 2])]
    fn a_lost_volume_gets_a_new_id(#[case] reachable: bool, #[case] expected: &[i32]) {
        let first = list(&[], 0, &[("a", 1), ("b", 1)], &BTreeMap::new()).unwrap();
        let reports = BTreeMap::from([member("a", reachable, json!({ "servers": [{ "id": 1, "lost": true }] }))]);
        assert_eq!(ids(&list(&first, 2, &[("a", 1), ("b", 1)], &reports).unwrap()), expected);
    }

    #[test]
    fn when_all_were_given_a_free_one_is_used_if_all_clusters_can_be_asked() {
        let known: Vec<i32> = (1..=MAX_ID).filter(|id| *id != 7).collect();
        let heard = BTreeMap::from([member("a", true, json!({ "votingMembers": known }))]);
        assert_eq!(ids(&list(&[], MAX_ID, &[("a", 1)], &heard).unwrap()), [7]);
        assert_eq!(list(&[], MAX_ID, &[("a", 2)], &heard), Err(Refused::NoFreeId));
        let silent = BTreeMap::from([member("a", false, json!({}))]);
        assert_eq!(list(&[], MAX_ID, &[("a", 1)], &silent), Err(Refused::CannotAsk("a".to_owned())));
    }

    /// Who joins asks those that leave, as long as the configuration may name them; observers have no part in it.
    #[rstest]
    #[case::all_move(json!([]), &[4, 5], &[1, 2])]
    #[case::one_stays(json!([1, 2, 3]), &[1, 4], &[2])]
    #[case::one_that_left_before_still_votes(json!([1, 9]), &[4], &[1, 2, 9])]
    fn those_that_leave_are_told(#[case] voting: Value, #[case] next: &[i32], #[case] expected: &[i32]) {
        let server = |id: i32, role: Role| Server {
            id,
            cluster: format!("m{id}"),
            ordinal: 0,
            host: NAMING.host(&format!("m{id}"), role, 0),
            role,
        };
        let list = Ensemble {
            servers: vec![server(1, Role::Voter), server(2, Role::Voter), server(3, Role::Observer)],
            leaving: [8, 9].map(|id| server(id, Role::Voter)).into(),
            ..Ensemble::default()
        };
        let next: Vec<Server> = next.iter().map(|id| server(*id, Role::Voter)).collect();
        let reports = BTreeMap::from([member("m1", true, json!({ "votingMembers": voting }))]);
        let ids: BTreeSet<i32> = leaving(&list, &next, &reports).iter().map(|server| server.id).collect();
        let unheard = if voting == json!([]) { &[8, 9][..] } else { &[] };
        assert_eq!(ids, expected.iter().chain(unheard).copied().collect());
    }
}

//! What is obeyed, and what is refused whatever the control plane says: the last line of defence. Pure.

use serde_json::Value;

use crate::{
    agent::{decide::membership::Quorum, render},
    api::zookeeper::{Ensemble, Role, Server, ZooKeeperSpec},
    contract::{control_api::ServerReport, labels::CLUSTER_ANNOTATION, server_list, spec_hash},
};

/// Annotation of Karmada: the namespace of the Work, which is named after the cluster.
const WORK_NAMESPACE: &str = "work.karmada.io/namespace";

/// Whether a spec is obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// It is.
    Yes,
    /// It says nothing: this cluster waits for its turn, or the control plane lost what it said. All stays as it is.
    Held,
    /// It is not, for this reason: all stays as it is.
    Refused(String),
}

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The spec.
    pub spec: &'a ZooKeeperSpec,
    /// The same as it is stored: it may have fields that this version does not know.
    pub stored: &'a Value,
    /// Karmada's name of this cluster, if it is known.
    pub cluster: Option<&'a str>,
    /// Whether Karmada keeps the object.
    pub managed: bool,
    /// The pin that was obeyed last.
    pub observed_spec_hash: Option<&'a str>,
}

/// Whether a spec is obeyed: it must be meant for this cluster and have arrived whole, and so must its list.
#[must_use]
pub fn obey(told: Told<'_>) -> Acceptance {
    let Told { spec, stored, cluster, managed, observed_spec_hash } = told;
    if spec.ensemble == Ensemble::default() && !managed && observed_spec_hash.is_none() {
        return Acceptance::Refused(
            "it has no list of servers: a ZooKeeper is written by a MultiClusterZooKeeper, never by hand".to_owned(),
        );
    }
    let (Some(meant), Some(pin)) = (&spec.cluster, &spec.spec_hash) else { return Acceptance::Held };
    if spec.ensemble == Ensemble::default() {
        return Acceptance::Held;
    }
    let Some(cluster) = cluster else {
        return Acceptance::Refused(format!(
            "Karmada's name of this cluster is not known: the object has no annotation {WORK_NAMESPACE}; give the agent --cluster"
        ));
    };
    if meant != cluster {
        return Acceptance::Refused(format!("the spec is meant for cluster {meant}"));
    }
    if !spec_hash::hash_matches(stored) {
        return Acceptance::Refused("the spec did not arrive whole: its pin is another".to_owned());
    }
    if !list_is_whole(stored) {
        return Acceptance::Refused("the list of servers did not arrive whole".to_owned());
    }
    if let Err(refused) = render::known(spec.render_version) {
        return Acceptance::Refused(refused.to_string());
    }
    if !managed && observed_spec_hash != Some(pin) {
        return Acceptance::Refused(
            "Karmada does not keep this object: only what it was told before counts".to_owned(),
        );
    }
    Acceptance::Yes
}

/// Whether the list of a spec, as it is stored, is as it was sealed, and names servers of some life.
#[must_use]
pub fn list_is_whole(stored: &Value) -> bool {
    let Some(list) = stored.get("ensemble") else { return false };
    let some = |pointer: &str, is: fn(&Value) -> bool| list.get(pointer).is_some_and(is);
    server_list::hash_matches(list)
        && some("incarnation", Value::is_string)
        && some("epoch", Value::is_i64)
        && some("servers", |servers| servers.as_array().is_some_and(|servers| !servers.is_empty()))
}

/// The newest list of one life: of those that arrived here and those that the servers know. The life is that of the
/// first one given.
#[must_use]
pub fn newest<'a>(here: impl IntoIterator<Item = &'a Ensemble>, views: &'a [ServerReport]) -> Option<&'a Ensemble> {
    let mut here = here.into_iter();
    let first = here.next()?;
    let heard = views.iter().filter_map(|view| view.server_list.as_ref()).filter(|list| {
        !list.servers.is_empty() && server_list::with_hash((*list).clone()).is_ok_and(|sealed| sealed.hash == list.hash)
    });
    // Of equals the first counts.
    let mut newest = first;
    for list in here.chain(heard).filter(|list| list.incarnation == first.incarnation) {
        if list.epoch > newest.epoch {
            newest = list;
        }
    }
    Some(newest)
}

/// How many servers there are to be, and what stands in the way of fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaFloor {
    /// Servers to run.
    pub replicas: i32,
    /// Why there are more than wanted, if a person or the control plane has to do something.
    pub blocked: Option<String>,
    /// What is waited for.
    pub waits: Option<String>,
}

/// What is known of the voters of this cluster.
#[derive(Clone, Copy, Debug)]
pub struct Voters<'a> {
    /// Karmada's name of this cluster.
    pub cluster: &'a str,
    /// Name of their pods without ordinal and hyphen.
    pub set: &'a str,
    /// The list.
    pub list: &'a Ensemble,
    /// What is seen of the quorum.
    pub quorum: Option<&'a Quorum>,
}

impl Voters<'_> {
    fn listed(&self, role: Role, ordinal: i32) -> Option<&Server> {
        self.list.servers.iter().find(|s| s.cluster == self.cluster && s.role == role && s.ordinal == ordinal)
    }

    /// Whether `ZooKeeper`'s configuration names the server of an ordinal as a voter, by its id or its name; `None` if
    /// that is not known.
    fn votes(&self, ordinal: i32, id: Option<i32>) -> Option<bool> {
        let quorum = self.quorum?;
        let split = |host: &str| host.split_once('.').map(|(pod, domain)| (pod.to_owned(), domain.to_owned()));
        let own = self.list.servers.iter().find(|s| s.cluster == self.cluster).and_then(|s| split(&s.host));
        let pod = format!("{}-{ordinal}", self.set);
        let elsewhere = |id: i32| self.list.servers.iter().any(|s| s.id == id && s.cluster != self.cluster);
        Some(quorum.configuration.servers.iter().filter(|s| s.role == Role::Voter).any(|voter| {
            let named = split(&voter.host).is_some_and(|(name, domain)| {
                name == pod && own.as_ref().is_none_or(|(_, own)| *own == domain) && !elsewhere(voter.id)
            });
            Some(voter.id) == id || named
        }))
    }

    /// How many voters there are to be: none below an ordinal that `ZooKeeper`'s configuration names or may name, and none
    /// that no list names.
    pub fn keep(&self, wanted: i32, live: i32, id_of: impl Fn(i32) -> Option<i32>) -> ReplicaFloor {
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
            let kept = ReplicaFloor { replicas: ordinal + 1, blocked: None, waits: None };
            match self.votes(ordinal, id) {
                Some(false) => {}
                Some(true) if listed.is_some() => {
                    return ReplicaFloor {
                        blocked: Some(format!(
                            "server {name} is still a voter of the ensemble and of the list: it is not stopped"
                        )),
                        ..kept
                    };
                }
                Some(true) => {
                    return ReplicaFloor {
                        waits: Some(format!("server {name} is to leave the ensemble first")),
                        ..kept
                    };
                }
                None => {
                    let why = format!("no quorum is seen: server {name} may still be a voter, and is not stopped");
                    return ReplicaFloor { blocked: Some(why), ..kept };
                }
            }
        }
        ReplicaFloor { replicas: wanted, blocked: None, waits: None }
    }

    /// How many servers of a role there are to be, when there are to be more: a server that no list names has no id.
    #[must_use]
    pub fn raise(&self, role: Role, wanted: i32, live: i32) -> ReplicaFloor {
        if self.list.phase.is_ending() {
            return ReplicaFloor::default();
        }
        let unnamed = (live..wanted).find(|ordinal| self.listed(role, *ordinal).is_none());
        ReplicaFloor {
            replicas: unnamed.unwrap_or(wanted),
            blocked: None,
            waits: unnamed.map(|ordinal| format!("the list of servers does not name {}-{ordinal} yet", self.set)),
        }
    }
}

/// Karmada's name of this cluster: what was stored, else what the agent was told, else what Karmada wrote.
#[must_use]
pub fn cluster_name<'a>(annotation: impl Fn(&str) -> Option<&'a str>, flag: Option<&'a str>) -> Option<&'a str> {
    annotation(CLUSTER_ANNOTATION)
        .or(flag)
        .or_else(|| annotation(WORK_NAMESPACE)?.strip_prefix("karmada-es-").filter(|name| !name.is_empty()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::zookeeper::EnsemblePhase;
    use crate::contract::{
        control_api::{Configuration, ConfiguredServer},
        server_list::with_hash,
    };
    use crate::rollout::cluster_spec;

    fn list(epoch: i64, ids: &[i32]) -> Ensemble {
        let servers = ids.iter().map(|id| Server {
            id: *id,
            cluster: if *id < 10 { "m1".into() } else { "m2".into() },
            ordinal: (id - 1) % 10,
            host: format!("zk-abc-{}.{}", (id - 1) % 10, if *id < 10 { "m1" } else { "m2" }),
            role: Role::Voter,
        });
        let servers = servers.collect();
        with_hash(Ensemble { incarnation: Some("abc".into()), epoch: Some(epoch), servers, ..Ensemble::default() })
            .unwrap()
    }

    fn pinned() -> ZooKeeperSpec {
        let template: ZooKeeperSpec = serde_json::from_value(json!({
            "replicas": 3, "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r",
            "template": { "image": "zk", "storage": { "size": "1Gi" } }, "ensemble": {}
        }))
        .unwrap();
        ZooKeeperSpec {
            ensemble: list(1, &[1, 2, 11]),
            ..cluster_spec::for_cluster(&template, "m1", 2, None, 0).unwrap()
        }
    }

    fn judged(spec: &ZooKeeperSpec, cluster: Option<&str>, managed: bool, observed: Option<&str>) -> Acceptance {
        let stored = serde_json::to_value(spec).unwrap();
        obey(Told { spec, stored: &stored, cluster, managed, observed_spec_hash: observed })
    }

    #[test]
    fn a_whole_spec_for_this_cluster_is_obeyed() {
        assert_eq!(judged(&pinned(), Some("m1"), true, None), Acceptance::Yes);
    }

    #[rstest]
    #[case::another_cluster(|s: &mut ZooKeeperSpec| s.cluster = Some("m2".into()), "meant for cluster m2")]
    #[case::changed(|s: &mut ZooKeeperSpec| s.replicas = 1, "did not arrive whole: its pin")]
    #[case::newer(|s: &mut ZooKeeperSpec| { s.render_version = 9; *s = ZooKeeperSpec { ensemble: s.ensemble.clone(), ..cluster_spec::for_cluster(s, "m1", 2, None, 0).unwrap() }; }, "renderVersion 9 is not known to this agent, which knows 1, 2: upgrade the agent")]
    #[case::older_than_any(|s: &mut ZooKeeperSpec| { s.render_version = 0; *s = ZooKeeperSpec { ensemble: s.ensemble.clone(), ..cluster_spec::for_cluster(s, "m1", 2, None, 0).unwrap() }; }, "upgrade the operator")]
    #[case::list_changed(|s: &mut ZooKeeperSpec| s.ensemble.epoch = Some(9), "list of servers did not arrive whole")]
    #[case::list_empty(|s: &mut ZooKeeperSpec| s.ensemble = with_hash(Ensemble { servers: vec![], ..s.ensemble.clone() }).unwrap(), "did not arrive whole")]
    fn anything_else_is_refused(#[case] change: fn(&mut ZooKeeperSpec), #[case] why: &str) {
        let mut spec = pinned();
        change(&mut spec);
        let Acceptance::Refused(told) = judged(&spec, Some("m1"), true, None) else { panic!("obeyed") };
        assert!(told.contains(why), "{told}");
    }

    #[rstest]
    #[case::pin(|s: &mut ZooKeeperSpec| s.spec_hash = None)]
    #[case::cluster(|s: &mut ZooKeeperSpec| s.cluster = None)]
    #[case::list(|s: &mut ZooKeeperSpec| s.ensemble = Ensemble::default())]
    fn what_is_missing_holds(#[case] change: fn(&mut ZooKeeperSpec)) {
        let mut spec = pinned();
        change(&mut spec);
        assert_eq!(judged(&spec, Some("m1"), true, None), Acceptance::Held);
    }

    #[test]
    fn without_karmada_only_what_was_obeyed_before_counts() {
        let spec = pinned();
        assert!(matches!(judged(&spec, Some("m1"), false, None), Acceptance::Refused(_)));
        assert_eq!(judged(&spec, Some("m1"), false, spec.spec_hash.as_deref()), Acceptance::Yes);
        let mut by_hand = pinned();
        by_hand.ensemble = Ensemble::default();
        by_hand.spec_hash = None;
        assert!(matches!(judged(&by_hand, None, false, None), Acceptance::Refused(_)));
        assert!(matches!(judged(&spec, None, true, None), Acceptance::Refused(_)));
    }

    #[test]
    fn the_newer_list_of_the_same_life_counts() {
        let (old, new) = (list(1, &[1]), list(2, &[1, 2]));
        assert_eq!(newest([&old, &new], &[]), Some(&new));
        assert_eq!(newest([&new, &old], &[]), Some(&new));
        let other = with_hash(Ensemble { incarnation: Some("def".into()), epoch: Some(9), ..list(9, &[1]) }).unwrap();
        assert_eq!(newest([&old, &other], &[]), Some(&old));
        assert_eq!(newest(None, &[]), None);
    }

    fn quorum(ids: &[i32]) -> Quorum {
        let host = |id: i32| format!("zk-abc-{}.{}", (id - 1) % 10, if id < 10 { "m1" } else { "m2" });
        let servers = ids.iter().map(|id| ConfiguredServer { id: *id, host: host(*id), role: Role::Voter }).collect();
        Quorum { configuration: Configuration { version: 1, servers }, ..Quorum::default() }
    }

    #[rstest]
    #[case::nothing_changes(2, 2, &[1, 2, 11], Some(&[1, 2, 11][..]), (2, false, false))]
    #[case::still_listed_and_votes(1, 2, &[1, 2, 11], Some(&[1, 2, 11][..]), (2, true, false))]
    #[case::votes_no_more_listed(1, 2, &[1, 11], Some(&[1, 2, 11][..]), (2, false, true))]
    #[case::left(1, 2, &[1, 11], Some(&[1, 11][..]), (1, false, false))]
    #[case::not_known(1, 2, &[1, 11], None, (2, true, false))]
    #[case::the_highest_left_but_not_the_one_below(0, 2, &[1, 11], Some(&[1, 11][..]), (1, true, false))]
    #[case::more(2, 0, &[1, 2, 11], None, (2, false, false))]
    #[case::more_than_listed(3, 1, &[1, 2, 11], None, (2, false, true))]
    #[case::all_gone(0, 2, &[11, 12], Some(&[11, 12][..]), (0, false, false))]
    fn replicas(
        #[case] wanted: i32,
        #[case] live: i32,
        #[case] listed: &[i32],
        #[case] voting: Option<&[i32]>,
        #[case] expected: (i32, bool, bool),
    ) {
        let (list, quorum) = (list(2, listed), voting.map(quorum));
        let voters = Voters { cluster: "m1", set: "zk-abc", list: &list, quorum: quorum.as_ref() };
        let kept = voters.keep(wanted, live, |_| None);
        assert_eq!((kept.replicas, kept.blocked.is_some(), kept.waits.is_some()), expected, "{kept:?}");
    }

    #[test]
    fn the_end_stops_everything() {
        let list = Ensemble { phase: EnsemblePhase::Decommissioning, ..list(2, &[1, 2]) };
        let quorum = quorum(&[1, 2]);
        let voters = Voters { cluster: "m1", set: "zk-abc", list: &list, quorum: Some(&quorum) };
        assert_eq!(voters.keep(2, 2, |_| None), ReplicaFloor::default());
    }

    #[rstest]
    #[case(Some("a"), Some("b"), Some("karmada-es-c"), Some("a"))]
    #[case(None, Some("b"), Some("karmada-es-c"), Some("b"))]
    #[case(None, None, Some("karmada-es-c"), Some("c"))]
    #[case(None, None, Some("other"), None)]
    #[case(None, None, None, None)]
    fn names(
        #[case] stored: Option<&'static str>,
        #[case] flag: Option<&'static str>,
        #[case] work: Option<&'static str>,
        #[case] expected: Option<&str>,
    ) {
        let annotation = |key: &str| if key == CLUSTER_ANNOTATION { stored } else { work };
        assert_eq!(cluster_name(annotation, flag), expected);
    }
}

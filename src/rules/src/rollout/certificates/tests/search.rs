//! A search over every state of a replacement: server lists arrive late or never, servers load certificates in any order,
//! reports are stale, the operator observes an older set of Secrets or crashes after any write, and a user deletes Secrets.
//! In each state all servers and agents accept each other, and each state leads to the end of the replacement.

use mczk_api::mutation::Mutation;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Cluster {
    /// Certificates in the server list of its agent.
    list: Names,
    /// Certificates that its server has loaded.
    server: Names,
    /// Certificates in its last report; `None` while the server has not loaded the listed ones.
    report: Option<Names>,
}

/// [`EnsembleTls`] by number, so that it has a hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Names {
    identity: u32,
    trust: Vec<u32>,
}

impl Names {
    fn of(tls: &EnsembleTls) -> Self {
        Self { identity: number(&tls.identity).unwrap(), trust: tls.trust.iter().filter_map(|n| number(n)).collect() }
    }

    fn tls(&self) -> EnsembleTls {
        super::tls(self.identity, &self.trust)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    used: Names,
    /// Kind, number, authority, and the request that it answers.
    secrets: BTreeSet<(u8, u32, u32, Option<&'static str>)>,
    /// The Secrets before the newest one, which the operator may still observe.
    older: BTreeSet<(u8, u32, u32, Option<&'static str>)>,
    requested: Option<&'static str>,
    deletions: u8,
    clusters: Vec<Cluster>,
    /// Every identity that ever existed, with its authority.
    signed: Vec<(u32, u32)>,
}

const KINDS: [Holds; 3] = [Holds::Authority, Holds::Trust, Holds::Identity];
/// Far above the number of states.
const MOST_STATES: usize = 50_000;
const REQUEST: &str = "now";

fn kind(holds: Holds) -> u8 {
    u8::try_from(KINDS.iter().position(|k| *k == holds).unwrap()).unwrap()
}

impl State {
    fn new() -> Self {
        let used = Names { identity: 1, trust: vec![1] };
        let cluster = Cluster { list: used.clone(), server: used.clone(), report: Some(used.clone()) };
        let secrets: BTreeSet<_> = (0..3).map(|kind| (kind, 1, 1, None)).collect();
        Self {
            clusters: vec![cluster; 3],
            used,
            older: secrets.clone(),
            secrets,
            requested: None,
            deletions: 0,
            signed: vec![(1, 1)],
        }
    }

    fn signer(&self, identity: u32) -> u32 {
        self.signed.iter().find(|(i, _)| *i == identity).unwrap().1
    }

    /// True if all servers and agents accept each other.
    fn is_sound(&self) -> bool {
        let all: Vec<&Names> = self.clusters.iter().flat_map(|cluster| [&cluster.server, &cluster.list]).collect();
        all.iter().all(|a| all.iter().all(|b| b.trust.contains(&self.signer(a.identity))))
    }

    fn authorities(&self) -> usize {
        self.signed.iter().map(|(_, by)| by).chain(self.made().iter()).collect::<BTreeSet<_>>().len()
    }

    fn made(&self) -> Vec<u32> {
        self.secrets.iter().filter(|s| s.0 == 0).map(|s| s.1).collect()
    }

    fn decision(&self, older: bool) -> Decision {
        let secrets = if older { &self.older } else { &self.secrets };
        let observed: Vec<Certificate> = secrets
            .iter()
            .map(|(kind, number, authority, requested)| Certificate {
                authority: *authority,
                requested: requested.map(str::to_owned),
                ..have(KINDS[usize::from(*kind)], *number, 3650)
            })
            .collect();
        let report = |cluster: &Cluster| cluster.report.as_ref().map(Names::tls);
        let loaded = self.clusters.iter().enumerate().map(|(n, cluster)| (format!("m{n}"), report(cluster)));
        let (used, loaded) = (self.used.tls(), loaded.collect());
        let inputs = CertificateInputs {
            adopted: false,
            ensemble: "zk",
            incarnation: "abc",
            used: Some(&used),
            observed: &observed,
            requested: self.requested,
            formed: true,
            loaded: &loaded,
        };
        decide(&inputs, day(1))
    }

    /// The states after each single write of a reconcile: a crash may follow it.
    fn reconciles(&self, older: bool) -> Vec<Self> {
        let decision = self.decision(older);
        let mut after = Vec::new();
        if let Some(make) = decision.make {
            let mut next = self.clone();
            let by = make.authority.as_ref().map_or(make.number, |(number, _)| *number);
            let requested = make.requested.is_some().then_some(REQUEST);
            let secret = (kind(make.holds), make.number, by, requested);
            let exists = self.secrets.iter().any(|s| (s.0, s.1) == (secret.0, secret.1));
            // The shell lists the Secrets again before it creates one with a new number, and needs the signer's key.
            let refused = make.holds != Holds::Trust && self.older != self.secrets && older;
            let signs = make.holds == Holds::Authority || self.secrets.iter().any(|s| (s.0, s.1) == (0, by));
            if !exists && !refused && signs {
                next.older = self.secrets.clone();
                next.secrets.insert(secret);
                if make.holds == Holds::Identity {
                    // An identity that was deleted before any server list named it may be created again.
                    let all = self.clusters.iter().flat_map(|c| [&c.list, &c.server]).chain([&self.used]);
                    assert!(all.into_iter().all(|names| names.identity != make.number), "one name, two contents");
                    next.signed.retain(|(i, _)| *i != make.number);
                    next.signed.push((make.number, by));
                }
                after.push(next);
            }
        }
        if let Some(tls) = decision.tls {
            let used = Names::of(&tls);
            if used != self.used {
                after.push(Self { used, ..self.clone() });
            }
        }
        after
    }

    fn next(&self, deletes: bool) -> Vec<Self> {
        let mut after = self.reconciles(false);
        if !deletes {
            after.extend(self.reconciles(true));
        }
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            after.push(next);
        };
        for c in 0..self.clusters.len() {
            add(&|s| s.clusters[c].list = s.used.clone());
            add(&|s| s.clusters[c].server = s.clusters[c].list.clone());
            add(&|s| s.clusters[c].report());
        }
        if self.requested.is_none() {
            add(&|s| s.requested = Some(REQUEST));
        }
        if deletes && self.deletions == 0 {
            for secret in &self.secrets {
                add(&|s| {
                    s.secrets.remove(secret);
                    s.deletions += 1;
                });
            }
        }
        for next in &mut after {
            // Clusters are interchangeable.
            next.clusters.sort();
            if deletes {
                next.older = next.secrets.clone();
            }
        }
        after
    }

    /// The state that follows without further faults; `None` if there is no final one.
    fn settle(mut self) -> Option<Self> {
        for _ in 0..60 {
            let before = self.clone();
            for cluster in &mut self.clusters {
                cluster.list = self.used.clone();
                cluster.server = self.used.clone();
                cluster.report();
            }
            if let Some(next) = self.reconciles(false).pop() {
                self = next;
            } else if self == before {
                return Some(self);
            }
        }
        None
    }
}

impl Cluster {
    fn report(&mut self) {
        self.report = (self.server == self.list).then(|| self.list.clone());
    }
}

/// The first violation of the rule, and the number of visited states.
fn search(deletes: bool) -> (Option<String>, usize) {
    let first = State::new();
    let (mut visited, mut ends) = (HashSet::from([first.clone()]), HashMap::new());
    let mut queue = vec![first];
    while let Some(state) = queue.pop() {
        assert!(visited.len() < MOST_STATES, "the search is too large: {state:?}");
        if !state.is_sound() {
            return (Some(format!("servers do not accept each other: {state:?}")), visited.len());
        }
        // The final state does not depend on the state of the servers, so few states have to be followed.
        let key = (state.used.clone(), state.secrets.clone(), state.requested, state.signed.clone());
        let end = ends.entry(key).or_insert_with(|| state.clone().settle());
        let Some(end) = end else { return (Some(format!("it does not settle: {state:?}")), visited.len()) };
        let requests = usize::from(state.requested.is_some());
        if end.authorities() > 1 + requests + usize::from(state.deletions) {
            return (Some(format!("too many authorities: {end:?}")), visited.len());
        }
        let current = end.signer(end.used.identity);
        let answered = |s: &(u8, u32, u32, Option<&str>)| (s.0, s.1, s.3) == (0, current, state.requested);
        let done = state.requested.is_none() || state.deletions > 0 || end.secrets.iter().any(answered);
        if !done || end.used.trust.iter().any(|n| *n < current) {
            return (Some(format!("it stops half-way: {end:?}")), visited.len());
        }
        for next in state.next(deletes) {
            if visited.insert(next.clone()) {
                queue.push(next);
            }
        }
    }
    (None, visited.len())
}

#[test]
#[allow(clippy::disallowed_methods)]
fn servers_never_reject_each_other() {
    for deletes in [false, true] {
        let began = std::time::Instant::now();
        let (fault, states) = search(deletes);
        println!("deletes {deletes}: {states} states in {:.1} s", began.elapsed().as_secs_f64());
        assert_eq!(fault, None);
        assert!(states > 100, "{states}");
    }
}

#[test]
fn the_search_finds_every_mutation() {
    for mutation in Mutation::CERTIFICATES {
        let _active = mutation.activate();
        let found = [false, true].into_iter().find_map(|deletes| search(deletes).0);
        println!("{mutation:?}: {}", found.as_deref().unwrap_or("survives"));
        assert!(found.is_some(), "{mutation:?} survives");
    }
}

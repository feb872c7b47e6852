//! Every state that the replacement of an authority can get into: lists that reach clusters late or never, servers that load
//! what they are given in any order, reports that are old, passes that see an older list of
//! Secrets or crash after any write, and Secrets that somebody deletes. In each of them all servers and agents accept each
//! other, and from each of them all comes to an end.

use crate::mutation::Mutation;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::*;

/// What one server or agent shows and trusts.
type Shown = EnsembleTls;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Cluster {
    /// The list that its agent holds.
    list: Names,
    /// What its server has loaded.
    server: Names,
    /// What it reported last; nothing while not all have loaded what they should.
    report: Option<Names>,
}

/// [`EnsembleTls`] by numbers, which has a hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Names {
    identity: u32,
    trust: Vec<u32>,
}

impl Names {
    fn of(tls: &Shown) -> Self {
        Self { identity: number(&tls.identity).unwrap(), trust: tls.trust.iter().filter_map(|n| number(n)).collect() }
    }

    fn tls(&self) -> Shown {
        super::tls(self.identity, &self.trust)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    used: Names,
    /// Holds, number, authority, and what was asked for.
    secrets: BTreeSet<(u8, u32, u32, Option<&'static str>)>,
    /// What a pass may see instead, as of before the newest Secret was made.
    older: BTreeSet<(u8, u32, u32, Option<&'static str>)>,
    asked: Option<&'static str>,
    deletions: u8,
    clusters: Vec<Cluster>,
    /// Which authority signed which identity, for ever.
    signed: Vec<(u32, u32)>,
}

const KINDS: [Holds; 3] = [Holds::Authority, Holds::Trust, Holds::Identity];
/// Far more than there are.
const MOST_STATES: usize = 50_000;
const ASK: &str = "now";

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
            asked: None,
            deletions: 0,
            signed: vec![(1, 1)],
        }
    }

    fn signer(&self, identity: u32) -> u32 {
        self.signed.iter().find(|(i, _)| *i == identity).unwrap().1
    }

    /// Whether all servers and agents accept each other.
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
        let seen: Vec<Certificate> = secrets
            .iter()
            .map(|(kind, number, authority, asked)| Certificate {
                authority: *authority,
                asked: asked.map(str::to_owned),
                ..have(KINDS[usize::from(*kind)], *number, 3650)
            })
            .collect();
        let told = |cluster: &Cluster| cluster.report.as_ref().map(Names::tls);
        let loaded = self.clusters.iter().enumerate().map(|(n, cluster)| (format!("m{n}"), told(cluster)));
        let (used, loaded) = (self.used.tls(), loaded.collect());
        let situation = Situation {
            ensemble: "zk",
            incarnation: "abc",
            used: Some(&used),
            seen: &seen,
            asked: self.asked,
            formed: true,
            loaded: &loaded,
        };
        decide(&situation, day(1))
    }

    /// One write of a pass of the operator; what is left undone is a crash.
    fn passes(&self, older: bool) -> Vec<Self> {
        let decision = self.decision(older);
        let mut after = Vec::new();
        if let Some(make) = decision.make {
            let mut next = self.clone();
            let by = make.authority.as_ref().map_or(make.number, |(number, _)| *number);
            let asked = make.asked.is_some().then_some(ASK);
            let secret = (kind(make.holds), make.number, by, asked);
            let taken = self.secrets.iter().any(|s| (s.0, s.1) == (secret.0, secret.1));
            // What has a new number is made by the newest list only, and nothing without the key of what signs.
            let refused = make.holds != Holds::Trust && self.older != self.secrets && older;
            let signs = make.holds == Holds::Authority || self.secrets.iter().any(|s| (s.0, s.1) == (0, by));
            if !taken && !refused && signs {
                next.older = self.secrets.clone();
                next.secrets.insert(secret);
                if make.holds == Holds::Identity {
                    // One that was made and deleted before any list named it may be made anew.
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
        let mut after = self.passes(false);
        if !deletes {
            after.extend(self.passes(true));
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
        if self.asked.is_none() {
            add(&|s| s.asked = Some(ASK));
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
            // Which cluster is which does not matter.
            next.clusters.sort();
            if deletes {
                next.older = next.secrets.clone();
            }
        }
        after
    }

    /// What comes when nothing goes wrong any more.
    fn settle(mut self) -> Option<Self> {
        for _ in 0..60 {
            let before = self.clone();
            for cluster in &mut self.clusters {
                cluster.list = self.used.clone();
                cluster.server = self.used.clone();
                cluster.report();
            }
            if let Some(next) = self.passes(false).pop() {
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

/// What is wrong with the rule, if anything, and how many states were looked at.
fn search(deletes: bool) -> (Option<String>, usize) {
    let first = State::new();
    let (mut seen, mut ends) = (HashSet::from([first.clone()]), HashMap::new());
    let mut queue = vec![first];
    while let Some(state) = queue.pop() {
        assert!(seen.len() < MOST_STATES, "the search is too large: {state:?}");
        if !state.is_sound() {
            return (Some(format!("they do not accept each other: {state:?}")), seen.len());
        }
        // Where the servers are does not matter for that, so that few have to be followed.
        let key = (state.used.clone(), state.secrets.clone(), state.asked, state.signed.clone());
        let end = ends.entry(key).or_insert_with(|| state.clone().settle());
        let Some(end) = end else { return (Some(format!("it does not end: {state:?}")), seen.len()) };
        let asks = usize::from(state.asked.is_some());
        if end.authorities() > 1 + asks + usize::from(state.deletions) {
            return (Some(format!("too many authorities: {end:?}")), seen.len());
        }
        let current = end.signer(end.used.identity);
        let answered = |s: &(u8, u32, u32, Option<&str>)| (s.0, s.1, s.3) == (0, current, state.asked);
        let done = state.asked.is_none() || state.deletions > 0 || end.secrets.iter().any(answered);
        if !done || end.used.trust.iter().any(|n| *n < current) {
            return (Some(format!("it stops half way: {end:?}")), seen.len());
        }
        for next in state.next(deletes) {
            if seen.insert(next.clone()) {
                queue.push(next);
            }
        }
    }
    (None, seen.len())
}

#[test]
fn at_no_moment_two_servers_reject_each_other() {
    for deletes in [false, true] {
        let began = std::time::Instant::now();
        let (fault, states) = search(deletes);
        println!("deletes {deletes}: {states} states in {:.1} s", began.elapsed().as_secs_f64());
        assert_eq!(fault, None);
        assert!(states > 100, "{states}");
    }
}

#[test]
fn every_broken_rule_is_found() {
    for mutation in Mutation::CERTIFICATES {
        let _active = mutation.activate();
        let found = [false, true].into_iter().find_map(|deletes| search(deletes).0);
        println!("{mutation:?}: {}", found.as_deref().unwrap_or("survives"));
        assert!(found.is_some(), "{mutation:?} survives");
    }
}

//! The quorum's certificates: which Secrets hold them, which of these are in use, and which is to be made next.
//!
//! Every life of an ensemble has an authority of its own, whose key never leaves the control plane; one identity under it
//! serves all servers and agents of that life, and a Secret with the authority's certificate alone tells whom to trust. So no
//! server of a former life is ever let in (S10). Secrets never change: a renewal is another one, by number.
//!
//! An authority is replaced in three steps, by three lists: all trust the former and the new one, then all show an identity
//! under the new one, then all trust the new one only. A step is taken when every cluster that may have servers reports that
//! all of them have loaded the step before. So at any moment each server trusts the authority of each other's identity.

mod replacement;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use crate::{
    api::{
        MultiClusterZooKeeper,
        multiclusterzookeeper::EnsembleStatus,
        tls::EnsembleTls,
        zookeeper::{Dependency, DependencyKind, Ensemble, ZooKeeperSpec},
    },
    contract::{
        certificate_names::{Holds, numbered, secret_name},
        conditions::Reason,
        labels::{CERTIFICATE, INCARNATION_LABEL, NOT_AFTER, REPLACE_AUTHORITY},
    },
    mutation::broken,
    rollout::{blocker::Blocker, objects, report::ClusterReport},
};

/// For how long an authority is valid. It is replaced when a third of this is left.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// For how long an identity is valid. It is renewed when a third of this is left.
pub const IDENTITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// A Secret with a certificate, without its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate {
    /// The life of the ensemble that it is for.
    pub incarnation: String,
    /// What it holds.
    pub holds: Holds,
    /// Which in a row.
    pub number: u32,
    /// The authority's own number, or that of the one that it comes from.
    pub authority: u32,
    /// The Secret's name.
    pub name: String,
    /// When it ends.
    pub not_after: Timestamp,
    /// Of an authority: what a person had asked for by [`REPLACE_AUTHORITY`] when it was made.
    pub asked: Option<String>,
}

impl Certificate {
    /// What a Secret says of itself, if it is this object's.
    #[must_use]
    pub fn read(meta: &ObjectMeta, object: &MultiClusterZooKeeper) -> Option<Self> {
        if !objects::is_ours(meta, object) || meta.deletion_timestamp.is_some() {
            return None;
        }
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key));
        let mut parts = annotation(CERTIFICATE)?.split('/');
        let (word, number) = (parts.next()?, parts.next()?.parse().ok()?);
        let all = [Holds::Authority, Holds::Trust, Holds::Identity];
        let holds = all.into_iter().find(|holds| holds.word() == word)?;
        let authority = match (parts.next(), holds) {
            (Some(authority), _) => authority.parse().ok()?,
            // There was only one when this was not written yet.
            (None, Holds::Identity) => 1,
            (None, _) => number,
        };
        Some(Self {
            incarnation: meta.labels.as_ref()?.get(INCARNATION_LABEL)?.clone(),
            holds,
            number,
            authority,
            name: meta.name.clone()?,
            not_after: annotation(NOT_AFTER)?.parse().ok()?,
            asked: annotation(REPLACE_AUTHORITY).cloned(),
        })
    }
}

/// A Secret that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// The life of the ensemble.
    pub incarnation: String,
    /// What it shall hold.
    pub holds: Holds,
    /// Which in a row.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The authority that it comes from, by number and Secret; none of an authority itself.
    pub authority: Option<(u32, String)>,
    /// Of an authority: what a person asks for by [`REPLACE_AUTHORITY`].
    pub asked: Option<String>,
}

impl Make {
    /// The annotations by which it is known again.
    #[must_use]
    pub fn annotations(&self, not_after: Timestamp) -> BTreeMap<String, String> {
        let under = self.authority.as_ref().map_or(self.number, |(number, _)| *number);
        let kind = format!("{}/{}/{under}", self.holds.word(), self.number);
        let own = [(CERTIFICATE, kind), (NOT_AFTER, not_after.to_string())];
        let asked = self.asked.iter().map(|asked| (REPLACE_AUTHORITY, asked.clone()));
        own.into_iter().chain(asked).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What is seen of it once it is made.
    #[must_use]
    pub fn made(&self, not_after: Timestamp) -> Certificate {
        Certificate {
            incarnation: self.incarnation.clone(),
            holds: self.holds,
            number: self.number,
            authority: self.authority.as_ref().map_or(self.number, |(number, _)| *number),
            name: self.name.clone(),
            not_after,
            asked: self.asked.clone(),
        }
    }
}

fn number(name: &str) -> Option<u32> {
    Some(numbered(name)?.1)
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Name of the MultiClusterZooKeeper.
    pub ensemble: &'a str,
    /// The ensemble's life.
    pub incarnation: &'a str,
    /// What the newest list names.
    pub used: Option<&'a EnsembleTls>,
    /// The Secrets that there are.
    pub seen: &'a [Certificate],
    /// What a person asks for by [`REPLACE_AUTHORITY`].
    pub asked: Option<&'a str>,
    /// Whether a quorum ever formed: before, no authority is replaced.
    pub formed: bool,
    /// Every cluster that may have servers, with what all of them have loaded as it reports; nothing, if it cannot be asked.
    pub loaded: &'a BTreeMap<String, Option<EnsembleTls>>,
}

/// What is to be used and what is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What servers shall use, if all of it is there.
    pub tls: Option<EnsembleTls>,
    /// What is to be made next.
    pub make: Option<Make>,
    /// How far the replacement of the authority is, while there is one.
    pub replacing: Option<Blocker>,
}

/// Decides.
#[must_use]
pub fn decide(situation: &Situation<'_>, now: Timestamp) -> Decision {
    let known = Known::new(situation, now);
    let Some(used) = &known.used else {
        return Decision { make: known.first(), ..Decision::default() };
    };
    let (identity, mut make) = known.kept(used);
    let mut wanted = Wanted { identity: identity.cloned(), trust: used.trust.clone() };
    let mut replacing = None;
    if situation.used.is_some() {
        let step = known.replace(used);
        make = make.or(step.make);
        if let Some(identity) = step.identity {
            wanted.identity = Some(identity);
        }
        wanted.trust = step.trust.unwrap_or(wanted.trust);
        replacing = step.replacing;
    }
    Decision { tls: known.named(&wanted), make, replacing }
}

/// What is known of the certificates of one life.
struct Known<'a> {
    situation: &'a Situation<'a>,
    seen: Vec<&'a Certificate>,
    used: Option<Used>,
    now: Timestamp,
}

/// What is used, by numbers.
struct Used {
    identity: u32,
    /// The authority of the identity.
    authority: u32,
    trust: BTreeSet<u32>,
}

/// What shall be used.
struct Wanted {
    identity: Option<Certificate>,
    trust: BTreeSet<u32>,
}

impl<'a> Known<'a> {
    fn new(situation: &'a Situation<'a>, now: Timestamp) -> Self {
        let seen: Vec<_> = situation.seen.iter().filter(|c| c.incarnation == situation.incarnation).collect();
        let mut known = Self { situation, seen, used: None, now };
        known.used = match situation.used {
            Some(tls) => known.read(tls),
            // What was made before anything was used.
            None => known.of(Holds::Identity).max_by_key(|c| c.number).map(|c| Used {
                identity: c.number,
                authority: c.authority,
                trust: BTreeSet::from([c.authority]),
            }),
        };
        known
    }

    fn read(&self, tls: &EnsembleTls) -> Option<Used> {
        let identity = number(&tls.identity)?;
        let trust: BTreeSet<u32> = tls.trust.iter().filter_map(|name| number(name)).collect();
        let told = self.of(Holds::Identity).find(|c| c.number == identity).map(|c| c.authority);
        // Of several the oldest was trusted all the time that they were.
        let oldest = if broken!(LostIdentityUnderTheNewest) { trust.last() } else { trust.first() }.copied()?;
        Some(Used { identity, authority: told.filter(|told| trust.contains(told)).unwrap_or(oldest), trust })
    }

    fn of(&self, holds: Holds) -> impl Iterator<Item = &'a Certificate> {
        self.seen.iter().copied().filter(move |c| c.holds == holds)
    }

    /// An authority that can sign.
    fn key(&self, number: u32) -> Option<&'a Certificate> {
        self.of(Holds::Authority).find(|c| c.number == number && c.not_after > self.now)
    }

    fn has_trust(&self, number: u32) -> bool {
        self.of(Holds::Trust).any(|c| c.number == number)
    }

    /// The newest identity under an authority. What is seen may be older than what is used: back to a former one it never goes.
    fn identity(&self, authority: u32, used: &Used) -> Option<&'a Certificate> {
        self.of(Holds::Identity)
            .filter(|c| c.authority == authority && c.number >= used.identity)
            .max_by_key(|c| c.number)
    }

    fn name(&self, holds: Holds, number: u32) -> String {
        secret_name(self.situation.ensemble, self.situation.incarnation, holds, number)
    }

    fn make(&self, holds: Holds, number: u32, authority: Option<&Certificate>) -> Make {
        Make {
            incarnation: self.situation.incarnation.to_owned(),
            holds,
            number,
            name: self.name(holds, number),
            authority: authority.map(|a| (a.number, a.name.clone())),
            asked: self.situation.asked.filter(|_| holds == Holds::Authority).map(str::to_owned),
        }
    }

    /// A name is never used for another content, also when somebody deleted the Secret.
    fn next_identity(&self) -> u32 {
        let used = self.used.as_ref().map(|used| used.identity);
        self.of(Holds::Identity).map(|c| c.number).max().max(used).map_or(1, |n| n.saturating_add(1))
    }

    fn make_authority(&self) -> Make {
        let trusted = self.used.as_ref().and_then(|used| used.trust.last().copied());
        let highest = self.seen.iter().map(|c| c.authority).max().max(trusted);
        self.make(Holds::Authority, highest.map_or(1, |n| n.saturating_add(1)), None)
    }

    /// What comes next while there is no identity and nothing is used.
    fn first(&self) -> Option<Make> {
        if self.situation.used.is_some() {
            // Names that are not ours.
            return None;
        }
        let authority = self.of(Holds::Authority).filter(|a| a.not_after > self.now).max_by_key(|a| a.number);
        Some(match authority {
            None if self.of(Holds::Trust).next().is_some() => return None,
            None => self.make_authority(),
            Some(from) if !self.has_trust(from.number) => self.make(Holds::Trust, from.number, Some(from)),
            Some(from) => self.make(Holds::Identity, 1, Some(from)),
        })
    }

    /// The identity under the authority that is used, and what is to be made of what got lost or ends.
    fn kept(&self, used: &Used) -> (Option<&'a Certificate>, Option<Make>) {
        let identity = self.identity(used.authority, used);
        let Some(from) = self.key(used.authority) else { return (identity, None) };
        let make = match identity {
            _ if !self.has_trust(from.number) => Some(self.make(Holds::Trust, from.number, Some(from))),
            None => Some(self.make(Holds::Identity, self.next_identity(), Some(from))),
            Some(old) => {
                let due = old.not_after.duration_since(self.now) < IDENTITY_LIFE / 3;
                // Never one that ends no later: it would be due at once.
                let longer = from.not_after > old.not_after;
                (due && longer).then(|| self.make(Holds::Identity, self.next_identity(), Some(from)))
            }
        };
        (identity, make)
    }

    /// By the names of Secrets, if all of them are there.
    fn named(&self, wanted: &Wanted) -> Option<EnsembleTls> {
        let identity = wanted.identity.as_ref()?.name.clone();
        let there = wanted.trust.iter().all(|n| self.has_trust(*n));
        let trust = || wanted.trust.iter().map(|n| self.name(Holds::Trust, *n)).collect();
        there.then(|| EnsembleTls { identity, trust: trust() })
    }
}

/// What is waited for while nothing can be used yet.
pub(super) fn being_made() -> Blocker {
    Blocker { reason: Reason::Certificates, message: "the certificates of the quorum are being made".to_owned() }
}

/// What the newest of all lists names that are known.
#[must_use]
pub fn newest<'a>(
    known: &'a Ensemble,
    reported: Option<&'a Ensemble>,
    told: Option<&'a EnsembleStatus>,
) -> Option<&'a EnsembleTls> {
    let told = told.and_then(|told| Some((told.epoch, told.tls.as_ref()?)));
    let lists =
        reported.into_iter().chain([known]).filter_map(|list| Some((list.epoch.unwrap_or(0), list.tls.as_ref()?)));
    told.into_iter().chain(lists).max_by_key(|(epoch, _)| *epoch).map(|(_, tls)| tls)
}

/// Every cluster that may have servers, with what all of them have loaded, as far as that may be believed (S8).
#[must_use]
pub fn loaded(
    lists: &[&Ensemble],
    cluster_specs: &BTreeMap<String, ZooKeeperSpec>,
    reports: &BTreeMap<String, ClusterReport>,
) -> BTreeMap<String, Option<EnsembleTls>> {
    let has_servers = |member: &&ClusterReport| {
        member.status.as_ref().is_some_and(|s| s.replicas.unwrap_or(0) > 0 || !s.servers.is_empty())
    };
    let listed = lists.iter().flat_map(|list| &list.servers).map(|server| &server.cluster);
    // Of a cluster that the schedule left Karmada forgets what it reports, while its servers may still be of the ensemble.
    let fresh = reports.values().filter(|member| member.fresh()).filter_map(|member| member.status.as_ref());
    let voting: BTreeSet<i32> = fresh.flat_map(|status| status.voting_members.iter().copied()).collect();
    let leaves = lists.iter().flat_map(|list| &list.leaving).filter(|server| voting.contains(&server.id));
    let leaves = leaves.map(|server| &server.cluster);
    let running = reports.values().filter(has_servers).map(|member| &member.cluster);
    let report = |cluster: &String| {
        let member = reports.get(cluster).filter(|member| member.fresh())?;
        member.status.as_ref()?.ensemble_tls.clone()
    };
    listed
        .chain(leaves)
        .chain(running)
        .chain(cluster_specs.keys())
        .map(|cluster| (cluster.clone(), report(cluster)))
        .collect()
}

/// The Secrets that must be in every cluster: those in use, and those that shall be.
#[must_use]
pub fn dependencies(used: Option<&EnsembleTls>, wanted: Option<&EnsembleTls>) -> Vec<Dependency> {
    let names = used.into_iter().chain(wanted).flat_map(EnsembleTls::secrets);
    names.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() }).collect()
}

/// Whether all that it names travels with the object.
#[must_use]
pub fn travels(tls: &EnsembleTls, dependencies: &[Dependency]) -> bool {
    tls.secrets().all(|name| dependencies.iter().any(|d| d.kind == DependencyKind::Secret && d.name == *name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

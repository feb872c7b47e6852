//! The quorum's certificates: which Secrets hold them, which of these are in use, and which is to be made next.
//!
//! Every life of an ensemble has an authority of its own, whose key never leaves the control plane; one identity under it
//! serves all servers and agents of that life, and a Secret with the authority's certificate alone tells whom to trust. So no
//! server of a former life is ever let in (S10). Secrets never change: a renewal is another one, by number.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use crate::{
    api::{
        MultiClusterZooKeeper,
        zookeeper::{Dependency, DependencyKind, EnsembleTls},
    },
    rollout::{
        objects::{self, INCARNATION_LABEL},
        outcome::Wait,
    },
};

/// Annotation of the Secrets: what they hold, and which in a row, as `identity/2`.
pub const CERTIFICATE: &str = "mczk.io/certificate";
/// Annotation of the Secrets: when their certificate ends, as RFC 3339.
pub const NOT_AFTER: &str = "mczk.io/not-after";
/// For how long an authority is valid.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// For how long an identity is valid. It is renewed when a third of this is left.
pub const IDENTITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// What a Secret holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holds {
    /// `ca.crt` and `ca.key`. It stays in the control plane.
    Authority,
    /// `ca.crt` alone.
    Trust,
    /// `tls.crt` and `tls.key`.
    Identity,
}

impl Holds {
    /// Its word in names and annotations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Trust => "trust",
            Self::Identity => "identity",
        }
    }
}

/// A Secret with a certificate, without its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate {
    /// The life of the ensemble that it is for.
    pub incarnation: String,
    /// What it holds.
    pub holds: Holds,
    /// Which in a row.
    pub number: u32,
    /// The Secret's name.
    pub name: String,
    /// When it ends.
    pub not_after: Timestamp,
}

impl Certificate {
    /// What a Secret says of itself, if it is this object's.
    #[must_use]
    pub fn read(meta: &ObjectMeta, object: &MultiClusterZooKeeper) -> Option<Self> {
        if !objects::is_ours(meta, object) || meta.deletion_timestamp.is_some() {
            return None;
        }
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key));
        let (word, number) = annotation(CERTIFICATE)?.split_once('/')?;
        let all = [Holds::Authority, Holds::Trust, Holds::Identity];
        Some(Self {
            incarnation: meta.labels.as_ref()?.get(INCARNATION_LABEL)?.clone(),
            holds: all.into_iter().find(|holds| holds.word() == word)?,
            number: number.parse().ok()?,
            name: meta.name.clone()?,
            not_after: annotation(NOT_AFTER)?.parse().ok()?,
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
    /// The Secret with the authority that it comes from; none of an authority itself.
    pub authority: Option<String>,
}

impl Make {
    /// What is seen of it once it is made.
    #[must_use]
    pub fn made(&self, not_after: Timestamp) -> Certificate {
        Certificate {
            incarnation: self.incarnation.clone(),
            holds: self.holds,
            number: self.number,
            name: self.name.clone(),
            not_after,
        }
    }
}

/// What is to be used and what is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What servers shall use, if all of it is there.
    pub tls: Option<EnsembleTls>,
    /// What is to be made next.
    pub make: Option<Make>,
}

/// Decides. `ensemble` is the name of the MultiClusterZooKeeper, `incarnation` the ensemble's life, `used` what the newest
/// list names.
#[must_use]
pub fn decide(
    ensemble: &str,
    incarnation: &str,
    used: Option<&EnsembleTls>,
    seen: &[Certificate],
    now: Timestamp,
) -> Decision {
    // A name is never used for another content, also when somebody deleted the Secret.
    let in_use = used.and_then(|tls| tls.identity.rsplit_once('-')?.1.parse().ok()).unwrap_or(0_u32);
    let newest = |holds: Holds| {
        // What is seen may be older than what is used: back to a former identity it never goes.
        let least = if holds == Holds::Identity { in_use } else { 0 };
        let own = seen.iter().filter(|c| c.incarnation == incarnation && c.holds == holds && c.number >= least);
        own.max_by_key(|c| c.number)
    };
    let make = |holds: Holds, number: u32, authority: Option<&Certificate>| Make {
        incarnation: incarnation.to_owned(),
        holds,
        number,
        name: format!("{ensemble}-{incarnation}-{}-{number}", holds.word()),
        authority: authority.map(|a| a.name.clone()),
    };
    let authority = newest(Holds::Authority);
    let (trust, identity) = (newest(Holds::Trust), newest(Holds::Identity));
    let make = match (authority.filter(|a| a.not_after > now), trust, identity) {
        // Another authority than the one that servers trust would have to be trusted by all of them first.
        (None, None, None) if used.is_none() => {
            Some(make(Holds::Authority, authority.map_or(1, |a| a.number.saturating_add(1)), None))
        }
        (None, ..) => None,
        (Some(from), None, _) => Some(make(Holds::Trust, from.number, Some(from))),
        (Some(from), Some(_), None) => Some(make(Holds::Identity, in_use.saturating_add(1), Some(from))),
        (Some(from), Some(_), Some(old)) => {
            let due = old.not_after.duration_since(now) < IDENTITY_LIFE / 3;
            // Never one that ends no later: it would be due at once.
            let longer = from.not_after > old.not_after;
            (due && longer).then(|| make(Holds::Identity, old.number.max(in_use).saturating_add(1), Some(from)))
        }
    };
    let tls = trust
        .zip(identity)
        .map(|(trust, identity)| EnsembleTls { identity: identity.name.clone(), trust: vec![trust.name.clone()] });
    Decision { tls, make }
}

/// What is waited for while nothing can be used yet.
pub(super) fn being_made() -> Wait {
    Wait { reason: "Certificates", message: "the certificates of the quorum are being made".to_owned() }
}

/// The Secrets that must be in every cluster: those in use, and those that shall be.
#[must_use]
pub fn dependencies(used: Option<&EnsembleTls>, wanted: Option<&EnsembleTls>) -> Vec<Dependency> {
    let names = used.into_iter().chain(wanted).flat_map(|tls| tls.trust.iter().chain([&tls.identity]));
    names.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() }).collect()
}

/// Whether all that it names travels with the object.
#[must_use]
pub fn travels(tls: &EnsembleTls, dependencies: &[Dependency]) -> bool {
    tls.trust
        .iter()
        .chain([&tls.identity])
        .all(|name| dependencies.iter().any(|d| d.kind == DependencyKind::Secret && d.name == *name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }

    fn have(holds: Holds, number: u32, until: i64) -> Certificate {
        let name = format!("zk-abc-{}-{number}", holds.word());
        Certificate { incarnation: "abc".into(), holds, number, name, not_after: day(until) }
    }

    #[rstest]
    #[case::nothing(&[], Some("zk-abc-authority-1"), false)]
    #[case::an_authority(&[have(Holds::Authority, 1, 3650)], Some("zk-abc-trust-1"), false)]
    #[case::an_authority_that_ended(&[have(Holds::Authority, 1, 0)], Some("zk-abc-authority-2"), false)]
    #[case::trust(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650)], Some("zk-abc-identity-1"), false)]
    #[case::all(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 365)], None, true)]
    #[case::due(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 121)], Some("zk-abc-identity-2"), true)]
    #[case::renewed(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 121), have(Holds::Identity, 2, 365)], None, true)]
    #[case::no_longer_than_its_authority(&[have(Holds::Authority, 1, 100), have(Holds::Trust, 1, 100), have(Holds::Identity, 1, 100)], None, true)]
    #[case::trust_deleted(&[have(Holds::Authority, 1, 3650), have(Holds::Identity, 1, 365)], Some("zk-abc-trust-1"), false)]
    #[case::identity_deleted_after_its_renewal(&[have(Holds::Authority, 1, 3650), have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 200)], None, true)]
    #[case::authority_deleted(&[have(Holds::Trust, 1, 3650), have(Holds::Identity, 1, 10)], None, true)]
    fn what_is_made_next(#[case] seen: &[Certificate], #[case] made: Option<&str>, #[case] used: bool) {
        let decision = decide("zk", "abc", None, seen, day(1));
        assert_eq!(decision.make.map(|make| make.name).as_deref(), made);
        assert_eq!(decision.tls.is_some(), used);
        let other = decide("zk", "def", None, seen, day(1));
        assert_eq!((other.tls, other.make.map(|m| m.name)), (None, Some("zk-def-authority-1".into())), "another life");
    }

    #[test]
    fn made_in_the_order_that_needs_what_is_there() {
        let mut seen = Vec::new();
        while let Some(make) = decide("zk", "abc", None, &seen, day(1)).make {
            assert!(make.authority.as_ref().is_none_or(|a| seen.iter().any(|s: &Certificate| s.name == *a)));
            seen.push(make.made(day(365)));
        }
        let tls = decide("zk", "abc", None, &seen, day(1)).tls.unwrap();
        assert_eq!((tls.identity.as_str(), &tls.trust), ("zk-abc-identity-1", &vec!["zk-abc-trust-1".to_owned()]));
        seen.retain(|secret| secret.holds != Holds::Identity);
        let again = decide("zk", "abc", Some(&tls), &seen, day(1));
        assert_eq!(again.make.unwrap().name, "zk-abc-identity-2", "a name has one content for ever");
        seen.push(have(Holds::Identity, 1, 365));
        let used = EnsembleTls { identity: "zk-abc-identity-3".to_owned(), ..tls };
        let older = decide("zk", "abc", Some(&used), &seen, day(1));
        assert_eq!(older.tls, None, "what was seen is older than what is used");
        assert_eq!(older.make.unwrap().name, "zk-abc-identity-4");
    }

    #[test]
    fn both_identities_travel_until_the_new_one_is_used() {
        let tls = |number: u32| EnsembleTls { identity: format!("i{number}"), trust: vec!["t1".into()] };
        let all = dependencies(Some(&tls(1)), Some(&tls(2)));
        assert!(travels(&tls(1), &all) && travels(&tls(2), &all) && !travels(&tls(3), &all));
    }

    #[test]
    fn only_what_is_ours_is_read() {
        let object: MultiClusterZooKeeper = serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zk", "namespace": "n", "uid": "u" },
            "spec": { "replicas": 3, "template": { "image": "zk:1", "storage": { "size": "1Gi" } } },
        }))
        .unwrap();
        let mut meta = objects::metadata(&object, "zk-abc-trust-3".into(), None);
        assert_eq!(Certificate::read(&meta, &object), None);
        meta.labels.as_mut().unwrap().insert(INCARNATION_LABEL.into(), "abc".into());
        let notes = [(CERTIFICATE, "trust/3"), (NOT_AFTER, "1970-01-11T00:00:00Z")];
        meta.annotations = Some(notes.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(Certificate::read(&meta, &object), Some(have(Holds::Trust, 3, 10)));
        meta.owner_references = None;
        assert_eq!(Certificate::read(&meta, &object), None);
    }
}

//! The Secrets with the quorum's certificates, without their content.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_core::ObjectMeta;

use crate::rollout::objects;
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{
        certificate_expiry::Validity,
        certificate_names::{Holds, numbered},
        labels::{CERTIFICATE, INCARNATION_LABEL, NOT_AFTER, REPLACE_AUTHORITY},
    },
    karmada::{CLAIMED_BY, DELETION_PROTECTION, claiming_policy},
    tls::EnsembleTls,
};

/// Validity of an authority. The operator replaces it when a third is left.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Validity of an identity. The operator renews it when a third is left.
pub const IDENTITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// A Secret with a certificate, without its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate {
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// Kind of content.
    pub holds: Holds,
    /// Number among the Secrets of its kind.
    pub number: u32,
    /// Number of the authority: its own if it is one.
    pub authority: u32,
    /// Name of the Secret.
    pub name: String,
    /// End of validity.
    pub not_after: Timestamp,
    /// Of an authority: the value of [`REPLACE_AUTHORITY`] that it answers.
    pub requested: Option<String>,
    /// The policy of a user that carries the Secret to member clusters.
    pub propagated_by: Option<String>,
}

impl Certificate {
    /// The certificate that a Secret's annotations describe, if the Secret belongs to the object.
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
            // Versions that did not write this part knew one authority.
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
            requested: annotation(REPLACE_AUTHORITY).cloned(),
            propagated_by: claiming_policy(meta).map(str::to_owned),
        })
    }

    /// The validity that the operator gives to such a certificate.
    #[must_use]
    pub fn validity(&self) -> Validity {
        let length = if self.holds == Holds::Identity { IDENTITY_LIFE } else { AUTHORITY_LIFE };
        Validity::ending(self.not_after, length)
    }
}

/// The Secrets with the private keys that a quorum trusts: of the authorities that its server list names, and of identities
/// under them.
pub fn trusted_keys<'a>(
    tls: &EnsembleTls,
    incarnation: &str,
    all: &'a [Certificate],
) -> impl Iterator<Item = &'a Certificate> {
    let trusted: BTreeSet<u32> = tls.trust.iter().filter_map(|name| Some(numbered(name)?.1)).collect();
    let own = all.iter().filter(move |secret| secret.incarnation == incarnation && secret.holds != Holds::Trust);
    own.filter(move |secret| trusted.contains(&secret.authority))
}

/// A Secret to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// Kind of content.
    pub holds: Holds,
    /// Number among the Secrets of its kind.
    pub number: u32,
    /// Name of the Secret.
    pub name: String,
    /// Number and Secret of the authority that signs it; `None` for an authority.
    pub authority: Option<(u32, String)>,
    /// Of an authority: the value of [`REPLACE_AUTHORITY`] that it answers.
    pub requested: Option<String>,
}

impl Make {
    /// Metadata of the Secret. A cluster that left the ensemble may have kept a propagated Secret of this name. Karmada may
    /// overwrite it: a name never has other content, and contains the incarnation, so no foreign Secret has it by chance.
    #[must_use]
    pub fn metadata(&self, object: &MultiClusterZooKeeper, not_after: Timestamp) -> ObjectMeta {
        let mut meta = objects::metadata(object, self.name.clone(), None);
        let labels = meta.labels.get_or_insert_default();
        labels.insert(INCARNATION_LABEL.to_owned(), self.incarnation.clone());
        // Kubernetes' garbage collector deletes the Secret with its owner, and does not remove the protection.
        labels.remove(DELETION_PROTECTION);
        // A policy of a user that selects all Secrets would carry the keys to other clusters.
        labels.insert(CLAIMED_BY.to_owned(), "mczk".to_owned());
        let annotations = meta.annotations.get_or_insert_default();
        annotations.extend(self.annotations(not_after));
        meta
    }

    /// The annotations from which [`Certificate::read`] reads it back.
    #[must_use]
    pub fn annotations(&self, not_after: Timestamp) -> BTreeMap<String, String> {
        let kind = format!("{}/{}/{}", self.holds.word(), self.number, self.authority_number());
        let own = [(CERTIFICATE, kind), (NOT_AFTER, not_after.to_string())];
        let requested = self.requested.iter().map(|value| (REPLACE_AUTHORITY, value.clone()));
        own.into_iter().chain(requested).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The certificate that is observed after the creation.
    #[must_use]
    pub fn made(&self, not_after: Timestamp) -> Certificate {
        Certificate {
            incarnation: self.incarnation.clone(),
            holds: self.holds,
            number: self.number,
            authority: self.authority_number(),
            name: self.name.clone(),
            not_after,
            requested: self.requested.clone(),
            propagated_by: None,
        }
    }

    fn authority_number(&self) -> u32 {
        self.authority.as_ref().map_or(self.number, |(number, _)| *number)
    }
}

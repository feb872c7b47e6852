//! The certificates of one incarnation, by number.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::secret::{Certificate, Make};
use mczk_api::{
    contract::certificate_names::{Holds, numbered, secret_name},
    mutation::broken,
    tls::EnsembleTls,
};

/// The inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub struct CertificateInputs<'a> {
    /// Name of the MultiClusterZooKeeper.
    pub ensemble: &'a str,
    /// Incarnation of the ensemble.
    pub incarnation: &'a str,
    /// Certificates that the newest server list names.
    pub used: Option<&'a EnsembleTls>,
    /// Secrets that exist.
    pub observed: &'a [Certificate],
    /// Value of the annotation that requests another authority.
    pub requested: Option<&'a str>,
    /// True if the ensemble continues an incarnation of a lost control plane. The keys of its authorities are lost, and its
    /// Secrets are in the member clusters alone.
    pub adopted: bool,
    /// True once a quorum has formed. Before that no authority is replaced.
    pub formed: bool,
    /// Certificates that all servers of each cluster with servers have loaded; `None` if the cluster does not report them.
    pub loaded: &'a BTreeMap<String, Option<EnsembleTls>>,
}

/// The certificates of one incarnation, by number.
pub(super) struct CertificateState<'a> {
    pub(super) inputs: &'a CertificateInputs<'a>,
    /// Secrets of this incarnation.
    observed: Vec<&'a Certificate>,
    pub(super) used: Option<Used>,
    pub(super) now: Timestamp,
}

/// The certificates in use, by number.
pub(super) struct Used {
    pub(super) identity: u32,
    /// The authority of the identity.
    pub(super) authority: u32,
    pub(super) trust: BTreeSet<u32>,
}

impl<'a> CertificateState<'a> {
    pub(super) fn new(inputs: &'a CertificateInputs<'a>, now: Timestamp) -> Self {
        let observed = inputs.observed.iter().filter(|secret| secret.incarnation == inputs.incarnation).collect();
        let mut state = Self { inputs, observed, used: None, now };
        state.used = match inputs.used {
            Some(tls) => state.read(tls),
            // No server list names certificates yet: the newest identity will be the first one in use.
            None => state.of(Holds::Identity).max_by_key(|identity| identity.number).map(|identity| Used {
                identity: identity.number,
                authority: identity.authority,
                trust: BTreeSet::from([identity.authority]),
            }),
        };
        state
    }

    fn read(&self, tls: &EnsembleTls) -> Option<Used> {
        let identity = number(&tls.identity)?;
        let trust: BTreeSet<u32> = tls.trust.iter().filter_map(|name| number(name)).collect();
        let recorded = self.of(Holds::Identity).find(|secret| secret.number == identity).map(|secret| secret.authority);
        // If the Secret of the identity is lost: servers have trusted the oldest authority for the longest time.
        let oldest = if broken!(ReissueUnderNewest) { trust.last() } else { trust.first() }.copied()?;
        let authority = recorded.filter(|authority| trust.contains(authority)).unwrap_or(oldest);
        Some(Used { identity, authority, trust })
    }

    pub(super) fn of(&self, holds: Holds) -> impl Iterator<Item = &'a Certificate> {
        self.observed.iter().copied().filter(move |secret| secret.holds == holds)
    }

    /// An authority that can sign.
    pub(super) fn signer(&self, number: u32) -> Option<&'a Certificate> {
        self.of(Holds::Authority).find(|authority| authority.number == number && authority.not_after > self.now)
    }

    /// True if the trust in an authority can reach all servers: its Secret is in the control plane, or, for one of another
    /// control plane, in each member cluster with servers.
    pub(super) fn has_trust(&self, number: u32) -> bool {
        let is_used = || self.used.as_ref().is_some_and(|used| used.trust.contains(&number));
        self.of(Holds::Trust).any(|trust| trust.number == number) || self.are_elsewhere() && is_used()
    }

    /// True if Secrets in use may be in the member clusters alone.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.inputs.adopted || self.is_lost()
    }

    /// The newest identity under an authority. The observed Secrets may be older than the certificates in use; servers never
    /// go back to a former identity.
    pub(super) fn identity(&self, authority: u32, used: &Used) -> Option<&'a Certificate> {
        let identities = self.of(Holds::Identity).filter(|identity| identity.authority == authority);
        identities.filter(|identity| identity.number >= used.identity).max_by_key(|identity| identity.number)
    }

    pub(super) fn name(&self, holds: Holds, number: u32) -> String {
        secret_name(self.inputs.ensemble, self.inputs.incarnation, holds, number)
    }

    pub(super) fn make(&self, holds: Holds, number: u32, authority: Option<&Certificate>) -> Make {
        Make {
            incarnation: self.inputs.incarnation.to_owned(),
            holds,
            number,
            name: self.name(holds, number),
            authority: authority.map(|authority| (authority.number, authority.name.clone())),
            requested: self.inputs.requested.filter(|_| holds == Holds::Authority).map(str::to_owned),
        }
    }

    /// True if this control plane has nothing of the identity and the authority in use: the one that made them was lost, and
    /// this one is new or an older copy. If no Secret is observed at all, the operator may lack the right to list them.
    pub(super) fn is_lost(&self) -> bool {
        let Some(used) = &self.used else { return false };
        let is_of_used = |secret: &&Certificate| {
            secret.authority == used.authority || secret.holds == Holds::Identity && secret.number == used.identity
        };
        (self.inputs.adopted || !self.observed.is_empty()) && !self.observed.iter().any(is_of_used)
    }

    /// The number of the next identity. A name never gets another content, even if the Secret was deleted.
    pub(super) fn next_identity(&self) -> u32 {
        let used = self.used.as_ref().map(|used| used.identity);
        let observed = self.of(Holds::Identity).map(|identity| identity.number).max();
        let is_older = observed.is_some() && observed < used;
        observed.max(used).map_or(1, |number| after(number, self.is_lost() || is_older))
    }

    pub(super) fn make_authority(&self) -> Make {
        let trusted = self.used.as_ref().and_then(|used| used.trust.last().copied());
        let highest = self.observed.iter().map(|secret| secret.authority).max().max(trusted);
        let number = highest.map_or(1, |number| after(number, self.is_lost()));
        self.make(Holds::Authority, number, None)
    }
}

/// The number after one. A lost control plane may have made one more Secret than any server list names, and a name never gets
/// another content.
fn after(number: u32, is_lost: bool) -> u32 {
    number.saturating_add(if is_lost { 2 } else { 1 })
}

/// The number in the name of a Secret.
pub(super) fn number(name: &str) -> Option<u32> {
    Some(numbered(name)?.1)
}

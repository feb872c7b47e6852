//! The quorum's certificates: the Secrets that hold them, the ones in use, and the next one to create.
//!
//! Every incarnation of an ensemble has its own authority, whose key never leaves the control plane. One identity under it
//! serves all servers and agents of the incarnation. A Secret with the authority's certificate alone carries the trust. So
//! servers reject every server of a former incarnation (S10). Secrets never change: a renewal is another Secret with the next
//! number.
//!
//! The operator replaces an authority in three steps, each with another server list:
//! 1. all servers trust the former and the new authority;
//! 2. all servers show an identity under the new one;
//! 3. all servers trust the new one only.
//!
//! A step starts when every cluster that may have servers reports that all of them have loaded the step before. So each
//! server trusts the authority of each other's identity at any moment.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use mczk_api::{
    contract::{cause::Cause, certificate_names::Holds, conditions::Reason},
    tls::EnsembleTls,
};

mod loaded;
mod renewal;
mod replacement;
mod secret;
mod state;

use state::CertificateState;

pub use loaded::{dependencies, travels};
pub(crate) use loaded::{in_use, loaded, newest};
pub use secret::{AUTHORITY_LIFE, Certificate, IDENTITY_LIFE, Make, trusted_keys};
pub use state::CertificateInputs;

/// The certificates to use and the Secret to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Certificates for all servers; `None` while a Secret of them does not exist.
    pub tls: Option<EnsembleTls>,
    /// The next Secret to create.
    pub make: Option<Make>,
    /// Progress of the replacement of the authority.
    pub replacing: Option<Cause>,
}

/// The certificates that servers shall use.
struct WantedCertificates {
    identity: Option<Certificate>,
    trust: BTreeSet<u32>,
}

/// The certificates to use and the Secret to create.
#[must_use]
pub fn decide(inputs: &CertificateInputs<'_>, now: Timestamp) -> Decision {
    let state = CertificateState::new(inputs, now);
    let Some(used) = &state.used else {
        return Decision { make: renewal::first(&state), ..Decision::default() };
    };
    let (identity, renewed) = renewal::renew(&state, used);
    let kept = WantedCertificates { identity: identity.cloned(), trust: used.trust.clone() };
    if inputs.used.is_none() {
        return Decision { tls: by_name(&state, &kept), make: renewed, replacing: None };
    }
    let step = replacement::replace(&state, used);
    let wanted =
        WantedCertificates { identity: step.identity.or(kept.identity), trust: step.trust.unwrap_or(kept.trust) };
    Decision { tls: by_name(&state, &wanted), make: renewed.or(step.make), replacing: step.replacing }
}

/// The names of the wanted Secrets, if all of them exist.
fn by_name(state: &CertificateState<'_>, wanted: &WantedCertificates) -> Option<EnsembleTls> {
    let elsewhere = || state.used.as_ref().filter(|_| state.are_elsewhere()).map(|used| used.identity);
    let identity = match &wanted.identity {
        Some(identity) => identity.name.clone(),
        None => state.name(Holds::Identity, elsewhere()?),
    };
    let exists = wanted.trust.iter().all(|number| state.has_trust(*number));
    let trust = || wanted.trust.iter().map(|number| state.name(Holds::Trust, *number)).collect();
    exists.then(|| EnsembleTls { identity, trust: trust() })
}

/// The blocker before the first certificates exist.
pub(super) fn waiting_for_certificates() -> Cause {
    Cause::new(Reason::Certificates, "The operator creates the certificates of the quorum")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;

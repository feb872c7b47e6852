//! The first certificates, and the replacement of lost or ending ones under the same authority.

use super::{
    secret::{Certificate, IDENTITY_LIFE, Make},
    state::{CertificateState, Used},
};
use mczk_api::contract::certificate_names::Holds;

/// The next Secret to create while no identity exists and none is in use.
pub(super) fn first(state: &CertificateState<'_>) -> Option<Make> {
    if state.inputs.used.is_some() {
        // The server list names Secrets that mczk did not create.
        return None;
    }
    let valid = state.of(Holds::Authority).filter(|authority| authority.not_after > state.now);
    Some(match valid.max_by_key(|authority| authority.number) {
        None if state.of(Holds::Trust).next().is_some() => return None,
        None => state.make_authority(),
        Some(from) if !state.has_trust(from.number) => state.make(Holds::Trust, from.number, Some(from)),
        Some(from) => state.make(Holds::Identity, 1, Some(from)),
    })
}

/// The identity under the authority in use, and the Secret to create instead of a lost or ending one.
pub(super) fn renew<'a>(state: &CertificateState<'a>, used: &Used) -> (Option<&'a Certificate>, Option<Make>) {
    let identity = state.identity(used.authority, used);
    let Some(from) = state.signer(used.authority) else { return (identity, None) };
    let make = match identity {
        _ if !state.has_trust(from.number) => Some(state.make(Holds::Trust, from.number, Some(from))),
        None => Some(state.make(Holds::Identity, state.next_identity(), Some(from))),
        Some(old) => {
            let is_due = old.not_after.duration_since(state.now) < IDENTITY_LIFE / 3;
            // An identity ends with its authority. One that ends no later than the old one would be due at once.
            let is_longer = from.not_after > old.not_after;
            (is_due && is_longer).then(|| state.make(Holds::Identity, state.next_identity(), Some(from)))
        }
    };
    (identity, make)
}

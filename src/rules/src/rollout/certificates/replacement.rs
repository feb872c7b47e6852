//! The replacement of an authority in three steps.

use std::collections::BTreeSet;

use super::{
    secret::{AUTHORITY_LIFE, Certificate, Make},
    state::{CertificateState, Used, number},
};
use mczk_api::{
    contract::{cause::Cause, certificate_names::Holds, conditions::Reason},
    mutation::broken,
    tls::EnsembleTls,
};

/// Authorities that a server list trusts at most, as its schema says.
const MOST_TRUSTED: usize = 4;

/// The change of one step. `None`: unchanged.
#[derive(Default)]
pub(super) struct ReplacementStep {
    pub(super) make: Option<Make>,
    pub(super) identity: Option<Certificate>,
    pub(super) trust: Option<BTreeSet<u32>>,
    pub(super) replacing: Option<Cause>,
}

/// The step that is due, if any.
pub(super) fn replace(state: &CertificateState<'_>, used: &Used) -> ReplacementStep {
    let authorities = state.of(Holds::Authority);
    let newer = authorities.filter(|next| next.number > used.authority && next.not_after > state.now);
    match newer.max_by_key(|next| next.number) {
        Some(next) => adopt(state, used, next),
        None if used.trust.range(..used.authority).next().is_some() => forget(state, used),
        None if starts(state, used) => ReplacementStep {
            make: Some(state.make_authority()),
            replacing: Some(progress(1, "the operator creates the new authority")),
            ..ReplacementStep::default()
        },
        None => ReplacementStep::default(),
    }
}

/// True if a new authority is due: the user requests it, or the one in use ends or cannot sign any more.
fn starts(state: &CertificateState<'_>, used: &Used) -> bool {
    let authorities = || state.of(Holds::Authority);
    let is_answered = |value: &str| authorities().any(|authority| authority.requested.as_deref() == Some(value));
    let is_requested = state.inputs.requested.is_some_and(|value| broken!(ReplaceAgain) || !is_answered(value));
    let ends = match authorities().find(|authority| authority.number == used.authority) {
        Some(own) => own.not_after.duration_since(state.now) < AUTHORITY_LIFE / 3,
        // The Secret of the authority is gone, unless no Secret is observed at all.
        None => state.of(Holds::Identity).any(|identity| identity.number == used.identity) || state.is_lost(),
    };
    state.inputs.formed && used.trust.len() < MOST_TRUSTED && (is_requested || ends)
}

/// Steps 1 and 2: servers trust the new authority, and then show an identity under it.
fn adopt(state: &CertificateState<'_>, used: &Used, next: &Certificate) -> ReplacementStep {
    if !used.trust.contains(&next.number) && !broken!(IdentityBeforeTrust) {
        return trust(state, used, next);
    }
    let name = state.name(Holds::Trust, next.number);
    let waiting_for = lacking(state, |tls| tls.trust.contains(&name));
    if let Some(clusters) = waiting_for.filter(|_| !broken!(IdentityBeforeTrust)) {
        let replacing = Some(waiting(1, &format!("all servers trust it in {clusters}")));
        return ReplacementStep { replacing, ..ReplacementStep::default() };
    }
    let replacing = Some(progress(2, "Karmada propagates an identity under it"));
    match state.identity(next.number, used) {
        Some(identity) => ReplacementStep { identity: Some(identity.clone()), replacing, ..ReplacementStep::default() },
        None => ReplacementStep {
            make: Some(state.make(Holds::Identity, state.next_identity(), Some(next))),
            replacing,
            ..ReplacementStep::default()
        },
    }
}

/// Step 1: the new authority joins the trusted ones.
fn trust(state: &CertificateState<'_>, used: &Used, next: &Certificate) -> ReplacementStep {
    let replacing = Some(progress(1, "Karmada propagates the new authority"));
    if !state.has_trust(next.number) {
        let make = Some(state.make(Holds::Trust, next.number, Some(next)));
        return ReplacementStep { make, replacing, ..ReplacementStep::default() };
    }
    let trust = used.trust.iter().copied().chain([next.number]).collect();
    ReplacementStep { trust: Some(trust), replacing, ..ReplacementStep::default() }
}

/// Step 3: servers trust no authority before the one in use any more.
fn forget(state: &CertificateState<'_>, used: &Used) -> ReplacementStep {
    let is_under = |tls: &EnsembleTls| {
        number(&tls.identity).is_some_and(|reported| {
            let mut identities = state.of(Holds::Identity);
            let is_signed = identities.any(|own| own.number == reported && own.authority == used.authority);
            is_signed || reported == used.identity
        })
    };
    match lacking(state, is_under).filter(|_| !broken!(TrustNewOnlyTooEarly)) {
        Some(clusters) => {
            let cause = format!("all servers show an identity under it in {clusters}");
            ReplacementStep { replacing: Some(waiting(2, &cause)), ..ReplacementStep::default() }
        }
        None => ReplacementStep {
            trust: Some(used.trust.range(used.authority..).copied().collect()),
            replacing: Some(progress(3, "servers drop the former authority")),
            ..ReplacementStep::default()
        },
    }
}

/// The clusters with a server that has not loaded the certificates of the step, and those that do not report.
fn lacking(state: &CertificateState<'_>, has: impl Fn(&EnsembleTls) -> bool) -> Option<String> {
    let is_ignored = |loaded: &Option<EnsembleTls>| loaded.is_none() && broken!(IgnoreUnreachable);
    let lacks = |loaded: &Option<EnsembleTls>| !loaded.as_ref().is_some_and(&has) && !is_ignored(loaded);
    let clusters = state.inputs.loaded.iter().filter(|(_, loaded)| lacks(loaded));
    let names: Vec<&str> = clusters.map(|(cluster, _)| cluster.as_str()).collect();
    (!names.is_empty() && !broken!(SkipWait)).then(|| names.join(", "))
}

fn waiting(step: u8, condition: &str) -> Cause {
    progress(
        step,
        &format!(
            "waiting until {condition}. Remove a cluster that is lost for good from spec.placement; upgrade an agent that does not report its certificates"
        ),
    )
}

fn progress(step: u8, state: &str) -> Cause {
    Cause {
        reason: Reason::ReplacingAuthority,
        message: format!("Replacing the authority of the quorum, step {step} of 3: {state}"),
    }
}

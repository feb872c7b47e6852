//! Step: volumes that are smaller than declared. They grow one after another: what fails on one fails on no other.
//!
//! A request alone grows nothing, so a volume counts as grown once its claim shows the size.

use crate::agent::{
    decide::{local_ensemble::LocalEnsemble, local_server::LocalServer, observation::Claim, restart::RestartStep},
    render::amount::bytes,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, naming::claim_of},
    quantity::Quantity,
};

/// The kind by which the agent remembers that the API server refuses the size of a claim.
pub const SIZE: &str = "The size of PersistentVolumeClaim";

/// The claims that have to request this size, the next one first. Empty while a volume grows. A request that storage has
/// refused is lowered to the size first, so that its volume can follow.
#[must_use]
pub fn due<'a>(
    claims: &'a [Claim],
    servers: &[(String, LocalServer)],
    incarnation: &str,
    size: &str,
) -> Vec<&'a Claim> {
    let own = servers.iter().filter(|(of, _)| of == incarnation).map(|(_, server)| server);
    let mut smaller = smaller(claims, &own.collect::<Vec<_>>(), incarnation, size);
    smaller.sort_by_key(|claim| !claim.size.requests(size));
    if smaller.iter().any(|claim| claim.size.grows_to(size)) { Vec::new() } else { smaller }
}

/// The volumes of servers that are smaller than this. A volume without a server grows when it has one.
fn smaller<'a>(claims: &'a [Claim], servers: &[&LocalServer], incarnation: &str, size: &str) -> Vec<&'a Claim> {
    used(claims, servers, incarnation).filter(|claim| claim.size.is_below(size)).collect()
}

fn used<'a>(claims: &'a [Claim], servers: &[&LocalServer], incarnation: &str) -> impl Iterator<Item = &'a Claim> {
    let is_used = |claim: &Claim| servers.iter().any(|server| claim_of(&server.pod) == claim.name);
    claims.iter().filter(move |claim| claim.incarnation == incarnation && !claim.ending && is_used(claim))
}

/// The size of the smallest volume of a server.
pub(super) fn smallest(ensemble: &LocalEnsemble<'_>) -> Option<Quantity> {
    let servers: Vec<&LocalServer> = ensemble.servers.iter().collect();
    let used = used(&ensemble.observation.claims, &servers, ensemble.incarnation);
    let sizes = used.filter_map(|claim| claim.size.capacity.as_deref());
    sizes.min_by_key(|size| bytes(size)).map(|size| Quantity(size.to_owned()))
}

fn smaller_than_declared<'a>(ensemble: &LocalEnsemble<'a>) -> Vec<&'a Claim> {
    let size = &ensemble.observation.object.spec.template.storage.size.0;
    let servers: Vec<&LocalServer> = ensemble.servers.iter().collect();
    smaller(&ensemble.observation.claims, &servers, ensemble.incarnation, size)
}

/// True if every volume has the declared size.
pub(super) fn is_done(ensemble: &LocalEnsemble<'_>) -> bool {
    smaller_than_declared(ensemble).is_empty()
}

/// A growth that failed, in Kubernetes' words.
pub(super) fn failure(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let failed = smaller_than_declared(ensemble).into_iter().find(|claim| claim.size.failed)?;
    let message = format!(
        "{}. Correct what these words name, in the storage of class {}: Kubernetes then tries again. Or lower \
         template.storage.size again, to status.smallestVolume or more",
        grows(ensemble, failed),
        failed.size.class.as_deref().unwrap_or_default()
    );
    Some(Cause { reason: Reason::VolumeNotResized, message })
}

/// The volume that grows, and what it waits for.
pub(super) fn describe(ensemble: &LocalEnsemble<'_>, restart: &RestartStep) -> Option<Cause> {
    let smaller = smaller_than_declared(ensemble);
    let size = &ensemble.observation.object.spec.template.storage.size.0;
    let claim = smaller.iter().find(|claim| claim.size.requests(size)).or_else(|| smaller.first())?;
    let waits = match restart {
        RestartStep::Wait(why) => format!(". {why}"),
        _ => String::new(),
    };
    Some(Cause { reason: Reason::GrowingVolume, message: format!("{}{waits}", grows(ensemble, claim)) })
}

fn grows(ensemble: &LocalEnsemble<'_>, claim: &Claim) -> String {
    let volume = &claim.size;
    let capacity = volume.capacity.as_deref().unwrap_or_default();
    let size = &ensemble.observation.object.spec.template.storage.size.0;
    let words = match volume.growth.as_slice() {
        [] => "the claim does not show yet that its storage class grows it".to_owned(),
        words => words.join("; "),
    };
    format!("PersistentVolumeClaim {} has {capacity} and not template.storage.size {size}: {words}", claim.name)
}

/// Why the API server refuses to grow a claim: the first one, if it refuses several. No volume has changed.
pub(super) fn refused(ensemble: &LocalEnsemble<'_>) -> Option<Cause> {
    let refusals = || ensemble.observation.refusals.iter().filter(|refusal| refusal.kind == SIZE);
    let why = |claim: &Claim| refusals().find(|refusal| refusal.name == claim.name).map(|refusal| &refusal.why);
    let (claim, why) = smaller_than_declared(ensemble).into_iter().find_map(|claim| Some((claim, why(claim)?)))?;
    let size = &ensemble.observation.object.spec.template.storage.size.0;
    let class = claim.size.class.as_deref().unwrap_or_default();
    let message = format!(
        "PersistentVolumeClaim {} cannot grow to template.storage.size {size}: {why}. No volume changes before the API server accepts the size. Set \
         allowVolumeExpansion in storage class {class} if its driver can grow volumes, or correct what the message names. \
         Otherwise lower the size again, or move the servers to a cluster whose class can",
        claim.name
    );
    Some(Cause { reason: Reason::VolumeNotResized, message })
}

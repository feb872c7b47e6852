//! Step: which quorum certificates the servers of this cluster have loaded, and which have not arrived.

use std::time::Duration;

use crate::agent::decide::{local_ensemble::LocalEnsemble, local_server::LocalServer, observation::Observation};
use mczk_api::{contract::loaded_certificates::Loaded, tls::EnsembleTls};

/// Karmada takes a few seconds to propagate a Secret.
const PROPAGATION: Duration = Duration::from_secs(30);

/// The Secrets that Karmada should have propagated by now. Karmada takes a creation that timed out for a success, and does
/// not repeat it, until the operator changes the Secret's annotations.
pub(super) fn missing(observation: &Observation) -> Vec<String> {
    if observation.missing_for < PROPAGATION { Vec::new() } else { observation.missing_secrets.clone() }
}

/// The certificates that the server list names, if every server here has loaded exactly these and every new pod mounts them.
/// Nothing while a change is on its way to a server, or while the agent cannot reach one.
pub(super) fn by_all(ensemble: &LocalEnsemble<'_>) -> Option<EnsembleTls> {
    let observation = ensemble.observation;
    // The Secrets of a list that servers report may not have arrived here yet.
    let tls = ensemble.list.tls.as_ref().filter(|tls| observation.tls.as_ref() == Some(tls))?;
    let newest = observation.quorum_certificates.as_ref();
    let material = newest.filter(|newest| observation.mounted_certificates.as_ref() == Some(*newest))?;
    let wanted = Loaded::of(material.certificate.as_bytes(), material.authorities.as_bytes())?;
    let has_loaded =
        |server: &LocalServer| server.view.as_ref().is_some_and(|view| view.loaded.as_ref() == Some(&wanted));
    ensemble.servers.iter().all(has_loaded).then(|| tls.clone())
}

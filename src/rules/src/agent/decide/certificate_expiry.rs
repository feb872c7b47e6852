//! Step: whether a certificate that servers of this cluster mount expires soon.

use k8s_openapi::jiff::Timestamp;

use crate::agent::{decide::local_ensemble::LocalEnsemble, render::secret::quorum_secret};
use mczk_api::contract::{cause::Cause, certificate_expiry::phrase, conditions::Reason};

/// The certificates that expire soon; those of the quorum give the reason.
pub(super) fn find(ensemble: &LocalEnsemble<'_>, now: Timestamp) -> Option<Cause> {
    let observation = ensemble.observation;
    let (object, lifetimes) = (&observation.object, &observation.lifetimes);
    let quorum = lifetimes.quorum.as_ref().and_then(|lifetime| lifetime.ending(now)).map(|end| {
        let secret = quorum_secret(object.metadata.name.as_deref().unwrap_or_default(), ensemble.incarnation);
        format!(
            "The certificate of the quorum that servers mount from Secret {secret} {}, and no renewal has arrived. Check \
             the operator, and that Karmada propagates Secrets to this cluster",
            phrase(end, now)
        )
    });
    let client = object.spec.tls.client.as_ref().and_then(|client| {
        let end = lifetimes.client.as_ref()?.ending(now)?;
        Some(format!(
            "The certificate for clients in Secret {} {}. Renew it in the control plane",
            client.secret_name,
            phrase(end, now)
        ))
    });
    let reason = if quorum.is_some() { Reason::QuorumCertificateExpires } else { Reason::ClientCertificateExpires };
    let messages: Vec<String> = quorum.into_iter().chain(client).collect();
    (!messages.is_empty()).then(|| Cause::new(reason, messages.join(". ")))
}

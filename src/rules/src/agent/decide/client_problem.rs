//! Step: whether certificates for clients need the user's attention.

use crate::agent::decide::local_ensemble::LocalEnsemble;

/// What the user has to know about the certificates for clients.
pub(super) struct ClientProblem {
    /// Why the agent does not accept the newest certificates, or that none exist any more.
    pub(super) message: Option<String>,
    /// True if the spec is not complete before the problem is solved.
    pub(super) blocks: bool,
}

/// Once every server has what the spec declares, a problem of the Secret is reported, but the spec stays complete.
pub(super) fn find(ensemble: &LocalEnsemble<'_>, acts: bool) -> ClientProblem {
    let object = &ensemble.observation.object;
    let completed = object.status.as_ref().and_then(|status| status.completed_spec_hash.as_ref());
    let complete = completed.is_some() && completed == object.spec.spec_hash.as_ref();
    let problem = ensemble.observation.client_certificates.problem.clone();
    let message = problem.or_else(|| lost(ensemble).filter(|_| complete)).filter(|_| acts);
    ClientProblem { message, blocks: !complete }
}

fn lost(ensemble: &LocalEnsemble<'_>) -> Option<String> {
    let client =
        ensemble.observation.object.spec.tls.client.as_ref().filter(|_| ensemble.lacks_client_certificates())?;
    Some(format!(
        "Neither Secret {} nor the agent's copy of it exists, so no server could start again. Create the Secret in the \
         control plane",
        client.secret_name
    ))
}

//! The versions of rendering, by `renderVersion`.
//!
//! A released version never changes, byte for byte: otherwise an upgrade of the agent would restart servers outside a rollout.
//! A version of mczk that renders differently adds one. So an upgrade of mczk rolls cluster by cluster, like any other change.

use crate::agent::render::{
    account, config, disruption, network_policy, object::Object, secret, services, source::Source, statefulset,
};
use mczk_api::zookeeper::Role;

/// Why the agent cannot render a spec.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The operator is newer than this agent.
    #[error(
        "This agent does not know renderVersion {version}, only {known}. Upgrade the agent (mczk agent) in this cluster"
    )]
    Newer {
        /// The requested version.
        version: i32,
        /// The known versions.
        known: String,
    },
    /// The operator is older than every version that this agent knows.
    #[error(
        "This agent no longer knows renderVersion {version}, only {known}. Upgrade the operator (mczk operator) beside Karmada"
    )]
    Older {
        /// The requested version.
        version: i32,
        /// The known versions.
        known: String,
    },
    /// A value cannot be converted to JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Turns the pod part of a spec into objects.
type Version = fn(&Source<'_>) -> Result<Vec<Object>, Refused>;

/// Every known version, by `renderVersion`, the newest last.
pub(super) const VERSIONS: &[(i32, Version)] = &[(1, first)];

/// The version of a `renderVersion`.
///
/// # Errors
/// If the agent does not know it, with what the user has to upgrade.
pub(crate) fn known(version: i32) -> Result<Version, Refused> {
    if let Some((_, render)) = VERSIONS.iter().find(|(number, _)| *number == version) {
        return Ok(*render);
    }
    let numbers: Vec<String> = VERSIONS.iter().map(|(number, _)| number.to_string()).collect();
    let known = numbers.join(", ");
    let newer = VERSIONS.iter().all(|(number, _)| version > *number);
    Err(if newer { Refused::Newer { version, known } } else { Refused::Older { version, known } })
}

fn first(source: &Source<'_>) -> Result<Vec<Object>, Refused> {
    let with_observers = source.observers > 0;
    let mut objects =
        vec![account::account(source), config::server_list(source)?, config::server_config(source, Role::Voter)?];
    if with_observers {
        objects.push(config::server_config(source, Role::Observer)?);
    }
    // The agent writes Secrets before pods that mount them.
    objects.extend(secret::quorum(source));
    objects.extend(secret::client(source));
    objects.push(services::headless(source));
    objects.push(services::client(source));
    objects.push(config::clients(source));
    objects.push(disruption::budget(source));
    objects.push(network_policy::policy(source));
    objects.push(statefulset::set(source, Role::Voter, source.voters));
    if with_observers {
        objects.push(statefulset::set(source, Role::Observer, source.observers));
    }
    Ok(objects)
}

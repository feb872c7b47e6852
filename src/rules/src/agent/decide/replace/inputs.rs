//! What the replacement of a volume depends on.

use std::collections::BTreeSet;

use crate::agent::decide::{observation::Claim, restart::RestartInputs};
use mczk_api::{
    contract::{control_api::ServerReport, replace_request::ReplaceRequest},
    zookeeper::Server,
};

/// What the replacement of a volume depends on.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceInputs<'a> {
    /// What the user wants.
    pub request: Option<&'a ReplaceRequest>,
    /// Claims of this cluster with the labels of the agent, of every incarnation.
    pub claims: &'a [Claim],
    /// The incarnation of the ensemble.
    pub incarnation: &'a str,
    /// Uids of pods whose node exists no longer.
    pub gone: &'a BTreeSet<String>,
    /// Karmada's name of this cluster.
    pub cluster: &'a str,
    /// The server list.
    pub listed: &'a [Server],
    /// Reports of all servers that the agent reaches.
    pub views: &'a [ServerReport],
    /// What a restart depends on.
    pub restart: RestartInputs<'a>,
}

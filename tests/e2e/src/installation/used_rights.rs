//! The rights of operator and agents in the story of an installation, against the audit logs of all API servers.

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::HOST;
use crate::{
    audit::{
        self, Entry,
        rights::{self, Right},
    },
    federation::Federation,
};

/// Operator in karmada-apiserver.
const OPERATOR: &str = "system:serviceaccount:mczk-system:mczk-operator";
/// Operator in its own cluster.
const OPERATOR_AT_HOST: &str = "system:serviceaccount:mczk-system:mczk";
/// Agents in member clusters.
const AGENT: &str = "system:serviceaccount:mczk-system:mczk-agent";

/// What the roles grant while everything is installed.
pub(super) struct Granted {
    agent: Vec<Right>,
    host: Vec<Right>,
    /// From here on every right must be there: before, pods may start earlier than their roles exist.
    from: Timestamp,
}

impl Granted {
    /// Reads the roles.
    ///
    /// # Errors
    /// If an API server does not answer, or a user has no role.
    pub(super) async fn read(federation: &Federation) -> Result<Self> {
        let (mut agent, mut host) = (Vec::new(), Vec::new());
        for (name, client) in &federation.members {
            agent.extend(rights::granted(client, AGENT).await?);
            if name == HOST {
                host = rights::granted(client, OPERATOR_AT_HOST).await?;
            }
        }
        agent.sort();
        agent.dedup();
        ensure!(!agent.is_empty() && !host.is_empty(), "the roles grant nothing: {agent:?}, {host:?}");
        Ok(Self { agent, host, from: Timestamp::now() })
    }

    /// Checks that no right has been missing until now.
    ///
    /// # Errors
    /// Each missing right, or if a log cannot be read.
    pub(super) fn none_is_missing(&self, federation: &Federation) -> Result<()> {
        let operator = audit::read(&federation.rig.audit_log(), 0, OPERATOR)?;
        ensure!(!operator.is_empty(), "the audit log has no request of the operator, so it proves nothing");
        let all = [operator, at_members(federation, OPERATOR_AT_HOST)?, at_members(federation, AGENT)?].concat();
        let missing = rights::missing(&all, self.from, Timestamp::now());
        ensure!(missing.is_empty(), "missing rights: {missing:?}");
        Ok(())
    }

    /// Checks that each right was used. The rights of the operator in karmada-apiserver are a matter of the scenarios.
    ///
    /// # Errors
    /// Each unused right, or if a log cannot be read.
    pub(super) fn all_are_used(&self, federation: &Federation) -> Result<()> {
        let agent = rights::unused(&self.agent, &at_members(federation, AGENT)?, rights::AGENT);
        ensure!(agent.is_empty(), "no agent used these rights: {agent:?}");
        let host = rights::unused(&self.host, &at_members(federation, OPERATOR_AT_HOST)?, rights::HOST);
        ensure!(host.is_empty(), "the operator did not use these rights in its own cluster: {host:?}");
        Ok(())
    }
}

/// The requests of a user in all member clusters.
fn at_members(federation: &Federation, user: &str) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    for name in federation.members.keys() {
        all.extend(audit::read(&federation.rig.member_audit_log(name), 0, user)?);
    }
    Ok(all)
}

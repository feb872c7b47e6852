//! Faults of the processes of operators and agents, and of their leases.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::{metrics, patience::wait_for};

/// The agents' lease in m1, and that of a second installation.
const AGENT_LEASE: &str = "kube-system/mczk-agent";
const OTHER_AGENT_LEASE: &str = "kube-system/mczk-agent-other";
/// The lease of a second installation of the operator.
const OTHER_LEASE: &str = "karmada-system/mczk-operator-other";
/// The longest time until a program holds its lease: a former holder was killed.
const TAKEOVER: Duration = Duration::from_secs(60);

/// Waits until the program on this port holds the lease, by its own metrics.
async fn holds(port: u16, metric: &str) -> Result<()> {
    wait_for(&format!("{metric} is 1"), TAKEOVER, || async {
        let page = metrics::get(port, "/metrics").await?;
        ensure!(page.lines().any(|line| line == format!("{metric} 1")), "it is not");
        Ok(())
    })
    .await
}

impl Stage<'_> {
    pub(super) async fn start_agent(&mut self) -> Result<()> {
        self.agent = Some(self.agent_at(self.agent_ports[0], AGENT_LEASE)?);
        holds(self.agent_ports[0], "mczk_agent_lease_held").await
    }

    pub(super) async fn kill_agent(&mut self) -> Result<()> {
        self.agent.take().context("no agent runs")?.kill().await
    }

    pub(super) async fn lease_to_hidden_agent(&mut self) -> Result<()> {
        self.kill_agent().await?;
        let hidden = self.federation.rig.free_port()?;
        self.other_agent = Some(self.agent_at(hidden, AGENT_LEASE)?);
        holds(hidden, "mczk_agent_lease_held").await?;
        self.agent = Some(self.agent_at(self.agent_ports[0], AGENT_LEASE)?);
        Ok(())
    }

    pub(super) async fn end_hidden_agent(&mut self) -> Result<()> {
        if let Some(hidden) = self.other_agent.take() {
            hidden.kill().await?;
        }
        Ok(())
    }

    pub(super) async fn start_second_agent(&mut self) -> Result<()> {
        self.other_agent = Some(self.agent_at(self.agent_ports[1], OTHER_AGENT_LEASE)?);
        holds(self.agent_ports[1], "mczk_agent_lease_held").await
    }

    pub(super) async fn end_second_agent(&mut self) -> Result<()> {
        self.end_hidden_agent().await
    }

    pub(super) async fn kill_operator(&mut self) -> Result<()> {
        self.federation.kill_operator().await
    }

    pub(super) async fn start_operator(&mut self) -> Result<()> {
        self.federation.start_operator_patiently().await
    }

    pub(super) async fn lease_to_hidden_operator(&mut self) -> Result<()> {
        self.federation.stop_operator().await?;
        let hidden = self.federation.free_ports()?;
        self.other_operator = Some(self.federation.candidate(hidden).await?);
        holds(hidden.probes, "mczk_lease_held").await?;
        self.federation.start_operator_patiently().await
    }

    pub(super) async fn start_second_operator(&mut self) -> Result<()> {
        self.other_operator = Some(self.federation.operator_with_lease(self.second, OTHER_LEASE).await?);
        holds(self.second.probes, "mczk_lease_held").await
    }

    pub(super) async fn end_other_operator(&mut self) -> Result<()> {
        if let Some(other) = self.other_operator.take() {
            other.stop().await?;
        }
        // An attempt to cause the fault may have left none.
        if self.federation.operator_alive().await.is_err() {
            self.federation.start_operator_patiently().await?;
        }
        Ok(())
    }
}

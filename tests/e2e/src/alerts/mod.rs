//! Each alert that a real fault of the rig can cause fires in a real Prometheus, and clears when the fault is over.
//!
//! The federation has API servers alone. Operators and one agent run as processes, which Prometheus scrapes. The other
//! agents and the simulated servers run in this process. [`rules`] makes the waits of the rules shorter.

mod clusters;
mod leaders;
pub mod prometheus;
pub mod rules;
mod servers;
mod stage;

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    agent::Behaviour,
    federation::{Federation, Options},
    patience::wait_for,
};

pub use stage::Stage;

/// The longest time until an alert fires or clears. Karmada needs a minute to find a cluster that is down.
const PATIENCE: Duration = Duration::from_secs(300);

/// A part of a fault that runs.
pub type Act<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// A fault, and the alerts that it causes.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// What happens, as --list prints it.
    pub shows: &'static str,
    /// The alerts that fire until the fault is over.
    pub alerts: &'static [&'static str],
    /// Causes it.
    pub inject: for<'s> fn(&'s mut Stage<'_>) -> Act<'s>,
    /// Ends it.
    pub undo: for<'s> fn(&'s mut Stage<'_>) -> Act<'s>,
}

macro_rules! fault {
    ($name:literal, $inject:ident, $undo:ident, [$($alert:literal),+], $shows:literal) => {
        Fault {
            name: $name,
            shows: $shows,
            alerts: &[$($alert),+],
            inject: |stage| Box::pin(stage.$inject()),
            undo: |stage| Box::pin(stage.$undo()),
        }
    };
}

/// The faults of an agent. No ensemble exists: the agent of the process and that of this program would both act on it.
pub const AGENT_FAULTS: &[Fault] = &[
    fault!(
        "agent-killed",
        kill_agent,
        start_agent,
        ["MczkAgentAbsent"],
        "the only agent is killed; another one starts"
    ),
    fault!(
        "agent-without-lease",
        lease_to_hidden_agent,
        end_hidden_agent,
        ["MczkAgentLeaderMissing"],
        "an agent that nothing scrapes holds the lease; it ends"
    ),
    fault!(
        "two-agents",
        start_second_agent,
        end_second_agent,
        ["MczkAgentTwoLeaders"],
        "a second agent has a lease of its own; it ends"
    ),
];

/// The faults of operators, and of ensembles of three voters in three clusters.
pub const FAULTS: &[Fault] = &[
    fault!(
        "operator-killed",
        kill_operator,
        start_operator,
        ["MczkOperatorAbsent"],
        "the only operator is killed; it starts again"
    ),
    fault!(
        "operator-without-lease",
        lease_to_hidden_operator,
        end_other_operator,
        ["MczkLeaderMissing"],
        "an operator that nothing scrapes holds the lease; it ends"
    ),
    fault!(
        "two-operators",
        start_second_operator,
        end_other_operator,
        ["MczkTwoLeaders"],
        "a second operator has a lease of its own; it ends"
    ),
    fault!(
        "malformed-requests",
        send_malformed_requests,
        end_malformed_requests,
        ["MczkWebhookErrors"],
        "a client sends the webhook what is no request of Karmada; it ends"
    ),
    fault!(
        "short-certificate",
        shorten_certificate,
        renew_certificate,
        ["MczkWebhookCertificateEnds"],
        "the webhook gets a certificate for a week; it gets one for a year"
    ),
    fault!(
        "rights-removed",
        remove_rights,
        restore_rights,
        ["MczkReconcilesFail"],
        "a user deletes the operator's rights, and images change; `mczk register` restores them"
    ),
    fault!(
        "agent-silent",
        silence_agent,
        restart_silent_agent,
        ["MczkRolloutWaits"],
        "the agent of m2 is killed, and an ensemble is created; the agent starts again"
    ),
    fault!(
        "foreign-incarnation",
        leave_former_incarnation,
        remove_former_incarnation,
        ["MczkAgentBlocked"],
        "an object of an unknown incarnation is in m1; it is deleted"
    ),
    fault!(
        "volume-full",
        fill_volumes,
        restore_servers,
        ["MczkVolumeFillsUp", "MczkDegraded"],
        "servers report a volume with 10 % left; they report an empty one"
    ),
    fault!(
        "volume-corrupt",
        corrupt_volumes,
        restore_servers,
        ["MczkVolumeUnusable"],
        "servers report that ZooKeeper cannot read its files; they report that it can"
    ),
    fault!(
        "unsafe-version",
        report_unsafe_version,
        restore_servers,
        ["MczkUnsafeVersion"],
        "servers report ZooKeeper 3.9.3; they report another version"
    ),
    fault!(
        "spare-unknown",
        request_unknown_spare,
        delete_waiting,
        ["MczkFailoverNotReady", "MczkMoveWaits"],
        "two ensembles have a spare that has not joined, and one shall move there; they are deleted"
    ),
    fault!(
        "voters-moved",
        move_voters,
        delete_moved,
        ["MczkVotersMoved"],
        "the voters of m1 move to m3; they go home, and their ensemble is deleted"
    ),
    fault!(
        "cluster-down",
        stop_cluster,
        start_cluster,
        [
            "MczkDegraded",
            "MczkQuorumAtRisk",
            "MczkQuorumNotSafe",
            "MczkRolloutStuck",
            "MczkNotReady",
            "MczkDeletionStuck"
        ],
        "the API server of m2 stops, an image changes, and an ensemble is deleted; it starts again"
    ),
    fault!(
        "two-clusters-down",
        stop_two_clusters,
        start_two_clusters,
        ["MczkQuorumLost"],
        "the API servers of m1 and m2 stop; they start again"
    ),
];

/// Alerts without a fault here. docs/explanation/testing.md has the reason for each.
pub const NOT_HERE: &[&str] = &[
    "MczkQuorumCertificateEnds",
    "MczkAgentReconcilesFail",
    "MczkServerNotServing",
    "MczkServerVolumeNearlyFull",
    "MczkServerCertificateEnds",
];

/// Plays the faults that `is_chosen`, in a federation of their own.
///
/// # Errors
/// The faults whose alerts did not fire or clear.
pub async fn run(is_chosen: impl Fn(&Fault) -> bool) -> Result<()> {
    let options = Options { agents: Some(Behaviour::default()), ..Options::default() };
    let federation = Federation::up(options).await?;
    let result = play(&federation, is_chosen).await;
    let folder = federation.folder.clone();
    federation.down(result.is_err()).await.context("cannot take the federation down")?;
    result.with_context(|| format!("the logs are in {}", folder.display()))
}

async fn play(federation: &Federation, is_chosen: impl Fn(&Fault) -> bool) -> Result<()> {
    federation.register().await?;
    federation.start_operator().await?;
    let mut stage = Stage::new(federation).await?;
    let mut failed = Vec::new();
    let chosen: Vec<&Fault> = AGENT_FAULTS.iter().filter(|fault| is_chosen(fault)).collect();
    if !chosen.is_empty() {
        stage.start_agent().await?;
        for fault in chosen {
            failed.extend(report(fault, one(&mut stage, fault).await));
        }
        stage.end_agents().await?;
    }
    let chosen: Vec<&Fault> = FAULTS.iter().filter(|fault| is_chosen(fault)).collect();
    if !chosen.is_empty() {
        stage.create_ensembles().await?;
        for fault in chosen {
            failed.extend(report(fault, one(&mut stage, fault).await));
        }
    }
    stage.end().await?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Plays a fault: its alerts are inactive, then fire, then are inactive again. Returns both times.
async fn one(stage: &mut Stage<'_>, fault: &Fault) -> Result<[Duration; 2]> {
    inactive(stage, fault).await.context("before the fault")?;
    let begun = Instant::now();
    let fired = match (fault.inject)(stage).await {
        Ok(()) => firing(stage, fault).await,
        Err(error) => Err(error.context("causing the fault")),
    };
    let until_firing = begun.elapsed();
    // Later faults need a whole federation.
    (fault.undo)(stage).await.context("ending the fault")?;
    fired?;
    let begun = Instant::now();
    inactive(stage, fault).await.context("after the fault")?;
    Ok([until_firing, begun.elapsed()])
}

async fn firing(stage: &Stage<'_>, fault: &Fault) -> Result<()> {
    // All at the same time: each one must fire, and need not fire for long.
    let each = fault.alerts.iter().map(async |alert| {
        wait_for(&format!("{alert} fires"), PATIENCE, || async {
            let firing = stage.prometheus.alerts(alert, "firing").await?;
            let pending = stage.prometheus.alerts(alert, "pending").await?;
            ensure!(firing > 0, "{pending} pending");
            Ok(())
        })
        .await
    });
    futures::future::try_join_all(each).await.map(drop)
}

async fn inactive(stage: &Stage<'_>, fault: &Fault) -> Result<()> {
    for alert in fault.alerts {
        wait_for(&format!("{alert} is inactive"), PATIENCE, || async {
            for state in ["firing", "pending"] {
                let count = stage.prometheus.alerts(alert, state).await?;
                if count > 0 {
                    bail!("{state}: {count}");
                }
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn report(fault: &Fault, result: Result<[Duration; 2]>) -> Option<&'static str> {
    let alerts = fault.alerts.join(", ");
    match result {
        Ok([fires, clears]) => {
            let (fires, clears) = (fires.as_secs_f64(), clears.as_secs_f64());
            println!("ok      {:22} fires after {fires:5.1} s, clears after {clears:5.1} s  {alerts}", fault.name);
            None
        }
        Err(error) => {
            println!("FAILED  {:22} {alerts}\n        {error:#}", fault.name);
            Some(fault.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_alert_of_the_charts_has_a_fault_or_stands_in_the_list_of_others() -> Result<()> {
        let mut declared = BTreeSet::new();
        for file in rules::FILES {
            declared.extend(rules::names(&rules::read(file)?));
        }
        let caused: BTreeSet<&str> =
            AGENT_FAULTS.iter().chain(FAULTS).flat_map(|fault| fault.alerts.iter().copied()).collect();
        let others: BTreeSet<&str> = NOT_HERE.iter().copied().collect();
        assert!(caused.is_disjoint(&others), "{caused:?} and {others:?}");
        let known: BTreeSet<String> = caused.union(&others).map(|name| (*name).to_owned()).collect();
        assert_eq!(known, declared);
        Ok(())
    }

    #[test]
    fn the_documentation_names_each_alert_without_a_fault() -> Result<()> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/testing.md");
        let page = std::fs::read_to_string(page)?;
        for alert in NOT_HERE {
            assert!(page.contains(&format!("| `{alert}`")), "{alert} has no reason");
        }
        Ok(())
    }
}

//! Causes each alert by a fault on a real Karmada federation without nodes, and waits until it fires and clears.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    alerts::{AGENT_FAULTS, FAULTS, Fault, NOT_HERE, run},
    interruption::until_interrupted,
};

/// Causes alerts by faults on a real Karmada federation, which it starts and takes down. A real Prometheus evaluates
/// the rules of the charts, with waits of seconds instead of minutes.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of faults. Default: all
    only: Vec<String>,
    /// List the faults, their alerts, and the alerts without a fault
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_chosen =
        |fault: &Fault| cli.only.is_empty() || cli.only.iter().any(|part| fault.name.contains(part.as_str()));
    let chosen = AGENT_FAULTS.iter().chain(FAULTS).filter(|fault| is_chosen(fault)).count();
    if cli.list || chosen == 0 {
        for fault in AGENT_FAULTS.iter().chain(FAULTS) {
            println!("{:22} {}\n{:22} {}", fault.name, fault.alerts.join(", "), "", fault.shows);
        }
        println!("without a fault: {}", NOT_HERE.join(", "));
        return ExitCode::from(u8::from(!cli.list));
    }
    println!(
        "make test-alerts-rig: {chosen} faults on a real Karmada federation with three member clusters, without nodes.\n\
         All of them take about 15 minutes. The first time, Karmada, Kubernetes and Prometheus are built before."
    );
    until_interrupted("alerts", run(is_chosen)).await
}
